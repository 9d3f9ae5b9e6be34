"""The control interface below /_sandbox/: what a developer or a test does to the world from outside.

It is no part of docs/interface.md and has no password: keep the sandbox on the loopback address. A page in a browser on the same
machine could reach it all the same. So it answers only under a name of its own, to no other page, and takes only what
a page cannot send unasked: JSON that says so.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import wire
from .faults import EVERY_OPERATION, BadFault, Fault, FaultKind
from .options import BadOption
from .rules import Operation
from .tls import LOCAL_NAMES
from .world import CannotOrder, NotAllowed, UnknownOrder, World

PREFIX: Final = "/_sandbox"
MOST_ORDERS_PER_CALL: Final = 1000

Handler = Callable[[World, Request, dict[str, Any]], Any]


class BadRequest(Exception):
    """A body that the control interface cannot use."""


class Stranger(Exception):
    """A request that came under another name, or from somebody else's page."""


class NotJson(Exception):
    """A body that is not said to be JSON."""


def control_routes(world: World, names: Collection[str] = LOCAL_NAMES) -> list[Route]:
    """Return the routes for the world; names are the hosts under which it may be called."""
    return [
        Route(f"{PREFIX}{path}", _endpoint(world, handler, names), methods=[method])
        for method, path, handler, _ in COMMANDS
    ]


def _endpoint(world: World, handler: Handler, names: Collection[str]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            _check_caller(request, names)
            body = await _body(request)
            with world.lock:
                return _json(handler(world, request, body), 200)
        except Stranger as error:
            return _json({"error": str(error)}, 403)
        except NotJson as error:
            return _json({"error": str(error)}, 415)
        except (BadRequest, BadFault, BadOption) as error:
            return _json({"error": str(error)}, 400)
        except UnknownOrder as error:
            return _json({"error": f"no order with the payment_key {error.args[0]}"}, 404)
        except (CannotOrder, NotAllowed) as error:
            return _json({"error": str(error)}, 409)

    return endpoint


def _check_caller(request: Request, names: Collection[str]) -> None:
    host = request.headers.get("host", "")
    server, _ = request.scope.get("server") or ("", None)  # the address that was called: 0.0.0.0 has many
    called = _host(f"//{host}")
    if called not in {name.lower() for name in (*names, server)} and not _is_loopback(called):
        raise Stranger(f"{host!r} is no name of this sandbox; it has {', '.join(names)}")
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() != f"https://{host.lower()}":
        raise Stranger(f"{origin!r} is another page's; call it from a program, or from https://{host}")


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def _body(request: Request) -> dict[str, Any]:
    raw = await request.body()
    if raw and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise NotJson("send JSON, and say so: Content-Type: application/json")
    body = wire.decode(raw, exact=True) if raw else {}
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _json(value: object, status: int) -> Response:
    return Response(wire.encode(value), status, media_type="application/json")


def _take(body: dict[str, Any], name: str, kind: Any, default: Any) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise BadRequest(f"{name}: {value!r} will not do")
    return value


def _help(world: World, request: Request, body: dict[str, Any]) -> Any:
    return {
        "about": "Control of the sandbox; not part of the service's interface.",
        "commands": [f"{method} {PREFIX}{path}: {text}" for method, path, _, text in COMMANDS],
        "operations": [EVERY_OPERATION, *Operation],
        "fault_kinds": list(FaultKind),
        "options": world.options.as_json(),
    }


def _scenery(world: World, request: Request, body: dict[str, Any]) -> Any:
    return {
        "accounts": [asdict(account) for account in world.scenery.accounts],
        "restaurants": [
            {
                "id": r.id,
                "name": r.name,
                "menu": r.menu,
                "status": "Open" if r.id in world.open_restaurants else "Closed",
            }
            for r in world.restaurants.values()
        ],
        "foods": [
            {**asdict(food), "status": "INACTIVE" if key in world.inactive_foods else "ACTIVE"}
            for key, food in world.foods.items()
        ],
    }


def _list_orders(world: World, request: Request, body: dict[str, Any]) -> Any:
    return [order.as_json() for order in world.orders.values()]


def _show_order(world: World, request: Request, body: dict[str, Any]) -> Any:
    return world.order(request.path_params["key"]).as_json()


def _place_orders(world: World, request: Request, body: dict[str, Any]) -> Any:
    count = _take(body, "count", int, 1)
    if not 1 <= count <= MOST_ORDERS_PER_CALL:
        raise BadRequest(f"count: {count} is not between 1 and {MOST_ORDERS_PER_CALL}")
    restaurant_id = _take(body, "restaurant_id", str | None, None)
    document = _take(body, "document", dict, {})
    without = _take(body, "without", list, [])
    orders = [
        world.place_order(restaurant_id=restaurant_id, document=document, without=[str(name) for name in without])
        for _ in range(count)
    ]
    return [order.as_json() for order in orders]


def _cancel_order(world: World, request: Request, body: dict[str, Any]) -> Any:
    return world.cancel_by_customer(request.path_params["key"]).as_json()


def _change_status(world: World, request: Request, body: dict[str, Any]) -> Any:
    status_id = _take(body, "status_id", int, None)
    text = _take(body, "status_text", str | None, None)
    return world.change_status(request.path_params["key"], status_id, text).as_json()


def _ledger(world: World, request: Request, body: dict[str, Any]) -> Any:
    query = request.query_params
    return [call.as_json() for call in world.calls(query.get("operation", ""), account=query.get("account", ""))]


def _show_options(world: World, request: Request, body: dict[str, Any]) -> Any:
    return world.options.as_json()


def _set_options(world: World, request: Request, body: dict[str, Any]) -> Any:
    # JSON amounts arrive as Decimal; an option is a float.
    return world.set_options(**{name: _plain(value) for name, value in body.items()}).as_json()


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str | list | dict) else float(value)


def _list_faults(world: World, request: Request, body: dict[str, Any]) -> Any:
    return [fault.as_json() for fault in world.faults.pending()]


def _add_fault(world: World, request: Request, body: dict[str, Any]) -> Any:
    fault = Fault.from_json({name: _plain(value) for name, value in body.items()})
    world.faults.add(fault)
    return fault.as_json()


def _clear_faults(world: World, request: Request, body: dict[str, Any]) -> Any:
    world.faults.clear()
    return []


def _end_tokens(world: World, request: Request, body: dict[str, Any]) -> Any:
    return {"ended": world.end_tokens(_take(body, "account", str, ""))}


def _refuse_account(world: World, request: Request, body: dict[str, Any]) -> Any:
    world.refuse_account(_take(body, "account", str, None))
    return {}


def _reset(world: World, request: Request, body: dict[str, Any]) -> Any:
    world.reset(seed=_take(body, "seed", int | None, None))
    return {}


# Method, path below /_sandbox, handler, help.
COMMANDS: Final[tuple[tuple[str, str, Handler, str], ...]] = (
    ("GET", "/", _help, "this text"),
    ("GET", "/scenery", _scenery, "credentials, restaurants and foods with their status"),
    ("GET", "/orders", _list_orders, "all orders with their truth: status, history, acknowledgements, document"),
    (
        "POST",
        "/orders",
        _place_orders,
        "place orders: {count, restaurant_id, document: {field: value}, without: [field]}",
    ),
    ("GET", "/orders/{key}", _show_order, "one order by its payment_key"),
    ("POST", "/orders/{key}/cancel", _cancel_order, "cancel as the customer does"),
    ("POST", "/orders/{key}/status", _change_status, "change the status as the panel does: {status_id, status_text}"),
    ("GET", "/ledger", _ledger, "all calls, or ?operation=accept&account=kadikoy"),
    ("GET", "/options", _show_options, "the switches"),
    ("PATCH", "/options", _set_options, "change switches: {cooldown_seconds: 1}"),
    ("GET", "/faults", _list_faults, "the faults that are still to come"),
    ("POST", "/faults", _add_fault, "add a fault: {operation: accept, kind: answer, status: 500, body, times, when}"),
    ("DELETE", "/faults", _clear_faults, "forget all faults; what is being delayed goes on"),
    ("POST", "/tokens/end", _end_tokens, "make tokens invalid: {account}, or all"),
    ("POST", "/accounts/refuse", _refuse_account, "take a credential away until the reset: {account}"),
    ("POST", "/reset", _reset, "back to the start: {seed}"),
)
