"""The command line. Results go to stdout, messages to stderr; exit codes are those of docs/design.md, Exit codes.

Each command imports what it needs when it runs, which keeps `--help` and short commands fast.
"""

from orderbridge.cli.main import main

__all__ = ["main"]
