"""Orders and outbox rows as the database knows them, and reading a file as a POS does."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from sqlalchemy import make_url

from orderbridge.document import Facts, Item, Option
from orderbridge.model import ActionState, Arrival, KnownBy, NewStatus, Order, Stored, Verdict
from orderbridge.rules.lifecycle import Statuses, new_status
from orderbridge.store.ddl import time_text

KEY = "0b7e1c52-6f0d-4c1e-9a55-3d2f8e6a7b10"
OTHER = "5f3c2a10-7d4e-4b8a-8c21-9e0f1a2b3c4d"
RESTAURANT = "77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33"
NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC)
NOW_TEXT = "2026-03-01 12:00:00.250"
LATER = NOW + timedelta(minutes=5)
LATER_TEXT = "2026-03-01 12:05:00.250"
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}")

Row = dict[str, Any]

NEEDED: dict[str, Row] = {
    "accept": {"payment_key": KEY, "preparing_time": 25}, "on_the_way": {"payment_key": KEY},
    "complete": {"payment_key": KEY}, "cancel": {"payment_key": KEY, "reason_id": 1},
    "open_restaurant": {"restaurant_id": RESTAURANT}, "close_restaurant": {"restaurant_id": RESTAURANT},
    "activate_food": {"food_id": 55}, "deactivate_food": {"food_id": 55},
}  # fmt: skip
BUSY_S = 60.0  # a driver's default of 5 s is too short on a busy machine where several programs write
NOT_NULL = "NOT NULL|not-null|cannot be null|doesn't have a default"
TWICE = "UNIQUE constraint failed|duplicate key|Duplicate entry"
# A server's errors for a value that does not fit its column: the type refuses what a CHECK refuses on SQLite.
UNFIT = "invalid input syntax|out of range|[Ii]ncorrect|too long|Truncated|can not be used|is of type|contain NUL"
DAEMONS = set("state attempts next_attempt_utc expires_utc http_status error_code error_text known_by".split())
DAEMONS |= {"finished_utc", "until_utc"}  # columns of delivery_actions
SESSION = {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}
_END = {"postgresql": "SELECT pg_terminate_backend(?, 60000)", "mariadb": "KILL ?"}
_THERE = {"postgresql": "SELECT 1 FROM pg_stat_activity WHERE pid = ?"}
_THERE["mariadb"] = "SELECT 1 FROM information_schema.processlist WHERE id = ?"


def key(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def at(second: float) -> str:
    """The time this number of seconds after NOW, as the tables store it."""
    return time_text(NOW + timedelta(seconds=second))


def option(**changes: Any) -> Option:
    values: dict[str, Any] = {
        "group_id": 3, "group_name": "İçecek", "type": "multi", "operation": "+", "option_id": 7,
        "option_name": "Ayran", "price": Decimal("15.00"),
    }  # fmt: skip
    return Option(**values | changes)


def item(**changes: Any) -> Item:
    values: dict[str, Any] = {
        "item_id": "9a3e6f7c", "food_id": 55, "name": "Adana Dürüm", "note": "acısız", "price": Decimal("110.25"),
        "quantity": 2, "total": Decimal("235.50"), "options": (option(),),
    }  # fmt: skip
    return Item(**values | changes)


def facts(**changes: Any) -> Facts:
    values: dict[str, Any] = {
        "order_number": 100234, "restaurant_id": RESTAURANT, "restaurant_name": "Kadıköy",
        "shipping_method": "delivery", "payment_method": "Nakit", "payment_code": "CASH",
        "amount_due": Decimal("235.50"), "note": "Zile basmayın", "total": Decimal("235.50"),
        "discount": Decimal("10.00"), "courier_type": "restaurant", "courier_fee": Decimal(0),
        "order_tip": Decimal(5), "ordered_at": "2026-03-01 15:00:00", "scheduled_for": None,
        "customer_name": "Ayşe Yılmaz", "customer_phone": "+905550001122", "address": "Moda Caddesi",
        "address_description": "mavi kapı", "apartment_no": "4", "building_no": "12", "neighborhood_name": "Caferağa",
        "district_name": "Kadıköy", "city_name": "İstanbul", "items": (item(),),
    }  # fmt: skip
    return Facts(**values | changes)


def order(payment_key: str = KEY, status_id: int | None = 1, **changes: Any) -> Order:
    values: dict[str, Any] = {
        "payment_key": payment_key, "status_id": status_id, "status_text": "Onay Bekliyor", "facts": facts(),
        "problems": (), "raw": b'{"id": 100234}', "digest": "d1",
    }  # fmt: skip
    return Order(**values | changes)


def arrival(payment_key=KEY, status_id: int | None = 1, *, status="RECEIVED", ended_by=None, **changes) -> Arrival:
    return Arrival(order(payment_key, status_id, **changes), status, ended_by)


def became(known: Stored, status_id: int, *, shown: bool = True) -> tuple[str, NewStatus]:
    """Write the status that a verdict gives a stored order. `shown`: the service itself has shown it."""
    known_by = KnownBy.ANSWER if shown else KnownBy.REFUSAL
    new = new_status(Verdict(ActionState.DONE, None, known_by, status_id), known, Statuses())
    assert new is not None
    return known.payment_key, new


def hold_open(path: Path) -> None:
    """Let every connection write the daemon's columns, for a test that plants rows."""
    with opened(path) as pos:
        pos.execute("PRAGMA synchronous = OFF")  # no power is cut, and a flush takes longer than most tests
        pos.execute("UPDATE delivery_guard SET open = open + 1")


@contextmanager
def in_its_place(pos: "AnyPos") -> Iterator[None]:
    """Write in place of the daemon: as in its transactions, SQLite's guard is open."""
    has_guard = not isinstance(pos, Pos) or pos.kind == "sqlite"
    if has_guard:
        pos.execute("UPDATE delivery_guard SET open = open + 1")
    yield
    if has_guard:
        pos.execute("UPDATE delivery_guard SET open = open - 1")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as a POS driver makes it: nothing set, each statement committed at once."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
    connection.row_factory = sqlite3.Row
    try:
        yield connection
    finally:
        connection.close()


class Refused(Exception):
    """The database refused what a POS wrote. The message is the database's own."""


class Pos:
    """A POS: a stock driver that sets nothing, each statement committed at once; `?` marks a value, as on SQLite."""

    def __init__(self, kind: str, connection: Any) -> None:
        self.kind = kind
        self._connection = connection

    @classmethod
    @contextmanager
    def at(cls, url: str) -> Iterator["Pos"]:
        parsed = make_url(url)
        kind = {"mysql": "mariadb"}.get(parsed.get_backend_name(), parsed.get_backend_name())
        match kind:
            case "sqlite":
                connection: Any = sqlite3.connect(parsed.database or "", isolation_level=None, timeout=BUSY_S)
            case "postgresql":
                # A till on the server's own connection string, in whose session nothing is set.
                plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
                connection = psycopg.connect(plain, autocommit=True)
            case _:
                connection = pymysql.connect(
                    host=parsed.host, port=parsed.port or 3306, unix_socket=parsed.query.get("unix_socket"),
                    user=parsed.username, password=str(parsed.password or ""), database=parsed.database,
                    autocommit=True,
                )  # fmt: skip
        try:
            yield cls(kind, connection)
        finally:
            connection.close()

    def execute(self, sql: str, values: Sequence[object] = ()) -> Any:
        """Execute a statement. Raises Refused if the database refuses it."""
        if self.kind != "sqlite":
            sql = sql.replace("BEGIN IMMEDIATE", "BEGIN")
            if values:
                sql = sql.replace("%", "%%").replace("?", "%s")
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, values or None) if self.kind != "sqlite" else cursor.execute(sql, values)
        except (sqlite3.IntegrityError, psycopg.IntegrityError, psycopg.DataError, pymysql.err.Error) as error:
            raise Refused(str(error)) from error
        except (psycopg.errors.DatatypeMismatch, psycopg.errors.InsufficientPrivilege) as error:
            raise Refused(str(error)) from error
        return cursor


AnyPos = Pos | sqlite3.Connection


def rows(pos: AnyPos, query: str, *values: object) -> list[Row]:
    """The rows of a SELECT, with times as texts in SQLite's form."""
    cursor = pos.execute(query, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]


def _plain(cell: object) -> object:
    return f"{cell:%Y-%m-%d %H:%M:%S}.{cell.microsecond // 1000:03d}" if isinstance(cell, datetime) else cell


def one(pos: AnyPos, query: str, *values: object) -> Row:
    (row,) = rows(pos, query, *values)
    return row


def put(pos: AnyPos, table: str, **values: object) -> int:
    """INSERT as a POS writes it. Returns the row's id."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"
    if isinstance(pos, Pos) and pos.kind == "postgresql":
        has_id = table in {"delivery_actions", "delivery_quarantine", "delivery_order_events"}
        cursor = pos.execute(insert + (" RETURNING id" if has_id else ""), tuple(values.values()))
        return cursor.fetchone()[0] if has_id else 0
    return pos.execute(insert, tuple(values.values())).lastrowid or 0


def put_order(pos: AnyPos, payment_key: str = KEY, **changes: object) -> str:
    """Insert an order with only the required columns."""
    values: Row = {"account": "kadikoy", "status": "RECEIVED", "received_utc": NOW_TEXT, "changed_utc": NOW_TEXT}
    put(pos, "delivery_orders", payment_key=payment_key, **values | changes)
    return payment_key


def put_orders(pos: AnyPos, *changes: Row, **usual: object) -> None:
    """Insert an order for each set of columns, with the keys of the numbers from 0 on."""
    for number, columns in enumerate(changes):
        put_order(pos, key(number), **usual | columns)


def put_action(pos: AnyPos, action: str = "accept", **changes: object) -> int:
    """Insert a valid outbox row, with the arguments of its action; then write the daemon's columns."""
    values = NEEDED.get(action, {}) | changes
    theirs = {column: values.pop(column) for column in sorted(DAEMONS & values.keys())}
    row_id = put(pos, "delivery_actions", action=action, **values)
    if theirs:
        changed = ", ".join(f"{column} = ?" for column in theirs)
        pos.execute(f"UPDATE delivery_actions SET {changed} WHERE id = ?", (*theirs.values(), row_id))
    return row_id


def put_document(pos: AnyPos, **changes: object) -> int:
    document = {"account": "kadikoy", "payload": "?", "payload_hash": "d", "reason": "not_json"}
    times = {"first_seen_utc": NOW_TEXT, "last_seen_utc": NOW_TEXT}
    return put(pos, "delivery_quarantine", **document | times | changes)


def order_row(pos: AnyPos, payment_key: str = KEY) -> Row:
    return one(pos, "SELECT * FROM delivery_orders WHERE payment_key = ?", payment_key)


def action_row(pos: AnyPos, row_id: int) -> Row:
    return one(pos, "SELECT * FROM delivery_actions WHERE id = ?", row_id)


def difference(before: Row, after: Row) -> set[str]:
    return {column for column in before if before[column] != after[column]}


def end_session(pos: Pos, session: int) -> None:
    """End a session of the server. Returns when it is gone."""
    pos.execute(_END[pos.kind], (session,))
    while pos.execute(_THERE[pos.kind], (session,)).fetchall():
        pass
