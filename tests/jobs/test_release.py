"""Documents in quarantine are stored once their cause is corrected."""

import asyncio
from datetime import timedelta

import pytest
from tests.jobs.shop import Shop, listing

from orderbridge.jobs.reimport import Decision, Reimport, Released, release
from orderbridge_sandbox.state import Order

pytestmark = pytest.mark.plays_daemon
OLDER_AGAIN = {1: "last_seen_utc = '2026-03-02 09:30:00.000'", 2: "payload = replace(payload, '_id\":6', '_id\":2')"}
REOPENED = {
    1: "payload = replace(payload, '_id\":1', '_id\":6')",
    2: "payload = replace(payload, '_id\":6', '_id\":1')",
}
LATER = "first_seen_utc = '2026-03-02 11:00:00.000', last_seen_utc = '2026-03-02 {}:00.000'"
FIRST_WINS = {1: Decision.TAKEN_IN, 2: Decision.SUPERSEDED}
SECOND_WINS = {1: Decision.SUPERSEDED, 2: Decision.TAKEN_IN}


def retry(shop: Shop, row_id: int) -> list[Released]:
    return release(Reimport(shop.database, shop.settings, shop.clock.now()), row_id)


def release_all(shop: Shop) -> list[Released]:
    ids = [row["id"] for row in shop.rows("SELECT id FROM delivery_quarantine ORDER BY id")]
    return [one for row_id in ids for one in retry(shop, row_id)]


def outcomes(shop: Shop) -> list[Decision]:
    return [one.outcome for one in release_all(shop)]


def resolved(shop: Shop) -> list[bool]:
    return [row["resolved_utc"] is not None for row in shop.rows("SELECT * FROM delivery_quarantine ORDER BY id")]


async def refused(shop: Shop) -> Order:
    """An order that the database refused while it was delivered and acknowledged."""
    order = shop.place()
    shop.refuse("INSERT ON delivery_orders")
    await shop.poll()
    shop.allow()
    return order


@pytest.mark.parametrize("minutes, problem", [(5, None), (180, "late")])
async def test_an_order_that_waited_in_quarantine_is_late_by_its_own_time(shop, minutes, problem):
    order = await refused(shop)
    await asyncio.sleep(60 * minutes)
    assert (outcomes(shop), shop.order(order)["problem"]) == ([Decision.TAKEN_IN], problem)


async def test_an_order_that_only_the_database_refused_is_taken_in_whole(shop: Shop):
    order = await refused(shop)
    assert (await shop.poll()).delivered == 0  # it was acknowledged: the service does not bring it again
    assert outcomes(shop) == [Decision.TAKEN_IN]
    stored = shop.order(order)
    assert (stored["status"], stored["account"], stored["revision"]) == ("RECEIVED", "kadikoy", 1)
    assert shop.count("delivery_order_items") > 0
    assert (shop.count("delivery_new_orders"), resolved(shop), release_all(shop)) == (1, [True], [])
    assert shop.end((await shop.verdict(shop.act("accept", order)))["id"])[0] == "done"


async def refused_change(shop: Shop) -> Order:
    """A known order of which the database refused what is new."""
    order = await shop.taken_in()
    shop.refuse("UPDATE OF status_id ON delivery_orders")
    order.acknowledged = False
    order.document["note"] = "az tuzlu"
    assert (await shop.poll()).quarantined == 1
    shop.allow()
    return order


@pytest.mark.parametrize("news, stored", [("an action", ("CONFIRMED", False)), ("a delivery", ("RECEIVED", True))])
async def test_newer_news_of_the_order_wins(shop: Shop, news: str, stored: tuple[str, bool]):
    order = await refused_change(shop)
    if news == "an action":
        assert shop.end((await shop.verdict(shop.act("accept", order)))["id"])[0] == "done"
    else:
        order.document["note"] = "acılı"
        await shop.poll()
    shop.till.execute("UPDATE delivery_quarantine SET resolved_utc = NULL")
    assert outcomes(shop) == [Decision.SUPERSEDED]
    assert (shop.order(order)["status"], shop.order(order)["note"] == "acılı", resolved(shop)) == (*stored, [True])


async def test_an_action_without_a_verdict_goes_first(shop: Shop):
    row = shop.act("accept", await refused_change(shop))
    shop.till.execute("UPDATE delivery_actions SET state = 'sending' WHERE id = ?", (row,))
    assert (outcomes(shop), resolved(shop)) == ([Decision.WAITS], [False])


@pytest.mark.parametrize("payload", ['{"id": 7}', "[1]", '{"payment_key": "7"}', '{"a": 1]', ""])
async def test_a_document_that_is_still_no_order_stays_with_the_reason(shop: Shop, payload: str):
    shop.world.faults.add(listing(b'{"id": 7}'))
    await shop.poll()
    shop.till.execute("UPDATE delivery_quarantine SET payload = ?", (payload,))
    (one,) = release_all(shop)
    assert (one.outcome, bool(one.reason), resolved(shop)) == (Decision.REFUSED, True, [False])


async def refused_and_cancelled(shop: Shop) -> Order:
    """Both its documents are kept and were acknowledged: the service delivers neither again."""
    order = shop.place()
    shop.refuse("INSERT ON delivery_orders")
    await shop.poll()
    shop.world.cancel_by_customer(order.key)
    assert (await shop.poll()).acknowledged == 1
    shop.allow()
    assert (await shop.poll()).delivered == 0
    return order


@pytest.mark.parametrize("changes, named, fates, stored", [
    ({}, 1, SECOND_WINS, ("CANCELED", "kadikoy")), ({}, 2, SECOND_WINS, ("CANCELED", "kadikoy")),
    (OLDER_AGAIN, 2, FIRST_WINS, ("RECEIVED", "kadikoy")),
    ({2: "last_seen_utc = '2026-03-02 08:00:00.000'"}, 1, SECOND_WINS, ("CANCELED", "kadikoy")),
    (REOPENED | {1: f"{REOPENED[1]}, {LATER.format('11:00')}"}, 1, SECOND_WINS, ("RECEIVED", "kadikoy")),
    (OLDER_AGAIN | {1: LATER.format("09:30")}, 2, FIRST_WINS, ("RECEIVED", "kadikoy")),
    (REOPENED, 1, SECOND_WINS, ("RECEIVED", "kadikoy")),
    ({2: "account = 'besiktas'"}, 1, SECOND_WINS, ("CANCELED", "besiktas")),
], ids=["the older", "the newer", "the older again", "seen again after a clock was set back",
    "first seen then", "the older again then", "reopened", "of two accounts"])  # fmt: skip
async def test_of_several_documents_the_newest_counts(changes, named, fates, stored, shop):
    order = await refused_and_cancelled(shop)
    for row_id, change in changes.items():
        shop.till.execute(f"UPDATE delivery_quarantine SET {change} WHERE id = ?", (row_id,))
    assert {one.id: one.outcome for one in retry(shop, named)} == fates
    assert (shop.order(order)["status"], shop.order(order)["account"]) == stored
    assert (shop.count("delivery_new_orders"), resolved(shop)) == (stored[0] == "RECEIVED", [True, True])


async def test_while_the_newest_is_refused_or_unreadable_no_older_one_is_taken_in(shop: Shop):
    await refused_and_cancelled(shop)
    shop.refuse("INSERT ON delivery_orders", when="NEW.status_id = 6")
    assert {one.outcome for one in retry(shop, 1)} == {Decision.REFUSED}
    shop.till.execute("UPDATE delivery_quarantine SET payload = '[' WHERE id = 2")
    assert {(one.outcome, one.reason) for one in retry(shop, 1)} == {(Decision.REFUSED, "not_json")}
    assert (shop.count("delivery_orders"), resolved(shop)) == (0, [False, False])


async def test_an_order_that_was_kept_for_longer_than_an_order_lasts_is_not_printed_any_more(shop):
    order = await refused(shop)
    shop.clock.ahead += timedelta(days=2)
    assert outcomes(shop) == [Decision.TAKEN_IN_ENDED]
    assert (shop.order(order)["ended_by"], shop.count("delivery_new_orders")) == ("silence", 0)
