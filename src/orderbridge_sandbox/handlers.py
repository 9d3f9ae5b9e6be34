"""What each command of the control interface does; commands.py has the table."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any, Final

from . import panel
from .command import BadRequest, Given, check_names
from .documents import INNER_FIELDS, ORDER_FIELDS
from .faults import Fault
from .presets import settings_of
from .rules import Operation
from .state import Account, Food
from .world import World

MOST_ORDERS_PER_CALL: Final = 1000
_FIELD: Final = "field of an order"


def _plain(value: Any) -> Any:
    """A JSON number with a point arrives as Decimal; a switch or a fault takes a float."""
    return float(value) if isinstance(value, Decimal) else value


def scenery(world: World, given: Given) -> Any:
    return {
        "accounts": [asdict(account) for account in world.accounts.values()],
        "restaurants": [
            {"id": r.id, "name": r.name, "menu": r.menu, "status": _status(world, r.id)}
            for r in world.restaurants.values()
        ],
        "foods": [_shown_food(world, food) for food in world.foods.values()],
    }


def _status(world: World, restaurant_id: str) -> str:
    return "Open" if restaurant_id in world.open_restaurants else "Closed"


def _shown_food(world: World, food: Food) -> Any:
    is_off = (food.menu, food.id) in world.inactive_foods
    return {**asdict(food), "status": "INACTIVE" if is_off else "ACTIVE"}


def list_orders(world: World, given: Given) -> Any:
    return [order.as_json() for order in world.orders.values()]


def show_order(world: World, given: Given) -> Any:
    return world.order(given.path["key"]).as_json()


def place_orders(world: World, given: Given) -> Any:
    body = given.body
    count, restaurant_id = body.get("count", 1), body.get("restaurant_id")
    if not 1 <= count <= MOST_ORDERS_PER_CALL:
        raise BadRequest(f"count: {count} is not between 1 and {MOST_ORDERS_PER_CALL}")
    if restaurant_id is not None:
        panel.check_restaurants(world, [restaurant_id])
    document, without = _check_fields(given)
    orders = [world.place_order(restaurant_id=restaurant_id, document=document, without=without) for _ in range(count)]
    return [order.as_json() for order in orders]


def _check_fields(given: Given) -> tuple[dict[str, Any], list[str]]:
    """The values to put in and the fields to leave out; a name that no order has is refused, unless it is wanted."""
    document, without = given.body.get("document", {}), given.body.get("without", [])
    if not given.body.get("unknown_fields", False):
        check_names(_FIELD, document, ORDER_FIELDS)
        for name, known in INNER_FIELDS.items():
            if isinstance(document.get(name), dict):
                check_names(_FIELD, document[name], known)
    check_names(_FIELD, (path.partition(".")[0] for path in without), [*ORDER_FIELDS, *document])
    return document, without


def change_order(world: World, given: Given) -> Any:
    document, without = _check_fields(given)
    moved = [name for name in ("payment_key", "restaurant_id", "status_id", "status_text") if name in document]
    if moved:
        raise BadRequest(f"{', '.join(moved)}: of a placed order these stay; POST .../status changes the status")
    return panel.change_order(world, given.path["key"], document, without).as_json()


def change_line(world: World, given: Given) -> Any:
    if given.body.get("quantity", 1) < 0:
        raise BadRequest(f"quantity: {given.body['quantity']} is below 0")
    return panel.change_line(world, given.path["key"], **given.body).as_json()


def cancel_order(world: World, given: Given) -> Any:
    return world.cancel_by_customer(given.path["key"]).as_json()


def change_status(world: World, given: Given) -> Any:
    text = given.body.get("status_text")
    return world.change_status(given.path["key"], given.body["status_id"], text).as_json()


def ledger(world: World, given: Given) -> Any:
    operation, account = given.query.get("operation", ""), given.query.get("account", "")
    if operation:
        check_names("operation", [operation], [*Operation, "unknown"])
    if account:
        panel.account_named(world, account)
    return [call.as_json() for call in world.calls(operation, account=account)]


def show_options(world: World, given: Given) -> Any:
    return world.options.as_json()


def set_options(world: World, given: Given) -> Any:
    return world.set_options(**{name: _plain(value) for name, value in given.body.items()}).as_json()


def play_preset(world: World, given: Given) -> Any:
    return world.set_options(**settings_of([given.body["name"]])).as_json()


def list_faults(world: World, given: Given) -> Any:
    return [fault.as_json() for fault in world.faults.pending()]


def add_fault(world: World, given: Given) -> Any:
    fault = Fault.from_json({name: _plain(value) for name, value in given.body.items()})
    if fault.account:
        panel.account_named(world, fault.account)
    world.faults.add(fault)
    return fault.as_json()


def clear_faults(world: World, given: Given) -> Any:
    world.faults.clear()
    return []


def end_tokens(world: World, given: Given) -> Any:
    name = given.body.get("account", "")
    if name:
        panel.account_named(world, name)
    return {"ended": world.end_tokens(name)}


def add_account(world: World, given: Given) -> Any:
    body = given.body
    name = body["name"]
    account = Account(
        name=name,
        app_secret_key=body.get("app_secret_key", next(iter(world.scenery.accounts)).app_secret_key),
        rest_secret_key=body.get("rest_secret_key", f"sandbox-{name}-secret"),
        restaurant_ids=tuple(body["restaurant_ids"]),
    )
    return asdict(panel.add_account(world, account))


def change_account(world: World, given: Given) -> Any:
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in given.body.items()}
    return asdict(panel.change_account(world, given.path["name"], changes))


def refuse_account(world: World, given: Given) -> Any:
    panel.account_named(world, given.body["account"])
    world.refuse_account(given.body["account"])
    return {}


def add_restaurant(world: World, given: Given) -> Any:
    body = given.body
    return asdict(panel.add_restaurant(world, body["name"], body.get("menu", body["name"]), body.get("id")))


def open_restaurant(world: World, given: Given) -> Any:
    return {"status": panel.turn(world, given.path["id"].lower(), is_open=True)}


def close_restaurant(world: World, given: Given) -> Any:
    return {"status": panel.turn(world, given.path["id"].lower(), is_open=False)}


def add_food(world: World, given: Given) -> Any:
    body = {"category": "", **given.body}
    body["price"] = Decimal(body["price"])
    return _shown_food(world, panel.add_food(world, Food(**body)))


def change_food(world: World, given: Given) -> Any:
    if not given.path["id"].isdigit():
        raise BadRequest(f"{given.path['id']}: a food's id is a whole number")
    body = dict(given.body)
    status = body.pop("status", None)
    if status not in (None, "ACTIVE", "INACTIVE"):
        raise BadRequest(f"status: {status!r} is not: ACTIVE, INACTIVE")
    if "price" in body:
        body["price"] = Decimal(body["price"])
    is_active = None if status is None else status == "ACTIVE"
    return _shown_food(world, panel.change_food(world, int(given.path["id"]), is_active=is_active, **body))


def advance_clock(world: World, given: Given) -> Any:
    return {"now": panel.advance_clock(world, float(given.body["advance"]))}


def reset(world: World, given: Given) -> Any:
    world.reset(seed=given.body.get("seed"))
    return {}
