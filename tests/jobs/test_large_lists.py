"""Lists that are too large, or that the service cuts: their orders are stored nevertheless."""

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop

from orderbridge.marketplace.documents import read_stored
from orderbridge.net import http
from orderbridge.rules import deliveries as rules
from orderbridge_sandbox import Fault
from orderbridge_sandbox.state import Order

LIMIT = 100_000  # bytes of a body, for these tests


@pytest.fixture
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_BODY_LIMIT", LIMIT)


def large(shop: Shop, status_id: int, share: float = 0.6) -> Order:
    return shop.place(status_id=status_id, note="x" * int(LIMIT * share))


def asked(shop: Shop) -> list[int | None]:
    """The statuses of all polls so far; None: the whole list."""
    return [int(call.argument) if call.argument else None for call in shop.calls("get_current")]


@pytest.mark.usefixtures("small_bodies")
async def test_a_list_that_is_too_large_is_requested_by_status_until_it_is_whole(open_shop):
    shop = await open_shop(needs_payment_status_id=7)
    placed = [large(shop, status) for status in (1, 2, 16, 7)]
    with capture_logs() as lines:
        polls = [await shop.poll() for _ in range(6)]
    assert (asked(shop), [polled.acknowledged for polled in polls]) == ([None, 1, 2, 16, 7, None], [0, 1, 1, 1, 1, 0])
    assert {shop.order(order)["acknowledged_utc"] is not None for order in placed} == {True}
    told = [line["event"] for line in lines]
    assert [told.count(event) for event in ("poll.list_too_large", "poll.failed", "poll.recovered")] == [1, 1, 1]
    assert shop.one("SELECT state, last_error FROM delivery_accounts") == {"state": "ok", "last_error": None}


@pytest.mark.usefixtures("small_bodies")
async def test_a_part_that_is_too_large_blocks_no_other_and_is_logged_once(shop: Shop):
    stuck = [large(shop, 1), large(shop, 1)]
    fine = large(shop, 16, 0.3)
    with capture_logs() as lines:
        for _ in range(10):
            await shop.poll()
    # From the second round on the cancelled ones are asked for, too: they may be what fills the list.
    assert asked(shop) == [None, 1, 2, 16, None, 1, 2, 16, 6, None]
    assert [order.acknowledged for order in (*stuck, fine)] == [False, False, True]
    told = [(line["event"], line.get("status_id")) for line in lines if line["event"].startswith("poll.")]
    assert told == [("poll.list_too_large", None), ("poll.failed", None), ("poll.part_too_large", 1)]


@pytest.mark.usefixtures("small_bodies")
async def test_absence_from_a_part_proves_nothing(shop: Shop):
    order = await shop.taken_in()
    large(shop, 2), large(shop, 2)
    await shop.poll()
    row = shop.act("accept", order)
    shop.world.faults.add(Fault.drop("accept"))
    await shop.drain()
    assert (await shop.poll()).delivered == 0
    await shop.drain()
    assert (asked(shop)[-1], len(shop.calls("accept")), shop.row(row)["state"]) == (1, 1, "sending")


@pytest.mark.parametrize("others, limit, sent", [
    pytest.param(49, None, 2, id="below a page"), pytest.param(50, None, 1, id="a page"),
    pytest.param(60, 60, 1, id="the known limit"), pytest.param(3, 2, 1, id="more than the known limit"),
])  # fmt: skip
async def test_absence_from_a_list_that_may_be_cut_proves_nothing(open_shop, others, limit, sent):
    shop = await open_shop(list_limit=limit)
    shop.act("accept", await shop.taken_in())
    shop.world.faults.add(Fault.drop("accept"))
    await shop.drain()
    for _ in range(others):
        shop.place()
    with capture_logs() as lines:
        assert (await shop.poll()).delivered == others
    await shop.drain()
    assert len(shop.calls("accept")) == sent, "its absence says that it was not done, and it is sent again"
    told = [line for line in lines if line["event"] == "poll.list_may_be_cut"]
    assert [("list_limit" in line["remedy"], line["log_level"]) for line in told] == [(True, "warning")] * (2 - sent)


@pytest.mark.parametrize("stuck", [50, 30], ids=["all of it", "most of it"])
async def test_orders_behind_a_list_full_of_unacknowledgeable_ones_are_stored(shop: Shop, stuck: int):
    shop.world.set_options(list_limit=50)
    for number in range(stuck):
        shop.place(status_id=2, payment_key=f"no key {number}")
    waiting = [shop.place(status_id=1, total="x" * 3) for _ in range(60 - stuck)]
    known = shop.context.own_problems
    polls = [await shop.poll() for _ in range(3)]
    assert (asked(shop), polls[1].acknowledged) == ([None, 1, None], 10)
    assert {shop.order(order)["acknowledged_utc"] is not None for order in waiting} == {True}
    (full,) = known.problems([shop.account])
    assert (full.code, full.count, full.account) == ("list_full", stuck, "kadikoy")
    assert shop.one("SELECT state FROM delivery_accounts")["state"] == "ok"
    shop.world.orders.clear()
    await shop.poll()
    await shop.poll()
    assert (known.problems([shop.account]), asked(shop)[3:]) == ((), [2, None])


@pytest.mark.parametrize(
    "documents, stuck, limit, full",
    [(50, 50, None, True), (50, 25, None, True), (50, 24, None, False), (10, 10, None, True), (9, 9, None, False),
     (21, 20, None, False), (5, 5, 5, True), (4, 4, 5, False), (40, 40, 100, False)]
)  # fmt: skip
def test_a_list_is_full(documents: int, stuck: int, limit: int | None, full: bool) -> None:
    assert rules.is_full([read_stored("{}")] * documents, stuck, limit) is full
