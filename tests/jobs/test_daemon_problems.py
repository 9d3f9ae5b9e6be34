"""Problems that only the daemon can detect: each is planted, is the only one seen, and ends with its cause."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from tests.jobs.shop import Shop, database_error, raising

from orderbridge.jobs.daemon_problems import BUSY, DATE_EVERY_S, LOG_STUCK_S, SLOW_WITHIN_S
from orderbridge.jobs.health_check import VIEWS_S, Checkup
from orderbridge.rules.problems import Code, Problem

UNREADABLE = (
    "", "Mon, 01 Jan 2026 00:00:00 +99999999999999999999", "Mon, " + "9" * 5000 + " Jan 2026 00:00:00 GMT",
    "\udcff, \x00",
)  # fmt: skip


@pytest.fixture
async def checkup(shop: Shop) -> Checkup:
    return shop.checkup()


def names(found: Sequence[Problem]) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in found]


async def test_a_view_that_cannot_be_read(shop: Shop, checkup: Checkup):
    assert await checkup.check() == []
    shop.till.execute("DROP VIEW delivery_new_orders")
    await asyncio.sleep(VIEWS_S)
    assert names(await checkup.check()) == [("view_broken", "delivery_new_orders")]


@pytest.mark.slow
async def test_while_a_select_stays_open_the_wal_grows_and_afterwards_it_shrinks(shop: Shop, checkup: Checkup):
    shop.till.execute("CREATE TABLE pos_notes (note TEXT)")
    shop.till.execute("INSERT INTO pos_notes VALUES (1), (2)")
    reading = shop.till.execute("SELECT * FROM pos_notes")
    reading.fetchone()
    for number in range(36):
        note = str(number) * 1_000_000
        await shop.database.run(lambda tx, note=note: tx.exec_driver_sql("UPDATE pos_notes SET note = ?", (note,)))
    (found,) = await checkup.check()
    assert found.code == "wal_large" and found.severity == "warning" and int(found.facts["megabytes"]) > 67
    reading.close()
    for _ in range(3):
        await shop.database.run(lambda tx: tx.exec_driver_sql("UPDATE pos_notes SET note = ''"))
    assert await checkup.check() == []
    assert shop.database.file.log_size() <= 16 * 1024 * 1024


@pytest.mark.parametrize("words, code", [
    ("database or disk is full", Code.DATABASE_FULL),
    ("attempt to write a readonly database", Code.DATABASE_READ_ONLY),
    ("disk I/O error", Code.DATABASE_FAILING),
])  # fmt: skip
async def test_a_database_that_refuses_every_write(words: str, code: Code, shop: Shop, checkup: Checkup):
    await shop.taken_in()
    with pytest.raises(OperationalError):
        await shop.database.run(raising(database_error(words)))
    await asyncio.sleep(400)  # and so no poll could be noted
    assert names(await checkup.check()) == [(code, "")]
    await shop.poll()
    assert names(await checkup.check()) == [("not_taken_over", "kadikoy")]


class Held(Exception):
    """A server's lock timeout, as its driver reports it."""

    sqlstate = "55P03"


async def test_a_table_without_the_right_to_write(shop: Shop, checkup: Checkup):
    """A new order waits for no single row, so the whole table is locked."""
    order = shop.place()
    shop.database.dialect = replace(shop.database.dialect, one_writer=False)  # as on a server

    def held(_: object, __: object, statement: str, *___: object) -> None:
        if "INTO delivery_orders " in statement:
            raise OperationalError("INSERT", None, Held())

    event.listen(shop.database.engine, "before_cursor_execute", held)
    for expected in ([], [("database_busy", "")]):
        await shop.poll()
        assert names(await checkup.check()) == expected
    event.remove(shop.database.engine, "before_cursor_execute", held)
    await shop.poll()
    assert (order.acknowledged, names(await checkup.check())) == (True, [])


@pytest.mark.parametrize(
    "waits, slow", [([3.0, 3.0], False), ([3.0, 3.0, 3.0], True), ([11.0], True), ([1.9] * 9, False), ([9.9], False)]
)
async def test_a_database_that_is_slow(waits: list[float], slow: bool, shop: Shop, checkup: Checkup):
    await shop.poll()
    for seconds in waits:
        shop.database.trouble.waited(seconds, shop.clock.monotonic())
    found = await checkup.check()
    assert names(found) == ([("database_slow", "")] if slow else [])
    assert [one.facts["seconds"] for one in found] == [f"{max(waits):.0f}"][: len(found)]
    await asyncio.sleep(SLOW_WITHIN_S - 40)
    await shop.poll()
    await asyncio.sleep(40)
    assert names(await checkup.check()) == []


async def test_a_lock_that_is_not_reported_yet_hides_no_problem(shop: Shop, checkup: Checkup, monkeypatch):
    """Another program has locked a whole table, which is reported after ten seconds. Meanwhile the lamp stays red."""
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    assert names(await checkup.check()) == [("login_refused", "kadikoy")]

    async def held(_: Callable[..., object]) -> None:
        raise database_error("database is locked")

    monkeypatch.setattr(shop.database, "read", held)
    assert names(await checkup.check()) == [("login_refused", "kadikoy")]
    assert shop.rows("SELECT lamp FROM delivery_lamp") == [{"lamp": "red"}]
    await asyncio.sleep(BUSY.total_seconds())
    assert names(await checkup.check()) == [("database_busy", "")]


@pytest.mark.parametrize("work", ["read", "run"])  # "run": all can be read, as with FLUSH TABLES WITH READ LOCK
async def test_after_a_lock_of_minutes_no_poll_is_missing(work: str, shop: Shop, checkup: Checkup, monkeypatch):
    """None could be noted. The next one comes soon."""
    await shop.poll()
    assert await checkup.check() == []
    with monkeypatch.context() as held:
        held.setattr(shop.database, work, raising(database_error("database is locked")))
        for _ in range(30):
            found = await checkup.check()
            await asyncio.sleep(BUSY.total_seconds())
    assert names(found) == [("database_busy", "")]
    await checkup.check()
    assert await checkup.check() == []


async def test_a_database_that_cannot_be_read_ends_nothing(shop: Shop, checkup: Checkup, monkeypatch):
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    assert names(await checkup.check()) == [("login_refused", "kadikoy")]

    async def gone(_: Callable[..., object]) -> None:
        shop.database.trouble.failed("read", "OperationalError", "Start the server.")
        raise database_error("no route")

    with monkeypatch.context() as away:
        away.setattr(shop.database, "read", gone)
        assert names(await checkup.check()) == [("database_failing", "")]
        assert (Code.LOGIN_REFUSED, "kadikoy") in checkup.history.open()
    await shop.database.read(lambda tx: tx.exec_driver_sql("SELECT 1"))
    assert names(await checkup.check()) == [("login_refused", "kadikoy")]


def date_of(shop: Shop, behind: float) -> str:
    return format_datetime(shop.clock.now() - timedelta(seconds=behind), usegmt=True)


async def checked_for_long(checkup: Checkup) -> Sequence[Problem]:
    await checkup.check()
    await asyncio.sleep(BUSY.total_seconds())
    return await checkup.check()


async def test_a_wrong_clock_is_named_with_the_certificate_that_fails_because_of_it(shop: Shop, checkup: Checkup):
    await shop.poll()
    for _ in range(2):
        checkup.own_problems.note_date(date_of(shop, 0))
        await asyncio.sleep(DATE_EVERY_S)
    shop.clock.ahead = timedelta(days=800)
    found = await checked_for_long(checkup)
    assert ("clock_wrong", "") in names(found)
    offset = next(one.facts["offset"] for one in found if one.code is Code.CLOCK_WRONG)
    assert float(offset) == pytest.approx(800 * 86400, abs=1)


@pytest.mark.parametrize("behind, wrong", [(0, False), (59, False), (-59, False), (62, True), (-7200, True)])
async def test_a_clock_that_is_wrong_by_the_services_date(behind: float, wrong: bool, shop: Shop, checkup: Checkup):
    await shop.poll()
    for _ in range(2):
        checkup.own_problems.note_date(date_of(shop, behind))
        await asyncio.sleep(DATE_EVERY_S)
    found = await checked_for_long(checkup)
    assert names(found) == ([("clock_wrong", "")] if wrong else [])
    if wrong:
        assert abs(float(found[0].facts["offset"]) - behind) <= 1
        checkup.own_problems.note_date(date_of(shop, 0))
        assert names(await checkup.check()) == []


@pytest.mark.parametrize("dates", [*([date] * 3 for date in UNREADABLE), ["Mon, 05 Jan 2015 00:00:00 GMT"]])
async def test_an_unreadable_or_single_date_raises_no_alarm(dates: list[str], shop: Shop, checkup: Checkup):
    await shop.poll()
    for date in dates:
        checkup.own_problems.note_date(date)
        await asyncio.sleep(DATE_EVERY_S)
    assert names(await checkup.check()) == []


async def test_tokens_that_end_early_show_logins_of_another_program(shop: Shop, checkup: Checkup):
    await shop.poll()
    for times in range(1, 4):
        shop.world.end_tokens("kadikoy")
        await shop.poll()  # 401, and a login
        assert names(await checkup.check()) == [], "one token that is over is none yet"
        await shop.poll()
        assert names(found := await checkup.check()) == [("credentials_shared", "kadikoy")] * (times == 3)
    assert (found[0].count, found[0].account) == (3, "kadikoy")
    await asyncio.sleep(3600)
    await shop.poll()
    assert names(await checkup.check()) == []


async def test_checks_of_other_components_run_at_their_intervals(shop: Shop, checkup: Checkup, monkeypatch):
    await shop.poll()
    monkeypatch.setattr("orderbridge.observe.logs.stuck_s", lambda: LOG_STUCK_S)
    checkup.own_problems.kept.cooldowns.is_scope_wrong = True
    checkup.own_problems.kept.name_holder = "PID 7"
    assert names(await checkup.check()) == [("cooldown_shared", ""), ("log_not_read", "")]
    await asyncio.sleep(BUSY.total_seconds())
    assert [one.facts for one in await checkup.check() if one.code == Code.HEALTHCHECK_TAKEN] == [{"holder": "PID 7"}]
