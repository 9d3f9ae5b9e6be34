"""Repeated answers up to the tables: what is remembered between polls hides no change."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.marketplace.samples import listing, order, text
from tests.store.samples import hold_open

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.context import Context
from orderbridge.jobs.intake import CHUNK, Intake
from orderbridge.marketplace.documents import read_listing
from orderbridge.store import schema
from orderbridge.store.database import Database

SETTINGS = config.Settings(
    marketplace={"base_url": "https://sandbox.test", "timezone": "UTC"},
    database={"url": "sqlite:////nowhere.db"},
    accounts=[{"name": name, "app_secret_key": "a", "rest_secret_key": name} for name in ("kadikoy", "besiktas")],
    orders={"late_minutes": 0},
)


class Till:
    """One SQLite file, the intakes of two accounts, and other users of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: list[str] = []
        self.database = Database(f"sqlite:///{path}", inline=True)
        self.database.write_now(schema.upgrade)

    async def take_in(self, documents: list[Any], account: str = "kadikoy") -> Polled:
        async def acknowledge(key: str, timeout_s: float) -> None:
            self.acknowledged.append(key)

        settings = SimpleNamespace(auto_accept=lambda *_: None, auto_accept_scheduled=False, limits={})
        client = SimpleNamespace(acknowledge=acknowledge)
        asking: Any = SimpleNamespace(name=account, client=client, settings=settings)
        clock, counts = SystemClock(), Polled()
        context = Context.of(SETTINGS, self.database, clock)
        lanes = context.lanes
        intake = Intake(asking, context, ("kadikoy", "besiktas"))
        poll = lanes.begin_poll()
        await intake.take_in(read_listing(listing(*map(text, documents))), poll, clock.monotonic(), counts)
        lanes.end_poll(poll)
        return counts

    def say(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as pos, pos:
            return pos.execute(sql).fetchall()


@pytest.fixture
def till(tmp_path: Path) -> Any:
    till = Till(tmp_path / "pos.db")
    hold_open(till.path)
    yield till
    till.database.close()


def key(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def some(number: int = 3, **changes: Any) -> list[Any]:
    return [order(payment_key=key(place), **changes) for place in range(number)]


async def test_an_unchanged_list_is_acknowledged_and_not_written(till: Till):
    await till.take_in(some())
    before = till.say("SELECT * FROM delivery_orders ORDER BY payment_key")
    counts = await till.take_in(some())
    assert (counts.new, counts.changed, counts.unchanged) == (0, 0, 3)
    assert sorted(till.acknowledged) == sorted([key(place) for place in range(3)] * 2)
    marked = till.say("SELECT * FROM delivery_orders ORDER BY payment_key")
    assert [row[:30] for row in marked] == [row[:30] for row in before]


@pytest.mark.parametrize(
    "done",
    [
        "DELETE FROM delivery_orders WHERE payment_key LIKE '%1'",
        "UPDATE delivery_orders SET payload_hash = NULL WHERE payment_key LIKE '%1'",
        "UPDATE delivery_orders SET status_id = 2 WHERE payment_key LIKE '%1'",
        "UPDATE delivery_orders SET service_status_id = 2 WHERE payment_key LIKE '%1'",
        "UPDATE delivery_orders SET ended_by = 'silence', ended_utc = changed_utc WHERE payment_key LIKE '%1'",
        "UPDATE delivery_orders SET problem = 'status_doubtful' WHERE payment_key LIKE '%1'",
    ],
    ids=["deleted", "hash gone", "status", "service's status", "ended by silence", "doubtful"],
)
async def test_what_somebody_did_to_an_order_is_found_although_its_bytes_came_before(done: str, till: Till):
    await till.take_in(some())
    till.say(done)
    counts = await till.take_in(some())
    assert (counts.new + counts.changed, counts.unchanged) == (1, 2)
    (row,) = till.say("SELECT status_id, service_status_id, ended_by, problem FROM delivery_orders LIMIT 1 OFFSET 1")
    assert row == (1, 1, None, None)


async def test_an_older_copy_of_the_file_gets_what_it_lacks(till: Till, tmp_path: Path):
    await till.take_in(some(2))
    till.database.close()
    shutil.copy(till.path, tmp_path / "old.db")
    till = Till(till.path)
    await till.take_in(some(3, status_id=2))
    till.database.close()
    old = Till(tmp_path / "old.db")
    counts = await old.take_in(some(3, status_id=2))
    assert (counts.new, counts.changed, counts.unchanged) == (1, 2, 0)
    assert old.say("SELECT DISTINCT status_id FROM delivery_orders") == [(2,)]
    old.database.close()


async def test_an_order_that_changes_and_changes_back_is_what_it_was_and_the_till_s_own_column_stays(till: Till):
    for note in ("az acılı", "çok acılı", "az acılı"):
        await till.take_in(some(1, note=note))
        till.say("UPDATE delivery_orders SET pos_revision = revision, pos_reference = 'A-7'")
    assert till.say("SELECT note, revision, pos_revision, pos_reference FROM delivery_orders") == [
        ("az acılı", 3, 3, "A-7")
    ]


async def test_of_many_only_the_one_that_the_database_refuses_is_set_aside(till: Till):
    bad = CHUNK // 2
    till.say(
        f"CREATE TRIGGER pos_refuses BEFORE INSERT ON delivery_orders WHEN NEW.payment_key = '{key(bad)}'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    counts = await till.take_in(some(2 * CHUNK))
    assert till.say("SELECT count(*) FROM delivery_orders") == [(2 * CHUNK - 1,)]
    assert till.say("SELECT payment_key, reason FROM delivery_quarantine") == [(key(bad), "database_refused")]
    assert (counts.quarantined, sorted(till.acknowledged)) == (1, [key(place) for place in range(2 * CHUNK)])


async def test_one_order_in_two_accounts_belongs_to_the_first_although_its_bytes_are_known(till: Till):
    await till.take_in(some(1))
    counts = await till.take_in(some(1), "besiktas")
    assert (counts.foreign, len(till.acknowledged)) == (1, 1)
    assert till.say("SELECT account FROM delivery_orders") == [("kadikoy",)]


async def test_huge_numbers_and_emoji_harm_nobody_beside_them(till: Till):
    odd = json.loads(json.dumps(order(payment_key=key(9), note="🌯" * 300)))
    odd |= {"id": 10**30, "total": 10**20, "courier_fee": 0.00005}
    await till.take_in([*some(), odd])
    found = till.say("SELECT count(*), sum(total IS NULL), sum(order_number IS NULL) FROM delivery_orders")
    assert found == [(4, 1, 1)]
