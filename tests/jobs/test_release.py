"""Documents in quarantine, tried once more when the cause is gone."""

from collections.abc import Callable

import pytest
from tests.jobs.shop import Shop, listing

from orderbridge.jobs.release import Released, release
from orderbridge.rules.late_documents import Release
from orderbridge.rules.statuses import Statuses
from orderbridge.sandbox.state import Order

pytestmark = pytest.mark.plays_daemon

Refuse = Callable[..., Callable[[], None]]


def release_all(shop: Shop) -> list[Released]:
    """As the command does it: the newest first."""
    ids = [row["id"] for row in shop.rows("SELECT id FROM delivery_quarantine ORDER BY id DESC")]
    done = [release(shop.database, row_id, statuses=Statuses(), now=shop.clock.now()) for row_id in ids]
    return [one for one in done if one is not None]


def outcomes(shop: Shop) -> list[Release]:
    return [one.outcome for one in release_all(shop)]


def resolved(shop: Shop) -> list[bool]:
    return [row["resolved_utc"] is not None for row in shop.rows("SELECT * FROM delivery_quarantine ORDER BY id")]


@pytest.fixture
def refuse(shop: Shop) -> Refuse:
    """The database refuses one kind of statement about orders, until the returned function is called."""

    def refuse(statement: str) -> Callable[[], None]:
        shop.till.execute(
            f"CREATE TRIGGER no BEFORE {statement} ON delivery_orders BEGIN SELECT raise(ABORT, 'no'); END"
        )
        return lambda: shop.till.execute("DROP TRIGGER no") and None

    return refuse


async def refused(shop: Shop, refuse: Refuse) -> Order:
    """An order that the database refused while it was delivered and acknowledged."""
    order = shop.place()
    mend = refuse("INSERT")
    await shop.poll()
    mend()
    return order


async def test_an_order_that_only_the_database_refused_is_taken_in_whole(shop: Shop, refuse: Refuse):
    order = await refused(shop, refuse)
    assert (await shop.poll()).delivered == 0  # it was acknowledged: the service does not bring it again
    assert outcomes(shop) == [Release.TAKEN_IN]
    stored = shop.order(order)
    assert (stored["status"], stored["account"], stored["revision"]) == ("RECEIVED", "kadikoy", 1)
    assert shop.count("delivery_order_items") > 0
    assert shop.count("delivery_new_orders") == 1
    assert resolved(shop) == [True]
    assert release_all(shop) == []
    assert shop.end((await shop.verdict(shop.act("accept", order)))["id"])[0] == "done"


async def test_nothing_is_accepted_by_itself(open_shop):
    shop = await open_shop(auto_accept_minutes=20)
    shop.till.execute("CREATE TRIGGER no BEFORE INSERT ON delivery_orders BEGIN SELECT raise(ABORT, 'no'); END")
    shop.place()
    await shop.poll()
    shop.till.execute("DROP TRIGGER no")
    assert outcomes(shop) == [Release.TAKEN_IN]
    assert shop.count("delivery_actions") == 0


async def test_while_the_cause_is_there_it_stays(shop: Shop, refuse: Refuse):
    order = await refused(shop, refuse)
    refuse("INSERT")
    assert release_all(shop) == [Released(1, order.key, Release.KEPT, "database_refused")]
    assert resolved(shop) == [False]


async def test_a_cancellation_that_the_database_refused_reaches_the_till(shop: Shop, refuse: Refuse):
    order = await shop.taken_in()
    mend = refuse("UPDATE OF status_id")
    shop.world.cancel_by_customer(order.key)
    assert (await shop.poll()).acknowledged == 0
    mend()
    assert shop.order(order)["status_id"] == 1
    assert outcomes(shop) == [Release.TAKEN_IN]
    stored = shop.order(order)
    assert (stored["status"], stored["last_change"], stored["revision"]) == ("CANCELED", "cancelled", 2)
    assert (await shop.poll()).acknowledged == 1


async def test_newer_news_of_the_order_count(shop: Shop, refuse: Refuse):
    order = await shop.taken_in()
    mend = refuse("UPDATE OF status_id")
    order.acknowledged = False
    order.document["note"] = "az tuzlu"
    assert (await shop.poll()).quarantined == 1
    mend()
    assert shop.end((await shop.verdict(shop.act("accept", order)))["id"])[0] == "done"
    shop.till.execute("UPDATE delivery_quarantine SET resolved_utc = NULL")
    assert outcomes(shop) == [Release.SUPERSEDED]
    assert shop.order(order)["status"] == "CONFIRMED"
    assert resolved(shop) == [True]


async def test_an_order_of_another_account_is_left_alone(shop: Shop, refuse: Refuse):
    order = await shop.taken_in()
    mend = refuse("UPDATE OF status_id")
    shop.world.cancel_by_customer(order.key)
    await shop.poll()
    mend()
    shop.till.execute("UPDATE delivery_orders SET account = 'besiktas'")
    assert outcomes(shop) == [Release.FOREIGN]
    assert shop.order(order)["status"] == "RECEIVED"


async def test_an_action_without_a_verdict_goes_before(shop: Shop, refuse: Refuse):
    order = await shop.taken_in()
    mend = refuse("UPDATE OF status_id")
    order.acknowledged = False
    order.document["note"] = "az tuzlu"
    assert (await shop.poll()).quarantined == 1
    mend()
    row = shop.act("accept", order)
    shop.till.execute("UPDATE delivery_actions SET state = 'sending' WHERE id = ?", (row,))
    assert outcomes(shop) == [Release.WAITS]
    assert resolved(shop) == [False]


@pytest.mark.parametrize("payload", ['{"id": 7}', "[1]", '{"payment_key": "7"}', '{"a": 1]', ""])
async def test_what_is_no_order_still_stays_and_says_why(shop: Shop, payload: str):
    shop.world.faults.add(listing(b'{"id": 7}'))
    await shop.poll()
    shop.till.execute("UPDATE delivery_quarantine SET payload = ?", (payload,))
    (one,) = release_all(shop)
    assert one.outcome == Release.KEPT
    assert one.reason
    assert resolved(shop) == [False]


async def test_of_several_documents_of_one_order_the_newest_counts(shop: Shop, refuse: Refuse):
    order = await refused(shop, refuse)
    shop.till.execute(
        "INSERT INTO delivery_quarantine (account, payment_key, payload, payload_hash, reason, first_seen_utc,"
        " last_seen_utc) SELECT account, payment_key, replace(payload, '\"status_id\": 1', '\"status_id\": 6'), 'x',"
        " reason, first_seen_utc, last_seen_utc FROM delivery_quarantine"
    )
    assert outcomes(shop) == [Release.TAKEN_IN]
    assert shop.order(order)["status"] in {"CANCELED", "RECEIVED"}
    assert resolved(shop) == [True, True]
