"""A restaurant in virtual time, as in the tests of the jobs."""

from tests.jobs.conftest import clock, empty_file, open_shop, pytest_asyncio_loop_factories, world

__all__ = ["clock", "empty_file", "open_shop", "pytest_asyncio_loop_factories", "world"]
