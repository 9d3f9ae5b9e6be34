"""The journal has each document once, before its acknowledgement is sent, and never delays orders for long."""

import asyncio
import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import FakeClock, Shop, raising

from orderbridge.jobs import journal_writer as jobs_journal
from orderbridge.store import journal
from orderbridge.store.journal import Entry
from orderbridge.store.workers import detached
from orderbridge.texts import problem_text
from orderbridge_sandbox import Fault


@pytest.fixture
async def shop(open_shop) -> Shop:
    return await open_shop(orders={"journal": "auto"})


def entries(folder: Path) -> list[Entry]:
    return [entry for entry in journal.entries(journal.files(folder)) if entry is not None]


async def test_a_document_is_journaled_before_the_acknowledgement_leaves(shop: Shop, folder: Path):
    seen: list[int] = []

    shop.line.when_leaving("acknowledge", lambda: seen.append(len(entries(folder))))
    order = await shop.taken_in(note="soğansız")
    assert seen == [1]
    (entry,) = entries(folder)
    assert (entry.payment_key, entry.account, entry.status_id) == (order.key, "kadikoy", 1)
    assert journal.document(entry) == shop.order(order)["payload"].encode()
    assert json.loads(journal.document(entry) or b"")["note"] == "soğansız"


async def test_an_unchanged_document_is_journaled_once(shop: Shop, folder: Path):
    shop.world.faults.add(Fault(operation="acknowledge", status=500, times=3))
    order = shop.place()
    for _ in range(3):
        assert (await shop.poll()).dropped == 1
    assert ((await shop.poll()).acknowledged, len(entries(folder))) == (1, 1)
    await shop.acted("accept", order)
    await shop.poll()
    assert [entry.status_id for entry in entries(folder)] == [1, 2]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A disk that is full until the returned list is empty."""
    reasons = [28]
    append = journal.append

    def fail(*arguments: object) -> None:
        if reasons:
            raise OSError(reasons[0], "No space left on device")
        append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "append", fail)
    return reasons


async def test_a_full_disk_delays_no_order_and_the_journal_catches_up_later(shop: Shop, folder: Path, full: list[int]):
    with capture_logs() as logs:
        orders = [await shop.taken_in(), await shop.taken_in()]
    assert [line["event"] for line in logs if line["event"].startswith("journal")] == ["journal.failed"]
    assert shop.journal.since is not None and shop.journal.error == "No space left on device"
    full.clear()
    with capture_logs() as logs:
        await shop.journal.tidy(90, shop.clock.now())
        await shop.journal.close()
    assert shop.journal.since is None
    assert [line["documents_missing"] for line in logs if line["event"] == "journal.written_again"] == [0]
    assert [entry.payment_key for entry in entries(folder)] == [order.key for order in orders]


async def test_without_a_free_thread_a_document_is_written_later(shop, folder, monkeypatch):
    shop.journal._run = detached
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    orders = [await shop.taken_in()]
    assert shop.journal.error == "can't start new thread"
    known = shop.context.own_problems
    shop.journal.report(known)
    (problem,) = known.problems()
    assert "TasksMax" in problem_text(problem.code, "en", **problem.facts)[1]
    monkeypatch.undo()
    shop.journal._run = shop.database.in_own_thread
    orders.append(await shop.taken_in())
    assert [entry.payment_key for entry in entries(folder)] == [order.key for order in orders]


async def test_documents_beyond_the_limit_are_dropped_and_counted(shop, folder, full, monkeypatch):
    monkeypatch.setattr(jobs_journal, "MAX_WAITING", 3000)
    orders = [await shop.taken_in() for _ in range(6)]
    full.clear()
    with capture_logs() as logs:
        last = await shop.taken_in()
    (written,) = [line for line in logs if line["event"] == "journal.written_again"]
    there = [entry.payment_key for entry in entries(folder)]
    assert there == [order.key for order in [*orders, last]][-len(there) :]
    assert written["documents_missing"] == 7 - len(there) > 0


async def test_a_hanging_disk_delays_one_poll_by_three_seconds_and_no_later_one(shop, folder, clock):
    go = asyncio.Event()

    async def hang(call):
        await go.wait()
        call()

    shop.journal._run = hang
    orders = [shop.place()]
    before = clock.monotonic()
    assert (await shop.poll()).acknowledged == 1
    assert 3 <= clock.monotonic() - before < 5
    orders.append(shop.place())
    await asyncio.sleep(60)
    before = clock.monotonic()
    assert (await shop.poll()).acknowledged == 1
    assert clock.monotonic() - before < 1
    go.set()
    await shop.journal.close()
    assert [entry.payment_key for entry in entries(folder)] == [order.key for order in orders]
    assert shop.journal.since is None


async def test_a_document_is_kept_no_longer_than_the_orders(shop: Shop, folder: Path, clock: FakeClock):
    await shop.taken_in()
    clock.ahead += timedelta(days=90)
    await shop.taken_in()
    await shop.journal.tidy(90, shop.clock.now())
    assert len(entries(folder)) == 2
    clock.ahead += timedelta(days=1)
    await shop.journal.tidy(0, shop.clock.now())
    assert len(entries(folder)) == 2
    await shop.journal.tidy(90, shop.clock.now())
    assert len(entries(folder)) == 1
