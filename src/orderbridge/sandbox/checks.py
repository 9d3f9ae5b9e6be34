"""What a call is, what an answer is, and the checks that stand between them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from . import rules
from .options import CooldownScope, Disallowed, TokenMessage
from .rules import Operation
from .state import Account, Order
from .world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the service sees of a request."""

    operation: Operation
    token: str | None = None
    argument: str = ""
    """The id in the path, or get-current's status_id ("" when it is not given)."""
    body: Any = None
    """The JSON body, None when there is none or it is not labelled as JSON."""
    address: str = ""
    """From which network address it comes."""

    def field(self, name: str) -> Any:
        """Return a field of the body, None when it is missing."""
        return self.body.get(name) if isinstance(self.body, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status and an envelope."""

    status: int
    envelope: dict[str, Any]

    @classmethod
    def success(cls, data: object) -> "Answer":
        """Return HTTP 200 with the data."""
        return cls(status=200, envelope={"status": True, "data": data})

    @property
    def error(self) -> str:
        """The error's text, empty for a success."""
        return str(self.envelope.get("error", ""))


class Refused(Exception):
    """A check that failed, with what to answer."""

    def __init__(self, status: int, error: str, message: str | None = None) -> None:
        """Hold an error envelope."""
        super().__init__(error)
        envelope: dict[str, Any] = {"status": False, "error": error}
        if message is not None:
            envelope["message"] = message
        self.answer = Answer(status=status, envelope=envelope)


class Done(Exception):
    """A check that ends the call with OK and without effect."""


def caller_of(world: World, call: Call) -> str:
    """Return the name of the account behind the call, empty when there is none."""
    if call.operation is not Operation.LOGIN:
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


def _meant(world: World, argument: str) -> str:
    """The id that a path means, in lower case; with ids in capitals, a path in another form means nothing."""
    return "" if world.options.ids_in_capitals and argument != argument.upper() else argument.lower()


def order_of(world: World, account: Account, call: Call) -> Order:
    order = world.orders.get(_meant(world, call.argument))
    if order is None or order.restaurant_id not in account.restaurant_ids:
        raise Refused(404, rules.ORDER_NOT_FOUND)
    return order


def restaurant_of(world: World, call: Call) -> str:
    account = account_of(world, call)
    check_uuid(call)
    restaurant_id = _meant(world, call.argument)
    if restaurant_id not in account.restaurant_ids:
        raise Refused(404, rules.RESTAURANT_NOT_FOUND)
    return restaurant_id


def menus_of(world: World, account: Account) -> set[str]:
    return {world.restaurants[restaurant_id].menu for restaurant_id in account.restaurant_ids}


def foods_of(world: World, call: Call) -> list[tuple[str, int]]:
    account = account_of(world, call)
    if not rules.INTEGER_PATTERN.fullmatch(call.argument):
        raise Refused(403, rules.BAD_URL)
    found = [(menu, int(call.argument)) for menu in sorted(menus_of(world, account))]
    found = [key for key in found if key in world.foods]
    if not found:
        raise Refused(404, rules.FOOD_NOT_FOUND)
    return found


def disallowed(world: World) -> Exception:
    match world.options.disallowed:
        case Disallowed.OK:
            return Done()
        case Disallowed.NOT_FOUND:
            return Refused(404, rules.ORDER_NOT_FOUND)
        case Disallowed.REFUSED:
            return Refused(world.options.disallowed_status, world.options.disallowed_error)


def wanted_status(call: Call) -> int | None:
    if not call.argument:
        return None
    if not rules.INTEGER_PATTERN.fullmatch(call.argument):
        # "status_id (integer, optional)"; what another value gives is not shown.
        raise Refused(422, rules.MISSING_FIELD, "Invalid status_id")
    return int(call.argument)


def check_cooldown(world: World, call: Call, account: Account, seconds: float) -> None:
    """Refuse a call too soon after the last accepted one of the same scope ("Limits")."""
    match world.options.cooldown_scope:
        case CooldownScope.CREDENTIAL:
            whose = account.rest_secret_key
        case CooldownScope.APPLICATION:
            whose = account.app_secret_key
        case CooldownScope.ADDRESS:
            whose = call.address
    key, now = (call.operation, whose), world.clock()
    since = world.cooldown_since.get(key)
    too_soon = since is not None and now - since < timedelta(seconds=seconds)
    if not too_soon or world.options.cooldown_restarts_on_429:
        world.cooldown_since[key] = now
    if too_soon:
        raise Refused(429, rules.TOO_MANY_REQUESTS, rules.cooldown_message(seconds))
