"""Promises 1, 2 and 4 to 6 by the program's own audit: what the tables show. The other judges watch the wire.

The same tables show what retention would delete.
"""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, StaticPool, create_engine
from tests.sim.judge import Judge

from orderbridge.jobs.audit import audit
from orderbridge.store import retention

LOOK_EVERY = 20  # ticks
LATER = timedelta(days=1)
GOES_ON = (
    "SELECT id FROM delivery_actions WHERE state IN ('pending', 'sending')",
    "SELECT payment_key FROM delivery_orders WHERE ended_utc IS NULL",
    "SELECT id FROM delivery_quarantine WHERE resolved_utc IS NULL",
)


class AuditFindsNothing(Judge):
    """`orderbridge audit` over the tables, at the end."""

    def finish(self) -> None:
        engine = create_engine(f"sqlite:///{self.sim.path}")
        with engine.connect() as connection:
            result = audit(connection, self.sim.settings, datetime(2000, 1, 1, tzinfo=UTC))
        engine.dispose()
        for finding in result.findings:
            self.sim.violated(str(finding.promise), f"{finding}")


class RetentionKeeps(Judge):
    """Retention would delete nothing that goes on, also if all of it were old. It is tried in a copy."""

    promise = "contract"

    def __init__(self) -> None:
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % LOOK_EVERY or not self.rows("SELECT 1 FROM delivery_quarantine"):
            return
        with closing(sqlite3.connect(":memory:", check_same_thread=False)) as copy:
            with closing(sqlite3.connect(self.sim.path)) as file:
                file.backup(copy)
            for (guard,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                copy.execute(f"DROP TRIGGER {guard}")  # they admit only the daemon's connections
            with create_engine("sqlite://", creator=lambda: copy, poolclass=StaticPool).begin() as connection:
                before = _rows(connection)
                self._delete(connection, self.sim.clock.now() + LATER)
                if gone := sorted(before - _rows(connection), key=str):
                    self.broken(f"retention would delete what goes on: {gone}")

    def _delete(self, connection: Connection, late: datetime) -> None:
        retention.delete_actions(connection, retention.old_actions(connection, late), before=late)
        retention.delete_orders(connection, retention.old_orders(connection, late), before=late)
        retention.delete_documents(connection, late)


def _rows(connection: Connection) -> set[object]:
    return {row[0] for query in GOES_ON for row in connection.exec_driver_sql(query)}
