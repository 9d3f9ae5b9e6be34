"""Configurations as the tests of all of it write them."""

from tests.config.conftest import machine, write

__all__ = ["machine", "write"]
