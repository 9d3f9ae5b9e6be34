"""A database after years of use: almost all its orders have ended."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Table
from tests.store.samples import NOW, key

from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text
from orderbridge.store.tables import accounts, actions, attempts, events, items, options, orders, quarantine

OPEN, NEW, BEHIND, UNFINISHED = 30, 10, 10, 15
FINGERPRINT = "f" * 64
ROWS_AT_ONCE = 1000


def fill(database: Database, number: int) -> None:
    """Write `number` orders, each with a row, the newest ones open. Then refresh the database's statistics."""
    numbers = range(number)
    if database.dialect.one_writer:  # a POS may not insert finished rows
        database.write_now(lambda tx: tx.exec_driver_sql("DROP TRIGGER delivery_actions_insert"))
    _write(database, orders, (_order(n, number) for n in numbers))
    _write(database, items, ({"payment_key": key(n), "line_no": 1, "name": "Dürüm", "price": 9} for n in numbers))
    _write(database, options, ({"payment_key": key(n), "line_no": 1, "option_no": 1, "price": 1} for n in numbers))
    _write(database, events, ({"payment_key": key(n), "at_utc": _at(n, number), "event": "x"} for n in numbers))
    _write(database, actions, (_action(n, number) for n in numbers))
    request = {"attempt": 1, "started_utc": NOW, "finished_utc": NOW, "outcome": "ok"}
    _write(database, attempts, ({"action_id": n + 1, **request} for n in numbers))
    _write(database, quarantine, (_document(n) for n in range(0, number, 10)))
    _write(database, accounts, [{"fingerprint": FINGERPRINT, "name": "kadikoy"}])
    _analyze(database)


def _write(database: Database, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    """Many rows in one statement: one by one, a server takes minutes for a million."""
    mark = "?" if database.dialect.one_writer else "%s"
    left = iter(rows)
    while some := list(islice(left, ROWS_AT_ONCE)):
        names = list(some[0])
        one = f"({', '.join([mark] * len(names))})"
        values = tuple(_plain(database, row[name]) for row in some for name in names)
        statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES {', '.join([one] * len(some))}"
        database.write_now(lambda tx, statement=statement, values=values: tx.exec_driver_sql(statement, values))


def _plain(database: Database, value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return time_text(value) if database.dialect.one_writer else value.replace(tzinfo=None)


def _at(n: int, number: int) -> datetime:
    """The last order is of today, the first two years old."""
    return NOW - timedelta(days=730) * ((number - n) / number)


def _order(n: int, number: int) -> dict[str, Any]:
    at, from_end = _at(n, number), number - n
    still_open = from_end <= OPEN
    return {
        "payment_key": key(n), "account": "kadikoy", "restaurant_id": key(1), "received_utc": at, "changed_utc": at,
        "status_id": 1 if still_open else 5, "status": "RECEIVED" if still_open else "COMPLETE_WITH_PAYMENT",
        "customer_name": None if from_end > number // 8 else "Ayşe Yılmaz",
        "payload": None if from_end > number // 8 else '{"id": 100234}', "revision": 2,
        "pos_revision": 0 if from_end <= NEW else 1 if from_end <= NEW + BEHIND else 2,
        "ended_utc": None if still_open else at, "ended_by": None if still_open else "completed",
    }  # fmt: skip


def _action(n: int, number: int) -> dict[str, Any]:
    is_unfinished = number - n <= UNFINISHED
    return {
        "id": n + 1, "action": "complete", "payment_key": key(n), "request_id": key(n), "created_utc": _at(n, number),
        "state": ("sending" if n % 3 == 0 else "pending") if is_unfinished else "done",
    }  # fmt: skip


def _document(n: int) -> dict[str, Any]:
    return {
        "account": "kadikoy", "payment_key": key(n), "payload": "{}", "payload_hash": f"{n:064x}",
        "reason": "database_refused", "first_seen_utc": NOW, "last_seen_utc": NOW, "resolved_utc": NOW if n else None,
    }  # fmt: skip


def _analyze(database: Database) -> None:
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if database.engine.dialect.name in {"mysql", "mariadb"}:
            for table in (orders, items, options, events, actions, attempts, quarantine):
                connection.exec_driver_sql(f"ANALYZE TABLE {table.name}")
        elif database.dialect.one_writer:
            connection.exec_driver_sql("ANALYZE")
        else:
            connection.exec_driver_sql("VACUUM ANALYZE")


def keys(number: int, many: int) -> Iterator[str]:
    return (key(n) for n in range(0, number, max(number // many, 1)))
