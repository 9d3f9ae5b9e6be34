"""The answers of the marketplace: the fifteen operations of docs/interface.md and the menu list.

The option error_order sets the order of the checks; by default: token (401), id in the path (403), body (422),
existence (404), status of the order.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from . import rules
from .checks import (
    Answer,
    Call,
    Done,
    Refused,
    TooSoon,
    account_of,
    check_cooldown,
    check_login_limit,
    check_uuid,
    disallowed,
    foods_of,
    in_order,
    menus_of,
    order_of,
    restaurant_of,
    target_of,
    wanted_status,
)
from .options import Coverage, ListOrder, MenuShape
from .pace import retry_after
from .rules import Operation
from .state import Account, CallRecord, Food, Order
from .world import World

OK: Final = "OK"
# The option that sets the HTTP status of an operation's errors.
_OPEN_STATUSES: Final = {
    Operation.COMPLETE: "complete_error_status",
    Operation.GET_RESTAURANT_STATUS: "restaurant_error_status",
    Operation.OPEN_RESTAURANT: "restaurant_error_status",
    Operation.CLOSE_RESTAURANT: "restaurant_error_status",
    Operation.DEACTIVATE_FOOD: "food_error_status",
    Operation.ACTIVATE_FOOD: "food_error_status",
}


def perform(world: World, call: Call, record: CallRecord) -> Answer:
    """Carry out the call and return the answer. The effects are written to the record."""
    with world.lock:
        try:
            answer = Answer.success(_OPERATIONS[Operation(call.operation)](world, call, record))
        except Done:
            answer = Answer.success(OK)
        except TooSoon as refused:
            answer = replace(refused.answer, headers=retry_after(world, refused.left))
        except Refused as refused:
            answer = _with_open_status(world, Operation(call.operation), refused.answer)
        world.remember(call.operation, call.token or "", call.argument, status=answer.status)
        world.lock.notify_all()
        return answer


def _with_open_status(world: World, operation: Operation, answer: Answer) -> Answer:
    """Apply the statuses that docs/interface.md does not give ("Errors": complete, restaurant and food endpoints)."""
    status = getattr(world.options, _OPEN_STATUSES.get(operation, ""), None)
    if status is None or (answer.error == rules.UNAUTHORIZED and world.options.token_errors_stay_401):
        return answer
    return replace(answer, status=status)


# 1. Login.


def _login(world: World, call: Call, record: CallRecord) -> dict[str, Any]:
    app_secret, rest_secret = call.field("app_secret_key"), call.field("rest_secret_key")
    if not (isinstance(app_secret, str) and app_secret and isinstance(rest_secret, str) and rest_secret):
        raise Refused(422, rules.MISSING_FIELD)
    check_login_limit(world, rest_secret)
    account = world.accounts.get(rest_secret)
    if account is None or account.app_secret_key != app_secret:
        raise Refused(401, rules.UNAUTHORIZED, rules.INVALID_CREDENTIALS)
    token = world.issue_token(account)
    record.account, record.effect = account.name, True
    expires = token.expires.astimezone(ZoneInfo(world.options.expiration_timezone))
    return {"access_token": token.text, "expiration_date": expires.strftime(rules.TIME_FORMAT)}


# 2 to 5. Restaurants.


def _get_restaurants(world: World, call: Call, _record: CallRecord) -> list[dict[str, str]]:
    account = account_of(world, call)
    return [{"id": _shown(world, key), "name": world.restaurants[key].name} for key in account.restaurant_ids]


def _get_restaurant_status(world: World, call: Call, _record: CallRecord) -> str:
    return "Open" if restaurant_of(world, call) in world.open_restaurants else "Closed"


def _turn_restaurant(world: World, call: Call, record: CallRecord, *, is_open: bool) -> str:
    restaurant_id = restaurant_of(world, call)
    record.effect = is_open != (restaurant_id in world.open_restaurants)
    (world.open_restaurant if is_open else world.close_restaurant)(restaurant_id)
    return OK


# 6 and 7. The list and its acknowledgement.


def _get_current(world: World, call: Call, record: CallRecord) -> list[dict[str, Any]]:
    limit = partial(check_cooldown, world, call, world.options.cooldown_seconds)
    in_order(world, call, body=lambda: wanted_status(call), limit=limit)
    account, wanted = account_of(world, call), wanted_status(call)
    orders = _listed(world, account)
    if wanted is not None:
        orders = [order for order in orders if order.status_id == wanted]
    orders = _arranged(world, orders)[: world.options.list_limit or None]
    record.delivered = tuple((order.key, order.status_id) for order in orders)
    for order in orders:
        order.shown_status_id = order.status_id
    return [_with_shown_ids(world, order.document) for order in orders]


def _shown(world: World, key: str) -> str:
    return key.upper() if world.options.ids_in_capitals else key


def _with_shown_ids(world: World, document: dict[str, Any]) -> dict[str, Any]:
    ids = ("payment_key", "restaurant_id")
    return document | {name: _shown(world, document[name]) for name in ids if isinstance(document.get(name), str)}


def _listed(world: World, account: Account) -> list[Order]:
    """Return the orders to be listed ("Acknowledgement (repetition) rules")."""
    first_only = world.options.list_covers is Coverage.FIRST
    covered = set(account.restaurant_ids[:1] if first_only else account.restaurant_ids)
    hidden = {rules.COMPLETE_WITH_PAYMENT}
    if not world.options.cancelled_are_delivered:
        hidden.add(rules.CANCELED)
    return [
        order
        for order in world.orders.values()
        if order.restaurant_id in covered and not order.acknowledged and order.status_id not in hidden
    ]


def _arranged(world: World, orders: list[Order]) -> list[Order]:
    match world.options.list_order:
        case ListOrder.OLDEST_FIRST:
            return orders
        case ListOrder.NEWEST_FIRST:
            return orders[::-1]
        case ListOrder.SHUFFLED:
            return world.list_random.sample(orders, k=len(orders))


def _acknowledge(world: World, call: Call, record: CallRecord) -> str:
    order = _order(world, call, record)
    record.effect = world.acknowledge(order)
    return OK


# 8 to 11. The lifecycle.


def _accept(world: World, call: Call, record: CallRecord) -> str:
    def body() -> None:
        minutes = call.field("preparing_time")
        # docs/interface.md gives no bounds and no answer to a wrong type: other values count as missing.
        if type(minutes) is not int or not 0 < minutes <= (world.options.longest_preparing_time or minutes):
            raise Refused(422, rules.MISSING_FIELD, rules.PREPARING_TIME_REQUIRED)

    order = _moved(world, call, record, body)
    order.preparing_time = call.field("preparing_time")
    return OK


def _move(world: World, call: Call, record: CallRecord) -> str:
    _moved(world, call, record)
    return OK


def _cancel(world: World, call: Call, record: CallRecord) -> str:
    def body() -> None:
        reason = call.field("reason_id")
        if reason is None:
            raise Refused(422, rules.MISSING_FIELD, rules.REASON_ID_REQUIRED)
        # A JSON integer: neither true nor "1" nor 1.0.
        if type(reason) is not int or reason not in rules.CANCEL_REASONS:
            raise Refused(422, rules.MISSING_FIELD, rules.INVALID_REASON_ID)

    order = _moved(world, call, record, body)
    order.reason_id = call.field("reason_id")
    return OK


def _order(
    world: World,
    call: Call,
    record: CallRecord,
    body: Callable[[], None] = lambda: None,
    status: Callable[[Order], None] = lambda _: None,
) -> Order:
    """Return the order of the path after all checks of the call."""
    found = partial(order_of, world, world.account_of(call.token), call)

    def status_of_it() -> None:
        try:
            order = found()
        except Refused:
            return  # the check `exists` refuses it
        record.status_before = record.status_after = order.status_id
        status(order)

    in_order(world, call, url=lambda: check_uuid(call), body=body, exists=found, status=status_of_it)
    return found()


def _moved(world: World, call: Call, record: CallRecord, body: Callable[[], None] = lambda: None) -> Order:
    def status(order: Order) -> None:
        if target_of(world, order, call.operation) is None:
            raise disallowed(world)

    order = _order(world, call, record, body, status)
    target = target_of(world, order, call.operation)
    assert target is not None  # noqa: S101 - checked before
    world.move(order, target, by="pos")
    record.status_after, record.effect = target, True
    return order


# 12 and 13. Reference lists.


def _get_cancel_reasons(world: World, call: Call, _record: CallRecord) -> list[dict[str, Any]]:
    account_of(world, call)
    return [{"id": key, "reason": text} for key, text in rules.CANCEL_REASONS.items()]


def _get_variables(world: World, call: Call, _record: CallRecord) -> dict[str, list[dict[str, str]]]:
    account_of(world, call)
    return {
        "paymentMethod": [{"key": key, "name": name} for key, name in world.payment_names().items()],
        "shippingMethod": [{"key": key, "name": name} for key, name in rules.SHIPPING_METHODS.items()],
    }


# 14, 15 and the menu listing.


def _turn_food(world: World, call: Call, record: CallRecord, *, is_active: bool) -> str:
    keys = set(foods_of(world, call))
    before = world.inactive_foods
    world.inactive_foods = before - keys if is_active else before | keys
    record.effect = world.inactive_foods != before
    return OK


def _get_foods(world: World, call: Call, _record: CallRecord) -> Any:
    account = account_of(world, call)
    check_cooldown(world, call, world.options.menu_cooldown_seconds)
    menus = menus_of(world, account)
    foods = [_food_entry(world, food) for food in world.foods.values() if food.menu in menus]
    match world.options.menu_shape:
        case MenuShape.FLAT:
            return foods
        case MenuShape.WRAPPED:
            return {"foods": foods}
        case MenuShape.BY_CATEGORY:
            names = dict.fromkeys(food["category"] for food in foods)
            return [{"category": name, "foods": [f for f in foods if f["category"] == name]} for name in names]
        case MenuShape.BY_ID:
            return {food["food_id"]: food for food in foods}
        case MenuShape.BY_RESTAURANT:
            return [
                {
                    "id": one.id,
                    "name": one.name,
                    "foods": [_food_entry(world, food) for food in world.foods.values() if food.menu == one.menu],
                }
                for one in (world.restaurants[key] for key in account.restaurant_ids)
            ]


def _food_entry(world: World, food: Food) -> dict[str, Any]:
    status = "INACTIVE" if (food.menu, food.id) in world.inactive_foods else "ACTIVE"
    return {"food_id": food.id, "name": food.name, "category": food.category, "status": status}


_OPERATIONS: Final[dict[Operation, Callable[[World, Call, CallRecord], Any]]] = {
    Operation.LOGIN: _login,
    Operation.GET_RESTAURANTS: _get_restaurants,
    Operation.GET_RESTAURANT_STATUS: _get_restaurant_status,
    Operation.OPEN_RESTAURANT: partial(_turn_restaurant, is_open=True),
    Operation.CLOSE_RESTAURANT: partial(_turn_restaurant, is_open=False),
    Operation.GET_CURRENT: _get_current,
    Operation.ACKNOWLEDGE: _acknowledge,
    Operation.ACCEPT: _accept,
    Operation.ON_THE_WAY: _move,
    Operation.COMPLETE: _move,
    Operation.CANCEL: _cancel,
    Operation.GET_CANCEL_REASONS: _get_cancel_reasons,
    Operation.GET_VARIABLES: _get_variables,
    Operation.DEACTIVATE_FOOD: partial(_turn_food, is_active=False),
    Operation.ACTIVATE_FOOD: partial(_turn_food, is_active=True),
    Operation.GET_FOODS: _get_foods,
}
