"""Runs commands as the tests of the other commands do."""

from tests.cli.conftest import command, config_file, configure, logging_as_it_was, machine, path, pos, run

__all__ = ["command", "config_file", "configure", "logging_as_it_was", "machine", "path", "pos", "run"]
