"""Measures the storing of one get-current answer, from the body's bytes to the return of the last COMMIT.

It is compared with the bare driver, which upserts the same values of the same orders into three tables of its own, in
one transaction, by executemany (SQLite, MariaDB) or by COPY and merge (PostgreSQL). It is also compared with one
`json.loads` of the body, the least that an unchanged list can take. `first`: empty tables. `again`: the same bytes.
`some`: 1 % with another status.

Of orderbridge, `read_listing(body)` and `Intake.take(documents, …)` are timed. Acknowledgements are not, because the
bare driver sends none.
"""

import asyncio
import json
import sqlite3
import statistics
import time
import uuid
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, create_engine, make_url

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.context import Context
from orderbridge.jobs.intake import Intake
from orderbridge.marketplace import documents as listing
from orderbridge.marketplace.documents import Seen, read_listing
from orderbridge.store import schema
from orderbridge.store.database import Database

STATES = ("first", "again", "some")
WORDS = ("Zili çalmayın lütfen.", "", "Acısız olsun, ekmek fazla.", "Kapıya bırakın, teşekkürler!")
FOODS = ("Adana Dürüm", "Lahmacun", "İskender", "Kaşarlı Pide", "Mercimek Çorbası", "Şalgam")

Once = Callable[[bytes], float]
"""Store a body, and return the seconds that it took."""


def orders(number: int) -> list[dict[str, Any]]:
    """Reproducible orders of three lines with two options each."""
    random = Random(1)

    def key() -> str:
        return str(uuid.UUID(int=random.getrandbits(128), version=4))

    restaurant, made = key(), []
    for order in range(number):
        foods = []
        for _ in range(3):
            price, quantity = random.randrange(4500, 42000) / 100, random.randint(1, 4)
            chosen = [random.choice((0, 12.5, 25)) for _ in range(2)]
            groups = [
                {
                    "id": 700 + place,
                    "name": "Ekstra Malzeme",
                    "type": "multi",
                    "operation": "+",
                    "options": {"id": random.randint(9000, 9999), "name": "Közlenmiş Biber", "price": extra},
                }
                for place, extra in enumerate(chosen)
            ]
            foods.append(
                {
                    "id": key(),
                    "food_id": random.randint(10000, 19999),
                    "name": random.choice(FOODS),
                    "note": random.choice(WORDS),
                    "price": price,
                    "quantity": quantity,
                    "total": round((price + sum(chosen)) * quantity, 2),
                    "option_groups": groups,
                }
            )
        made.append(
            {
                "id": 4_000_000 + order,
                "payment_key": key(),
                "status_id": 1,
                "status_text": "Yeni Sipariş",
                "shipping_method": "delivery",
                "payment_method": "Nakit",
                "note": random.choice(WORDS),
                "total": round(sum(food["total"] for food in foods), 2),
                "discount": "0.00",
                "date": "2026-03-01 12:00:00",
                "restaurant_id": restaurant,
                "restaurant_name": "Köşebaşı",
                "courier_type": "restaurant",
                "courier_fee": 39.9,
                "scheduled_date": "",
                "order_tip": 0,
                "customer": {"name": "Gülşah Öztürk", "phone": "+905550000000"},
                "address": {
                    "address": "Gülbahçe Sokak",
                    "description": random.choice(WORDS),
                    "apartment_no": "4",
                    "building_no": "12",
                    "neighborhood_name": "Kuzguncuk",
                    "district_name": "Üsküdar",
                    "city_name": "İstanbul",
                },
                "foods": foods,
            }
        )
    return made


def body(listed: list[dict[str, Any]]) -> bytes:
    return json.dumps({"status": True, "data": listed}, ensure_ascii=False).encode()


# ---- the bare driver -------------------------------------------------------------------------------------------------

TABLES = {
    "bare_orders": (["payment_key"], ["number", "status_id", *(f"text{n}" for n in range(20)), "total", "tip"]),
    "bare_items": (["payment_key", "line"], ["item", "food_id", "name", "note", "price", "quantity", "total"]),
    "bare_options": (
        ["payment_key", "line", "place"],
        ["group_id", "group_name", "kind", "operation", "option_id", "option_name", "price"],
    ),
}
_NUMBERS = {"number", "status_id", "food_id", "quantity", "group_id", "option_id", "line", "place"}
_AMOUNTS = {"total", "tip", "price"}


def rows_of(listed: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
    """The same values as tuples, one list for each table."""
    stored, items, options = [], [], []
    for one in listed:
        key, who, where = one["payment_key"], one["customer"], one["address"]
        texts = [one[name] for name in ("status_text", "shipping_method", "payment_method", "note", "discount", "date")]
        texts += [one[name] for name in ("restaurant_id", "restaurant_name", "courier_type", "scheduled_date")]
        texts += [str(one["courier_fee"]), *who.values(), *where.values()]
        stored.append((key, one["id"], one["status_id"], *texts, one["total"], one["order_tip"]))
        for line, food in enumerate(one["foods"]):
            plain = [food[name] for name in ("id", "food_id", "name", "note", "price", "quantity", "total")]
            items.append((key, line, *plain))
            for place, group in enumerate(food["option_groups"]):
                of_group = [group[name] for name in ("id", "name", "type", "operation")]
                options.append((key, line, place, *of_group, *group["options"].values()))
    return [stored, items, options]


def _make(connection: Connection) -> None:
    texts = "VARCHAR(255)" if connection.dialect.name == "mysql" else "TEXT"
    for table, (keys, others) in TABLES.items():
        types = {
            name: "VARCHAR(36)"
            if name == "payment_key"
            else "BIGINT"
            if name in _NUMBERS
            else "DOUBLE PRECISION"
            if name in _AMOUNTS
            else texts
            for name in [*keys, *others]
        }
        columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
        connection.exec_driver_sql(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(keys)}))")


def _upsert(table: str, source: str, kind: str) -> str:
    keys, others = TABLES[table]
    named = f"INSERT INTO {table} ({', '.join([*keys, *others])}) {source} "
    if kind == "mysql":
        return named + "ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in others)
    changed = ", ".join(f"{name} = excluded.{name}" for name in others)
    return named + f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}"


def _copy_and_merge(cursor: Any, lists: list[list[tuple[Any, ...]]]) -> None:
    for (table, (keys, others)), rows in zip(TABLES.items(), lists, strict=True):
        columns = ", ".join([*keys, *others])
        cursor.execute(f"CREATE TEMP TABLE IF NOT EXISTS new_{table} (LIKE {table}) ON COMMIT DELETE ROWS")
        with cursor.copy(f"COPY new_{table} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        cursor.execute(_upsert(table, f"SELECT {columns} FROM new_{table} WHERE true", "postgresql"))


class Bare:
    """Stores a list of orders with the database driver alone."""

    def __init__(self, url: str) -> None:
        engine = create_engine(url)
        with engine.begin() as connection:
            _make(connection)
        self._kind = engine.dialect.name
        engine.dispose()
        if self._kind == "sqlite":
            self._connection: Any = sqlite3.connect(make_url(url).database or "", isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        else:
            self._connection = engine.raw_connection().driver_connection

    def __call__(self, raw: bytes) -> float:
        began = time.perf_counter()
        lists = rows_of(json.loads(raw)["data"])
        cursor = self._connection.cursor()
        if self._kind == "sqlite":
            cursor.execute("BEGIN IMMEDIATE")
        if self._kind == "postgresql":
            _copy_and_merge(cursor, lists)
        else:
            mark = "?" if self._kind == "sqlite" else "%s"
            for (table, (keys, others)), rows in zip(TABLES.items(), lists, strict=True):
                marks = ", ".join([mark] * (len(keys) + len(others)))
                cursor.executemany(_upsert(table, f"VALUES ({marks})", self._kind), rows)
        self._connection.commit()
        return time.perf_counter() - began

    def wipe(self) -> None:
        cursor = self._connection.cursor()
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table}")
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


# ---- orderbridge -----------------------------------------------------------------------------------------------------


class Ours:
    """Stores a list of orders with the daemon's intake, for an account that acknowledges nothing."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._database = Database(url)
        self._loop.run_until_complete(self._database.run(schema.upgrade))
        settings = SimpleNamespace(auto_accept=lambda *_: None, auto_accept_scheduled=False, limits={})
        account: Any = SimpleNamespace(name="bench", client=None, settings=settings)
        configured = config.Settings(
            marketplace={"base_url": "https://sandbox.test", "timezone": "UTC", "list_limit": 1_000_000},
            database={"url": url},
            accounts=[{"name": "bench", "app_secret_key": "a", "rest_secret_key": "b"}],
            orders={"late_minutes": 0},
        )
        context = Context.of(configured, self._database, SystemClock())
        self._clock, self._lanes = context.clock, context.lanes
        self._intake = Intake(account, context, ("bench",))
        acknowledger: Any = self._intake.acknowledger  # only the storing is measured
        acknowledger.start = lambda answer, written: acknowledger.release(
            answer, {order.payment_key for order in written}
        )

    def __call__(self, raw: bytes) -> float:
        return self._loop.run_until_complete(self._take_in(raw))

    async def _take_in(self, raw: bytes) -> float:
        began = time.perf_counter()
        documents, poll = read_listing(raw), self._lanes.begin_poll()
        await self._intake.take(documents, poll, self._clock.monotonic(), Polled())
        self._lanes.end_poll(poll)
        return time.perf_counter() - began

    def wipe(self) -> None:
        listing._SEEN = Seen()  # noqa: SLF001 - a daemon that starts has seen nothing, either
        tables = ("order_item_options", "order_items", "order_events", "orders")
        self._database.write_now(lambda tx: [tx.exec_driver_sql(f"DELETE FROM delivery_{table}") for table in tables])

    def close(self) -> None:
        self._database.close()
        self._loop.close()


# ---- all of them -----------------------------------------------------------------------------------------------------


def measure(takers: dict[str, Bare | Ours], rounds: int, number: int = 1000) -> dict[str, dict[str, float]]:
    """The median seconds of each of `takers` in each state. They alternate, and the first round is a warm-up."""
    listed = orders(number)
    first = body(listed)
    for one in listed[::100]:
        one["status_id"], one["status_text"] = 2, "Hazırlanıyor"
    bodies = dict(zip(STATES, (first, first, body(listed)), strict=True))
    found: dict[str, dict[str, list[float]]] = {name: {state: [] for state in STATES} for name in takers}
    for number_of_round in range(rounds + 1):
        for name, take in takers.items():
            take.wipe()
            for state, raw in bodies.items():
                spent = take(raw)
                if number_of_round:
                    found[name][state].append(spent)
    parsing = []
    for _ in range(7):
        began = time.perf_counter()
        json.loads(first)
        parsing.append(time.perf_counter() - began)
    medians = {name: {state: statistics.median(s) for state, s in states.items()} for name, states in found.items()}
    return medians | {"json.loads": dict.fromkeys(STATES, statistics.median(parsing))}
