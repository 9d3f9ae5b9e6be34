"""The commands of the control interface for orders, restaurants, foods, accounts and the sandbox itself.

An unknown id is refused with its name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from decimal import Decimal
from random import Random
from typing import Any, Final

from .command import COMMANDS, BadRequest, check_names, command
from .documents import CENT, NOTHING, Occasion, altered, draft_order, item_of, random_uuid
from .faults import Fault
from .options import Options, settings_of
from .rules import Operation
from .scenery import DEFAULT_SCENERY
from .state import Account, CallRecord, Food, Order, Restaurant, system_clock
from .switches import unknown
from .world import NotAllowed, World

__all__ = ["COMMANDS"]  # complete when this file is imported
MOST_ORDERS_PER_CALL: Final = 1000
OFF, ON = "INACTIVE", "ACTIVE"
_SAMPLE: Final = draft_order(
    Random(0),  # noqa: S311 - only the names of its fields are read
    Occasion(
        number=0,
        at=system_clock(),
        restaurant=DEFAULT_SCENERY.restaurants[0],
        foods=DEFAULT_SCENERY.foods[:1],
        payment_names=[""],
    ),
)
ORDER_FIELDS: Final = list(_SAMPLE)
# The parts of a document that are merged field by field.
INNER_FIELDS: Final = {name: list(_SAMPLE[name]) for name in ("customer", "address")}


class Unknown(LookupError):
    """A name or id that does not exist. The text lists those that do."""


def _taken(what: str) -> BadRequest:
    """The error for a name, an id or a secret that is in use."""
    return BadRequest(what, 409)


# ---- by name ---------------------------------------------------------------------------------------------------------


def account_named(world: World, name: str) -> Account:
    """Return the account; raises Unknown."""
    accounts = {account.name: account for account in world.accounts.values()}
    if name not in accounts:
        raise Unknown(unknown("account", [name], list(accounts)))
    return accounts[name]


def _check_restaurants(world: World, ids: Iterable[str]) -> None:
    missing = [key for key in ids if key not in world.restaurants]
    if missing:
        raise Unknown(unknown("restaurant", missing, [f"{one.id} ({one.name})" for one in world.restaurants.values()]))


def _food(world: World, food_id: int, menu: str | None) -> Food:
    foods = [food for food in world.foods.values() if menu in (None, food.menu)]
    found = [food for food in foods if food.id == food_id]
    if not found:
        raise Unknown(unknown("food", [str(food_id)], [str(food.id) for food in foods]))
    return found[0]


def _check_fields(document: Mapping[str, Any], without: Iterable[str], *, unknown_fields: bool) -> None:
    """Refuse names that no order has, unless `unknown_fields` permits them."""
    what = "field of an order"
    if not unknown_fields:
        check_names(what, document, ORDER_FIELDS)
        for name, known in INNER_FIELDS.items():
            if isinstance(document.get(name), dict):
                check_names(what, document[name], known)
    check_names(what, (path.partition(".")[0] for path in without), [*ORDER_FIELDS, *document])


# ---- the sandbox -----------------------------------------------------------------------------------------------------


@command("GET", "/scenery")
def scenery(world: World) -> Any:
    return {
        "accounts": list(world.accounts.values()),
        "restaurants": [
            {"id": one.id, "name": one.name, "menu": one.menu, "status": status_of(world, one.id)}
            for one in world.restaurants.values()
        ],
        "foods": [shown_food(world, food) for food in world.foods.values()],
    }


# ---- orders ----------------------------------------------------------------------------------------------------------


@command("GET", "/orders")
def list_orders(world: World) -> list[Order]:
    return list(world.orders.values())


@command("POST", "/orders")
def place_orders(
    world: World,
    count: int = 1,
    restaurant_id: str | None = None,
    document: dict[str, Any] | None = None,
    unknown_fields: bool = False,
    without: list[str] | None = None,
) -> list[Order]:
    if not 1 <= count <= MOST_ORDERS_PER_CALL:
        raise BadRequest(f"count: {count} is not between 1 and {MOST_ORDERS_PER_CALL}")
    if restaurant_id is not None:
        _check_restaurants(world, [restaurant_id])
    given, left_out = document or {}, without or []
    _check_fields(given, left_out, unknown_fields=unknown_fields)
    return [world.place_order(restaurant_id=restaurant_id, document=given, without=left_out) for _ in range(count)]


@command("GET", "/orders/{key}")
def show_order(world: World, key: str) -> Order:
    return world.order(key)


@command("PATCH", "/orders/{key}")
def change_order(
    world: World,
    key: str,
    document: dict[str, Any] | None = None,
    unknown_fields: bool = False,
    without: list[str] | None = None,
) -> Order:
    """Change the document of a placed order. World.change_status changes its status."""
    given, left_out = document or {}, without or []
    _check_fields(given, left_out, unknown_fields=unknown_fields)
    fixed = [name for name in ("payment_key", "restaurant_id", "status_id", "status_text") if name in given]
    if fixed:
        raise BadRequest(f"{', '.join(fixed)}: cannot be changed; POST .../status changes the status")
    return _put(world, world.order(key), given, left_out)


def _put(world: World, order: Order, values: Mapping[str, Any], without: Collection[str] = ()) -> Order:
    order.placed = altered(order.placed, values, without)
    if world.options.changed_are_listed_again:
        order.acknowledged = False
    world.report(f"order.contents_changed number={order.number} by=panel")
    return order


@command("POST", "/orders/{key}/foods")
def change_line(
    world: World,
    key: str,
    food_id: int,
    quantity: int | None = None,
    price: Decimal | None = None,
    note: str | None = None,
) -> Order:
    """Change the quantity (0 removes it), price or note of an order's line, or add a line. The totals are updated."""
    if quantity is not None and quantity < 0:
        raise BadRequest(f"quantity: {quantity} is below 0")
    order = world.order(key)
    given = {"quantity": quantity, "price": price, "note": note}
    try:
        changes = {name: value for name, value in given.items() if value is not None}
        return _put(world, order, _with_line(world, order, food_id, changes))
    except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
        raise NotAllowed(f"the amounts of order {order.number} cannot be added up: PATCH the order") from error


def _with_line(world: World, order: Order, food_id: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The foods of the order after the change, and its new total."""
    placed = order.placed
    lines: list[dict[str, Any]] = [dict(line) for line in placed["foods"]]
    line = next((one for one in lines if one["food_id"] == food_id), None)
    if line is None:
        food = _food(world, food_id, world.restaurants[order.restaurant_id].menu)
        line = item_of(random_uuid(world.panel_random), food)
        lines.append(line)
    line |= changes
    # price x quantity plus the modifiers of the line, once, as in documents.py.
    extra = sum((Decimal(group["options"]["price"]) for group in line["option_groups"]), NOTHING)
    line["total"] = (Decimal(line["price"]) * int(line["quantity"]) + extra).quantize(CENT)
    lines = [one for one in lines if one["quantity"] != 0]
    goods = sum((Decimal(one["total"]) for one in lines), NOTHING)
    extras = Decimal(placed["courier_fee"]) + Decimal(placed["order_tip"]) - Decimal(placed["discount"])
    return {"foods": lines, "total": max(goods + extras, NOTHING)}


@command("POST", "/orders/{key}/cancel")
def cancel_order(world: World, key: str) -> Order:
    return world.cancel_by_customer(key)


@command("POST", "/orders/{key}/status")
def change_status(world: World, key: str, status_id: int, status_text: str | None = None) -> Order:
    return world.change_status(key, status_id, status_text)


# ---- restaurants and foods -------------------------------------------------------------------------------------------


def status_of(world: World, restaurant_id: str) -> str:
    """Return whether the restaurant is open, as the marketplace writes it."""
    return "Open" if restaurant_id in world.open_restaurants else "Closed"


@command("POST", "/restaurants")
def add_restaurant(world: World, name: str, menu: str | None = None, id: str | None = None) -> Restaurant:
    """Add an open restaurant. An existing menu is shared."""
    key = (id or random_uuid(world.panel_random)).lower()
    if key in world.restaurants:
        raise _taken(f"there is already a restaurant {key}")
    world.restaurants[key] = Restaurant(id=key, name=name, menu=name if menu is None else menu)
    world.open_restaurants.add(key)
    return world.restaurants[key]


@command("POST", "/restaurants/{id}/open")
def open_restaurant(world: World, id: str) -> Any:
    return _set_open(world, id.lower(), is_open=True)


@command("POST", "/restaurants/{id}/close")
def close_restaurant(world: World, id: str) -> Any:
    return _set_open(world, id.lower(), is_open=False)


def _set_open(world: World, key: str, *, is_open: bool) -> dict[str, str]:
    _check_restaurants(world, [key])
    (world.open_restaurant if is_open else world.close_restaurant)(key)
    status = status_of(world, key)
    world.report(f"restaurant.changed restaurant={world.restaurants[key].name!r} status={status} by=panel")
    return {"status": status}


def shown_food(world: World, food: Food) -> dict[str, Any]:
    """Return a food with its status."""
    return {**asdict(food), "status": OFF if (food.menu, food.id) in world.inactive_foods else ON}


@command("POST", "/foods")
def add_food(world: World, menu: str, id: int, name: str, price: Decimal, category: str = "") -> Any:
    if (menu, id) in world.foods:
        raise _taken(f"there is already a food {id} on the menu {menu}")
    food = world.foods[menu, id] = Food(menu=menu, id=id, name=name, category=category, price=price)
    return shown_food(world, food)


@command("PATCH", "/foods/{id}")
def change_food(
    world: World,
    id: str,
    menu: str | None = None,
    name: str | None = None,
    category: str | None = None,
    price: Decimal | None = None,
    status: str | None = None,
) -> Any:
    """Change a food's name, category, price or status. Placed orders do not change."""
    if not id.isdigit():
        raise BadRequest(f"{id}: a food's id is a whole number")
    if status not in (None, ON, OFF):
        raise BadRequest(f"status: {status!r} is neither {ON} nor {OFF}")
    given: dict[str, Any] = {"name": name, "category": category, "price": price}
    food = replace(_food(world, int(id), menu), **{key: value for key, value in given.items() if value is not None})
    world.foods[food.menu, food.id] = food
    if status is not None:
        (world.inactive_foods.discard if status == ON else world.inactive_foods.add)((food.menu, food.id))
    return shown_food(world, food)


# ---- accounts --------------------------------------------------------------------------------------------------------


@command("POST", "/accounts")
def add_account(
    world: World,
    name: str,
    restaurant_ids: list[str],
    app_secret_key: str | None = None,
    rest_secret_key: str | None = None,
) -> Account:
    """Add a credential. It may share restaurants with others."""
    account = Account(
        name=name,
        app_secret_key=app_secret_key or world.scenery.accounts[0].app_secret_key,
        rest_secret_key=rest_secret_key or f"sandbox-{name}-secret",
        restaurant_ids=tuple(restaurant_ids),
    )
    _check_restaurants(world, account.restaurant_ids)
    if account.rest_secret_key in world.accounts or name in [one.name for one in world.accounts.values()]:
        raise _taken(f"there is already an account with the name or the rest_secret_key of {name}")
    world.accounts[account.rest_secret_key] = account
    return account


@command("PATCH", "/accounts/{name}")
def change_account(
    world: World,
    name: str,
    restaurant_ids: list[str] | None = None,
    app_secret_key: str | None = None,
    rest_secret_key: str | None = None,
) -> Account:
    """Change an account's restaurants or secrets. Its tokens stay valid and reach the new restaurants."""
    old = account_named(world, name)
    new = Account(
        name=name,
        app_secret_key=app_secret_key or old.app_secret_key,
        rest_secret_key=rest_secret_key or old.rest_secret_key,
        restaurant_ids=old.restaurant_ids if restaurant_ids is None else tuple(restaurant_ids),
    )
    _check_restaurants(world, new.restaurant_ids)
    if new.rest_secret_key != old.rest_secret_key and new.rest_secret_key in world.accounts:
        raise _taken("another account has this rest_secret_key")
    world.accounts = {one.rest_secret_key: one for one in (new if a is old else a for a in world.accounts.values())}
    world.tokens = {
        text: replace(token, account=new) if token.account.name == name else token
        for text, token in world.tokens.items()
    }
    return new


@command("POST", "/accounts/refuse")
def refuse_account(world: World, account: str) -> Any:
    account_named(world, account)
    world.refuse_account(account)
    return {}


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """A JSON number with a point arrives as Decimal; a switch or a fault takes a float."""
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in given.items()}


@command("POST", "/tokens/end")
def end_tokens(world: World, account: str = "") -> Any:
    if account:
        account_named(world, account)
    return {"ended": world.end_tokens(account)}


@command("GET", "/ledger")
def ledger(world: World, operation: str = "", account: str = "") -> list[CallRecord]:
    if operation:
        check_names("operation", [operation], [*Operation, "unknown"])
    if account:
        account_named(world, account)
    return world.calls(operation, account=account)


@command("GET", "/options")
def show_options(world: World) -> Options:
    return world.options


@command("PATCH", "/options")
def set_options(world: World, /, **changes: Any) -> Options:
    return world.set_options(**_plain(changes))


@command("POST", "/presets")
def play_preset(world: World, name: str) -> Options:
    return world.set_options(**settings_of([name]))


@command("GET", "/faults")
def list_faults(world: World) -> list[Fault]:
    return world.faults.pending()


@command("POST", "/faults")
def add_fault(world: World, /, **values: Any) -> Fault:
    fault = Fault.from_json(_plain(values))
    if fault.account:
        account_named(world, fault.account)
    world.faults.add(fault)
    return fault


@command("DELETE", "/faults")
def clear_faults(world: World) -> Any:
    world.faults.clear()
    return []


@command("POST", "/clock")
def advance_clock(world: World, advance: Decimal) -> Any:
    """Advance the platform's clock by these seconds (negative: set it back), and return its time."""
    world.set_options(clock_offset_seconds=world.options.clock_offset_seconds + float(advance))
    world.report(f"clock.advanced seconds={float(advance):g}")
    return {"now": world.local(world.now())}


@command("POST", "/reset")
def reset(world: World, seed: int | None = None) -> Any:
    world.reset(seed=seed)
    return {}
