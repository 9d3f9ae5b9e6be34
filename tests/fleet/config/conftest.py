"""Configurations as in the tests of the core."""

from tests.config.conftest import machine, write  # noqa: F401 - fixtures
