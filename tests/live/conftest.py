"""The real daemon as a process, with the sandbox over TLS and a till on the same SQLite file."""

from tests.test_daemon import certificates, configuration, sandbox, till, world

__all__ = ["certificates", "configuration", "sandbox", "till", "world"]
