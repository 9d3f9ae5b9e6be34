"""The lists that change rarely, read from the sandbox."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop, text_of

from orderbridge.actions import Subject
from orderbridge.jobs.lists import COMMON_S, Common, read_lists, read_statuses
from orderbridge.rules.problems import Code
from orderbridge_sandbox import Fault
from orderbridge_sandbox.scenery import ATASEHIR, KADIKOY, USKUDAR

LISTS = ("delivery_restaurants", "delivery_cancel_reasons", "delivery_payment_methods", "delivery_shipping_methods")
SHORTER = {
    "get_restaurants": b'[{"id": "%s", "name": ""}]' % USKUDAR.encode(),
    "get_cancel_reasons": b'[{"id": 1, "reason": ""}]',
    "get_variables": b'{"paymentMethod": [{"key": "CASH", "name": "Nakit"}], "shippingMethod": []}',
}
EMPTY = {"get_restaurants": b"[]", "get_cancel_reasons": b"[]", "get_variables": b"{}"}


async def lists(shop: Shop, name: str = "") -> bool:
    account = shop.accounts[name or shop.names[0]]
    return await read_lists(account, tuple(shop.accounts), Common())


@pytest.mark.interface("Payment and shipping methods", "Endpoints 2", "Authentication 3")
async def test_all_lists_are_there_after_one_reading(open_shop):
    shop = await open_shop("chain")
    assert (await lists(shop), [shop.count(table) for table in LISTS]) == (True, [2, 8, 3, 2])
    found = {(row["account"], row["id"]) for row in shop.rows("SELECT account, id FROM delivery_restaurants")}
    assert found == {("chain", USKUDAR), ("chain", ATASEHIR)}
    assert shop.one("SELECT reason FROM delivery_cancel_reasons WHERE id = 1") == {"reason": "Ürün tükendi"}
    assert shop.one("SELECT name FROM delivery_payment_methods WHERE code = 'CASH'") == {"name": "Nakit"}
    assert shop.one("SELECT name FROM delivery_shipping_methods WHERE code = 'pickup'") == {"name": "Gel Al"}


async def test_lists_common_to_all_accounts_are_requested_once(open_shop):
    shop = await open_shop("kadikoy", "chain")
    common = Common()
    shop.world.faults.add(Fault(operation="get_variables", status=500, times=1))
    came = [await read_lists(account, shop.names, common) for account in shop.accounts.values()]
    assert came == [False, True]  # the first one failed on the way, so the second one asked
    assert await read_lists(shop.account, shop.names, common)
    asked = shop.operations("get_restaurants", "get_cancel_reasons", "get_variables")
    assert asked == [*["get_restaurants", "get_cancel_reasons", "get_variables"] * 2, "get_restaurants"]
    await asyncio.sleep(COMMON_S)
    assert await read_lists(shop.account, shop.names, common)
    assert len(shop.calls("get_variables")) == 3


@pytest.mark.parametrize("table", ["delivery_cancel_reasons", "delivery_shipping_methods"])
async def test_a_list_that_another_account_writes_at_the_same_moment_is_left_to_it(shop: Shop, table: str):
    # What a server says to the second of two: its DELETE did not see the rows that the first has just committed.
    shop.refuse(f"INSERT ON {table}", "RAISE(ABORT, 'UNIQUE constraint failed')")
    assert (await lists(shop), [shop.count(name) for name in ("delivery_restaurants", table)]) == (True, [1, 0])


@pytest.mark.interface("Restaurant")
@pytest.mark.parametrize("answers", [SHORTER, EMPTY], ids=["shorter", "empty"])
@pytest.mark.parametrize("operation", SHORTER)
async def test_a_list_that_lacks_known_entries_is_requested_again_before_their_deletion(open_shop, operation, answers):
    shop = await open_shop("chain")
    common = Common()

    async def lists_again() -> bool:
        await asyncio.sleep(60)
        return await read_lists(shop.account, shop.names, common)

    assert await lists_again()
    before = [shop.rows(f"SELECT * FROM {table}") for table in LISTS]
    await asyncio.sleep(COMMON_S)
    body = b'{"status": true, "data": ' + answers[operation] + b"}"
    shop.world.faults.add(Fault(operation=operation, status=200, body=body, times=3))
    assert [await lists_again() for _ in range(2)] == [False, False]
    assert [shop.rows(f"SELECT * FROM {table}") for table in LISTS] == before
    assert await lists_again(), "the third in a row is believed, and the day's rhythm goes on"
    after = [shop.rows(f"SELECT * FROM {table}") for table in LISTS]
    row = await shop.acted("close_restaurant", restaurant_id=ATASEHIR)
    assert shop.row(row)["state"] == "done", "a restaurant that was reached once is asked about"
    found = {one.code for one in shop.context.own_problems.problems([shop.account])}
    assert (Code.NO_RESTAURANT in found) == (operation == "get_restaurants" and answers is EMPTY)
    assert (after == before) == (operation == "get_restaurants" or answers is EMPTY)


async def test_the_status_of_a_restaurant_with_a_row_in_flight_is_not_requested(open_shop):
    shop = await open_shop("chain")
    await lists(shop)
    assert shop.lanes.take((Subject.RESTAURANT, ATASEHIR))
    await read_statuses(shop.account)
    assert stored_statuses(shop) == {USKUDAR: "Open", ATASEHIR: None}
    shop.lanes.free((Subject.RESTAURANT, ATASEHIR))
    await read_statuses(shop.account, only={ATASEHIR})
    assert stored_statuses(shop)[ATASEHIR] == "Open"


def stored_statuses(shop: Shop) -> dict[str, str | None]:
    return {row["id"]: row["status"] for row in shop.rows("SELECT id, status FROM delivery_restaurants")}


async def test_the_time_and_the_author_of_a_closing_are_stored(shop: Shop):
    await lists(shop)
    seen = []

    async def read() -> None:
        await read_statuses(shop.account)
        seen.append(tuple(shop.one("SELECT status, status_by, status_since_utc FROM delivery_restaurants").values()))

    await read()
    opened = text_of(shop.clock.now())
    await shop.acted("close_restaurant", restaurant_id=KADIKOY, created_by="Ayşe")
    closed = text_of(shop.clock.now())
    await asyncio.sleep(300)
    await read()
    row = await shop.acted("open_restaurant", restaurant_id=KADIKOY)
    await read()
    shop.world.close_restaurant(KADIKOY)
    await asyncio.sleep(300)
    await read()
    assert seen[:2] == [("Open", "platform", opened), ("Closed", "Ayşe", closed)]
    assert [one[:2] for one in seen[2:]] == [("Open", f"row {row}"), ("Closed", "platform")]
    assert seen[3][2] == text_of(shop.clock.now())


@pytest.mark.interface("Endpoints 3")
async def test_a_status_that_cannot_be_read_harms_no_other(open_shop):
    shop = await open_shop("chain")
    await lists(shop)
    shop.world.faults.add(Fault(operation="get_restaurant_status", status=500, argument=USKUDAR))
    await read_statuses(shop.account)
    assert stored_statuses(shop) == {USKUDAR: None, ATASEHIR: "Open"}


@pytest.mark.usefixtures("shared_branch")
async def test_the_account_that_reaches_the_restaurant_takes_over_what_another_left(open_shop):
    before = await open_shop("kadikoy")
    order = await before.taken_in()
    await before.crash()
    shop = await open_shop("besiktas", "second")
    row = shop.act("accept", order)
    await lists(shop, "besiktas")
    await shop.drain()
    assert (shop.order(order)["account"], shop.row(row)["state"]) == ("kadikoy", "pending")
    await lists(shop, "second")
    await shop.drain()
    assert (shop.order(order)["account"], shop.row(row)["state"]) == ("second", "done")
    assert shop.calls("accept")[0].account == "second"


async def test_an_account_that_waits_for_its_login_asks_for_no_list(shop: Shop):
    shop.world.faults.add(Fault(operation="login", status=500))
    assert not (await shop.poll()).ok
    with capture_logs() as lines:
        assert not await lists(shop)
    assert (len(shop.calls("login")), lines) == (1, [])
