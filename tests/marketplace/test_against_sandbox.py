"""All operations against the service as the sandbox plays it, over TLS: two readings of docs/interface.md that share no code."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.marketplace.samples import OTHER_KEY
from tests.marketplace.servers import PATIENCE_S
from tests.marketplace.sessions import a_session

from orderbridge.errors import MarketplaceError, RateLimited, Refused
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.documents import read_order
from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, Action, Document, Token
from orderbridge.net.http import Wire
from orderbridge_sandbox import Sandbox, World
from orderbridge_sandbox.scenery import APP_SECRET, KADIKOY

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FOOD = 1007


class Till:
    """The service's truth beside the client that talks to it."""

    def __init__(self, world: World, wire: Wire) -> None:
        self.world = world
        self.wire = wire
        self.now = NOW
        self.logins = 0
        self.client = Client(wire, a_session(self.log_in))

    async def log_in(self) -> Token:
        self.logins += 1
        grant = await login(self.wire, app_secret_key=APP_SECRET, rest_secret_key="sandbox-kadikoy-secret")
        return Token(grant.access_token, NOW, NOW)

    async def poll(self) -> tuple[Document, ...]:
        self.now += timedelta(seconds=31)
        await self.client.be_ready()
        return await self.client.current_orders()

    def place(self, status_id: int = RECEIVED) -> str:
        key = self.world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"}).key
        if status_id != RECEIVED:
            self.world.change_status(key, status_id)
        return key

    def status(self, key: str) -> int:
        return self.world.order(key).status_id


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(World.default(), directory=Path(tmp_path_factory.mktemp("sandbox")), prefix="/api") as running:
        yield running


@pytest.fixture
async def till(sandbox: Sandbox) -> AsyncIterator[Till]:
    world = sandbox.world
    wire = Wire(base_url=sandbox.base_url, timeout_s=PATIENCE_S, ca_file=sandbox.ca_file)
    till = Till(world, wire)
    world.clock = lambda: till.now
    world.reset()
    yield till
    await wire.close()


async def error_of(call: object) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_the_life_of_an_order(till: Till) -> None:
    key = till.place()
    steps = [
        (lambda: till.client.act(Action.ACCEPT, key, 25), CONFIRMED),
        (lambda: till.client.act(Action.ON_THE_WAY, key), IN_DELIVERY),
        (lambda: till.client.act(Action.COMPLETE, key), COMPLETE_WITH_PAYMENT),
    ]
    for step, status_id in steps:
        (document,) = await till.poll()
        assert document.payment_key == key
        assert document.status_id == till.status(key)
        await till.client.acknowledge(key)
        assert await till.poll() == ()
        await step()
        assert till.status(key) == status_id
    assert till.world.order(key).preparing_time == 25
    assert await till.poll() == ()
    assert till.logins == 1


async def test_a_cancelled_order(till: Till) -> None:
    key = till.place(CONFIRMED)
    await till.client.act(Action.CANCEL, key, 1)
    assert (till.status(key), till.world.order(key).reason_id) == (CANCELED, 1)


async def test_fifty_orders_are_read_without_a_problem(till: Till) -> None:
    keys = {till.place() for _ in range(50)}
    variables = await till.client.variables()
    codes = {method.name: method.code for method in variables.payment_methods}
    orders = [read_order(document, payment_codes=codes) for document in await till.poll()]
    assert {order.payment_key for order in orders} == keys
    assert {order.problems for order in orders} == {()}
    assert {order.facts.payment_code for order in orders} <= {"CASH", "CREDIT_CARD", "DEBIT_CARD"}
    assert all(order.facts.items and order.facts.customer_name and order.facts.total for order in orders)


@pytest.mark.interface("Endpoints 6")
async def test_the_filter_by_status(till: Till) -> None:
    till.place()
    confirmed = till.place(CONFIRMED)
    till.now += timedelta(seconds=31)
    await till.client.be_ready()
    assert [document.payment_key for document in await till.client.current_orders(CONFIRMED)] == [confirmed]


async def test_restaurants(till: Till) -> None:
    assert [restaurant.id for restaurant in await till.client.restaurants()] == [KADIKOY]
    await till.client.act(Action.CLOSE_RESTAURANT, KADIKOY)
    assert await till.client.restaurant_status(KADIKOY) == "Closed"
    await till.client.act(Action.OPEN_RESTAURANT, KADIKOY)
    assert await till.client.restaurant_status(KADIKOY) == "Open"


async def test_foods(till: Till) -> None:
    await till.client.act(Action.DEACTIVATE_FOOD, str(FOOD))
    assert ("kadikoy", FOOD) in till.world.inactive_foods
    await till.client.act(Action.ACTIVATE_FOOD, str(FOOD))
    assert ("kadikoy", FOOD) not in till.world.inactive_foods


@pytest.mark.interface("Endpoints 12")
async def test_reference_lists(till: Till) -> None:
    reasons = await till.client.cancel_reasons()
    assert [reason.id for reason in reasons] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reasons[0].reason == "Ürün tükendi"
    variables = await till.client.variables()
    assert [method.code for method in variables.payment_methods] == ["CASH", "CREDIT_CARD", "DEBIT_CARD"]
    assert [method.code for method in variables.shipping_methods] == ["delivery", "pickup"]


async def test_what_is_not_there(till: Till) -> None:
    for call, code in [
        (till.client.act(Action.ACCEPT, OTHER_KEY, 5), "order_not_found"),
        (till.client.act(Action.COMPLETE, "no-uuid"), "bad_url_id"),
        (till.client.act(Action.CANCEL, till.place(), 9), "missing_field"),
        (till.client.restaurant_status(OTHER_KEY), "restaurant_not_found"),
        (till.client.act(Action.ACTIVATE_FOOD, "99"), "food_not_found"),
    ]:
        caught = await error_of(call)
        assert (type(caught), caught.code) == (Refused, code)


async def test_a_poll_inside_the_cooldown(till: Till) -> None:
    await till.poll()
    assert type(await error_of(till.client.current_orders())) is RateLimited


async def test_a_token_that_ended(till: Till) -> None:
    key = till.place()
    await till.poll()
    till.world.end_tokens()
    await till.client.acknowledge(key)
    assert till.world.order(key).acknowledged
    assert till.logins == 2
