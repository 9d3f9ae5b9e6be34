"""Problems while the jobs run: found within the configured minutes, reported once, and ended with their cause."""

import asyncio
import errno
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs
from tests.jobs.shop import Shop, database_error, raising

from orderbridge.jobs.alarms import AGAIN_S, Command
from orderbridge.jobs.context import Kept
from orderbridge.jobs.health_check import Checkup, log_events
from orderbridge.jobs.lists import Common, read_lists, read_statuses
from orderbridge.jobs.open_problems import open_problems
from orderbridge.rules.problems import Code, OpenProblems, Problem, Severity, alike
from orderbridge.store.dialects.face import TroubleKind
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = pytest.mark.plays_daemon
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
REFUSED = ("began", "login_refused")
BEGAN = [REFUSED, ("began", "database_lost")]


def open_codes(shop: Shop) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in open_now(shop)]


def open_now(shop: Shop) -> list[Problem]:
    return shop.database.read_now(lambda tx: open_problems(tx, shop.settings, shop.clock.now()))


async def test_a_closed_restaurant_is_reported_at_its_usual_hours(shop: Shop):
    await read_lists(shop.account, shop.names, Common())
    shop.world.close_restaurant(KADIKOY)

    async def seen(minutes: float) -> list[tuple[str, str | None]]:
        await asyncio.sleep(60 * minutes)
        await shop.poll()
        await read_statuses(shop.account)
        return [(str(one.code), one.facts.get("who")) for one in open_now(shop)]

    assert await seen(0) == await seen(29) == []
    assert await seen(2) == [("restaurant_closed", "platform")], "without a history it is always reported"
    shop.world.open_restaurant(KADIKOY)
    assert await seen(1) == []
    order = await shop.taken_in()
    shop.world.cancel_by_customer(order.key)
    shop.take_over()
    shop.world.close_restaurant(KADIKOY)
    assert await seen(40) == [], "an hour that usually has no orders"
    assert await seen(7 * 24 * 60 - 60) == [("restaurant_closed", "platform")]


def log_of(*checks: tuple[list[Problem], float], language: str = "en") -> list[Any]:
    history = OpenProblems()
    with capture_logs() as lines:
        for found, at in checks:
            for some in alike(history.check(found, at)):
                log_events(some, language)
    return lines


def problem(code: Code = Code.UNREACHABLE, severity: Severity = Severity.SEVERE, **more: Any) -> Problem:
    return Problem(code, "kadikoy", NOON, severity, **more)


def test_the_level_of_a_line_is_the_severity_and_its_seconds_are_of_the_monotonic_clock():
    warning = problem(severity=Severity.WARNING)
    lines = log_of(([warning], 10.0), ([problem()], 15.0), ([problem(count=2)], 20.0), ([], 70.0))
    said = [(line["log_level"], line["event"], line.get("seconds")) for line in lines]
    ended = ("info", "problem.ended", 60)
    assert said == [("warning", "problem.began", None), ("error", "problem.escalated", None), ended]


def test_a_problem_of_many_accounts_is_one_line_with_the_first_names():
    all_of_them = [Problem(Code.UNREACHABLE, f"a{number}", NOON, Severity.SEVERE) for number in range(1000)]
    kept = problem(Code.QUARANTINED)
    lines = log_of(([*all_of_them[:2], kept], 10.0), ([*all_of_them, kept], 15.0), (all_of_them[:1], 70.0))
    first = [f"a{number}" for number in range(2, 7)]
    said = [(one["event"], one["code"], one.get("subject") or one["subjects"], one["count"]) for one in lines]
    assert said == [
        ("problem.began", "unreachable", "a0", 1), ("problem.began", "unreachable", "a1", 1),
        ("problem.began", "quarantined", "kadikoy", 1), ("problem.began", "unreachable", first, 998),
        ("problem.ended", "unreachable", ["a1", *first[:4]], 999), ("problem.ended", "quarantined", "kadikoy", 1),
    ]  # fmt: skip
    assert lines[-2]["seconds"] == 60, "since the first of them began"


def test_the_log_has_cause_and_remedy_and_not_the_marketplaces_text():
    (line,) = log_of(([problem(detail="Ayşe Yılmaz, 0532")], 0.0))
    assert line["cause"].startswith("The marketplace")
    assert line["remedy"]
    assert "Ayşe" not in str(line)


def lamp(shop: Shop) -> tuple[str, str | None, str]:
    row = shop.one("SELECT * FROM delivery_lamp")  # one row for the one account
    assert row["account"] == "kadikoy"
    return row["lamp"], row["code"], row["since_utc"]


async def test_delivery_lamp_has_one_row_for_each_account_also_after_a_restart(shop: Shop):
    checkup = shop.checkup()
    shop.till.execute("INSERT INTO delivery_lamps VALUES ('left long ago', 'red', '2020-01-01', NULL, '', NULL)")
    await shop.poll()
    await checkup.check()
    green = lamp(shop)
    assert green[:2] == ("green", None)
    assert shop.one("SELECT sentence FROM delivery_lamp")["sentence"] == "Orders arrive."
    checkup.own_problems.begin(Code.CLOCK_WRONG, offset="+120")
    await asyncio.sleep(10)
    await shop.poll()
    await checkup.check()
    assert lamp(shop)[:2] == ("yellow", "clock_wrong")
    assert "+120 seconds" in shop.one("SELECT sentence FROM delivery_lamp")["sentence"]
    await shop.checkup().check()  # of the next daemon
    again = lamp(shop)
    assert again[0] == "green" and again[2] > green[2]
    await shop.poll()
    await shop.checkup().check()
    assert lamp(shop) == again
    await asyncio.sleep(91)
    assert lamp(shop)[:2] == ("red", "not_polling"), "no daemon works"
    await shop.poll()
    await shop.checkup().check()
    assert lamp(shop)[0] == "green" and lamp(shop)[2] > again[2]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was reported to the alarm command: event and code."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(Command, "run", lambda _, document: told.append((document["event"], document["code"])))
    return told


def reporting_checkup(shop: Shop) -> Checkup:
    """The health check of a daemon that has just started and has an alarm command."""
    checkup = shop.checkup(command=("alarm",), command_severity="warning")
    checkup.expect_late_polls()
    return checkup


async def check_and_close(checkup: Checkup, times: int = 1) -> None:
    for _ in range(times):
        await checkup.check()
    await checkup.close()


async def test_a_daemon_stopped_before_its_first_check_keeps_the_reported_problems(shop, heard):
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await check_and_close(reporting_checkup(shop))
    await reporting_checkup(shop).close()
    await check_and_close(reporting_checkup(shop))
    assert heard == [REFUSED]
    shop.till.execute("UPDATE delivery_accounts SET state = 'ok', last_poll_ok_utc = datetime('now', '+1 day')")
    await check_and_close(reporting_checkup(shop))
    assert heard == [REFUSED, ("ended", "login_refused")]


async def test_reported_problems_are_read_by_a_later_check_if_the_first_fails(shop, heard, monkeypatch):
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await check_and_close(reporting_checkup(shop))
    second = reporting_checkup(shop)
    with monkeypatch.context() as patched:
        patched.setattr(shop.database, "read", raising(database_error("disk I/O error")))
        await second.check()
    await check_and_close(second)
    assert heard == [REFUSED]


async def test_without_a_change_only_a_sign_of_life_is_written(shop: Shop):
    checkup = shop.checkup()
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    seen = []
    for _ in range(13):
        before = shop.till.execute("PRAGMA data_version").fetchone()[0]
        await checkup.check()
        seen.append(shop.till.execute("PRAGMA data_version").fetchone()[0] != before)
        await asyncio.sleep(5)
    assert seen == [True, *[False] * 5, True, *[False] * 5, True]


@pytest.mark.parametrize("room, found", [(10**9, []), (4096, [("database_full", "")])])
async def test_a_full_disk_is_found_by_a_daemon_that_only_reads(room, found, shop, monkeypatch):
    await shop.poll()
    fake = SimpleNamespace(f_flag=os.statvfs(shop.path.parent).f_flag, f_bavail=room // 4096, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: fake)
    assert open_codes(shop) == found


async def test_a_disk_that_became_read_only_is_found(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """After a disk error the flags and rights still say that the disk is writable."""
    await shop.poll()
    real = os.open

    def refusing(path: Any, flags: int, *more: Any, **how: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *more, **how)

    monkeypatch.setattr("os.open", refusing)
    assert open_codes(shop) == [("database_read_only", "")]


async def test_an_open_problem_survives_a_reload_without_a_new_report(shop: Shop):
    kept = Kept()
    before, after = (shop.checkup(kept=kept) for _ in range(2))
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    before.own_problems.begin(Code.BOARD_UNHEARD)
    facts = dict.fromkeys(("last_known", "missing", "numbers", "accounts"), "?")
    before.own_problems.begin(Code.DATABASE_RESTORED, **facts)
    await before.check()
    after.expect_late_polls()
    after.reset()
    with capture_logs() as logs:
        await after.check()
        assert [(line["event"], line["code"]) for line in logs] == [("problem.ended", Code.DATABASE_RESTORED)]
        logs.clear()  # the tables show this end at once
        await asyncio.sleep(91)  # time enough for a daemon to detect the other problem
        await after.check()
    ((event, code, seconds),) = [(line["event"], line["code"], line["seconds"]) for line in logs]
    assert event == "problem.ended" and code == Code.BOARD_UNHEARD and seconds >= 91
    assert (Code.LOGIN_REFUSED, "kadikoy") in after.history.open()


async def test_an_unwritable_database_is_reported_instead_of_missing_polls(shop: Shop):
    checkup, trouble = shop.checkup(), shop.database.trouble
    await shop.poll()
    assert await checkup.check() == []
    trouble.failed("write", "locked", "a till holds it", TroubleKind.BUSY)
    seen = [{one.code for one in await checkup.check()}]
    await asyncio.sleep(200)
    seen.append({one.code for one in await checkup.check()})
    trouble.worked("write")
    seen.append({one.code for one in await checkup.check()})  # before the next poll is noted
    await shop.poll()
    seen.append({one.code for one in await checkup.check()})
    assert seen == [set(), {Code.DATABASE_BUSY}, set(), set()]


async def test_a_problem_known_only_to_the_previous_daemon_is_reported_once_and_its_end_too(shop, heard):
    async def daemon(*, sees: bool, seconds: int) -> None:
        checkup = reporting_checkup(shop)
        for second in range(0, seconds, 30):
            await shop.poll()
            if sees and second:  # detected after a while
                checkup.own_problems.begin(Code.CLOCK_WRONG, offset="+120")
            await checkup.check()
        await checkup.close()

    await daemon(sees=True, seconds=60)
    await daemon(sees=True, seconds=60)
    assert heard == [("began", "clock_wrong")]
    await daemon(sees=False, seconds=240)
    assert heard == [("began", "clock_wrong"), ("ended", "clock_wrong")]


async def test_an_alarm_command_that_fails_is_a_problem_until_it_works(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    failures = ["exit code 1"]
    monkeypatch.setattr(Command, "run", lambda *_: failures[0] if failures else None)
    checkup = shop.checkup(command=("x",))
    checkup.own_problems.begin(Code.DATABASE_LOST)

    async def look() -> set[Code]:
        found = {one.code for one in await checkup.check()}
        await checkup.alarms.close()  # sends the waiting message
        return found

    await look()
    assert Code.ALARM_FAILING in await look()
    failures.clear()
    await asyncio.sleep(AGAIN_S)
    await look()
    assert Code.ALARM_FAILING not in await look()
    await checkup.close()


async def lost(shop: Shop) -> Path:
    """Run a daemon whose file is moved away. Returns the file's new folder."""
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    daemon = reporting_checkup(shop)
    await daemon.check()
    away = shop.path.with_name("away")
    away.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shop.path.with_name(f"{shop.path.name}{suffix}").rename(away / f"{shop.path.name}{suffix}")
    await daemon.lost()
    await daemon.close()
    return away


@pytest.mark.parametrize("state", ["", "state"], ids=["beside the file", "in systemd's state directory"])
async def test_the_end_of_a_lost_file_is_reported_once_by_the_next_daemon(state, shop, heard, monkeypatch):
    folder = shop.path.with_name(state) if state else shop.path.parent
    monkeypatch.setenv("STATE_DIRECTORY", str(folder) if state else "")
    for path in (await lost(shop)).iterdir():
        path.rename(shop.path.with_name(path.name))
    assert (heard, stat.S_IMODE((folder / "pos.db.lost").stat().st_mode)) == (BEGAN, 0o600)
    await check_and_close(reporting_checkup(shop), 2)
    assert heard == [*BEGAN, ("ended", "database_lost")]
    (row,) = shop.rows("SELECT code, subject, level FROM delivery_alarms")
    assert tuple(row.values()) == ("login_refused", "kadikoy", 1)
    assert not (folder / "pos.db.lost").exists()
    await check_and_close(reporting_checkup(shop))
    assert len(heard) == 3


async def test_the_next_daemon_reports_the_end_of_an_unwritable_database(shop: Shop, heard: list[tuple[str, str]]):
    daemon = reporting_checkup(shop)
    await daemon.check()
    full = raising(database_error("database or disk is full"))
    event.listen(shop.database.engine, "commit", full)
    await check_and_close(daemon, 2)
    event.remove(shop.database.engine, "commit", full)
    assert heard == [("began", "database_full")]
    after = reporting_checkup(shop)
    await after.check()
    await asyncio.sleep(100)  # until it is sure
    await shop.poll()
    await check_and_close(after, 2)
    assert heard == [("began", "database_full"), ("ended", "database_full")]
    assert not shop.path.with_name("pos.db.lost").exists()
