"""Fleets of many branches: accounts in the database, shared among several replicas of the daemon.

Imported only if `[fleet] accounts = "database"` is configured.
"""

from typing import TYPE_CHECKING, ClassVar

from orderbridge.extension import Extension
from orderbridge.texts import SENTENCES

if TYPE_CHECKING:
    from orderbridge.config import Settings
    from orderbridge_fleet.replica import Replica

SENTENCES.add(__name__)


class Fleet(Extension):
    """The fleet's part of one process."""

    commands: ClassVar = {"accounts": "orderbridge_fleet.cli.accounts"}
    options: ClassVar = {"status": "orderbridge_fleet.cli.branches"}
    probes = "orderbridge_fleet.cli.check"

    def roster(self, settings: "Settings") -> "Replica":
        """The accounts of the buckets that this replica holds."""
        from orderbridge_fleet.replica import Replica  # noqa: PLC0415 - the commands need none of it

        return Replica(settings)
