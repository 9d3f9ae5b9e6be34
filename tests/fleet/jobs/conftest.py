"""A restaurant in virtual time, as in the tests of the jobs."""

from tests.jobs.conftest import clock, open_shop, pytest_asyncio_loop_factories, world  # noqa: F401 - fixtures
