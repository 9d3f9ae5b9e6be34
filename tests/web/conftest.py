"""The daemon and what stands around it."""

from tests.test_daemon import certificates, configuration, sandbox, till, world

__all__ = ["certificates", "configuration", "sandbox", "till", "world"]
