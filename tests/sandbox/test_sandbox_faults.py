"""The script of faults: which calls it affects, what effect they have, and what the client sees."""

import asyncio
import gzip
import json

import pytest

from orderbridge_sandbox import Fault, FaultKind, When
from orderbridge_sandbox.faults import BadFault, FaultScript
from orderbridge_sandbox.scenery import KADIKOY


@pytest.fixture
def order(world):
    return world.place_order(restaurant_id=KADIKOY)


async def accept(pos, order):
    return await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 10})


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("when, status_id", [(When.BEFORE, 1), (When.AFTER, 2)])
async def test_a_false_answer_comes_before_or_after_the_effect(world, pos, order, when, status_id):
    world.faults.add(Fault.error("accept", 500, "hata", when=when))
    answer = await accept(pos, order)
    assert (answer.status_code, answer.json(), order.status_id) == (500, {"status": False, "error": "hata"}, status_id)
    [line] = world.calls("accept")
    assert (line.http_status, line.fault, line.effect) == (500, "answer", status_id == 2)


async def given_up(world, pos, order):
    """Send a call, and hang up as soon as the fault has affected it."""
    asking = asyncio.create_task(accept(pos, order))
    while not any(call.fault for call in world.calls("accept")):  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # let the immediate effects happen
    assert not asking.done()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_hanging_call_never_ends(world, pos, order):
    world.faults.add(Fault.hang("accept"))
    await given_up(world, pos, order)
    assert (order.status_id, (await accept(pos, order)).status_code) == (1, 200)


@pytest.mark.parametrize("when, at_once", [(When.BEFORE, 1), (When.AFTER, 2)])
async def test_a_delayed_call_that_was_given_up_goes_on_when_the_script_is_cleared(world, pos, order, when, at_once):
    world.faults.add(Fault.delay("accept", 3600, when=when))
    await given_up(world, pos, order)
    assert order.status_id == at_once
    await asyncio.to_thread(world.faults.clear)
    while world.calls("accept")[0].answered_at is None:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    assert order.status_id == 2


async def test_the_true_answer_can_be_compressed_or_have_a_wrong_content_type(world, pos, order):
    world.faults.add(Fault(operation="get_current", kind=FaultKind.GZIP))
    request = pos.http.build_request("GET", "/orders/get-current", headers=pos.headers)
    answer = await pos.http.send(request, stream=True)
    raw = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(raw))["data"][0]["payment_key"] == order.key
    kind, headers = FaultKind.CONTENT_TYPE, {"X-Proxy": "1"}
    world.faults.add(Fault(operation="accept", kind=kind, content_type="text/plain", headers=headers))
    answer = await accept(pos, order)
    shown = (answer.headers["content-type"], answer.headers["x-proxy"], answer.json()["data"])
    assert shown == ("text/plain", "1", "OK")


REFUSAL = '{{"status": false, "error": "{}", "message": "{}"}}'.format
TOO_MANY = REFUSAL("çok fazla istek", "Lütfen 30 saniye bekleyip tekrar deneyin.")


@pytest.mark.interface("Errors", "Limits")
@pytest.mark.parametrize("fault, status, content_type, body", [
    (Fault.page("accept", 502, "<p>"), 502, "text/html; charset=utf-8", "<p>"),
    (Fault(operation="accept", status=200), 200, None, ""),
    (Fault(operation="accept", status=429), 429, None, ""),
    (Fault(status=200, body=b"\x00{"), 200, "application/json", "\x00{"),
    (Fault.too_many("accept"), 429, "application/json", TOO_MANY),
    (Fault.unauthorized("accept"), 401, "application/json", REFUSAL("yetkisiz erişim", "Token expired or invalid")),
    (Fault.redirect("accept", "https://elsewhere.test/"), 307, None, ""),
])  # fmt: skip
async def test_any_answer_can_be_put_in(world, pos, order, fault, status, content_type, body):
    world.faults.add(fault)
    answer = await accept(pos, order)
    assert (answer.status_code, answer.content, order.status_id) == (status, body.encode(), 1)
    found = [answer.headers.get(name) for name in ("content-type", "location")]
    assert found == [content_type, "https://elsewhere.test/" if status == 307 else None]


async def test_a_fault_after_the_effect_uses_the_cooldown_up_and_one_before_it_does_not(world, pos, order):
    world.faults.add(Fault.page("get_current"), Fault.page("get_current", when=When.AFTER))
    assert [(await pos.get("/orders/get-current")).status_code for _ in range(3)] == [502, 502, 429]
    assert [call.delivered for call in world.calls("get_current")[:2]] == [(), ((order.key, 1),)]


ACCEPT = ("accept", "kadikoy", "key-1")


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("fault, calls, met", [
    (Fault(), [ACCEPT, ACCEPT], [True, False]), (Fault(times=2), [ACCEPT] * 3, [True, True, False]),
    (Fault(times=None), [ACCEPT] * 3, [True] * 3), (Fault(skip=2), [ACCEPT] * 4, [False, False, True, False]),
    (Fault(operation="cancel"), [ACCEPT, ("cancel", "", "")], [False, True]),
    (Fault(account="chain"), [ACCEPT, ("accept", "chain", "")], [False, True]),
    (Fault(argument="key-2"), [ACCEPT, ("accept", "", "KEY-2")], [False, True]),
])  # fmt: skip
def test_a_fault_meets_the_calls_that_fit(fault, calls, met):
    script = FaultScript()
    script.add(fault)
    assert [script.take(*call) is not None for call in calls] == met


def test_faults_are_met_in_their_order_one_per_call():
    script = FaultScript()
    script.add(Fault(status=500), Fault(status=503, times=None))
    assert [script.take(*ACCEPT).status for _ in range(3)] == [500, 503, 503]
    assert [fault.status for fault in script.pending()] == [503]
    script.clear()
    assert script.take(*ACCEPT) is None


@pytest.mark.parametrize("values", [
    {"operation": "acept"}, {"kind": "drop"}, {"when": "after"}, {"status": 99}, {"status": 600}, {"size": 0},
    {"seconds": -1}, {"skip": -1}, {"times": -1}, {"headers": {"X": "ş"}}, {"content_type": "a\nb"},
])  # fmt: skip
def test_a_fault_that_cannot_be_played_is_refused(values):
    with pytest.raises(BadFault):
        Fault(**values)
