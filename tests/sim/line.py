"""The line between one daemon and the service: latency, and all faults of requests and answers."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import httpx
from starlette.types import ASGIApp
from tests.sim.reading import Document, documents_in, furthest

from orderbridge.errors import NotSent, UnknownOutcome
from orderbridge.rules.tokens import REFUSAL_WAITS
from orderbridge_sandbox import create_app, wire
from orderbridge_sandbox.rules import ENDPOINTS
from orderbridge_sandbox.scenery import APP_SECRET
from orderbridge_sandbox.state import CallRecord

if TYPE_CHECKING:
    from tests.sim.life import Life
    from tests.sim.simulation import Sim

HOST = "sandbox.test"
TARGET = {"accept": 2, "on_the_way": 16, "complete": 5, "cancel": 6}  # the status that each sets
ORDER_OPERATIONS = set(TARGET)
FOOD_OPERATIONS = {"activate_food", "deactivate_food"}
RESTAURANT_OPERATIONS = {"open_restaurant", "close_restaurant"}
ACTIONS = ORDER_OPERATIONS | FOOD_OPERATIONS | RESTAURANT_OPERATIONS

_PATHS = [(re.compile(path.replace("{id}", "([^/]*)")), method, str(name)) for name, method, path in ENDPOINTS]
_HTML = b"<html><body><h1>Bad Gateway</h1></body></html>"
_ELSEWHERE = "http://elsewhere.test/orders"


@dataclass(slots=True, eq=False)
class Call:
    """One request of a daemon, with its answer."""

    number: int
    life: int
    operation: str
    argument: str
    account: str
    left_at: float
    process: int = 0
    fault: str = ""
    reached: CallRecord | None = None  # the service's own record of it
    status: int | None = None  # of the answer that the daemon got
    whole: bool = False  # the service's own answer came whole
    ended: str = ""  # answered, refused, reset, given_up, crashed
    ended_at: float = 0.0
    disk_took: float = 0.0  # seconds, of all units of work until then
    row: int | None = None  # of the outbox
    documents: dict[str, Document] = field(default_factory=dict)  # of a list: its documents by order
    bad: list[Document] = field(default_factory=list)  # and those without a usable key
    is_cut: bool = False  # the service may have more orders than it lists
    token: str = ""
    said: str = ""  # the answer's meaning by docs/interface.md: ok, no, unauthorized, wait, failed, unknown
    data: Any = None  # of a good answer: its word; of a menu: the foods' statuses

    @property
    def lane(self) -> tuple[str, str] | None:
        if self.operation in ORDER_OPERATIONS:
            return ("order", self.argument)
        if self.operation in FOOD_OPERATIONS:
            return (f"food {self.account}", self.argument)
        return ("restaurant", self.argument) if self.operation in RESTAURANT_OPERATIONS else None

    @property
    def held_lane(self) -> tuple[str, str] | None:
        """An acknowledgement is in the lane of its order."""
        return ("order", self.argument) if self.operation == "acknowledge" else self.lane

    @property
    def delivered(self) -> dict[str, int | None]:
        """The listed status of each order."""
        return dict(self.reached.delivered) if self.reached else {}

    @property
    def column(self) -> str:
        """The outbox's column with the argument of an action."""
        return {"order": "payment_key", "restaurant": "restaurant_id"}.get((self.lane or ("", ""))[0], "food_id")

    @property
    def is_heard(self) -> bool:
        """Whether the daemon got the service's own OK, whole."""
        return self.ended == "answered" and self.status == 200 and self.whole

    @property
    def never_left(self) -> bool:
        return self.ended == "refused"

    @property
    def outcome(self) -> str:
        """The outcome that the daemon can know: the answer's meaning, unknown or unsent. Empty while on the wire."""
        if self.ended == "answered":
            return self.said
        return "unsent" if self.never_left else "unknown" if self.ended else ""

    @property
    def counts(self) -> bool:
        """Whether it is an attempt: it left, and was answered neither 401 nor 429."""
        return self.outcome not in {"unsent", "unauthorized", "wait"}


async def served(app: ASGIApp, request: httpx.Request) -> httpx.Response:
    response = await httpx.ASGITransport(app).handle_async_request(request)
    await response.aread()
    return response


class Service:
    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._app = create_app(sim.world)
        self._running: set[asyncio.Task[httpx.Response]] = set()
        self._lists = sim.plan.stream("lists")

    def asked(self, call: Call, request: httpx.Request, after_s: float) -> Awaitable[httpx.Response]:
        """Carry the request out after `after_s`, also if the client ends meanwhile."""
        task = Context().run(asyncio.get_running_loop().create_task, self._perform(call, request, after_s))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return asyncio.shield(task)

    async def _perform(self, call: Call, request: httpx.Request, after_s: float) -> httpx.Response:
        await asyncio.sleep(after_s)
        response = await served(self._app, request)
        call.reached = self._sim.world.ledger[-1]
        if call.operation == "login":
            self._sim.tokens |= {text: token.account.name for text, token in self._sim.world.tokens.items()}
        if call.operation == "get_current" and response.status_code == 200:
            response = self._said_twice(response)
            listed = list(documents_in(response.content))
            call.documents = furthest(listed, self._sim.settings.marketplace.needs_payment_status_id)
            call.bad = [document for document in listed if document.key is None]
            call.is_cut = len(listed) >= (self._sim.world.options.list_limit or math.inf)
        lists = ",".join(f"{key[:8]}:{document.status}" for key, document in call.documents.items()) or None
        facts = {"effect": call.reached.effect or None, "status": call.reached.status_after, "lists": lists}
        self._sim.trace.note("service", f"#{call.number} {call.operation}", http=response.status_code, **facts)
        return response

    def _said_twice(self, response: httpx.Response) -> httpx.Response:
        """Let some lists hold an order twice, once in its former state."""
        chance = self._lists
        listed = list(documents_in(response.content))
        moved = [document.value for document in listed if document.status in {2, 6, 16}]
        if not moved or chance.random() >= self._sim.plan.twice:
            return response
        before = chance.choice(moved) | {"status_id": 1, "status_text": "Yeni Sipariş"}
        texts = [document.text for document in listed]
        texts.insert(chance.randint(0, len(texts)), wire.encode(before).decode())
        body = f'{{"status":true,"data":[{",".join(texts)}]}}'.encode()
        return httpx.Response(200, content=body, headers={"Content-Type": "application/json"})


class Weather:
    """Chooses the fault of each request."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._random = sim.plan.stream("weather")
        self._lists = sim.plan.stream("slow lists")
        self._names = list(FAULTS)
        self._weights = list(accumulate(fault.weight for fault in FAULTS.values()))

    def fault(self, call: Call) -> str:
        chance = self._random.random()  # always drawn, so that one fault more does not change the others
        which = self._random.choices(self._names, cum_weights=self._weights)[0]
        if self._sim.is_calm:
            return ""
        if scripted := self._sim.script.fault(call):
            return scripted
        plan = self._sim.plan
        hangs = [replace(span, what="lost") for span in plan.hangs if span.what == call.account]
        illnesses = [span for span in plan.illnesses if call.lane is not None and span.account == call.account]
        for span in (*hangs, *plan.outages, *illnesses):
            if span.start <= call.left_at < span.end:
                return span.what
        return which if chance < plan.fault_rate else ""

    def latency(self) -> float:
        return 0.01 + self._random.random() ** 4 / 2

    def of_a_list(self) -> float:
        """A list may take seconds on its way back. It shows the state in which it was made."""
        slow = self._lists.random() < self._sim.plan.slow_lists
        by_chance = self._lists.uniform(0.5, 8.0) if slow and not self._sim.is_calm else 0.0
        return by_chance + self._sim.script.list_takes()

    def long(self) -> float:
        """Seconds; some exceed every timeout."""
        return self._random.uniform(0.5, 30.0)


class Line(httpx.AsyncBaseTransport):
    def __init__(self, life: "Life") -> None:
        self._life, self._sim = life, life.sim

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sim, life = self._sim, self._life
        call = sim.new_call(life, request)
        sim.moment(f"leaving {call.operation}", call.argument)
        life.point(f"leaving {call.operation}")
        call.fault = sim.weather.fault(call)
        sim.tell("leaving", call)
        if call.fault:
            sim.trace.fault(call.fault, call=f"#{call.number}")
            sim.disturb(call.account)
        sim.trace.note("request", f"#{call.number} {call.operation}", of=call.account, about=call.argument or None)
        ending = "given_up"
        try:
            response = await self._travel(call, request)
            ending = "answered"
        except (NotSent, UnknownOutcome) as error:
            ending = "refused" if isinstance(error, NotSent) else "reset"
            raise
        finally:
            self._end(call, ending if life.alive else "crashed")
        sim.moment(f"answered {call.operation}", call.argument)
        life.point(f"answered {call.operation}")
        return response

    def _end(self, call: Call, ending: str) -> None:
        call.ended, call.ended_at, call.disk_took = ending, self._sim.now(), self._sim.disk_took
        if call.operation == "login" and call.status is not None and call.said != "ok":
            self._sim.disturb(call.account, max(REFUSAL_WAITS))
        self._sim.trace.note("ended", f"#{call.number} {ending}", http=call.status)
        self._sim.keep_list(call)
        self._sim.tell("ended", call)

    async def _travel(self, call: Call, request: httpx.Request) -> httpx.Response:
        weather, life = self._sim.weather, self._life
        there, back = weather.latency(), weather.latency()
        fault = FAULTS.get(call.fault) or Fault()
        if call.fault == "refused":
            raise NotSent("connection_refused")
        if fault.loses_token:
            self._sim.world.end_tokens(call.account)
        there += weather.long() if fault.slow_there else 0.0
        if fault.reaches:
            response = await self._sim.service.asked(call, request, there)
            self._sim.moment(f"reached {call.operation}", call.argument)
            life.point(f"reached {call.operation}")
        else:
            response = httpx.Response(200)
            await asyncio.sleep(there)
        back += weather.long() if fault.slow_back else 0.0
        back += weather.of_a_list() if call.operation == "get_current" else 0.0
        await asyncio.sleep(back)
        answer = self._quoted(call) if fault.quotes else await fault.answer(response) if fault.answer else response
        call.status, call.whole = answer.status_code, answer is response
        call.said, call.data = meaning(answer)
        if call.operation == "get_foods" and call.said == "ok" and call.whole:
            call.data = {(str(food["food_id"]), food["status"]) for food in answer.json()["data"]}
        return answer

    def _quoted(self, call: Call) -> httpx.Response:
        """An answer that quotes the request and its customer."""
        orders = self._sim.world.orders
        order = orders.get(call.argument) or next(reversed(orders.values()), None)
        customer = order.placed.get("customer") if order else None
        said = f"{customer} {order.placed.get('address') if order else ''} {call.token or APP_SECRET}"
        return _json((500, 422, 200)[call.number % 3], {"status": False, "error": f"{customer}", "message": said})


REFUSALS = {"URL hatalı", "sipariş bulunamadı", "ürün bulunamadı", "restoran bulunamadı", "eksik alan"}


def meaning(answer: httpx.Response) -> tuple[str, object]:
    """The meaning of an answer by docs/interface.md and docs/design.md, and its data, without the program's code."""
    try:
        body = json.loads(answer.content)
    except ValueError:
        body = None
    envelope = body if isinstance(body, dict) else {}
    status, error, good = envelope.get("status"), envelope.get("error"), answer.status_code < 300
    if error in REFUSALS:
        return "no", None
    if error == "yetkisiz erişim" or answer.status_code == 401:
        return "unauthorized", None
    if error == "çok fazla istek" or answer.status_code == 429:
        return "wait", None
    if answer.status_code >= 500:
        return "unknown" if answer.status_code in (502, 504) else "failed", None
    if status is False and (good or answer.status_code >= 400):
        return "no", None
    if status is True and good:
        return "ok", envelope.get("data") if isinstance(envelope.get("data"), str) else None
    return "unknown", None


async def _never(_: httpx.Response) -> httpx.Response:
    await asyncio.Event().wait()
    raise AssertionError


def _lost(reason: str) -> Callable[[httpx.Response], Awaitable[httpx.Response]]:
    async def answer(_: httpx.Response) -> httpx.Response:
        raise UnknownOutcome(reason)

    return answer


async def _cut(response: httpx.Response) -> httpx.Response:
    body = response.content
    return httpx.Response(response.status_code, content=body[: len(body) // 2], headers={"Content-Type": "text/json"})


def _instead(status: int, body: object = b"", **headers: str) -> Callable[[httpx.Response], Awaitable[httpx.Response]]:
    async def answer(_: httpx.Response) -> httpx.Response:
        return _json(status, body, **headers)

    return answer


def _json(status: int, body: object, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return httpx.Response(status, content=content, headers=headers)


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one request: whether and when it reaches the service, and what comes back."""

    weight: int = 0
    reaches: bool = True
    answer: Callable[[httpx.Response], Awaitable[httpx.Response]] | None = None  # the service's own
    slow_there: bool = False
    slow_back: bool = False
    loses_token: bool = False
    quotes: bool = False


_NO = {"status": False, "error": "bugün olmaz", "message": "not today"}
_WAIT = {"status": False, "error": "çok fazla istek", "message": "30"}

FAULTS = {
    "refused": Fault(6, reaches=False),
    "lost": Fault(6, reaches=False, answer=_never),
    "reset": Fault(5, reaches=False, answer=_lost("connection_lost")),
    "done_silence": Fault(8, answer=_never),
    "done_reset": Fault(6, answer=_lost("connection_lost")),
    "slow": Fault(5, slow_there=True),
    "slow_answer": Fault(5, slow_back=True),
    "http_429": Fault(4, reaches=False, answer=_instead(429, _WAIT)),
    "http_500": Fault(5, reaches=False, answer=_instead(500)),
    "done_500": Fault(3, answer=_instead(500, {"status": False, "error": "server"})),
    "http_503": Fault(3, reaches=False, answer=_instead(503, _HTML)),
    "http_502": Fault(3, reaches=False, answer=_instead(502, _HTML)),
    "done_502": Fault(3, answer=_instead(502, _HTML)),
    "http_504": Fault(2, reaches=False, answer=_instead(504)),
    "page_200": Fault(2, reaches=False, answer=_instead(200, _HTML)),
    "done_page_200": Fault(2, answer=_instead(200, _HTML)),
    "page_404": Fault(2, reaches=False, answer=_instead(404, _HTML)),
    "truncated": Fault(4, answer=_cut),
    "wrong_json": Fault(2, reaches=False, answer=_instead(200, ["maintenance"])),
    "empty": Fault(2, reaches=False, answer=_instead(200)),
    "redirect": Fault(2, reaches=False, answer=_instead(307, Location=_ELSEWHERE)),
    "token_lost": Fault(4, loses_token=True),
    "said_no": Fault(1, reaches=False, answer=_instead(422, _NO)),
    "quotes": Fault(2, reaches=False, quotes=True),
    "too_large": Fault(0, answer=_lost("body_too_large")),  # only in a corner: the next lists must be read by status
}


def read_request(request: httpx.Request) -> tuple[str, str]:
    """The operation, and the id in the path in lower case, as ids are compared. For a list, the requested status."""
    for path, method, name in _PATHS:
        if method == request.method and (found := path.fullmatch(request.url.path)):
            return name, found[1].lower() if found.groups() else request.url.params.get("status_id", "")
    raise AssertionError(f"no such operation: {request.method} {request.url.path}")
