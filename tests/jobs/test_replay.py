"""The journal replayed over an older copy: everything is restored, nothing is sent, nothing newer is overwritten."""

import asyncio
from pathlib import Path

import pytest
from tests.jobs.shop import Shop, listing
from tests.jobs.test_health import open_codes
from tests.store.samples import difference

from orderbridge.jobs.reimport import Decision, Reimport, Replayed, find, release
from orderbridge.jobs.reimport import replay as replayed
from orderbridge.store import journal


@pytest.fixture
async def shop(open_shop) -> Shop:
    return await open_shop(auto_accept_minutes=20, orders={"journal": "auto"})


def replay(shop: Shop, folder: Path) -> dict[str, Replayed]:
    reimport = Reimport(shop.database, shop.settings, shop.clock.now())
    return {one.payment_key: one for one in replayed(reimport, find(journal.files(folder)))}


def fates(shop: Shop, folder: Path) -> dict[str, Decision]:
    return {key: one.fate for key, one in replay(shop, folder).items()}


async def test_orders_newer_than_the_copy_are_restored_and_shown_to_the_till(shop, folder, restore):
    known = await shop.taken_in()
    shop.back_up()
    lost = [await shop.taken_in(note="soğansız"), await shop.taken_in()]
    before = {order.key: shop.order(order) for order in lost}
    again = await restore(shop)
    assert fates(again, folder) == {known.key: Decision.KNOWN} | {order.key: Decision.TAKEN_IN for order in lost}
    for order in lost:
        row = again.order(order)
        assert difference(before[order.key], row) <= {"changed_utc", "acknowledged_utc", "acknowledged_status_id"}
        assert (row["pos_revision"], again.story(order)) == (0, ["received", "replayed"])
        lines = again.rows("SELECT name, price FROM delivery_order_items WHERE payment_key = ?", order.key)
        assert len(lines) == len(order.document["foods"])
    new = again.rows("SELECT payment_key FROM delivery_new_orders ORDER BY received_utc")
    assert [row["payment_key"] for row in new][-2:] == [order.key for order in lost]


async def test_nothing_is_sent_and_nothing_is_accepted_twice(shop: Shop, folder: Path, restore):
    shop.back_up()
    order = await shop.taken_in()
    await shop.drain()
    assert (order.status_id, len(shop.calls("accept"))) == (2, 1)
    again = await restore(shop)
    asked = len(again.world.calls())
    assert fates(again, folder) == {order.key: Decision.TAKEN_IN}
    await again.drain()
    assert (len(again.world.calls()), again.count("delivery_actions")) == (asked, 0)
    await again.poll()  # the copy knows nothing of the last poll: one 429
    await again.poll()
    await again.drain()
    assert (again.order(order)["status"], len(again.calls("accept"))) == ("CONFIRMED", 1)


async def test_a_change_that_the_copy_lacks_is_stored(shop: Shop, folder: Path, restore):
    order = await shop.taken_in(note="acılı")
    shop.take_over()
    await shop.drain()
    shop.back_up()
    shop.world.faults.add(listing(order.document | {"payment_key": order.key, "status_id": 6, "note": "acısız"}))
    await shop.poll()
    again = await restore(shop)
    assert fates(again, folder) == {order.key: Decision.UPDATED}
    row = again.order(order)
    changed = {"status": "CANCELED", "note": "acısız", "ended_by": "cancelled", "last_change": "cancelled"}
    assert changed.items() <= row.items()
    assert row["pos_revision"] < row["revision"]


async def test_blanked_and_damaged_documents_are_reported_and_an_older_one_is_used(shop, folder, restore):
    shop.back_up()
    blanked = await shop.taken_in()
    changed = await shop.taken_in()
    await shop.drain()
    await shop.poll()
    (file,) = journal.files(folder)
    journal.blank(folder, [blanked.key])
    lines = file.read_bytes().splitlines(keepends=True)
    lines[-1] = lines[-1].replace(b'"status_id\\":', b'"status_xx\\":')
    lines.append(b'{"payment_key":"torn')
    file.write_bytes(b"".join(lines))
    done = replay(await restore(shop), folder)
    assert (done[blanked.key].fate, done[changed.key].fate) == (Decision.BLANKED, Decision.TAKEN_IN)
    assert find(journal.files(folder)).torn == 1


@pytest.mark.plays_daemon
async def test_documents_that_are_kept_count_by_their_time(shop: Shop, folder: Path):
    """The POS's trigger refused an order and its cancellation, and the journal lacks the cancellation."""
    shop.refuse("INSERT ON delivery_orders")
    order = shop.place()
    await shop.poll()
    shop.world.cancel_by_customer(order.key)
    await shop.poll()
    (file,) = journal.files(folder)
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    assert fates(shop, folder) == {order.key: Decision.REFUSED}  # so the older one does not count as the newest
    assert [row["times_seen"] for row in shop.rows("SELECT times_seen FROM delivery_quarantine")] == [1, 1]
    shop.allow()
    assert fates(shop, folder) == {order.key: Decision.TAKEN_IN}
    assert shop.rows("SELECT id FROM delivery_quarantine WHERE resolved_utc IS NULL") == [{"id": 2}]
    (released,) = release(Reimport(shop.database, shop.settings, shop.clock.now()), 2)
    assert (released.outcome, shop.order(order)["status"]) == (Decision.UPDATED, "CANCELED")
    await asyncio.sleep(600)
    await shop.poll()
    assert open_codes(shop) == []  # and it was acknowledged long ago
