"""A board beside a daemon, in virtual time."""

from tests.jobs.conftest import clock, empty_file, open_shop, pytest_asyncio_loop_factories, shop, world

__all__ = ["clock", "empty_file", "open_shop", "pytest_asyncio_loop_factories", "shop", "world"]
