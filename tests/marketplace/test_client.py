"""Each operation as docs/interface.md has it, and the rules around a 401."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs
from tests.marketplace.samples import KEY, failure, listing, order, success, text
from tests.marketplace.servers import skip
from tests.marketplace.sessions import a_session

from orderbridge.errors import (  # isort: skip
    LoginRefused, MarketplaceError, NotSent, RateLimited, Refused, ServiceFailed, Unauthorized, UnknownOutcome,
)  # fmt: skip
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.session import Session
from orderbridge.model import Action, Grant, Restaurant, Token, Variables
from orderbridge.net.http import MAX_LOGINS, Wire

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
REST = "77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33"
DENIED = (401, failure("yetkisiz erişim", "Invalid or expired access token"))


@dataclass
class Service:
    """Gives each request the next answer, and logs in as the test says."""

    answers: list[tuple[int, bytes] | Exception] = field(default_factory=list)
    logins: list[Exception] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    logged_in: int = 0
    before_answer: Callable[[], Awaitable[object]] | None = None
    before_login: Callable[[], Awaitable[object]] | None = None

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(f"{request.method} {request.url.raw_path.decode()} {request.headers.get('access-token')}")
        self.bodies.append(json.loads(request.content) if request.content else None)
        if self.before_answer:
            await self.before_answer()
        served = self.answers.pop(0)
        if isinstance(served, Exception):
            raise served
        return httpx.Response(served[0], content=served[1])

    async def log_in(self) -> Token:
        self.logged_in += 1
        if self.before_login:
            await self.before_login()
        if self.logins:
            raise self.logins.pop(0)
        return Token(f"t{self.logged_in}", NOW, NOW)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def wire(service: Service) -> AsyncIterator[Wire]:
    wire = Wire(base_url="https://service.test/api", timeout_s=5, transport=httpx.MockTransport(service))
    yield wire
    await wire.close()


@pytest.fixture
def session(service: Service) -> Session:
    return a_session(service.log_in, token=Token("t0", NOW, NOW))


@pytest.fixture
def client(wire: Wire, session: Session) -> Client:
    return Client(wire, session)


async def error_of(call: Awaitable[Any]) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        await call
    return caught.value


ACTIONS: dict[str, tuple[Callable[[Client], Awaitable[None]], str, Any]] = {
    "open_restaurant": (lambda c: c.act(Action.OPEN_RESTAURANT, REST), f"restaurants/status/open/{REST}", None),
    "close_restaurant": (lambda c: c.act(Action.CLOSE_RESTAURANT, REST), f"restaurants/status/close/{REST}", None),
    "acknowledge": (lambda c: c.acknowledge(KEY), f"orders/success/{KEY}", None),
    "accept": (lambda c: c.act(Action.ACCEPT, KEY, 25), f"orders/accept/{KEY}", {"preparing_time": 25}),
    "on_the_way": (lambda c: c.act(Action.ON_THE_WAY, KEY), f"orders/ontheway/{KEY}", None),
    "complete": (lambda c: c.act(Action.COMPLETE, KEY), f"orders/complete/{KEY}", None),
    "cancel": (lambda c: c.act(Action.CANCEL, KEY, 4), f"orders/cancel/{KEY}", {"reason_id": 4}),
    "deactivate_food": (lambda c: c.act(Action.DEACTIVATE_FOOD, "55"), "foods/status-passive/55", None),
    "activate_food": (lambda c: c.act(Action.ACTIVATE_FOOD, "55"), "foods/status-active/55", None),
}
READS: dict[str, tuple[Callable[[Client], Awaitable[Any]], str, Any, Any]] = {
    "restaurants": (lambda c: c.restaurants(), "restaurants/get", [{"id": "a", "name": "A"}], (Restaurant("a", "A"),)),
    "status": (lambda c: c.restaurant_status(REST), f"restaurants/status/get/{REST}", "Closed", "Closed"),
    "reasons": (lambda c: c.cancel_reasons(), "orders/cancel-reasons", [{"id": 8, "reason": "Diğer"}], {8: "Diğer"}),
    "variables": (
        lambda c: c.variables(),
        "orders/variables",
        {"paymentMethod": [{"key": "CASH", "name": "Nakit"}], "shippingMethod": []},
        Variables({"CASH": "Nakit"}, {}),
    ),
}  # fmt: skip
REPEATED = {name: call for name, (call, *_) in (ACTIONS | READS).items()}

every_repeated = pytest.mark.parametrize("name", REPEATED)


@pytest.mark.interface("Restaurant", "Endpoints 4", "Endpoints 5", "Versioning", "Limits")
@pytest.mark.parametrize("name", ACTIONS)
async def test_an_action_is_a_put(name: str, client: Client, service: Service) -> None:
    call, path, body = ACTIONS[name]
    service.answers = [(200, success("OK"))]
    with capture_logs() as logs:
        await call(client)
    assert (service.seen, service.bodies, logs) == ([f"PUT /api/{path} t0"], [body], [])


@pytest.mark.interface("Authentication 2")
@pytest.mark.parametrize("name", READS)
async def test_a_list_is_a_get(name: str, client: Client, service: Service) -> None:
    call, path, data, expected = READS[name]
    service.answers = [(200, success(data))]
    assert (await call(client), service.seen) == (expected, [f"GET /api/{path} t0"])


@pytest.mark.interface("Endpoints 6")
async def test_the_current_orders(client: Client, service: Service) -> None:
    element = text(order())
    service.answers = [(200, listing(element)), (200, listing())]
    (document,) = await client.current_orders()
    assert (document.payload, await client.current_orders(status_id=16)) == (element, ())
    assert service.seen == ["GET /api/orders/get-current t0", "GET /api/orders/get-current?status_id=16 t0"]


@pytest.mark.interface("Conventions", "Endpoints 1")
async def test_a_login_carries_no_token(wire: Wire, service: Service) -> None:
    service.answers = [(200, success({"access_token": "abc", "expiration_date": "2026-11-22 12:00:00"}))]
    assert await login(wire, app_secret_key="a", rest_secret_key="b") == Grant("abc", "2026-11-22 12:00:00")
    login_body = {"app_secret_key": "a", "rest_secret_key": "b"}
    assert (service.seen, service.bodies) == (["POST /api/auth/login None"], [login_body])


async def test_many_logins_go_a_few_at_a_time(wire: Wire, service: Service) -> None:
    under_way, most = 0, 0

    async def count() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10):
            await asyncio.sleep(0)
        under_way -= 1

    service.before_answer = count
    service.answers = [(200, success({"access_token": "abc", "expiration_date": None}))] * 50
    await asyncio.gather(*(login(wire, app_secret_key="a", rest_secret_key="b") for _ in range(50)))
    assert most == MAX_LOGINS


PAGE = b"<html><body><h1>Sorry</h1></body></html>"
ANSWERS: list[tuple[int, bytes, type[MarketplaceError]]] = [
    (200, failure("olmaz", "başka bir sebep"), Refused), (500, failure("eksik alan"), Refused),
    (401, b"", Unauthorized), (200, failure("yetkisiz erişim"), Unauthorized),
    (200, failure("çok fazla istek"), RateLimited), (429, b"", RateLimited),
    (500, PAGE, ServiceFailed), (502, PAGE, UnknownOutcome), (200, PAGE, UnknownOutcome), (204, b"", UnknownOutcome),
    (302, b"", UnknownOutcome), (404, PAGE, UnknownOutcome),
]  # fmt: skip


@pytest.mark.interface("Endpoints 1", "Authentication 2")
@pytest.mark.parametrize("status, body, kind", ANSWERS)
async def test_every_operation_reads_answers_alike(status, body, kind, wire, service) -> None:
    """Only a 401 is answered by a login and a repeat, except of a poll, whose cooldown runs, and of a login."""
    keys = {"app_secret_key": "a", "rest_secret_key": "b"}
    calls = {**REPEATED, "poll": lambda client: client.current_orders(), "login": lambda _: login(wire, **keys)}
    for name, call in calls.items():
        service.answers, service.seen, service.logged_in = [(status, body)] * 2, [], 0
        caught = await error_of(call(Client(wire, a_session(service.log_in, token=Token("t0", NOW, NOW)))))
        again = kind is Unauthorized and name in REPEATED
        assert (type(caught), caught.http_status, service.logged_in) == (kind, status, again), name
        assert [one.split()[-1] for one in service.seen] == (["t0", "t1"][: 1 + again] if name != "login" else ["None"])
        assert not again or caught.code == "not_permitted"


@pytest.mark.interface("Endpoints 2", "Endpoints 3", "Endpoints 12", "Endpoints 13")
@every_repeated
async def test_after_a_401_there_is_one_login_and_one_repeat(name: str, client: Client, service: Service) -> None:
    service.answers = [DENIED, (200, success(READS[name][2] if name in READS else "OK"))]
    await REPEATED[name](client)
    assert [one.split()[-1] for one in service.seen] == ["t0", "t1"]


async def test_a_reader_that_fails_is_a_broken_answer_of_that_call(client, service, monkeypatch) -> None:
    def parse(_: object) -> None:
        raise OverflowError("what the answer says")

    monkeypatch.setattr("orderbridge.marketplace.client.read_restaurants", parse)
    service.answers = [(200, success([])), (200, success([{"id": 1, "reason": "x"}]))]
    caught = await error_of(client.restaurants())
    facts = (type(caught), caught.code, caught.http_status, caught.detail)
    assert facts == (UnknownOutcome, "broken_answer", 200, "OverflowError in parse")
    assert await client.cancel_reasons()


async def test_a_success_with_unexpected_data_is_logged_once_per_operation(client: Client, service: Service) -> None:
    service.answers = [(200, success({"phone": "123"})), (200, success({"phone": "123"})), (200, success(None))]
    with capture_logs() as logs:
        for action in (Action.COMPLETE, Action.COMPLETE, Action.ON_THE_WAY):
            await client.act(action, KEY)
    told = [(entry["event"], entry["operation"]) for entry in logs]
    assert told == [("client.unexpected_data", name) for name in ("complete", "on_the_way")]
    assert "123" not in str(logs)


@pytest.mark.parametrize("key, segment", [
    ("..", "%2E%2E"), ("a/b?c#d", "a%2Fb%3Fc%23d"), ("%2F ş", "%252F%20%C5%9F"), ("\ud800\r\n", "%3F%0D%0A"),
])  # fmt: skip
async def test_an_id_stays_one_segment_of_the_path(key: str, segment: str, client: Client, service: Service) -> None:
    service.answers = [(403, failure("URL hatalı"))] * 2
    assert (await error_of(client.act(Action.COMPLETE, key))).code == "bad_url_id"
    assert (await error_of(client.restaurant_status(key))).code == "bad_url_id"
    assert service.seen == [f"PUT /api/orders/complete/{segment} t0", f"GET /api/restaurants/status/get/{segment} t0"]


@pytest.mark.interface("Endpoints 3")
async def test_an_empty_id_which_would_be_another_path_is_refused_here(client: Client, service: Service) -> None:
    caught = await error_of(client.act(Action.COMPLETE, ""))
    assert (type(caught), caught.code, service.seen) == (Refused, "bad_url_id", [])


LOGIN_ENDS = [
    UnknownOutcome("timeout"), ServiceFailed("service_error", http_status=500),
    RateLimited("rate_limited", http_status=429), NotSent("dns_failed"), LoginRefused("login_refused"),
]  # fmt: skip


@pytest.mark.parametrize("denied", [True, False], ids=["after a 401", "before the first"])
@pytest.mark.parametrize("error", LOGIN_ENDS, ids=repr)
@every_repeated
async def test_a_failed_login_fails_a_call_only_if_unsent_or_refused(name, error, denied, client, session, service):
    service.logins = [error]
    service.answers = [DENIED]
    if not denied:
        session.forget()
    caught = await error_of(REPEATED[name](client))
    if isinstance(error, NotSent):
        assert caught is error
    else:
        assert (type(caught), caught.code, caught.http_status) == (NotSent, "login_failed", None)
    assert len(service.seen) == denied


async def test_the_poll_is_not_repeated_but_the_next_has_a_good_token(client: Client, service: Service) -> None:
    """A poll that is refused right after its login never raises NotSent, because its cooldown runs."""
    service.answers = [DENIED, (200, listing()), DENIED, DENIED]
    caught = await error_of(client.current_orders())
    assert (type(caught), caught.code, caught.http_status) == (Unauthorized, "unauthorized", 401)
    assert (service.seen, service.logged_in) == (["GET /api/orders/get-current t0"], 0)
    await client._session.token_for_poll()
    assert await client.current_orders() == ()
    assert (service.seen[1:], service.logged_in) == (["GET /api/orders/get-current t1"], 1)
    await error_of(client.current_orders())
    await client._session.token_for_poll()
    caught = await error_of(client.current_orders())
    assert (type(caught), caught.code, caught.http_status) == (Unauthorized, "login_refused", 401)


async def test_an_acknowledgement_has_its_own_time_for_its_repeat_too(client: Client, service: Service) -> None:
    service.answers = [DENIED]

    async def in_time_for_one() -> None:
        skip(3)
        await asyncio.sleep(0.01 * (len(service.seen) - 1))

    service.before_answer = in_time_for_one
    caught = await error_of(client.acknowledge(KEY, timeout_s=5))
    assert (type(caught), caught.code, len(service.seen)) == (UnknownOutcome, "timeout", 2)


async def test_an_acknowledgement_has_its_own_time_for_the_login_too_and_others_keep_that_login(client, service):
    go_on = asyncio.Event()

    async def late() -> None:
        skip(5)
        await go_on.wait()

    service.before_login = late
    service.answers = [DENIED, (200, success("OK"))]
    caught = await error_of(client.acknowledge(KEY, timeout_s=5))
    assert (type(caught), caught.code) == (NotSent, "login_timeout")
    other = asyncio.create_task(client.act(Action.COMPLETE, KEY))
    go_on.set()
    await other
    assert service.logged_in == 1


async def test_without_time_left_it_is_not_sent(client: Client, service: Service) -> None:
    assert (type(await error_of(client.acknowledge(KEY, timeout_s=0))), service.seen) == (NotSent, [])
