"""Calls, answers, and the checks that a call must pass."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from . import rules
from .options import Completable, CooldownScope, Disallowed, TokenMessage
from .rules import Operation
from .state import Account, Order
from .world import World

UNKNOWN: Final = "unknown"  # the operation of a call to a path or with a method that the service does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the service sees of a request."""

    operation: str  # one of Operation, or UNKNOWN
    token: str | None = None
    argument: str = ""  # the id in the path, or get-current's status_id ("" when it is not given)
    body: Any = None  # the JSON body, None when there is none or it is not labelled as JSON
    address: str = ""  # the caller's network address
    method: str = ""
    path: str = ""
    is_json: bool = True  # whether its Content-Type is JSON
    has_body: bool = False

    def field(self, name: str) -> Any:
        """Return a field of the body, None when it is missing."""
        return self.body.get(name) if isinstance(self.body, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP status and a response envelope."""

    status: int
    envelope: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def success(cls, data: object) -> "Answer":
        """Return HTTP 200 with the data."""
        return cls(status=200, envelope={"status": True, "data": data})

    @property
    def error(self) -> str:
        """The error's text, empty for a success."""
        return str(self.envelope.get("error", ""))

    @property
    def message(self) -> str:
        """The message beside the error, empty if there is none."""
        return str(self.envelope.get("message", ""))


class Refused(Exception):
    """A check that failed, with what to answer."""

    def __init__(self, status: int, error: str, message: str | None = None) -> None:
        """Hold an error envelope."""
        super().__init__(error)
        envelope: dict[str, Any] = {"status": False, "error": error}
        if message is not None:
            envelope["message"] = message
        self.answer = Answer(status=status, envelope=envelope)


class TooSoon(Refused):
    """A 429, with the header Retry-After if the option is set."""

    def __init__(self, left: float, message: str) -> None:
        """Hold how many seconds are left."""
        super().__init__(429, rules.TOO_MANY_REQUESTS, message)
        self.left = left


class Done(Exception):
    """A check that ends the call with OK and without effect."""


def caller_of(world: World, call: Call) -> str:
    """Return the name of the account behind the call, empty when there is none."""
    if call.operation != Operation.LOGIN:
        account = world.account_of(call.token)
        return account.name if account else ""
    secret = call.field("rest_secret_key")
    known = world.accounts.get(secret) if isinstance(secret, str) else None
    return known.name if known else ""


def account_of(world: World, call: Call) -> Account:
    account = world.account_of(call.token)
    if account is None:
        # Endpoints 2 and 6 fix the message, "Authentication" 4 leaves it open for the others.
        fixed = call.operation in (Operation.GET_RESTAURANTS, Operation.GET_CURRENT)
        message = TokenMessage.INVALID_OR_EXPIRED if fixed else world.options.token_message
        raise Refused(401, rules.UNAUTHORIZED, message)
    return account


def check_uuid(call: Call) -> None:
    if not rules.UUID_PATTERN.fullmatch(call.argument.lower()):
        raise Refused(403, rules.BAD_URL)


def known_id(world: World, argument: str) -> str:
    """Return the id of a path in lower case; "" for one not in capitals while the option ids_in_capitals is set."""
    return "" if world.options.ids_in_capitals and argument != argument.upper() else argument.lower()


def order_of(world: World, account: Account | None, call: Call) -> Order:
    """Return the order of the path. Without a valid token, an order of any restaurant is found."""
    order = world.orders.get(known_id(world, call.argument))
    if order is None or (account is not None and order.restaurant_id not in account.restaurant_ids):
        raise Refused(404, rules.ORDER_NOT_FOUND)
    return order


def in_order(world: World, call: Call, **checks: Callable[[], object]) -> None:
    """Run the checks (see Check) in the configured order. The first failure is the answer."""
    checks["token"] = lambda: account_of(world, call)
    for name in world.options.error_order.split():
        if name in checks:
            checks[name]()


def restaurant_of(world: World, call: Call) -> str:
    restaurant_id = known_id(world, call.argument)

    def exists() -> None:
        account = world.account_of(call.token)
        if restaurant_id not in (world.restaurants if account is None else account.restaurant_ids):
            raise Refused(404, rules.RESTAURANT_NOT_FOUND)

    in_order(world, call, url=lambda: check_uuid(call), exists=exists)
    return restaurant_id


def menus_of(world: World, account: Account) -> set[str]:
    return {world.restaurants[restaurant_id].menu for restaurant_id in account.restaurant_ids}


def foods_of(world: World, call: Call) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    is_number = rules.INTEGER_PATTERN.fullmatch(call.argument) is not None

    def url() -> None:
        if not is_number:
            raise Refused(403, rules.BAD_URL)

    def exists() -> None:
        account = world.account_of(call.token)
        menus = {menu for menu, _ in world.foods} if account is None else menus_of(world, account)
        found[:] = [(menu, int(call.argument)) for menu in sorted(menus)] if is_number else []
        found[:] = [key for key in found if key in world.foods]
        if not found:
            raise Refused(404, rules.FOOD_NOT_FOUND)

    in_order(world, call, url=url, exists=exists)
    return found


def disallowed(world: World) -> Exception:
    match world.options.disallowed:
        case Disallowed.OK:
            return Done()
        case Disallowed.NOT_FOUND:
            return Refused(404, rules.ORDER_NOT_FOUND)
        case Disallowed.REFUSED:
            return Refused(world.options.disallowed_status, world.options.disallowed_error)


def target_of(world: World, order: Order, operation: str) -> int | None:
    """Return the order's status after the operation; None if it is not allowed ("Order transitions")."""
    own_courier = order.courier_type == rules.RESTAURANT_COURIER
    if operation == Operation.ON_THE_WAY and not own_courier:
        return None
    early = order.status_id == rules.CONFIRMED and operation == Operation.COMPLETE
    allowed = world.options.complete_from_confirmed
    if early and (allowed is Completable.ALL or (allowed is Completable.WITHOUT_OWN_COURIER and not own_courier)):
        return rules.COMPLETE_WITH_PAYMENT
    return rules.next_status(order.status_id, Operation(operation))


def wanted_status(call: Call) -> int | None:
    if not call.argument:
        return None
    if not rules.INTEGER_PATTERN.fullmatch(call.argument):
        # An optional integer; docs/interface.md does not give the answer to another value.
        raise Refused(422, rules.MISSING_FIELD, "Invalid status_id")
    return int(call.argument)


def check_cooldown(world: World, call: Call, seconds: float) -> None:
    """Refuse a call within the cooldown of the last accepted one of its scope ("Limits")."""
    left, keys = cooldown_left(world, call, seconds)
    if left <= 0 or world.options.cooldown_restarts_on_429:
        world.cooldown_since.update(dict.fromkeys(keys, world.now()))
    if left > 0:
        raise TooSoon(left, rules.cooldown_message(seconds))


def cooldown_left(world: World, call: Call, seconds: float) -> tuple[float, Sequence[tuple[str, str]]]:
    """Return the seconds left of the cooldown, and its keys in `cooldown_since`. No valid token: no key."""
    account = world.account_of(call.token)
    keys = [] if account is None else [(call.operation, whose) for whose in _sharing(world, call, account)]
    last = max((world.cooldown_since[key] for key in keys if key in world.cooldown_since), default=None)
    return (0.0 if last is None else seconds - (world.now() - last).total_seconds()), keys


def _sharing(world: World, call: Call, account: Account) -> Sequence[str]:
    match world.options.cooldown_scope:
        case CooldownScope.CREDENTIAL:
            return (account.rest_secret_key,)
        case CooldownScope.APPLICATION:
            return (account.app_secret_key,)
        case CooldownScope.ADDRESS:
            return (call.address,)
        case CooldownScope.RESTAURANT:
            return account.restaurant_ids


def check_login_limit(world: World, secret: str) -> None:
    """Refuse a login beyond the limit for one secret."""
    limit, window = world.options.login_limit, world.options.login_window_seconds
    if limit is None:
        return
    since = world.now() - timedelta(seconds=window)
    times = world.logins[secret] = [at for at in world.logins.get(secret, []) if at > since]
    if len(times) >= limit:
        left = (times[0] - since).total_seconds() if times else window
        raise TooSoon(left, rules.cooldown_message(math.ceil(left)))
    times.append(world.now())
