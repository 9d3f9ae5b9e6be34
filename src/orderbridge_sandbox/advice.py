"""Gives advice about mistakes in a call, independently of the answer."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from . import rules
from .checks import UNKNOWN, Call, cooldown_left, known_id, target_of
from .rules import ENDPOINTS, Operation
from .state import Advice, CallRecord, Order
from .switches import words
from .world import World

EARLY_SECONDS: Final = 3600.0  # a login is not early if the token has less time left
_DONT_REPEAT: Final = frozenset({400, 403, 404})

_TEXT: Final = ("a text", lambda value: isinstance(value, str))
_MINUTES: Final = ("a whole number from 1 on", lambda value: type(value) is int and value > 0)
_REASON: Final = ("a whole number from 1 to 8", lambda value: type(value) is int and value in rules.CANCEL_REASONS)
# The fields of each operation's body: the accepted values in words, and a check of them.
_FIELDS: Final[Mapping[str, Mapping[str, tuple[str, Callable[[Any], bool]]]]] = {
    Operation.LOGIN: {"app_secret_key": _TEXT, "rest_secret_key": _TEXT},
    Operation.ACCEPT: {"preparing_time": _MINUTES},
    Operation.CANCEL: {"reason_id": _REASON},
}
_OF_ORDERS: Final = {name for name, _, path in ENDPOINTS if path.startswith("/orders/") and "{id}" in path}
_OF_RESTAURANTS: Final = {name for name, _, path in ENDPOINTS if path.startswith("/restaurants/status/")}

_COOLDOWNS: Final[Mapping[str, str]] = {
    Operation.GET_CURRENT: "cooldown_seconds",
    Operation.GET_FOODS: "menu_cooldown_seconds",
}

Found = tuple[str, dict[str, Any]]


def advice_on(world: World, call: Call) -> Iterator[Advice]:
    """Yield the mistakes in a call before it is carried out. Call it under the lock."""
    for code, facts in _found(world, call):
        text = words()["advice"][code][world.options.language]
        yield Advice(code, text.format(operation=call.operation, **facts))


def terminal_line(world: World, record: CallRecord) -> str:
    """Return the terminal's line for a finished call."""
    order = world.orders.get(record.argument.lower())
    facts = {
        "account": record.account or "-",
        "order": order.number if order else "",
        "path": f"{record.method} {record.path}" if record.operation == UNKNOWN else "",
        "http": record.http_status or "-",
        "orders": len(record.delivered) if record.operation == Operation.GET_CURRENT else "",
        "status": f"{record.status_before}>{record.status_after}" if record.status_before is not None else "",
        "error": repr(record.error) if record.error else "",
        "message": repr(record.message) if record.message else "",
        "fault": record.fault,
        "advice": repr(" ".join(one.text for one in record.advice)) if record.advice else "",
    }
    shown = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
    return f"call.answered operation={record.operation} {shown}"


def _found(world: World, call: Call) -> Iterator[Found]:
    if call.operation == UNKNOWN:
        yield from _about_path(call)
        return
    yield from _about_body(call)
    if call.operation == Operation.LOGIN:
        yield from _about_login(world, call)
        return
    yield from _about_token(world, call)
    if call.operation in _OF_ORDERS:
        yield from _about_order(world, call)
    if call.operation in _OF_RESTAURANTS:
        yield from _about_restaurant(world, call)
    limit = getattr(world.options, _COOLDOWNS.get(call.operation, ""), 0.0)
    left, _ = cooldown_left(world, call, limit)
    if left > 0:
        yield "too_soon", {"seconds": f"{left:.1f}"}
    status = world.last_answers.get((call.operation, call.token or "", call.argument))
    if status in _DONT_REPEAT:
        yield "repeated_refusal", {"status": status}


def _about_path(call: Call) -> Iterator[Found]:
    path = call.path.partition("?")[0]
    for _, method, known in ENDPOINTS:
        head = known.partition("{id}")[0]
        if path.endswith(known) or ("{id}" in known and head in path and "/" not in path.rpartition(head)[2]):
            yield "unknown_method", {"method": method}
            return
    yield "unknown_path", {}


def _about_body(call: Call) -> Iterator[Found]:
    wanted = _FIELDS.get(call.operation)
    if wanted is None:
        if call.has_body:
            yield "body_not_asked_for", {}
        return
    if call.has_body and not call.is_json:
        yield "body_not_json", {}
    elif call.has_body and not isinstance(call.body, dict):
        yield "body_no_object", {}
    for field, (kind, fits) in wanted.items():
        value = call.field(field)
        if value is None:
            yield "missing_field", {"field": field}
        elif not fits(value):
            shown = "***" if field.endswith("_key") else repr(value)
            yield "wrong_value", {"field": field, "value": shown, "wanted": kind}
    for field in call.body if isinstance(call.body, dict) else ():
        if field not in wanted:
            yield "unknown_field", {"field": field}


def _about_login(world: World, call: Call) -> Iterator[Found]:
    app, secret = call.field("app_secret_key"), call.field("rest_secret_key")
    if not (isinstance(app, str) and isinstance(secret, str)):
        return
    account = world.accounts.get(secret)
    if account is None or account.app_secret_key != app:
        yield "wrong_credentials", {}
        return
    ends = max((one.expires for one in world.tokens.values() if one.account.name == account.name), default=world.now())
    left = (ends - world.now()).total_seconds()
    if left > min(EARLY_SECONDS, world.options.token_seconds / 2):
        yield "login_too_soon", {"minutes": round(left / 60)}


def _about_token(world: World, call: Call) -> Iterator[Found]:
    if not call.token:
        yield "no_token", {}
    elif call.token not in world.tokens:
        yield "unknown_token", {}
    elif world.account_of(call.token) is None:
        yield "expired_token", {}


def _about_order(world: World, call: Call) -> Iterator[Found]:
    if call.argument.isdigit():
        yield "number_for_key", {}
        return
    if not rules.UUID_PATTERN.fullmatch(call.argument.lower()):
        yield "not_a_uuid", {}
        return
    order, account = world.orders.get(known_id(world, call.argument)), world.account_of(call.token)
    if order is None:
        yield "unknown_order", {}
    elif account is not None and order.restaurant_id not in account.restaurant_ids:
        yield "foreign_order", {}
    elif call.operation == Operation.ACKNOWLEDGE:
        yield from _about_acknowledgement(world, order)
    else:
        yield from _about_move(world, order, call.operation)


def _about_acknowledgement(world: World, order: Order) -> Iterator[Found]:
    shown = order.shown_status_id
    if shown is None:
        yield "never_delivered", {}
    elif shown != order.status_id:
        yield "acknowledged_unseen", {"status": order.status_id, "shown": shown}
    elif order.acknowledged:
        yield "acknowledged_again", {}


def _about_move(world: World, order: Order, operation: str) -> Iterator[Found]:
    if order.shown_status_id is None:
        yield "never_delivered", {}
    elif not order.acknowledgements:
        yield "not_acknowledged", {}
    if operation == Operation.ON_THE_WAY and order.courier_type != rules.RESTAURANT_COURIER:
        yield "not_own_courier", {"courier": order.courier_type}
    elif target_of(world, order, operation) is None:
        yield "wrong_status", {"status": order.status_id}


def _about_restaurant(world: World, call: Call) -> Iterator[Found]:
    account = world.account_of(call.token)
    if not rules.UUID_PATTERN.fullmatch(call.argument.lower()):
        yield "not_a_uuid", {}
    elif account is not None and known_id(world, call.argument) not in account.restaurant_ids:
        yield "foreign_restaurant", {}
