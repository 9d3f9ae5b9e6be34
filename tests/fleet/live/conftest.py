"""The real program as a process, against the sandbox over TLS."""

from tests.test_daemon import certificates, configuration, sandbox, till, world  # noqa: F401 - fixtures
