"""A restored older copy is detected, reports what it lacks, and sends nothing twice; nothing else is taken for one."""

import asyncio
import json
import shutil
import sqlite3
import stat
import threading
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import BASE_URL, FakeClock, Shop, raising, text_of

from orderbridge import config
from orderbridge.errors import Unusable
from orderbridge.jobs.context import Context
from orderbridge.jobs.restore_check import NOTE_EVERY_S, RestoreCheck
from orderbridge.rules.problems import Code, Problem
from orderbridge.store import accounts, high_water
from orderbridge.store.database import Database
from orderbridge.store.problem_rows import ProblemsFile
from orderbridge.store.workers import detached
from orderbridge.texts import problem_text

MARK_S = -60.0  # the mark was written a minute ago


class Keeper:
    """A shop's high-water mark, as its daemon keeps it."""

    def __init__(self, shop: Shop) -> None:
        context = Context.of(shop.settings, shop.database, shop.clock)
        self.known, self.kept = context.own_problems, context.kept
        self.check = RestoreCheck(context, shop.accounts)
        self.word = shop.path.with_name("pos.db.last-word")

    def problems(self) -> list[Problem]:
        return [one for one in self.known.problems() if one.code == Code.DATABASE_RESTORED]


async def begun(shop: Shop) -> Keeper:
    keeper = Keeper(shop)
    await keeper.check.start()
    await asyncio.sleep(0)  # the file is written beside
    return keeper


@pytest.fixture
async def shop(open_shop, clock: FakeClock, tmp_path: Path) -> Shop:
    return await open_shop(orders={"journal": "auto"})


@pytest.fixture
async def keeper(shop: Shop) -> Keeper:
    return await begun(shop)


async def test_an_older_copy_is_reported_with_what_it_lacks(shop: Shop, keeper: Keeper, restore):
    first = await shop.taken_in()
    shop.back_up()
    lost = [await shop.taken_in(), await shop.taken_in()]
    await keeper.check.check()
    assert stat.S_IMODE(keeper.word.stat().st_mode) == 0o600
    numbers = [shop.order(order)["order_number"] for order in (first, *lost)]
    again = await restore(shop)
    with capture_logs() as logs:
        found = await begun(again)
    (problem,) = found.problems()
    assert (problem.count, problem.facts["missing"]) == (2, "2")
    assert problem.facts["numbers"] == f"{numbers[0] + 1}-{numbers[2]}"
    assert "database.older_copy" in [line["event"] for line in logs]
    later = await begun(again)  # it stays, over restarts, until a person confirms it
    assert [one.since for one in later.problems()] == [problem.since]
    again.database.write_now(high_water.settle)
    await later.check.check()
    assert (later.problems(), (await begun(again)).problems()) == ([], [])


async def test_the_journal_shows_an_older_copy_that_an_old_mark_does_not(shop: Shop, keeper: Keeper, restore):
    """The machine failed seconds after the last order, before the mark was written."""
    shop.back_up()
    await asyncio.sleep(1)
    await shop.taken_in()
    assert [one.count for one in (await begun(await restore(shop))).problems()] == [1]


async def test_an_older_copy_is_found_while_the_daemon_runs(shop: Shop, keeper: Keeper):
    """As on a server, or by a copy over the file in place: device and inode stay the same."""
    await shop.taken_in()
    shop.back_up()
    for _ in range(3):
        await shop.taken_in()
    await keeper.check.check()
    assert keeper.problems() == []
    with closing(sqlite3.connect(shop.path.with_name("backup.db"))) as copy, copy:
        copy.backup(shop.till)
    await keeper.check.check()
    assert len(keeper.problems()) == 1


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("is_older", [True, False])
async def test_an_older_copy_beside_the_wal_of_a_newer_file_is_refused(shop: Shop, keeper: Keeper, is_older, is_noted):
    """SQLite would mix both, with the generation of the newer file. The last -wal may have begun after the mark."""
    await shop.taken_in()
    if is_older:
        shop.back_up()
    for _ in range(2):  # within one -wal, and within the next one
        await shop.taken_in()
        await keeper.check.check()
        assert shop.one("PRAGMA wal_checkpoint(RESTART)")["busy"] == 0
    if not is_older:
        shop.back_up()
    before = keeper.word.read_bytes()
    await shop.taken_in()
    await keeper.check.check()
    wal = shop.path.with_name("pos.db-wal").read_bytes()
    await shop.crash()
    shop.remove_file()
    shutil.copy(shop.path.with_name("backup.db"), shop.path)
    shop.path.with_name("pos.db-wal").write_bytes(wal)
    if not is_noted:
        keeper.word.write_bytes(before)
    with pytest.raises(Unusable, match="foreign_wal") if is_older else nullcontext():
        Database(shop.settings.database.url, inline=True).close()


async def test_a_check_that_comes_after_another_one_keeps_what_is_known_of_the_wal(shop, keeper, monkeypatch):
    for _ in range(2):
        await shop.taken_in()
        await keeper.check.check()
        assert shop.one("PRAGMA wal_checkpoint(RESTART)")["busy"] == 0
    await shop.taken_in()
    await keeper.check.check()
    mark = keeper.kept.high_water
    assert mark is not None
    keeper.kept.high_water = replace(mark, generation=mark.generation + 9)
    monkeypatch.setattr(high_water, "withhold", lambda *_: None)  # the other one has made the copy safe
    await keeper.check.check()
    assert 0 < mark.in_file <= keeper.kept.high_water.in_file


async def test_a_copy_that_was_made_safe_before_a_crash_keeps_its_own_wal(shop, keeper, restore, monkeypatch):
    """The mark is still that of the newer file, and the tables may lack the last poll."""
    shop.back_up()
    await shop.taken_in()
    await asyncio.sleep(2 * NOTE_EVERY_S)
    again = await restore(shop)
    with monkeypatch.context() as crashed:
        crashed.setattr(high_water.SidecarWriter, "put", lambda *_: None)
        before = Keeper(again).check
        await before.start()
        before._noting.cancel()
    assert await Keeper(again).check.start() > 0
    files = {path: path.read_bytes() for path in (again.path, again.path.with_name("pos.db-wal"))}
    await again.crash()
    for path, content in files.items():
        path.write_bytes(content)
    Database(shop.settings.database.url, inline=True).close()


@pytest.mark.parametrize("how", ["no word", "rubbish", "a folder", "31 MB"])
async def test_without_a_mark_nothing_is_reported(shop: Shop, keeper: Keeper, restore, how: str):
    shop.back_up()
    await shop.taken_in()
    await keeper.check.check()
    await asyncio.sleep(0)  # the file is written beside
    word = json.loads(keeper.word.read_text())
    keeper.word.unlink()
    match how:
        case "rubbish":
            keeper.word.write_bytes(b"\xff{")
        case "a folder":
            keeper.word.mkdir()
        case "31 MB":
            keeper.word.write_bytes(b" " * 31_000_000)
    again = await begun(await restore(shop))
    assert again.problems() == []
    assert again.word.is_dir() or json.loads(again.word.read_text())["event"] < word["event"]


@pytest.mark.parametrize("journal, was_lost, missing", [
    pytest.param("auto", True, [1], id="for one that was lost"),
    pytest.param("auto", False, [1], id="for one that was removed while no daemon ran"),
    pytest.param("off", True, [1], id="for one that was lost, without a journal"),
    pytest.param("off", False, [], id="on purpose, for all that is known"),
])  # fmt: skip
async def test_a_new_database_counts_as_an_older_copy(journal, was_lost, missing, shop, open_shop, empty_file):
    keeper = await begun(shop)
    await shop.taken_in()
    await keeper.check.check()
    await shop.crash()
    if was_lost:
        ProblemsFile(shop.database).write([{"code": "database_lost", "since_utc": None}])
    shop.remove_file()
    shutil.copy(empty_file, shop.path)
    again = await begun(await open_shop(orders={"journal": journal}))
    assert [one.count for one in again.problems()] == missing


@pytest.mark.plays_daemon
@pytest.mark.parametrize("created, is_sent", [
    pytest.param(-3600, False, id="in the copy"),
    pytest.param(MARK_S, False, id="at the mark"),
    pytest.param(-30, True, id="by a till after the restore"),
    pytest.param(3600, False, id="by a till's own clock, which is wrong"),
    pytest.param("soon", False, id="no time at all"),
])  # fmt: skip
async def test_after_an_older_copy_only_certainly_new_rows_are_sent(shop, restore, clock, created, is_sent):
    await begun(shop)
    await shop.taken_in()
    shop.back_up()
    await shop.taken_in()
    again = await restore(shop)
    await asyncio.sleep(-MARK_S)
    when = created if isinstance(created, str) else text_of(clock.now() + timedelta(seconds=created))
    row = again.act("deactivate_food", food_id=1001, created_utc=when)
    await begun(again)
    await again.outbox.recover()
    await again.drain()
    assert (again.end(row)[1] == "outcome_unknown") is not is_sent
    new = again.act("activate_food", food_id=1002)
    assert (await again.verdict(new))["state"] == "done", "what a till writes now is sent"


async def test_no_row_is_sent_while_the_database_refuses_to_end_those_of_the_copy(shop: Shop, keeper: Keeper, restore):
    orders = [await shop.taken_in(), await shop.taken_in()]
    row = shop.act("accept", orders[0])
    shop.refuse("UPDATE ON delivery_actions", when="NEW.error_code = 'outcome_unknown'")
    shop.back_up()
    assert (await shop.verdict(row))["state"] == "done"
    await asyncio.sleep(NOTE_EVERY_S)
    again = await restore(shop)
    await asyncio.sleep(1)
    new = again.act("accept", orders[1])
    for _ in range(2):  # also after a restart
        check = RestoreCheck(again.context, again.accounts)
        await check.start()
        assert again.context.own_problems.has(Code.DATABASE_RESTORED)
        await again.drain()
        await check.check()
        await again.drain()
        assert [again.row(one)["state"] for one in (row, new)] == ["pending", "pending"]
    again.allow()
    await check.check()
    await again.drain()
    assert (again.end(row), again.end(new)[0]) == (("failed", "outcome_unknown", None), "done")
    assert len([call for call in again.calls("accept") if call.argument == orders[0].key]) == 1


async def test_polls_are_held_until_the_last_ones_cooldown_is_over(shop: Shop, keeper: Keeper, restore):
    """The copy lacks the polls, and the mark may lack the last one. Polls alone raise no alarm."""
    shop.back_up()
    await shop.poll()
    await asyncio.sleep(2.5)
    again = await restore(shop)
    keeper = Keeper(again)
    again.cooldowns.hold(again.clock.monotonic() + await keeper.check.start())
    assert 49 < (await again.tick()).again_in <= 50
    assert keeper.problems() == []
    await again.poll()
    assert [call.http_status for call in again.calls("get_current")] == [200, 200]
    assert await Keeper(again).check.start() == 0, "nothing is held where nothing was put back"


async def test_an_account_that_was_changed_after_the_copy_waits_for_a_person(shop: Shop, keeper: Keeper, restore):
    changes = pytest.importorskip("orderbridge_fleet.account_changes")
    in_database = pytest.importorskip("orderbridge_fleet.account_settings")
    keys = in_database.MasterKeys([bytes(range(32))])

    def read(of: Shop) -> list[str]:
        return [one.name for one in of.database.read_now(lambda tx: in_database.read(tx, keys, BASE_URL)).accounts]

    def put(**minutes: int | None) -> None:
        accounts = [
            config.Account(name=name, app_secret_key="a", rest_secret_key=name, auto_accept_minutes=value).at(BASE_URL)
            for name, value in minutes.items()
        ]
        shop.database.write_now(lambda tx: changes.put(tx, keys, accounts, shop.clock.now()))

    put(unchanged=None, altered=20, disabled=None, removed=None)
    shop.back_up()
    put(altered=30, added=None)
    now = shop.clock.now()
    shop.database.write_now(lambda tx: changes.enable(tx, ["disabled"], now, enabled=False))
    shop.database.write_now(lambda tx: changes.remove(tx, ["removed"], now))
    await shop.database.run(lambda _: None)  # the daemon writes, and notes it
    await asyncio.sleep(2)
    again = await restore(shop)
    (problem,) = (await begun(again)).problems()
    assert (read(again), problem.facts["accounts"]) == (["unchanged"], "altered, disabled, removed")
    assert read(again) == ["unchanged"], "also after a restart"
    released = again.database.write_now(lambda tx: accounts.release(tx, again.clock.now()))
    assert released == ("altered", "disabled", "removed")
    assert read(again) == ["altered", "disabled", "removed", "unchanged"]


async def test_a_device_that_was_revoked_after_the_copy_stays_revoked(shop: Shop, keeper: Keeper, restore):
    devices = pytest.importorskip("orderbridge_board.devices")
    cookies = []
    for name in ("bar", "kitchen"):
        code = shop.database.write_now(lambda tx: devices.new_code(tx, devices.ACT, shop.clock.now()))
        pair = partial(devices.pair, code=code, name=name, now=shop.clock.now())
        cookies.append(shop.database.write_now(pair))
    used = shop.database.write_now(lambda tx: devices.new_code(tx, devices.ACT, shop.clock.now()))
    shop.back_up()
    shop.database.write_now(lambda tx: devices.revoke(tx, "bar", shop.clock.now()))
    await shop.database.read(keeper.check.read)
    await keeper.check.follow()
    again = await restore(shop)
    assert len((await begun(again)).problems()) == 1
    known = [again.database.read_now(partial(devices.known, cookie=cookie)) for cookie in cookies]
    assert [one is not None for one in known] == [False, True]
    pair = partial(devices.pair, code=used, name="thief", now=again.clock.now())
    assert again.database.write_now(pair) is None


async def test_a_hanging_disk_of_the_mark_is_reported_and_delays_nothing(shop: Shop, keeper: Keeper, monkeypatch):
    """Of the marks that wait meanwhile, only the newest is written."""
    gate, entered, written = threading.Event(), threading.Event(), []

    def hangs(_: Path, document: object) -> None:
        entered.set()
        gate.wait()
        written.append(document)

    monkeypatch.setattr(high_water, "write_document", hangs)
    file = keeper.check._file = high_water.SidecarWriter(keeper.word, detached)
    for _ in range(3):
        await shop.taken_in()
        await keeper.check.check()
        await asyncio.to_thread(entered.wait)
    monkeypatch.setattr(file, "slow_s", lambda: 11.0)
    keeper.check.check_file()
    assert keeper.known.has(Code.LAST_WORD_NOT_WRITTEN)
    await keeper.check.close()  # not waited for either
    gate.set()
    await file._writing
    assert (len(written), written[-1]["event"]) == (2, keeper.kept.high_water.event)
    monkeypatch.undo()
    keeper.check.check_file()
    assert not keeper.known.has(Code.LAST_WORD_NOT_WRITTEN)


async def test_a_mark_that_cannot_be_written_for_lack_of_a_thread_is_reported(shop: Shop, keeper: Keeper, monkeypatch):
    file = keeper.check._file = high_water.SidecarWriter(keeper.word, detached)
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    await shop.taken_in()
    await keeper.check.check()
    await file._writing
    keeper.check.check_file()
    assert keeper.known.has(Code.LAST_WORD_NOT_WRITTEN)
    assert (file.error.strerror, file.slow_s()) == ("can't start new thread", 0)
    (problem,) = keeper.known.problems()
    assert "TasksMax" in problem_text(problem.code, "en", **problem.facts)[1]
