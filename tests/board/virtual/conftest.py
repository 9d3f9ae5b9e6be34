"""A board beside a daemon, in virtual time."""

from tests.jobs.conftest import clock, open_shop, pytest_asyncio_loop_factories, shop, world

__all__ = ["clock", "open_shop", "pytest_asyncio_loop_factories", "shop", "world"]
