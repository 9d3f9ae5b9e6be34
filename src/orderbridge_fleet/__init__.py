"""Many branches: their accounts in the database, and several replicas of the daemon that share them.

Imported where `[fleet] accounts = "database"` is configured.
"""

from typing import ClassVar

from orderbridge.extension import Extension


class Fleet(Extension):
    """The fleet's part of one process."""

    commands: ClassVar = {"accounts": "orderbridge_fleet.cli.accounts"}
    probes = "orderbridge_fleet.cli.check"
