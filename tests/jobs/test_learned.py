"""What the daemon learns about the open points, and the sandbox's replay of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.jobs.shop import Shop, roster_of

from orderbridge import config
from orderbridge.jobs.learned import MAX_VALUES, OTHER, Learned, Point, contradictions, rows
from orderbridge.jobs.menu import read_menu
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.jobs.upkeep import SelfReport, Upkeep
from orderbridge.rules.problems import Code
from orderbridge_sandbox.learned import settings_learned
from orderbridge_sandbox.scenery import ATASEHIR, USKUDAR

ONE = {"id": 1, "name": "Acı", "type": "single", "operation": "-", "options": {"id": 2, "name": "Az", "price": 0}}
WORLDS = {
    "as it is": {
        "menu_shape": "by_restaurant", "cancelled_are_delivered": True, "list_order": "oldest_first",
        "list_covers": "all",
    },
    "newest first": {"menu_shape": "by_category", "list_order": "newest_first", "ids_in_capitals": True},
    "other answers": {
        "menu_shape": "wrapped", "disallowed": "refused", "disallowed_status": 409, "longest_preparing_time": 239,
        "restaurant_error_status": 400, "food_error_status": 410, "prepaid_suffix": False,
    },
    "not found": {"menu_shape": "by_id", "disallowed": "not_found", "complete_error_status": 400},
}  # fmt: skip


async def stored(shop: Shop) -> set[tuple[str, str, int]]:
    await shop.context.kept.learned.store(shop.database, shop.clock.now())
    return {(row["point"], row["value"], row["times"]) for row in shop.database.read_now(rows)}


async def a_day(shop: Shop) -> None:
    """Orders of two branches at different times, one cancelled, and rows that the marketplace refuses."""
    places = enumerate((USKUDAR, ATASEHIR) * 2)
    orders = [shop.place(restaurant_id=place, date=f"2026-03-02 11:0{number}:00") for number, place in places]
    await shop.poll()
    for order in orders[:3:2]:
        await shop.verdict(shop.act("complete", order))
    await shop.verdict(shop.act("accept", orders[1], preparing_time=240))
    await shop.verdict(shop.act("open_restaurant", restaurant_id="99999999-9999-4999-8999-999999999999"))
    await shop.verdict(shop.act("deactivate_food", food_id=999_999, account="chain"))
    await read_menu(shop.account)
    shop.world.cancel_by_customer(orders[2].key)
    await shop.poll()


@pytest.mark.parametrize("name", WORLDS)
async def test_the_sandbox_plays_what_was_learned(open_shop, tmp_path: Path, name: str):
    shop = await open_shop("chain")
    shop.world.set_options(**WORLDS[name])
    await a_day(shop)
    await stored(shop)
    (path := tmp_path / "learned.json").write_text(json.dumps(shop.database.read_now(rows), default=str))
    played = shop.world.options.changed(settings_learned(path)).as_json()
    assert {key: played[key] for key in WORLDS[name]} == WORLDS[name]


async def test_counts_add_up_over_a_failed_write_and_a_reload(shop: Shop):
    await shop.taken_in()
    failing = shop.fail_commits("disk I/O error", "delivery_learned")
    with pytest.raises(Exception, match="disk"):
        await stored(shop)
    failing()
    await shop.taken_in(option_groups=[ONE], courier_type="platform_courier")
    found = await stored(shop)
    assert {("status_id", "1", 2), ("courier_type", "restaurant", 1), ("courier_type", "platform_courier", 1)} <= found
    await shop.taken_in()
    assert ("status_id", "1", 3) in await stored(shop)
    assert ("status_id", "1", 3) in await stored(shop), "nothing is counted twice"


@pytest.mark.parametrize("allowed", ["none", "without_own_courier", "all"])
async def test_a_complete_without_on_the_way_is_learned(shop: Shop, tmp_path: Path, allowed: str):
    shop.world.set_options(complete_from_confirmed=allowed)
    for courier in ("restaurant", "come_get"):
        order = await shop.taken_in(courier_type=courier)
        await shop.verdict(shop.act("accept", order, preparing_time=25))
        await shop.verdict(shop.act("complete", order))
    values = {value for point, value, _ in await stored(shop) if point == Point.COMPLETE_FROM_CONFIRMED}
    refused = "422 refused"
    own, other = ("ok" if allowed == "all" else refused), (refused if allowed == "none" else "ok")
    assert values == {f"own_courier {own}", f"other_courier {other}"}
    (path := tmp_path / "learned.json").write_text(json.dumps(shop.database.read_now(rows), default=str))
    assert settings_learned(path).get("complete_from_confirmed", "none") == allowed


async def test_no_words_of_an_error_are_kept(shop: Shop):
    """An error may quote the name of a customer, the same for each of the customer's orders."""
    shop.world.set_options(disallowed_error="Kanarya adına olmaz", disallowed_status=409)
    for _ in range(2):
        await shop.verdict(shop.act("complete", await shop.taken_in()))
    found = await stored(shop)
    assert (Point.REFUSAL, "/orders/complete 409 refused", 2) in found
    assert "kanarya" not in json.dumps(sorted(found), ensure_ascii=False).lower()


async def test_the_values_of_a_point_are_limited(shop: Shop):
    learned = shop.context.kept.learned
    for turn in range(3):
        for number in range(2 * MAX_VALUES):
            learned.saw(Point.COURIER_TYPE, f"{turn}-{number}")
        found = await stored(shop)
    assert MAX_VALUES <= len(found) <= MAX_VALUES + 2
    assert any(value == OTHER for _, value, _ in found)


@pytest.mark.parametrize(
    "configured, seen, contradicted",
    [({"needs_payment_status_id": 7}, [(Point.STATUS_ID, 17)], {"needs_payment_status_id": "17"}),
     ({"needs_payment_status_id": 7}, [(Point.STATUS_ID, 17), (Point.STATUS_ID, 7)], {"needs_payment_status_id": None}),
     ({"needs_payment_status_id": 7}, [(Point.STATUS_ID, 16)], {"needs_payment_status_id": None}),
     ({}, [(Point.LIST_LENGTH, 50), (Point.STATUS_ID, 17)], {})],
)  # fmt: skip
async def test_what_contradicts_the_configuration_is_found(shop, configured, seen, contradicted):
    learned = Learned()
    for point, value in seen:
        learned.saw(point, value)
    await learned.store(shop.database, shop.clock.now())
    market = config.Marketplace(base_url="https://127.0.0.1", **configured)
    assert shop.database.read_now(lambda tx: contradictions(tx, market)) == contradicted


async def test_a_contradiction_is_a_problem_until_the_configuration_is_right(open_shop):
    found = []
    for list_limit in (1, 3):
        shop = await open_shop("kadikoy", list_limit=list_limit)
        checkup = shop.checkup()
        roster, problems = roster_of(shop.accounts), checkup.own_problems
        check, report = RestoreCheck(shop.context, roster.known), SelfReport(shop.context, shop.accounts, shop.outbox)
        parts = {"health": checkup, "restore_check": check, "report": report, "journal": None, "begun": lambda: (1, 1)}
        upkeep = Upkeep(replace(shop.context, own_problems=problems), roster, **parts)
        for _ in range(3 if list_limit == 1 else 0):
            shop.place()
        await shop.poll()
        await upkeep.sweep()
        found.append(problems.has(Code.LEARNED_OTHERWISE, "list_limit"))
    assert found == [True, False]
