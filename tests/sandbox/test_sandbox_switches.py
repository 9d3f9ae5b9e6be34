"""The table of switches, what is generated from it, and the effect of each switch."""

import asyncio
from dataclasses import fields

import pytest
from tests.sandbox.conftest import Pos

from orderbridge_sandbox import ConnectionDropped, Fault, Options
from orderbridge_sandbox.options import PRESETS, SWITCHES, BadOption, settings_from, settings_of
from orderbridge_sandbox.scenery import APP_SECRET, ATASEHIR, KADIKOY, USKUDAR
from orderbridge_sandbox.switches import words

GET_CURRENT = "/orders/get-current"
VARIABLES = "/orders/variables"
NOBODY = "99999999-9999-4999-8999-999999999999"


def test_each_switch_stands_in_the_table_with_a_sentence_in_each_language():
    assert SWITCHES.keys() == {field.name for field in fields(Options)}
    assert [name for name, line in SWITCHES.items() if line.about.keys() != {"en", "tr"}] == []
    assert [name for name, line in SWITCHES.items() if line.about["en"] == line.about["tr"]] == []


def test_the_default_of_a_switch_can_be_set_from_a_text_and_from_json():
    for name, switch in SWITCHES.items():
        default = "none" if switch.default is None else switch.default
        default = str(default).lower() if switch.type is bool else default
        assert settings_from([f"{name}={default}"]) == {name: getattr(Options(), name)}
        assert getattr(Options().changed({name: switch.default}), name) == switch.default


def test_an_invalid_setting_is_refused_by_name():
    for text, message in (
        ("colour=1", "no such option: colour; known: orders_per_minute, "),
        ("colour", "write NAME=VALUE"),
        ("cooldown_seconds=soon", "cooldown_seconds: 'soon'; expected: number"),
        ("list_limit=1.5", "list_limit: '1.5'; expected: whole number, or none"),
        ("prepaid_suffix=maybe", "prepaid_suffix: 'maybe'; expected: true or false"),
        ("line=bent", "line: 'bent'; expected: good, refused, "),
    ):
        with pytest.raises(BadOption, match=message):
            settings_from([text])


UNPLAYABLE = [
    ("trouble_percent", 101), ("trouble_status", 99), ("latency_seconds", -1), ("cooldown_scope", "planet"),
    ("colour", "red"), ("cooldown_seconds", "30"), ("cooldown_seconds", True), ("orders_per_minute", float("inf")),
    ("list_limit", 1.5), ("timezone", "Mars/North"), ("timezone", "../etc"), ("needs_payment_status_id", 16),
    ("complete_error_status", 700), ("prepaid_suffix", 1), ("error_order", "token url"),
]  # fmt: skip


def test_a_value_that_cannot_be_played_is_refused_by_name(world):
    for name, value in UNPLAYABLE:
        with pytest.raises(BadOption, match=name):
            world.set_options(**{name: value})
    with pytest.raises(BadOption, match="no such operation: acept"):
        world.set_options(trouble_operation="acept")
    assert world.options == Options()


def test_a_preset_can_be_used_and_a_later_one_overrides_it():
    for name in PRESETS:
        assert Options().changed(PRESETS[name]) != Options() or name == "quiet"
        assert words()["presets"][name].keys() == {"en", "tr"}
    assert settings_of(["friday", "quiet"])["orders_per_minute"] == 0


async def test_a_cooldown_can_be_the_restaurants(world, http, chain):
    world.set_options(cooldown_scope="restaurant")
    branch, other = Pos(http, "uskudar"), Pos(http, "kadikoy")
    for pos in (branch, other):
        await pos.login()
    assert [(await pos.get(GET_CURRENT)).status_code for pos in (chain, branch, other)] == [200, 429, 200]


async def test_a_429_may_say_when_to_come_back(world, clock, pos):
    await pos.poll()
    clock.advance(12)
    date = "Sun, 01 Mar 2026 12:00:30 GMT"
    for kind, lie, header in (("none", None, None), ("seconds", None, "18"), ("seconds", 5, "5"), ("date", None, date)):
        world.set_options(retry_after=kind, retry_after_seconds=lie)
        answer = await pos.get(GET_CURRENT)
        assert (answer.status_code, answer.headers.get("retry-after")) == (429, header)


async def test_a_login_too_many_is_a_429_for_its_secret_alone(world, clock, http, pos):
    world.set_options(login_limit=2, login_window_seconds=60)
    pos.secrets["app_secret_key"] = "wrong"
    assert [(await pos.login()).status_code for _ in range(3)] == [401, 401, 429]
    assert (await Pos(http, "chain").login()).status_code == 200
    pos.secrets["app_secret_key"] = APP_SECRET
    clock.advance(60)
    assert (await pos.login()).status_code == 200


async def test_a_credential_can_have_a_few_tokens_at_once(world, pos, chain):
    world.set_options(tokens_at_once=2)
    old = dict(pos.headers)
    for _ in range(2):
        await pos.login()
    headers = (pos.headers, old, chain.headers)
    assert [(await pos.http.get(VARIABLES, headers=one)).status_code for one in headers] == [200, 401, 200]


async def test_what_can_be_completed_from_confirmed(world, pos):
    by_others = {"come_get": 5, "platform_courier": 5, "restaurant": 2}
    others = (("without_own_courier", *case) for case in by_others.items())
    for allowed, courier, status in (("none", "come_get", 2), ("all", "restaurant", 5), *others):
        world.set_options(complete_from_confirmed=allowed)
        order = world.place_order(restaurant_id=KADIKOY, document={"courier_type": courier, "status_id": 2})
        await pos.put(f"/orders/complete/{order.key}")
        assert order.status_id == status, (allowed, courier)


PICKUP, BROUGHT = {"pickup_life": "platform"}, {"platform_courier_life": "platform"}
MOVED = [("come_get", PICKUP, [2, 5, 5]), ("platform_courier", BROUGHT, [2, 16, 5])]
LEFT = [("restaurant", PICKUP | BROUGHT), ("come_get", BROUGHT), ("platform_courier", {})]


@pytest.mark.parametrize("courier, life, seen", [*MOVED, *((*left, [2, 2, 2]) for left in LEFT)])
def test_the_platform_moves_on_what_it_brings(world, clock, courier, life, seen):
    world.set_options(life_seconds=60, **life)
    order = world.place_order(document={"courier_type": courier})
    world.tick()
    world.change_status(order.key, 2)
    for seconds, status in zip((59, 1, 60), seen, strict=True):
        clock.advance(seconds)
        world.tick()
        assert order.status_id == status


def test_the_platform_cancels_unanswered_orders(world, clock):
    world.set_options(cancel_unanswered_seconds=600)
    waiting, accepted = world.place_order(), world.place_order()
    world.change_status(accepted.key, 2)
    clock.advance(600)
    world.tick()
    assert (waiting.status_id, waiting.history[-1].by, accepted.status_id) == (6, "platform", 2)


@pytest.mark.parametrize("order, path, status", [
    ("token url body exists status limit", "x", 401), ("url token body exists status limit", "x", 403),
    ("body token url exists status limit", "x", 422), ("exists token url body status limit", "x", 404),
    ("exists token url body status limit", NOBODY, 404), ("status token url body exists limit", NOBODY, 401),
])  # fmt: skip
async def test_without_a_token_the_first_error_of_the_order_wins(world, http, order, path, status):
    world.set_options(error_order=order)
    assert (await http.put(f"/orders/accept/{path}")).status_code == status


async def test_the_limit_can_win_over_a_wrong_status_id_and_a_restaurant_over_the_token(world, pos):
    await pos.poll()
    assert (await pos.get(GET_CURRENT + "?status_id=x")).status_code == 422
    world.set_options(error_order="exists limit token url body status")
    assert (await pos.get(GET_CURRENT + "?status_id=x")).status_code == 429
    for path in (f"/restaurants/status/get/{NOBODY}", "/foods/status-active/1"):
        assert (await pos.http.request("GET" if "get" in path else "PUT", path)).status_code == 404


async def answers(pos, count: int) -> list[int]:
    return [(await pos.get(VARIABLES)).status_code for _ in range(count)]


async def test_latency_is_of_every_answer_and_a_percentage_of_calls_meets_trouble(world, pos, monkeypatch):
    waited, real = [], asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds < 1:  # another task's
            await real(seconds)
        else:
            waited.append(seconds)

    monkeypatch.setattr("orderbridge_sandbox.app.asyncio.sleep", sleep)
    world.set_options(latency_seconds=2, latency_jitter_seconds=1)
    world.faults.add(Fault(operation="get_variables", status=500))
    assert (await answers(pos, 2), [2 <= seconds <= 3 for seconds in waited]) == ([500, 200], [True, True])
    world.set_options(latency_seconds=0, latency_jitter_seconds=0, trouble_percent=30)
    assert 15 <= (await answers(pos, 100)).count(503) <= 45


async def test_trouble_can_be_every_nth_call_or_for_one_operation_and_lose_only_the_answer(world, pos):
    world.set_options(trouble_every=3, trouble_status=502)
    assert (await answers(pos, 6), world.calls()[-1].fault) == ([200, 200, 502, 200, 200, 502], "answer")
    world.set_options(trouble_every=1, trouble_operation="accept", trouble_kind="drop", trouble_when="after")
    order = world.place_order(restaurant_id=KADIKOY)
    assert await answers(pos, 2) == [200, 200]
    with pytest.raises(ConnectionDropped):
        await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 5})
    assert order.status_id == 2


async def test_an_outage_comes_by_the_clock_and_goes(world, clock, pos):
    world.set_options(outage_every_seconds=300, outage_seconds=60, retry_after="seconds", retry_after_seconds=60)
    seen = []
    for _ in range(7):
        answer = await pos.get(VARIABLES)
        seen.append((answer.status_code, answer.headers.get("retry-after")))
        clock.advance(100)
    assert ([status for status, _ in seen], seen[3][1]) == ([200, 200, 200, 503, 200, 200, 503], "60")


@pytest.mark.parametrize("more, seen", [
    ({"every": 2}, [200, 500, 200, 500, 200, 500]), ({"every": 2, "times": 1}, [200, 500, 200, 200, 200, 200]),
    ({"skip": 1, "every": 2}, [200, 200, 500, 200, 500, 200]), ({"after_seconds": 25}, [200, 200, 200, 500, 500, 500]),
    ({"after_seconds": 10, "for_seconds": 20}, [200, 500, 500, 200, 200, 200]), ({"percent": 0}, [200] * 6),
])  # fmt: skip
async def test_a_fault_can_be_of_some_calls_and_of_some_time(world, clock, pos, more, seen):
    world.faults.add(Fault(operation="get_variables", **{"times": None, **more}))
    for status in seen:
        assert await answers(pos, 1) == [status]
        clock.advance(10)


async def test_automatic_orders_can_go_only_to_accounts_that_are_logged_in(world, clock, http):
    world.set_options(orders_per_minute=60, orders_where="logged_in")
    clock.advance(30)
    assert world.tick() == []
    await Pos(http, "chain").login()
    clock.advance(30)
    assert {order.restaurant_id for order in world.tick()} == {USKUDAR, ATASEHIR}
    clock.advance(86400)
    assert world.tick() == []


def test_orders_can_be_of_one_kind(world):
    for courier, method in (("restaurant", "delivery"), ("come_get", "pickup"), ("platform_courier", "delivery")):
        world.set_options(orders_courier=courier)
        documents = [world.place_order().document for _ in range(20)]
        assert {(one["courier_type"], one["shipping_method"]) for one in documents} == {(courier, method)}


async def test_the_platforms_clock_can_be_wrong(world, clock, pos):
    world.set_options(clock_offset_seconds=-7200)
    assert world.place_order().document["date"] == "2026-03-01 13:00:00"
    world.set_options(clock_offset_seconds=86400)
    assert (await pos.get(VARIABLES)).status_code == 401
