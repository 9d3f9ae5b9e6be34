"""What the platform's own people do to what is there: restaurants, foods, accounts, the contents of a placed order.

Each takes the lock, like the world's own methods; what does not exist is refused by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from .documents import CENT, NOTHING, altered, random_uuid
from .state import Account, Food, Order, Restaurant
from .switches import unknown
from .world import NotAllowed, World


class Unknown(LookupError):
    """Something that does not exist; its text names what does."""


class Taken(ValueError):
    """A name, an id or a secret that somebody has."""


# ---- by name ---------------------------------------------------------------------------------------------------------


def account_named(world: World, name: str) -> Account:
    """Return the account; raises Unknown."""
    names = [account.name for account in world.accounts.values()]
    if name not in names:
        raise Unknown(unknown("account", [name], names))
    return next(account for account in world.accounts.values() if account.name == name)


def check_restaurants(world: World, ids: Iterable[str]) -> None:
    """Raise Unknown for restaurants that are not there."""
    missing = [key for key in ids if key not in world.restaurants]
    if missing:
        raise Unknown(unknown("restaurant", missing, [f"{one.id} ({one.name})" for one in world.restaurants.values()]))


def _food(world: World, food_id: int, menu: str | None) -> Food:
    found = [food for food in world.foods.values() if food.id == food_id and menu in (None, food.menu)]
    if not found:
        known = [str(food.id) for food in world.foods.values() if menu in (None, food.menu)]
        raise Unknown(unknown("food", [str(food_id)], known))
    return found[0]


# ---- restaurants and accounts ----------------------------------------------------------------------------------------


def turn(world: World, restaurant_id: str, *, is_open: bool) -> str:
    """Open or close a restaurant as the platform does; return its status."""
    with world.lock:
        check_restaurants(world, [restaurant_id])
        (world.open_restaurant if is_open else world.close_restaurant)(restaurant_id)
        status = "Open" if is_open else "Closed"
        world.tell(f"restaurant.changed restaurant={world.restaurants[restaurant_id].name!r} status={status} by=panel")
        return status


def add_restaurant(world: World, name: str, menu: str, restaurant_id: str | None = None) -> Restaurant:
    """Add an open restaurant; a menu that is there is shared."""
    with world.lock:
        key = (restaurant_id or random_uuid(world.panel_random)).lower()
        if key in world.restaurants:
            raise Taken(f"there is a restaurant {key}")
        world.restaurants[key] = Restaurant(id=key, name=name, menu=menu)
        world.open_restaurants.add(key)
        world.lock.notify_all()
        return world.restaurants[key]


def add_account(world: World, account: Account) -> Account:
    """Add a credential; its restaurants may be somebody else's, too."""
    with world.lock:
        check_restaurants(world, account.restaurant_ids)
        if account.rest_secret_key in world.accounts or account.name in [one.name for one in world.accounts.values()]:
            raise Taken(f"there is an account with the name or the rest_secret_key of {account.name}")
        world.accounts[account.rest_secret_key] = account
        world.lock.notify_all()
        return account


def change_account(world: World, name: str, changes: Mapping[str, Any]) -> Account:
    """Give an account other restaurants or secrets; its tokens stay valid and reach the new restaurants."""
    with world.lock:
        old = account_named(world, name)
        new = replace(old, **changes)
        check_restaurants(world, new.restaurant_ids)
        if new.rest_secret_key != old.rest_secret_key and new.rest_secret_key in world.accounts:
            raise Taken("another account has this rest_secret_key")
        world.accounts = {one.rest_secret_key: one for one in (new if a is old else a for a in world.accounts.values())}
        world.tokens = {
            text: replace(token, account=new) if token.account.name == name else token
            for text, token in world.tokens.items()
        }
        world.lock.notify_all()
        return new


# ---- foods -----------------------------------------------------------------------------------------------------------


def add_food(world: World, food: Food) -> Food:
    """Put a food on a menu."""
    with world.lock:
        if (food.menu, food.id) in world.foods:
            raise Taken(f"there is a food {food.id} on the menu {food.menu}")
        world.foods[food.menu, food.id] = food
        return food


def change_food(
    world: World, food_id: int, *, menu: str | None = None, is_active: bool | None = None, **changes: Any
) -> Food:
    """Give a food of the menu another name, category or price, or put it off or on; placed orders stay as they are."""
    with world.lock:
        food = replace(_food(world, food_id, menu), **changes)
        world.foods[food.menu, food.id] = food
        if is_active is not None:
            (world.inactive_foods.discard if is_active else world.inactive_foods.add)((food.menu, food.id))
        world.lock.notify_all()
        return food


# ---- a placed order --------------------------------------------------------------------------------------------------


def change_order(world: World, key: str, document: Mapping[str, Any], without: Iterable[str] = ()) -> Order:
    """Put other values into a placed order, whatever they are; its status is changed by World.change_status."""
    with world.lock:
        order = world.order(key)
        order.placed = altered(order.placed, document, list(without))
        if world.options.changed_are_listed_again:
            order.acknowledged = False
        world.tell(f"order.contents_changed number={order.number} by=panel")
        world.lock.notify_all()
        return order


def change_line(
    world: World,
    key: str,
    food_id: int,
    *,
    quantity: int | None = None,
    price: Decimal | None = None,
    note: str | None = None,
) -> Order:
    """Give a line of a placed order another quantity (0: it goes), price or note, or add one; the totals follow."""
    with world.lock:
        order = world.order(key)
        given = {"quantity": quantity, "price": price, "note": note}
        changes = {name: value for name, value in given.items() if value is not None}
        try:
            return change_order(world, key, _with_line(world, order, food_id, changes))
        except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
            raise NotAllowed(f"the amounts of order {order.number} cannot be added up: PATCH the order") from error


def _with_line(world: World, order: Order, food_id: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The foods of the order after the change, and its new total."""
    placed = order.placed
    lines: list[dict[str, Any]] = [dict(line) for line in placed["foods"]]
    line = next((one for one in lines if one["food_id"] == food_id), None)
    if line is None:
        line = _new_line(world, world.restaurants[order.restaurant_id].menu, food_id)
        lines.append(line)
    line |= changes
    line["total"] = _line_total(line)
    lines = [one for one in lines if one["quantity"] != 0]
    goods = sum((Decimal(one["total"]) for one in lines), NOTHING)
    extras = Decimal(placed["courier_fee"]) + Decimal(placed["order_tip"]) - Decimal(placed["discount"])
    return {"foods": lines, "total": max(goods + extras, NOTHING)}


def _new_line(world: World, menu: str, food_id: int) -> dict[str, Any]:
    food = _food(world, food_id, menu)
    return {
        "id": random_uuid(world.panel_random),
        "food_id": food.id,
        "name": food.name,
        "note": "",
        "price": food.price,
        "quantity": 1,
        "total": food.price,
        "option_groups": [],
    }


def _line_total(line: Mapping[str, Any]) -> Decimal:
    """price x quantity plus the modifiers of the line, once, as documents.py draws it."""
    extra = sum((Decimal(group["options"]["price"]) for group in line["option_groups"]), NOTHING)
    return (Decimal(line["price"]) * int(line["quantity"]) + extra).quantize(CENT)


# ---- time ------------------------------------------------------------------------------------------------------------


def advance_clock(world: World, seconds: float) -> str:
    """Set the platform's clock ahead (below 0: back) from where it is; return its time."""
    with world.lock:
        world.set_options(clock_offset_seconds=world.options.clock_offset_seconds + seconds)
        world.tell(f"clock.advanced seconds={seconds:g}")
        return world.local(world.now()).isoformat()
