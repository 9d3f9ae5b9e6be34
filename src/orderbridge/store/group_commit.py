"""Many things in one transaction, and each in its own when one of them is to blame (promise 7)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from orderbridge.errors import Over
from orderbridge.store.database import Database
from orderbridge.store.failures import is_busy, is_refusal

_log = structlog.get_logger(__name__)

Thing = TypeVar("Thing")
Written = TypeVar("Written")


async def write_batch(
    database: Database,
    work: Callable[[Connection, Sequence[Thing]], Sequence[Written]],
    things: Sequence[Thing],
    *,
    urgent: bool = False,
) -> tuple[list[Written], list[tuple[Thing, Exception]]]:
    """What `work` says that it wrote, and each thing that failed alone, with its error."""
    if not things:
        return [], []
    try:
        return list(await database.run(lambda tx: work(tx, things), urgent=urgent)), []
    except Over:  # it concerns the daemon, which ends
        raise
    except Exception as error:  # noqa: BLE001 - whose it is shows when each is written alone
        if concerns_all(database, error):
            return [], []
    written: list[Written] = []
    failed: list[tuple[Thing, Exception]] = []
    for thing in things:
        try:
            written += await database.run(lambda tx, thing=thing: work(tx, [thing]), urgent=urgent)  # type: ignore[misc]
        except Over:
            raise
        except Exception as error:  # noqa: BLE001 - the others need not wait
            if concerns_all(database, error):
                break
            if not isinstance(error, DBAPIError):
                _log.exception("batch.crashed")
            failed.append((thing, error))
    return written, failed


def concerns_all(database: Database, error: Exception) -> bool:
    """A server that is away, a SQLite file that somebody holds: each thing alone would wait as long again."""
    if not isinstance(error, DBAPIError) or is_refusal(error):
        return False
    connecting = isinstance(error, OperationalError) and error.statement is None
    return connecting or error.connection_invalidated or (database.dialect.one_writer and is_busy(error))
