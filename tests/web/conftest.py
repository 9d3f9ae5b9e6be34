"""The daemon and the files that are shipped with it."""

from tests.test_daemon import certificates, configuration, sandbox, till, world

__all__ = ["certificates", "configuration", "sandbox", "till", "world"]
