"""Problems while the jobs run: found within the configured minutes, reported once, and ended with their cause."""

import asyncio
import errno
import os
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop, listing

from orderbridge.jobs.alarms import AGAIN_S, Command
from orderbridge.jobs.context import Kept
from orderbridge.jobs.health_check import Checkup, log_events
from orderbridge.jobs.lists import Common, read_lists, read_statuses
from orderbridge.jobs.open_problems import open_problems
from orderbridge.jobs.upkeep import headline
from orderbridge.rules.problems import Code, OpenProblems, Problem, Severity, alike
from orderbridge.store.dialects.face import TroubleKind
from orderbridge_sandbox import Fault
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = pytest.mark.plays_daemon


def open_codes(shop: Shop) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in open_now(shop)]


def open_now(shop: Shop) -> list[Problem]:
    return shop.database.read_now(lambda tx: open_problems(tx, shop.settings, shop.clock.now()))


def take_over(shop: Shop) -> None:
    shop.till.execute("UPDATE delivery_orders SET pos_revision = revision")


async def test_a_clock_that_is_set_while_a_look_reads_is_no_alarm(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    checkup = shop.checkup()
    checkup.be_unsure()
    for _ in range(5):  # until it is sure
        await shop.poll()
    read = shop.database.read

    async def set_meanwhile(work: Any) -> Any:
        monkeypatch.setattr(shop.database, "read", read)
        shop.clock.ahead = timedelta(days=-365)
        while not (await shop.poll()).ok:
            pass
        return await read(work)

    monkeypatch.setattr(shop.database, "read", set_meanwhile)
    assert await checkup.check() == []


@pytest.mark.parametrize("status", [502, 429])
async def test_where_everything_is_answered_with_an_error_that_is_the_one_problem_and_what_failed_is_told_after_it(
    status: int, shop: Shop
):
    orders = [await shop.taken_in() for _ in range(3)]
    take_over(shop)
    shop.world.faults.add(Fault(status=status, times=None))
    row = shop.act("accept", orders[0])
    shop.act("cancel", orders[1])
    assert (await shop.verdict(row))["state"] in {"failed", "expired"}
    code = "cooldown_taken" if status == 429 else "poll_failing"
    unanswered = {("unanswered", order.key) for order in orders[1:]}
    assert set(open_codes(shop)) == {*unanswered, (code, "kadikoy")}, "a till could have answered it"
    shop.world.faults.clear()
    await shop.poll()
    assert {("unanswered", orders[2].key), ("accept_failed", orders[0].key)} <= set(open_codes(shop))


async def test_where_the_board_is_the_till_nobody_is_told_of_a_till(open_shop: OpenShop):
    shop = await open_shop(web={"listen": "127.0.0.1:8480", "board": "till"})
    order = await shop.taken_in()
    seen = await shop.taken_in()
    shop.act("accept", seen)
    await shop.drain()
    await asyncio.sleep(181)
    await shop.poll()
    assert sorted(open_codes(shop)) == [("not_taken_over", "kadikoy"), ("unanswered", order.key)]
    shop.till.execute("UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = ?", (seen.key,))
    assert open_codes(shop) == [("unanswered", order.key)]


@pytest.mark.parametrize("status", [429, 401])
async def test_an_accept_that_expired_while_no_daemon_worked_is_told_at_once_whatever_the_polls_meet(
    open_shop: OpenShop, status: int
):
    shop = await open_shop()
    order = await shop.taken_in()
    take_over(shop)
    shop.act("accept", order)
    await shop.crash()
    await asyncio.sleep(11 * 60)
    again = await open_shop()
    again.world.faults.add(Fault(operation="get_current", status=status, times=None))
    await again.poll()
    await again.drain()
    assert ("accept_failed", order.key) in open_codes(again)


async def test_a_cancel_in_doubt_hides_no_customer_who_waits_and_what_keeps_it_in_doubt_is_told(shop: Shop):
    """One document without a key, and no list shows what it lacks."""
    order = await shop.taken_in()
    take_over(shop)
    row = shop.act("cancel", order)
    shop.world.faults.add(Fault(operation="cancel", status=502, times=None))
    shop.world.faults.add(listing(b'{"id": 7}', times=None))
    await shop.drain()
    for _ in range(8):
        await shop.poll()
        await shop.drain()
    assert shop.row(row)["state"] == "sending"
    assert set(open_codes(shop)) == {("unanswered", order.key), ("undecided", "kadikoy"), ("quarantined", "")}


async def test_a_scheduled_order_waits_longer_for_its_answer_and_not_for_ever(open_shop: OpenShop):
    """Also one that came more than a day before its time."""
    shop = await open_shop()
    order = await shop.taken_in(scheduled_date="2026-03-04 20:00:00")
    take_over(shop)
    seen = []
    for minutes in (4.9, 0.2, 9.9, 24 * 60):
        await asyncio.sleep(60 * minutes)
        await shop.poll()
        seen.append([(one.code, one.subject, one.severity) for one in open_now(shop)])
    told = ("unanswered", order.key)
    assert seen == [[], [(*told, "warning")], [(*told, "severe")], [(*told, "severe")]]


async def test_a_restaurant_that_stays_closed_is_told_at_the_hours_at_which_it_has_orders(shop: Shop):
    await read_lists(shop.account, shop.database, shop.names, Common(shop.clock))
    shop.world.close_restaurant(KADIKOY)

    async def seen(minutes: float) -> list[tuple[str, str | None]]:
        await asyncio.sleep(60 * minutes)
        await shop.poll()
        await read_statuses(shop.account, shop.database, shop.clock)
        return [(str(one.code), one.facts.get("who")) for one in open_now(shop)]

    assert await seen(0) == await seen(29) == []
    assert await seen(2) == [("restaurant_closed", "platform")], "without a history it is told always"
    shop.world.open_restaurant(KADIKOY)
    assert await seen(1) == []
    order = await shop.taken_in()
    shop.world.cancel_by_customer(order.key)
    take_over(shop)
    shop.world.close_restaurant(KADIKOY)
    assert await seen(40) == [], "an hour of no order"
    assert await seen(7 * 24 * 60 - 60) == [("restaurant_closed", "platform")]


# ---- the log ---------------------------------------------------------------------------------------------------------


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


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
    lines = log_of(
        ([problem(severity=Severity.WARNING)], 10.0), ([problem()], 15.0), ([problem(count=2)], 20.0), ([], 70.0)
    )
    assert [(line["log_level"], line["event"], line.get("seconds")) for line in lines] == [
        ("warning", "problem.began", None),
        ("error", "problem.escalated", None),
        ("info", "problem.ended", 60),
    ]


def test_what_many_have_in_common_is_one_line_with_the_first_names():
    all_of_them = [Problem(Code.UNREACHABLE, f"a{number}", NOON, Severity.SEVERE) for number in range(1000)]
    kept = problem(Code.QUARANTINED)
    lines = log_of(([*all_of_them[:2], kept], 10.0), ([*all_of_them, kept], 15.0), (all_of_them[:1], 70.0))
    first = [f"a{number}" for number in range(2, 7)]
    said = [(one["event"], one["code"], one.get("subject") or one["subjects"], one["count"]) for one in lines]
    assert said == [
        ("problem.began", "unreachable", "a0", 1),
        ("problem.began", "unreachable", "a1", 1),
        ("problem.began", "quarantined", "kadikoy", 1),
        ("problem.began", "unreachable", first, 998),
        ("problem.ended", "unreachable", ["a1", *first[:4]], 999),
        ("problem.ended", "quarantined", "kadikoy", 1),
    ]
    assert lines[-2]["seconds"] == 60, "since the first of them began"


@pytest.mark.parametrize("language, word", [("tr", "Platforma"), ("en", "The marketplace")])
def test_the_log_says_cause_and_remedy_and_not_what_the_service_said(language: str, word: str):
    (line,) = log_of(([problem(detail="Ayşe Yılmaz, 0532")], 0.0), language=language)
    assert line["cause"].startswith(word)
    assert line["remedy"]
    assert "Ayşe" not in str(line)


HEADLINES = {
    "en": [
        "green: 12 accounts polled",
        "yellow: Some documents from the marketplace could not be stored as orders.",
        "red: kadikoy: The marketplace does not accept this account's login: no orders arrive. (since 21.11. 21:02, +1)",
    ],
    "tr": [
        "yeşil: 12 hesap sorgulanıyor",
        "sarı: Platformdan gelen bazı belgeler siparişe dönüştürülemedi.",
        "kırmızı: kadikoy: Platform bu hesabın giriş bilgilerini kabul etmiyor; sipariş gelmez. (başlangıç 21.11. 21:02, +1)",
    ],
}


@pytest.mark.parametrize("language", HEADLINES)
def test_all_of_it_in_one_line_is_the_light_and_the_worst(language: str):
    kept = Problem(Code.QUARANTINED, "", None, Severity.WARNING, facts={"by": "documents"})
    refused = Problem(Code.LOGIN_REFUSED, "kadikoy", datetime(2026, 11, 21, 18, 2, tzinfo=UTC), Severity.SEVERE)
    zone = ZoneInfo("Europe/Istanbul")
    assert [headline(found, 12, zone, language) for found in ([], [kept], [refused, kept])] == HEADLINES[language]


# ---- what others read ------------------------------------------------------------------------------------------------


def shown(shop: Shop) -> list[tuple[str, str, int]]:
    rows = shop.rows("SELECT code, subject, level FROM delivery_alarms ORDER BY code, subject")
    return [(row["code"], row["subject"], row["level"]) for row in rows]


async def test_a_till_and_other_programs_read_what_the_daemon_has_found(shop: Shop):
    checkup = shop.checkup()
    order = await shop.taken_in()
    take_over(shop)
    checkup.own_problems.begin(Code.CLOCK_WRONG, offset="+120")
    await asyncio.sleep(32)
    await shop.poll()
    await checkup.check()
    assert shown(shop) == [("clock_wrong", "", 1), ("unanswered", order.key, 1)]
    assert ("clock_wrong", "") in open_codes(shop)
    said = shop.one("SELECT cause FROM delivery_alarms WHERE code = 'clock_wrong'")["cause"]
    assert "+120 seconds" in said
    await asyncio.sleep(60)
    await shop.poll()
    await checkup.check()
    assert shown(shop)[1] == ("unanswered", order.key, 2)
    checkup.own_problems.end(Code.CLOCK_WRONG)
    shop.act("accept", order)
    await shop.drain()
    await checkup.check()
    assert (shown(shop), open_codes(shop)) == ([], [])


# ---- the lamp --------------------------------------------------------------------------------------------------------


def lamp(shop: Shop) -> tuple[str, str | None, str]:
    row = shop.one("SELECT * FROM delivery_lamp")  # one row for the one account
    assert row["account"] == "kadikoy"
    return row["lamp"], row["code"], row["since_utc"]


async def test_a_till_reads_one_lamp_for_each_account(shop: Shop):
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
    checkup.own_problems.end(Code.CLOCK_WRONG)
    await checkup.check()
    assert lamp(shop)[0] == "green"
    assert lamp(shop)[2] > green[2]


async def test_a_restart_leaves_the_lamp_and_its_time_and_a_dead_daemon_turns_it_red_until_the_next_one(shop: Shop):
    await shop.poll()
    await shop.checkup().check()
    before = lamp(shop)
    await asyncio.sleep(20)
    await shop.poll()
    await shop.checkup().check()
    assert lamp(shop) == before
    await asyncio.sleep(91)
    assert lamp(shop)[:2] == ("red", "not_polling")
    await shop.poll()
    await shop.checkup().check()
    assert lamp(shop)[0] == "green"
    assert lamp(shop)[2] > before[2]


async def test_a_lamp_that_nobody_may_write_is_tried_again_at_the_next_look(shop: Shop):
    checkup = shop.checkup()
    await shop.poll()
    shop.till.execute(
        "CREATE TRIGGER no_lamp BEFORE INSERT ON delivery_lamps BEGIN SELECT RAISE(ABORT, 'no lamp'); END"
    )
    await checkup.check()
    assert shop.rows("SELECT * FROM delivery_lamp") == []
    shop.till.execute("DROP TRIGGER no_lamp")
    await checkup.check()
    assert lamp(shop)[0] == "green"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was reported to the alarm command: event and code."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(Command, "run", lambda _, words, document: told.append((words[0], words[1])))
    return told


def teller(shop: Shop) -> Checkup:
    """One that has an alarm command, of a daemon that has just started."""
    checkup = shop.checkup(command=("alarm",), command_severity="warning")
    checkup.be_unsure()
    return checkup


async def looks(checkup: Checkup, times: int = 1) -> None:
    for _ in range(times):
        await checkup.check()
    await checkup.close()


async def cut_off(checkup: Checkup, database: Any, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A health check that a stop cancels during its last query or transaction."""
    asked = 0

    def cut(true: Any) -> Any:
        async def ask(work: Any) -> Any:
            nonlocal asked
            asked += 1
            done = await true(work)  # it is done, but the result is never seen
            if asked == after:
                raise asyncio.CancelledError
            return done

        return ask

    with monkeypatch.context() as patched:
        patched.setattr(database, "read", cut(database.read))
        patched.setattr(database, "run", cut(database.run))
        with pytest.raises(asyncio.CancelledError):
            await checkup.check()


REFUSED = ("began", "login_refused")


@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_a_daemon_that_is_stopped_in_its_first_look_leaves_what_was_told(
    after: int, shop: Shop, heard: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
):
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await looks(teller(shop))
    second = teller(shop)
    if after:
        await cut_off(second, shop.database, after, monkeypatch)
    await second.close()
    await looks(teller(shop))
    assert heard == [REFUSED]
    shop.till.execute("UPDATE delivery_accounts SET state = 'ok', last_poll_ok_utc = datetime('now', '+1 day')")
    await looks(teller(shop))
    assert heard == [REFUSED, ("ended", "login_refused")]


async def test_what_is_told_while_a_stop_cancels_its_note_is_not_told_again(
    shop: Shop, heard: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
):
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    first = teller(shop)
    await cut_off(first, shop.database, 3, monkeypatch)
    await first.close()
    await looks(teller(shop))
    assert heard == [REFUSED]


async def test_what_was_told_is_read_at_a_later_look_when_the_first_cannot(
    shop: Shop, heard: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
):
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await looks(teller(shop))
    second = teller(shop)

    async def broken(_: Any) -> Any:
        raise OperationalError("SELECT", None, sqlite3.OperationalError("disk I/O error"))

    with monkeypatch.context() as patched:
        patched.setattr(shop.database, "read", broken)
        await second.check()
    await looks(second)
    assert heard == [REFUSED]


async def test_nothing_is_written_while_nothing_changes_but_a_sign_of_life(shop: Shop):
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


async def test_a_database_that_takes_no_notes_costs_nobody_anything(shop: Shop):
    checkup = shop.checkup()
    await shop.poll()
    shop.till.execute("DROP VIEW delivery_alarms")
    shop.till.execute("DROP TABLE delivery_problems")
    checkup.own_problems.begin(Code.CLOCK_WRONG, offset="+120")
    assert [one.code for one in await checkup.check()] == ["view_broken", "clock_wrong"]


@pytest.mark.parametrize("room, found", [(10**9, []), (4096, [("database_full", "")])])
async def test_a_full_disk_is_seen_by_who_only_reads(room: int, found: list[Any], shop: Shop, monkeypatch: Any):
    await shop.poll()
    real = os.statvfs(shop.path.parent)
    fake = SimpleNamespace(f_flag=real.f_flag, f_bavail=room // 4096, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: fake)
    assert open_codes(shop) == found


async def test_a_disk_that_the_kernel_writes_to_no_more_is_seen(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """After an error on it: its flags and rights still say that it may be written."""
    await shop.poll()
    real = os.open

    def refusing(path: Any, flags: int, *more: Any, **how: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *more, **how)

    monkeypatch.setattr("os.open", refusing)
    assert open_codes(shop) == [("database_read_only", "")]


async def test_a_start_neither_ends_nor_begins_what_only_time_shows(shop: Shop):
    before = shop.checkup()
    before.be_unsure()
    await shop.poll()
    await asyncio.sleep(200)
    assert [one.code for one in await before.check()] == ["not_polling"]
    before.be_unsure()
    assert await before.check() == []
    assert (Code.NOT_POLLING, "kadikoy") in before.history.open()


async def test_what_is_open_over_a_reload_neither_begins_again_nor_ends_too_early(shop: Shop):
    kept = Kept()
    before, after = (shop.checkup(kept=kept) for _ in range(2))
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    before.own_problems.begin(Code.BOARD_UNHEARD)
    await before.check()
    after.be_unsure()
    after.begin_anew()
    with capture_logs() as logs:
        await after.check()
        assert logs == []
        await asyncio.sleep(91)  # by now it would know what only a daemon can
        await after.check()
    ((event, code, seconds),) = [(line["event"], line["code"], line["seconds"]) for line in logs]
    assert (event, code, seconds >= 91) == ("problem.ended", Code.BOARD_UNHEARD, True)
    assert (Code.LOGIN_REFUSED, "kadikoy") in after.history.open()


async def test_a_replica_that_is_reloaded_goes_on_once_it_is_the_lead_again(shop: Shop):
    kept = Kept()
    before, after = (shop.checkup(kept=kept) for _ in range(2))
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await before.check()
    with capture_logs() as logs:
        for _ in range(2):  # at its start, and when it becomes the lead
            after.begin_anew()
        await after.check()
        assert logs == []
        after.begin_anew()  # another was the lead meanwhile
        await after.check()
    assert [line["event"] for line in logs] == ["problem.began"]


async def test_a_database_that_took_nothing_for_minutes_is_told_and_not_that_nobody_polled_meanwhile(shop: Shop):
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


async def test_what_only_the_daemon_before_could_know_is_not_told_twice_and_its_end_is_told(
    shop: Shop, heard: list[tuple[str, str]]
):
    async def daemon(*, sees: bool, seconds: int) -> None:
        checkup = teller(shop)
        for second in range(0, seconds, 30):
            await shop.poll()
            if sees and second:  # it takes a while to be known
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
        await checkup.alarms.close()  # which lets what waits be sent
        return found

    await look()
    assert Code.ALARM_FAILING in await look()
    failures.clear()
    await asyncio.sleep(AGAIN_S)
    await look()
    assert Code.ALARM_FAILING not in await look()
    await checkup.close()


# ---- a file that is taken away ---------------------------------------------------------------------------------------


BEGAN = [REFUSED, ("began", "database_lost")]


async def lost(shop: Shop) -> Path:
    """A daemon whose file is moved away; where it is now."""
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    daemon = teller(shop)
    await daemon.check()
    away = shop.path.with_name("away")
    away.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shop.path.with_name(f"{shop.path.name}{suffix}").rename(away / f"{shop.path.name}{suffix}")
    await daemon.lost()
    await daemon.close()
    return away


def put_back(away: Path) -> None:
    for path in away.iterdir():
        path.rename(away.with_name(path.name))


@pytest.mark.parametrize("state", ["", "state"], ids=["beside the file", "in systemd's state directory"])
async def test_the_end_of_a_loss_is_told_once_by_the_daemon_that_has_the_file_again(
    state: str, shop: Shop, heard: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
):
    folder = shop.path.with_name(state) if state else shop.path.parent
    monkeypatch.setenv("STATE_DIRECTORY", str(folder) if state else "")
    put_back(await lost(shop))
    assert heard == BEGAN
    assert stat.S_IMODE((folder / "pos.db.lost").stat().st_mode) == 0o600
    await looks(teller(shop), 2)
    assert heard == [*BEGAN, ("ended", "database_lost")]
    assert shown(shop) == [("login_refused", "kadikoy", 1)]
    assert not (folder / "pos.db.lost").exists()
    await looks(teller(shop))
    assert len(heard) == 3


async def test_as_long_as_nobody_could_be_told_of_its_end_it_is_told_again(
    shop: Shop, heard: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
):
    put_back(await lost(shop))
    shop.till.execute("UPDATE delivery_accounts SET state = 'ok', last_poll_ok_utc = datetime('now', '+1 day')")
    before = Command.run
    with monkeypatch.context() as patched:
        patched.setattr(Command, "run", lambda *call: "ended" if call[1][1] == "database_lost" else before(*call))
        await looks(teller(shop))
    await looks(teller(shop))
    assert heard == [*BEGAN, ("ended", "login_refused"), ("ended", "database_lost")]


async def test_what_an_older_copy_says_was_told_is_not_believed(shop: Shop, heard: list[tuple[str, str]]):
    """A lost file leaves the reports up to the loss, not those up to the restored copy."""
    put_back(await lost(shop))
    shop.till.execute("UPDATE delivery_problems SET code = 'clock_wrong', subject = ''")
    await looks(teller(shop))
    assert heard == [*BEGAN, ("ended", "database_lost")]


async def test_the_end_of_a_database_that_took_nothing_is_told_by_the_daemon_after_the_one_that_told_of_it(
    shop: Shop, heard: list[tuple[str, str]]
):
    daemon = teller(shop)
    await daemon.check()

    def full(_: Connection) -> None:
        raise OperationalError("COMMIT", None, sqlite3.OperationalError("database or disk is full"))

    event.listen(shop.database.engine, "commit", full)
    await looks(daemon, 2)
    event.remove(shop.database.engine, "commit", full)
    assert heard == [("began", "database_full")]
    after = teller(shop)
    await after.check()
    await asyncio.sleep(100)  # until it is sure
    await shop.poll()
    await looks(after, 2)
    assert heard == [("began", "database_full"), ("ended", "database_full")]
    assert not shop.path.with_name("pos.db.lost").exists()
