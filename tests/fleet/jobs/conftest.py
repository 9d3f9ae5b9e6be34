"""A shop in virtual time, as the jobs' tests have it."""

from tests.jobs.conftest import clock, empty_file, open_shop, pytest_asyncio_loop_factories, world

__all__ = ["clock", "empty_file", "open_shop", "pytest_asyncio_loop_factories", "world"]
