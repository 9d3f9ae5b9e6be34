"""The daemon's real parts against the sandbox, over real HTTPS, on each database; the till is a stock driver."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs
from tests import databases
from tests.jobs.shop import TickedOutbox
from tests.store.samples import KEY, Pos, one, put, put_order, rows
from tests.test_daemon import UNTIL_CLEARED_S, certificates, sandbox, settings_for, until, world
from tests.test_daemon import running as daemon_of

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.daemon import Daemon
from orderbridge.jobs import outbox, outbox_reader
from orderbridge.jobs.account import Roster
from orderbridge.jobs.context import Context
from orderbridge.jobs.reconciler import Reconciler, read_unresolved
from orderbridge.rules import tokens
from orderbridge.store import schema, unfinished
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text
from orderbridge.texts import sentence
from orderbridge_sandbox import Fault, Sandbox, World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

__all__ = ["certificates", "sandbox", "world"]  # fixtures
pytestmark = pytest.mark.timeout(600)
SMALL_PACKETS = "mariadb with small packets"
LIFE = [{"action": "accept", "preparing_time": 25}, {"action": "on_the_way"}, {"action": "complete"}]


@pytest.fixture(params=databases.KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database, in which the daemon creates its tables."""
    if request.param == databases.SQLITE:
        yield f"sqlite:///{tmp_path}/pos.db"
        return
    with contextlib.ExitStack() as stack:
        if request.param == SMALL_PACKETS:
            server = stack.enter_context(databases.own_mariadb_server("--max-allowed-packet=1M")).url
        else:
            server = request.getfixturevalue(f"{request.param}_server")
        yield stack.enter_context(databases.own_database(server, f"obs_daemon_{os.getpid()}"))


@pytest.fixture
def pos(url: str) -> Iterator[Pos]:
    database = Database(url, inline=True)
    database.write_now(schema.upgrade)
    database.close()
    with Pos.at(url) as pos:
        yield pos


def running(sandbox: Sandbox, url: str, **how: float) -> contextlib.AbstractAsyncContextManager[Daemon]:
    return daemon_of(settings_for(sandbox, None, url=url, **how))


def state(pos: Pos, row_id: int) -> str:
    return str(one(pos, "SELECT state FROM delivery_actions WHERE id = ?", row_id)["state"])


@pytest.mark.interface("Authentication 1", "Events", "Menu listing", "Limits")
async def test_an_order_is_stored_and_the_tills_action_sent(sandbox, url, pos, world, monkeypatch):
    """The lists are read, too, and the token is renewed before it expires."""
    monkeypatch.setattr(tokens, "RENEW_AHEAD", 3600 / 3598)  # two seconds after the login
    world.set_options(token_seconds=3600.0)
    note = "Zile basmayın 🌯 ığüşöç"
    placed = world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant", "note": note})
    async with running(sandbox, url):
        await until(lambda: rows(pos, "SELECT * FROM delivery_new_orders"))
        order = one(pos, "SELECT * FROM delivery_new_orders")
        assert (order["payment_key"], order["note"]) == (placed.key, note)
        assert Decimal(str(order["total"])) == placed.document["total"]
        await until(lambda: placed.acknowledged)
        pos.execute("UPDATE delivery_orders SET pos_revision = ?, pos_reference = 'A-1042'", (order["revision"],))
        row_ids = [put(pos, "delivery_actions", payment_key=placed.key, **columns) for columns in LIFE]
        await until(lambda: state(pos, row_ids[-1]) == "done")
        await until(lambda: rows(pos, "SELECT * FROM delivery_changed_orders"))
        await until(lambda: rows(pos, "SELECT 1 FROM delivery_restaurants WHERE status = 'Open'"))
        await until(lambda: rows(pos, "SELECT 1 FROM delivery_accounts WHERE menu_read_utc IS NOT NULL"))
        await until(lambda: len(world.calls("login")) >= 2)
        polls = len(world.calls("get_current"))
        await until(lambda: len(world.calls("get_current")) > polls + 1)
    lists = ("cancel_reasons", "payment_methods", "foods WHERE source = 'menu' AND status = 'active'")
    assert [len(rows(pos, f"SELECT 1 FROM delivery_{one}")) for one in lists] == [8, 3, 12]
    assert len(world.calls("get_foods")) == 1
    assert [state(pos, row_id) for row_id in row_ids] == ["done"] * 3
    assert (placed.status_id, placed.preparing_time) == (5, 25)
    stored = one(pos, "SELECT status_id, ended_by, pos_reference FROM delivery_orders")
    assert stored == {"status_id": 5, "ended_by": "completed", "pos_reference": "A-1042"}
    assert rows(pos, "SELECT * FROM delivery_open_orders") == []
    assert {call.http_status for call in world.calls()} <= {200, None}, "no 401, and no 429"


async def test_a_commit_of_the_till_wakes_the_outbox(sandbox, url, pos, world, monkeypatch):
    for room in (outbox, outbox_reader):
        monkeypatch.setattr(room, "FLOOR_S", 3600.0)  # it does not read on its own
    async with running(sandbox, url, cooldown_seconds=3600):  # and no poll wakes it
        await until(lambda: world.calls("get_current"))
        for food in range(1001, 1006):
            row_id = put(pos, "delivery_actions", action="deactivate_food", food_id=food)
            await until(lambda row_id=row_id: state(pos, row_id) == "done")


async def test_an_order_that_a_till_holds_waits_and_the_others_come_in(sandbox, url, pos, world):
    held, free = (world.place_order(restaurant_id=KADIKOY) for _ in range(2))
    async with running(sandbox, url):
        await until(lambda: held.acknowledged and free.acknowledged)
        pos.execute("BEGIN IMMEDIATE")
        pos.execute("UPDATE delivery_orders SET pos_reference = 'A-7' WHERE payment_key = ?", (held.key,))
        for placed in (held, free):
            world.cancel_by_customer(placed.key)
        if pos.kind != databases.SQLITE:  # on SQLite, a till that writes locks everything
            with Pos.at(url) as other:
                await until(lambda: status(other, free) == 6)
                assert status(other, held) == 1
        pos.execute("COMMIT")
        await until(lambda: status(pos, held) == status(pos, free) == 6)
    assert (
        one(pos, "SELECT pos_reference FROM delivery_orders WHERE payment_key = ?", held.key)["pos_reference"] == "A-7"
    )


PLPGSQL = "IF {condition} THEN RAISE EXCEPTION 'no'; END IF;"
SIGNALS = "IF {condition} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF"
TRIGGERS = {
    databases.SQLITE: ["CREATE TRIGGER no BEFORE {event} WHEN {condition} BEGIN SELECT raise(ABORT, 'no'); END"],
    databases.POSTGRESQL: [
        f"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {PLPGSQL} RETURN NEW; END$$",
        "CREATE TRIGGER no BEFORE {event} FOR EACH ROW EXECUTE FUNCTION no()",
    ],
    databases.MARIADB: [f"CREATE TRIGGER no BEFORE {{event}} FOR EACH ROW {SIGNALS}"],
}


def refuse(pos: Pos, event: str, condition: str) -> None:
    """A trigger of the POS that refuses some rows."""
    for statement in TRIGGERS[pos.kind]:
        pos.execute(statement.format(event=event, condition=condition))


@pytest.mark.parametrize("url", [pytest.param(SMALL_PACKETS, marks=pytest.mark.mariadb)], indirect=True)
async def test_a_document_larger_than_the_servers_packet_harms_only_itself(sandbox, url, pos, world):
    limit = one(pos, "SELECT @@max_allowed_packet AS n")["n"]
    assert limit <= 2 * 1024 * 1024, "a list of many megabytes takes its time"
    known, _ = world.place_order(restaurant_id=KADIKOY), world.place_order(restaurant_id=KADIKOY)
    with capture_logs() as logs:
        async with running(sandbox, url, timeout_seconds=100):
            await until(lambda: known.acknowledged)
            large = world.place_order(restaurant_id=KADIKOY, document={"note": "x" * limit})
            beside = world.place_order(restaurant_id=KADIKOY)
            known.document["note"] = "x" * (limit * 5 // 9)  # too long only together with the document
            world.cancel_by_customer(known.key)
            await until(lambda: beside.acknowledged and status(pos, known) == 6)
            polls = len(world.calls("get_current"))
            await until(lambda: len(world.calls("get_current")) > polls + 1)
    assert [order.acknowledged for order in (large, known)] == [False, False]
    stored = one(pos, "SELECT problem FROM delivery_orders WHERE payment_key = ?", known.key)
    assert stored["problem"] == "contents_outdated"
    named = [line for line in logs if "max_allowed_packet" in sentence(line.get("remedy", ""))]
    reported = sorted((line["event"], line["payment_key"]) for line in named)
    assert reported[:2] == [("order.database_refused", large.key), ("order.lost_sight_of", large.key)]
    assert reported[2:] == [("order.update_refused", known.key)]
    assert "database.failed" not in {line["event"] for line in logs}


async def test_a_verdict_is_written_although_a_trigger_refuses_the_orders_status(sandbox, url, pos, world):
    refused, free = two = [world.place_order(restaurant_id=KADIKOY) for _ in range(2)]
    with capture_logs() as logs:
        async with running(sandbox, url):
            await until(lambda: refused.acknowledged and free.acknowledged)
            refuse(pos, "UPDATE ON delivery_orders", f"NEW.payment_key = '{refused.key}'")
            accept = {"action": "accept", "preparing_time": 25}
            row_ids = [put(pos, "delivery_actions", payment_key=order.key, **accept) for order in two]
            await until(lambda: [state(pos, row_id) for row_id in row_ids] == ["done", "done"])
    assert (status(pos, refused), status(pos, free)) == (1, 2)
    reported = [line for line in logs if line["event"] == "action.order_not_written"]
    assert [(line["id"], line["log_level"]) for line in reported] == [(row_ids[0], "error")]


def status(pos: Pos, order: Order) -> int | None:
    return one(pos, "SELECT status_id FROM delivery_orders WHERE payment_key = ?", order.key)["status_id"]


servers = pytest.mark.parametrize("url", databases.SERVERS, indirect=True)


@contextlib.contextmanager
def holding(url: str, update: str, *values: object) -> Iterator[None]:
    """A till that has written some rows and commits at the end."""
    with Pos.at(url) as till:
        till.execute("BEGIN")
        till.execute(update, values)
        yield
        till.execute("COMMIT")


def offline(url: str) -> config.Settings:
    account, market = {"name": "kadikoy", "app_secret_key": "a", "rest_secret_key": "b"}, {"base_url": "https://x.test"}
    return config.Settings(marketplace=market, database={"url": url}, accounts=[account])


HOLD_ORDER = "UPDATE delivery_orders SET pos_reference = 'A-7' WHERE payment_key = ?"
HOLD_ROW = "UPDATE delivery_actions SET created_by = 'Ayşe' WHERE id = ?"


@servers
async def test_a_verdict_waits_while_a_till_locks_its_order_and_other_lanes_continue(sandbox, url, pos, world):
    held, free = (world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"}) for _ in range(2))
    async with running(sandbox, url):
        await until(lambda: held.acknowledged and free.acknowledged)
        with holding(url, HOLD_ORDER, held.key):
            first = put(pos, "delivery_actions", action="accept", payment_key=held.key, preparing_time=25)
            await until(lambda: held.status_id == 2)
            for columns in LIFE:
                row = put(pos, "delivery_actions", payment_key=free.key, **columns)
                await until(lambda row=row: state(pos, row) == "done")
            assert state(pos, first) == "sending"
        await until(lambda: state(pos, first) == "done")
    assert (status(pos, held), status(pos, free), len(world.calls("accept"))) == (2, 5, 2)


@servers
@pytest.mark.parametrize("lost", [False, True], ids=["it waits", "it was on the wire at a crash"])
async def test_an_outbox_row_that_a_till_locks_is_skipped_and_the_others_are_sent(lost, sandbox, url, pos, world):
    held, free = (put(pos, "delivery_actions", action="deactivate_food", food_id=food) for food in (1001, 1002))
    if lost:
        pos.execute("UPDATE delivery_actions SET state = 'sending' WHERE id = ?", (held,))
        put(pos, "delivery_action_attempts", action_id=held, attempt=1, started_utc="2026-03-01 12:00:00.250")
    with holding(url, HOLD_ROW, held):
        async with running(sandbox, url):
            await until(lambda: state(pos, free) == "done")
            assert state(pos, held) == ("sending" if lost else "pending")
            later = put(pos, "delivery_actions", action="deactivate_food", food_id=1003)
            await until(lambda: state(pos, later) == "done")
    async with running(sandbox, url):
        await until(lambda: state(pos, held) == "done")


@servers
async def test_oks_are_noted_while_a_till_locks_an_order(sandbox: Sandbox, url: str, pos: Pos, world: World):
    world.faults.add(Fault.delay("acknowledge", UNTIL_CLEARED_S, times=6))
    held, *free = (world.place_order(restaurant_id=KADIKOY) for _ in range(6))
    async with running(sandbox, url):
        await until(lambda: len(rows(pos, "SELECT 1 AS stored FROM delivery_orders")) == 6)
        with holding(url, HOLD_ORDER, held.key):
            world.faults.clear()
            await until(lambda: all(noted(pos, order) == 1 for order in free))
            assert noted(pos, held) is None
        await until(lambda: noted(pos, held) == 1)
    assert held.acknowledged


def noted(pos: Pos, order: Order) -> int | None:
    return one(pos, "SELECT acknowledged_status_id AS s FROM delivery_orders WHERE payment_key = ?", order.key)["s"]


@servers
@pytest.mark.parametrize("minutes", [-15, 15], ids=["behind", "ahead"])
async def test_a_row_expires_by_the_servers_clock(minutes: int, url: str, pos: Pos):
    class Clock(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(minutes=minutes)

    def created(ago: timedelta) -> str:
        return time_text(SystemClock().now() - ago)

    clock, columns = Clock(), {"action": "accept", "payment_key": put_order(pos), "preparing_time": 25}
    old = put(pos, "delivery_actions", created_utc=created(timedelta(minutes=10, seconds=1)), **columns)
    young = put(pos, "delivery_actions", **columns)
    database = Database(url, inline=True)
    outbox = TickedOutbox(Context.of(offline(url), database, clock, random=Random(0)), Roster())
    async with asyncio.timeout(60):  # if a reading took long, the clock is measured again, and the row read again
        while state(pos, old) == "pending":
            await outbox.tick()
    database.close()
    assert (state(pos, old), state(pos, young)) == ("expired", "pending")
    assert abs(outbox.queue.due() - clock.now() - timedelta(minutes=10)) < timedelta(minutes=1)


@servers
def test_a_poll_judges_by_what_is_committed_when_it_holds_the_order(url: str, pos: Pos):
    put_order(pos, status_id=1, service_status_id=1)
    row_id = put(pos, "delivery_actions", action="accept", payment_key=KEY, preparing_time=25)
    pos.execute("UPDATE delivery_actions SET state = 'sending' WHERE id = ?", (row_id,))
    times = {"started_utc": "2026-03-01 12:00:00.250", "finished_utc": "2026-03-01 12:00:01.250"}
    put(pos, "delivery_action_attempts", action_id=row_id, attempt=1, outcome="unknown", **times)
    database, clock = Database(url, inline=True), SystemClock()
    unresolved = partial(database.read, read_unresolved)
    reconciler = Reconciler("kadikoy", Context.of(offline(url), database, clock), unresolved)
    rows, _ = database.read_now(unfinished.read_unfinished)

    def acknowledged(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM delivery_orders" in statement and "SKIP LOCKED" in statement:
            pos.execute("UPDATE delivery_orders SET acknowledged_status_id = 1")

    event.listen(database.engine, "before_cursor_execute", acknowledged)
    database.write_now(lambda tx: reconciler.post({}, tx, rows))
    database.close()
    found = one(pos, "SELECT next_attempt_utc FROM delivery_actions WHERE id = ?", row_id)
    assert found["next_attempt_utc"], "its absence from the list says that it was not done"
