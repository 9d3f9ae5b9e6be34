"""A commit that no standby has confirmed has failed, whatever the server says.

Whoever cancels a COMMIT that waits for a synchronous standby (an operator, a statement_timeout) ends the wait only: the
server warns, and then reports success. After a failover what was written would be gone, so it must not be acknowledged.
What is committed later waits for a standby again, and a standby has everything in the order in which it was written.
"""

from functools import partial
from typing import Any
from weakref import WeakSet, ref

from sqlalchemy import Engine, event

UNCONFIRMED = "SyncRepWaitForLSN"  # where in the server the warning comes from: its words are in the server's language


def refuse_unconfirmed(engine: Engine) -> None:
    """Of psycopg. Such a commit raises its OperationalError."""
    unconfirmed: WeakSet[Any] = WeakSet()
    commit = engine.dialect.do_commit

    def listen(connection: Any, _: Any) -> None:
        connection.add_notice_handler(partial(_notice, ref(connection), unconfirmed))

    def do_commit(connection: Any) -> None:
        commit(connection)
        session = connection.driver_connection
        if session in unconfirmed:
            unconfirmed.discard(session)
            raise engine.dialect.loaded_dbapi.OperationalError(UNCONFIRMED)

    event.listen(engine, "connect", listen)
    setattr(engine.dialect, "do_commit", do_commit)  # noqa: B010 - of this engine alone


def _notice(session: "ref[Any]", unconfirmed: "WeakSet[Any]", diagnostic: Any) -> None:
    if diagnostic.source_function == UNCONFIRMED and (connection := session()) is not None:
        unconfirmed.add(connection)
