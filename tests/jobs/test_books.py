"""An older copy of the database that was put back is seen, says what it lacks, and sends nothing twice. Nothing else is."""

import asyncio
import json
import shutil
import sqlite3
import stat
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import FakeClock, Shop

from orderbridge.jobs.books import Books
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.journal import Journal
from orderbridge.rules.problems import Code, Problem
from orderbridge.store import books
from orderbridge.store.lost import Loss


class Keeper:
    """A shop's books, as its daemon looks at them."""

    def __init__(self, shop: Shop) -> None:
        self.known = DaemonProblems(shop.database, shop.clock)
        self.books = Books(shop.settings, shop.database, shop.clock, self.known)
        self.word = shop.path.with_name("pos.db.last-word")

    def problems(self) -> list[Problem]:
        return [one for one in self.known.problems() if one.code == Code.DATABASE_RESTORED]


async def begun(shop: Shop) -> Keeper:
    keeper = Keeper(shop)
    await keeper.books.start()
    return keeper


@pytest.fixture
async def shop(open_shop: OpenShop, clock: FakeClock, tmp_path: Path) -> Shop:
    shop = await open_shop(orders={"journal": "auto"})
    shop.pollers["kadikoy"]._intake.acknowledger._journal = Journal(shop.settings.journal, clock=clock, inline=True)
    return shop


def back_up(shop: Shop, name: str = "backup.db") -> None:
    with closing(sqlite3.connect(shop.path.with_name(name))) as copy, copy:
        shop.till.backup(copy)
    copy.close()


@pytest.fixture
def restore(open_shop: OpenShop):
    async def restore(shop: Shop, name: str = "backup.db") -> Shop:
        await shop.crash()
        for beside in ("-wal", "-shm"):
            shop.path.with_name(shop.path.name + beside).unlink(missing_ok=True)
        shutil.copy(shop.path.with_name(name), shop.path)
        return await open_shop(orders={"journal": "auto"})

    return restore


async def test_an_older_copy_is_told_with_what_it_lacks(shop: Shop, restore):
    keeper = await begun(shop)
    first = await shop.taken_in()
    back_up(shop)
    lost = [await shop.taken_in(), await shop.taken_in()]
    await keeper.books.look()
    numbers = [shop.order(order)["order_number"] for order in (first, *lost)]
    again = await restore(shop)
    with capture_logs() as logs:
        found = await begun(again)
    (problem,) = found.problems()
    assert (problem.count, problem.facts["missing"]) == (2, "2")
    assert problem.facts["numbers"] == f"{numbers[0] + 1}-{numbers[2]}"
    assert "database.older_copy" in [line["event"] for line in logs]
    later = await begun(again)  # it stays, over restarts, until somebody has looked
    assert [one.since for one in later.problems()] == [problem.since]
    again.database.write_now(books.settle)
    await later.books.look()
    assert later.problems() == []
    assert (await begun(again)).problems() == []


async def test_the_journal_knows_better_than_a_word_of_before_the_copy(shop: Shop, restore):
    """The machine died seconds after the last order, and before the word was written."""
    await begun(shop)
    back_up(shop)
    await asyncio.sleep(1)
    await shop.taken_in()
    assert [one.count for one in (await begun(await restore(shop))).problems()] == [1]


async def test_what_went_to_quarantine_is_not_missing(shop: Shop, restore):
    shop.till.execute("CREATE TRIGGER no BEFORE INSERT ON delivery_orders BEGIN SELECT raise(ABORT, 'no'); END")
    await begun(shop)
    await shop.taken_in()
    assert (await begun(shop)).problems() == []


async def test_what_the_copy_had_to_send_is_not_sent(shop: Shop, restore):
    """It may have been sent after the copy was made. What a till writes now is new."""
    keeper = await begun(shop)
    orders = [await shop.taken_in(), await shop.taken_in()]
    row = shop.act("accept", orders[0])
    back_up(shop)
    assert (await shop.verdict(row))["state"] == "done"
    await keeper.books.look()
    again = await restore(shop)
    await asyncio.sleep(1)
    new = again.act("accept", orders[1])
    await begun(again)
    await again.outbox.recover()
    await again.drain()
    assert again.end(row) == ("failed", "outcome_unknown", None)
    assert again.end(new)[0] == "done"
    assert len([call for call in again.calls("accept") if call.argument == orders[0].key]) == 1


async def test_it_is_seen_while_the_daemon_runs(shop: Shop):
    """As on a server, or by a copy over the file in place: device and inode stay the same."""
    keeper = await begun(shop)
    await shop.taken_in()
    back_up(shop)
    for _ in range(3):
        await shop.taken_in()
    await keeper.books.look()
    assert keeper.problems() == []
    with closing(sqlite3.connect(shop.path.with_name("backup.db"))) as copy, copy:
        copy.backup(shop.till)
    copy.close()
    await keeper.books.look()
    assert len(keeper.problems()) == 1


async def test_a_copy_of_the_same_moment_is_no_older_one(shop: Shop, restore):
    keeper = await begun(shop)
    await shop.taken_in()
    await keeper.books.look()
    back_up(shop)
    await shop.poll()
    await keeper.books.look()
    assert (await begun(await restore(shop))).problems() == []


@pytest.mark.parametrize("how", ["no word", "rubbish", "a word of another database", "a folder", "31 MB"])
async def test_without_a_word_of_its_own_nothing_is_told(shop: Shop, restore, how: str):
    keeper = await begun(shop)
    back_up(shop)
    await shop.taken_in()
    await keeper.books.look()
    word = json.loads(keeper.word.read_text())
    keeper.word.unlink()
    match how:
        case "rubbish":
            keeper.word.write_bytes(b"\xff{")
        case "a word of another database":
            keeper.word.write_text(json.dumps(word | {"books": "another"}))
        case "a folder":
            keeper.word.mkdir()
        case "31 MB":
            keeper.word.write_bytes(b" " * 31_000_000)
    again = await begun(await restore(shop))
    assert again.problems() == []
    assert again.word.is_dir() or json.loads(again.word.read_text())["event"] < word["event"]


@pytest.mark.plays_daemon
async def test_lines_of_stories_that_were_deleted_are_no_older_copy(shop: Shop, clock: FakeClock, open_shop: OpenShop):
    keeper = await begun(shop)
    await shop.taken_in()
    await keeper.books.look()
    await shop.poll()
    shop.till.execute("DELETE FROM delivery_order_events")
    await keeper.books.look()
    assert keeper.problems() == []
    await shop.taken_in()
    assert (await begun(shop)).problems() == []


@pytest.mark.parametrize("missing", [[], [1]], ids=["on purpose", "for one that was lost"])
async def test_a_new_database_on_purpose_is_no_older_copy_and_one_for_a_lost_one_is(
    missing: list[int], shop: Shop, open_shop: OpenShop, empty_file: Path
):
    keeper = await begun(shop)
    await shop.taken_in()
    await keeper.books.look()
    await shop.crash()
    if missing:
        Loss(shop.database).write([{"code": "database_lost", "since_utc": None}])
    for beside in ("", "-wal", "-shm"):
        shop.path.with_name(shop.path.name + beside).unlink(missing_ok=True)
    shutil.copy(empty_file, shop.path)
    again = await open_shop(orders={"journal": "auto"})
    assert [one.count for one in (await begun(again)).problems()] == missing


async def test_a_look_that_finds_nothing_new_asks_one_question(shop: Shop):
    keeper = await begun(shop)
    await shop.taken_in()
    await keeper.books.look()
    asked: list[str] = []
    event.listen(shop.database.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    await keeper.books.look()
    assert len([statement for statement in asked if statement.startswith("SELECT")]) == 1


async def test_the_word_is_written_when_there_is_news_and_is_for_its_owner_alone(shop: Shop, clock: FakeClock):
    keeper = await begun(shop)
    await shop.taken_in()
    await keeper.books.look()
    before = keeper.word.stat()
    assert stat.S_IMODE(before.st_mode) == 0o600
    clock.ahead -= timedelta(days=1)
    await keeper.books.look()
    assert keeper.word.stat().st_ino == before.st_ino
    shop.place()
    while not (await shop.poll()).acknowledged:  # a clock that was set costs a wait
        pass
    await keeper.books.look()
    assert keeper.word.stat().st_ino != before.st_ino
    assert keeper.problems() == []


async def test_a_word_that_cannot_be_written_is_told_once_and_stops_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    keeper = await begun(shop)
    monkeypatch.setattr(books, "write_word", full)
    with capture_logs() as logs:
        for _ in range(2):
            await shop.taken_in()
            await keeper.books.look()
    assert [line["event"] for line in logs].count("database.last_word_not_written") == 1
