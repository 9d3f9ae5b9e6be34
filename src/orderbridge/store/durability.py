"""Whether what is committed is on disk once the commit returns (promise 1), and what a failover would lose.

It is asked with each poll's note, and in each transaction whose orders are acknowledged afterwards: a server is changed
while it runs. Both edges are told; as long as a commit may be lost, nothing is acknowledged.
"""

import threading

import structlog
from sqlalchemy import Connection

from orderbridge.store.dialects import of
from orderbridge.store.dialects.face import Failover

_log = structlog.get_logger(__name__)


class Durability:
    """`remedy`: why nothing may be acknowledged now, and what to change; None: all is well, or not asked yet."""

    def __init__(self, *, accept_unsafe: bool = False) -> None:
        self._accept_unsafe = accept_unsafe
        self._guard = threading.Lock()
        self._undone = False
        self.remedy: str | None = None

    def ask(self, connection: Connection) -> None:
        """Ask, remember, and tell what has changed."""
        remedy = self.judge(connection)
        with self._guard:
            before, self.remedy = self.remedy, remedy
        if remedy is not None and remedy != before:
            _log.error("database.unsafe_durability", remedy=remedy)
        elif remedy is None and before is not None:
            _log.info("database.safe_durability")

    def judge(self, connection: Connection) -> str | None:
        """What to change, or None. A PostgreSQL that does not write to disk is accepted by nobody's name."""
        dialect = of(connection.dialect.name)
        if self._accept_unsafe and not dialect.unsafe_is_refused:
            return None
        remedy, undone = dialect.durability(connection)
        if undone is not None and not self._undone:
            _log.warning("database.session_changed", remedy=undone)
        self._undone = undone is not None
        return remedy


def failover(connection: Connection) -> Failover | None:
    """What one would do to acknowledged orders, as far as this server tells; None: there is no other server."""
    return of(connection.dialect.name).failover(connection)
