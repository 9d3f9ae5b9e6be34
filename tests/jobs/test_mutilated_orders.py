"""One field of an order is invalid: from the answer to what the till sees.

Each list has the mutilated order between two good ones. The good ones come in as ever. The mutilated one is stored with
what could be read, its document whole, and is acknowledged; only without a usable key it is set aside, whole and with a
reason, and nothing is acknowledged.
"""

import copy
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop, listing
from tests.marketplace.samples import food

from orderbridge.model import codes_of
from orderbridge_sandbox import wire
from orderbridge_sandbox.state import Document, Order

MISSING = object()
HUGE = "ş" * 100_000
VALUES: dict[str, object] = {
    "missing": MISSING,
    "null": None,
    "number": 7,
    "text": "metin",
    "true": True,
    "list": ["x"],
    "object": {"x": 1},
    "huge text": HUGE,
}


class Kind(Enum):
    """What belongs into a field."""

    NAME = "a text of 255 characters at most"
    NOTE = "a text of any length"
    AMOUNT = "a number"
    INTEGER = "a whole number"
    OBJECT = "an object"
    LIST = "a list of objects"


NO_NUMBER = dict.fromkeys(("text", "true", "list", "object", "huge text"), "not_a_number")
PROBLEMS: dict[Kind, dict[str, str]] = {
    Kind.NAME: dict.fromkeys(("true", "list", "object"), "not_text") | {"huge text": "text_cut"},
    Kind.NOTE: dict.fromkeys(("true", "list", "object"), "not_text"),
    Kind.AMOUNT: NO_NUMBER,
    Kind.INTEGER: NO_NUMBER,
    Kind.OBJECT: dict.fromkeys(("number", "text", "true", "list", "huge text"), "not_an_object"),
    Kind.LIST: dict.fromkeys(("number", "text", "true", "object", "huge text"), "not_a_list")
    | {"list": "not_an_object"},
}
"""Any other value is none, but for what an order needs."""

OPTION_NAME = "foods.option_groups.options.name"
NEEDED = {"total", "foods", "foods.name", "foods.quantity", OPTION_NAME, "foods.option_groups.options"}

READ: dict[Kind, dict[str, object]] = {
    Kind.NAME: {"number": "7", "text": "metin", "huge text": HUGE[:255]},
    Kind.NOTE: {"number": "7", "text": "metin", "huge text": HUGE},
    Kind.AMOUNT: {"number": 7},
    Kind.INTEGER: {"number": 7},
}
"""What the column gets; of any other value nothing."""


@dataclass(frozen=True)
class Field:
    """A field of docs/interface.md, Resources, and the column for it."""

    path: str
    kind: Kind
    table: str = "delivery_orders"
    column: str = ""


def fields() -> list[Field]:
    def several(kind: Kind, table: str, paths: str, columns: str = "") -> list[Field]:
        names = columns.split() or [path.rpartition(".")[2] for path in paths.split()]
        return [Field(path, kind, table, name) for path, name in zip(paths.split(), names, strict=True)]

    order, item, option = "delivery_orders", "delivery_order_items", "delivery_order_item_options"
    one = "foods.0.option_groups.0"
    return [
        Field("id", Kind.INTEGER, order, "order_number"),
        *several(Kind.NAME, order, "status_text shipping_method payment_method restaurant_id restaurant_name"),
        *several(Kind.NAME, order, "courier_type date scheduled_date", "courier_type ordered_at scheduled_for"),
        *several(Kind.AMOUNT, order, "total discount courier_fee order_tip"),
        *several(Kind.NAME, order, "customer.name customer.phone", "customer_name customer_phone"),
        *several(Kind.NAME, order, "address.address address.apartment_no address.building_no"),
        *several(Kind.NAME, order, "address.neighborhood_name address.district_name address.city_name"),
        *several(Kind.NOTE, order, "note address.description", "note address_description"),
        *several(Kind.NAME, item, "foods.0.id foods.0.name", "item_id name"),
        *several(Kind.NOTE, item, "foods.0.note"),
        *several(Kind.AMOUNT, item, "foods.0.price foods.0.total"),
        *several(Kind.INTEGER, item, "foods.0.food_id foods.0.quantity"),
        *several(Kind.INTEGER, option, f"{one}.id {one}.options.id", "group_id option_id"),
        *several(Kind.NAME, option, f"{one}.name {one}.options.name", "group_name option_name"),
        *several(Kind.NAME, option, f"{one}.type {one}.operation"),
        *several(Kind.AMOUNT, option, f"{one}.options.price"),
        Field("customer", Kind.OBJECT),
        Field("address", Kind.OBJECT),
        Field("foods", Kind.LIST),
        Field("foods.0.option_groups", Kind.LIST),
        Field("foods.0.option_groups.0.options", Kind.LIST),
    ]


FIELDS = fields()


def mutilated(document: Document, path: str, value: object) -> Document:
    """The document with one value in place of another; the path names the members and elements that lead to it."""
    result = copy.deepcopy(document)
    *way, last = path.split(".")
    inner: Any = result
    for step in way:
        inner = inner[int(step)] if step.isdigit() else inner[step]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    return result


def in_spec(path: str) -> str:
    """The field's name without the places in lists: `foods.price`."""
    return ".".join(step for step in path.split(".") if not step.isdigit())


def codes_for(field: Field, served: str) -> set[str]:
    """What `problem` and `remarks` say of it together."""
    name = in_spec(field.path)
    codes = {f"{code}:{name}" for code in [PROBLEMS[field.kind].get(served)] if code}
    needs = {"missing", "null"} | ({"number"} if name == "foods.name" else set())  # 7 is the name of no food
    if name in NEEDED and (served in needs or (name == OPTION_NAME and codes == {f"not_text:{name}"})):
        codes.add(f"missing:{name}")
    if name == "scheduled_date" and served in {"number", "text", "huge text"}:
        codes.add(f"unreadable_time:{name}")
    if served == "huge text" and name in {"customer", "address"}:
        codes.add("text_cut:customer.name" if name == "customer" else "text_cut:address.address")
    return codes


def usual(shop: Shop) -> Order:
    paid = {"total": Decimal("230.50"), "discount": "10.00", "courier_fee": 0, "order_tip": 5}
    return shop.place(foods=[food(price=Decimal("110.25"), total=Decimal("235.50"))], **paid)


async def delivered_between_good_ones(shop: Shop, *documents: Document) -> None:
    """One poll; the good ones before and behind are as ever."""
    good = [usual(shop), usual(shop)]
    shop.world.faults.add(listing(good[0].document, *map(wire.encode, documents), good[1].document))
    assert (await shop.poll()).ok
    for neighbour in good:
        stored = shop.order(neighbour)
        assert (stored["acknowledged_status_id"], stored["problem"]) == (1, None)
        assert shop.one("SELECT count(*) AS n FROM delivery_order_items WHERE payment_key = ?", neighbour.key)["n"] == 1


@pytest.mark.interface("Order", "Order item", "Option group")
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: in_spec(field.path))
async def test_a_mutilated_field_costs_its_column_and_nothing_else(shop: Shop, field: Field):
    """Served in each wrong way, in one list: what is wrong with one order harms no other one."""
    orders = {served: usual(shop) for served in VALUES}
    documents = {served: mutilated(order.document, field.path, VALUES[served]) for served, order in orders.items()}
    await delivered_between_good_ones(shop, *documents.values())
    for served, order in orders.items():
        stored = shop.order(order)
        assert stored["payload"] == wire.encode(documents[served]).decode(), served
        assert (stored["status"], stored["acknowledged_status_id"]) == ("RECEIVED", 1), served
        found = {*codes_of(stored["problem"]), *codes_of(stored["remarks"])}
        assert {code for code in found if "total_mismatch" not in code} == codes_for(field, served), served
        if field.column:
            column = shop.one(f"SELECT {field.column} AS value FROM {field.table} WHERE payment_key = ?", order.key)
            read = None if field.column == "scheduled_for" else READ[field.kind].get(served)
            assert column["value"] == read, served
    assert shop.count("delivery_quarantine") == 0


@pytest.mark.interface("Order")
@pytest.mark.parametrize("served", VALUES)
async def test_a_mutilated_status_is_an_unknown_one(shop: Shop, served: str):
    order = usual(shop)
    await delivered_between_good_ones(shop, mutilated(order.document, "status_id", VALUES[served]))
    stored = shop.order(order)
    number = 7 if served == "number" else None
    assert (stored["status"], stored["status_id"], stored["acknowledged_status_id"]) == ("UNKNOWN", number, number)
    assert stored["acknowledged_utc"] is not None
    assert stored["problem"] == (None if number else "status_unreadable")
    assert stored["ended_utc"] is None


@pytest.mark.interface("Order")
@pytest.mark.parametrize("served", [*VALUES, "empty text", "no uuid"])
async def test_an_order_without_a_usable_key_is_set_aside_whole_and_comes_in_when_it_has_one(shop: Shop, served: str):
    order = usual(shop)
    value = (VALUES | {"empty text": "", "no uuid": order.key.replace("-", "")})[served]
    document = mutilated(order.document, "payment_key", value)
    await delivered_between_good_ones(shop, document)
    kept = shop.one("SELECT * FROM delivery_quarantine")
    assert kept["payload"] == wire.encode(document).decode()
    nothing = served in {"missing", "null", "empty text"}
    assert kept["reason"] == ("payment_key_missing" if nothing else "payment_key_invalid")
    assert (kept["account"], kept["payment_key"], kept["resolved_utc"]) == ("kadikoy", None, None)
    assert order.key not in {call.argument for call in shop.calls("acknowledge")}
    assert shop.count("delivery_orders") == 2
    await shop.poll()
    assert shop.order(order)["acknowledged_status_id"] == 1


# ---- what docs/interface.md does not name --------------------------------------------------------------------------------------


@pytest.mark.parametrize("both", [True, False], ids=["in both ways", "in capitals alone"])
async def test_a_key_in_capitals_is_the_same_key(shop: Shop, both: bool):
    order = usual(shop)
    capitals = mutilated(order.document, "payment_key", order.key.upper())
    await delivered_between_good_ones(shop, *([order.document] if both else []), capitals)
    assert shop.order(order)["revision"] == 1
    assert (shop.count("delivery_orders"), shop.count("delivery_quarantine")) == (3, 0)
    assert [call.argument.lower() for call in shop.calls("acknowledge")].count(order.key) == 1


async def test_a_field_that_is_read_again_heals_its_order(shop: Shop):
    order = usual(shop)
    await delivered_between_good_ones(shop, mutilated(order.document, "total", "pahalı"))
    order.acknowledged = False
    await shop.poll()
    stored = shop.order(order)
    assert (stored["problem"], stored["revision"], stored["last_change"]) == (None, 2, "contents")
    assert stored["amount_due"] is not None or stored["payment_code"] is None


async def test_what_reads_as_an_order_is_accepted_by_itself_and_what_was_guessed_is_not(open_shop: OpenShop):
    """The whole way: lists by number are lines, and what is empty in another type stops nothing."""
    shop = await open_shop(auto_accept_minutes=20)
    one = food(option_groups=[], price=120, quantity=1, total=120)
    plain = {"total": 240, "discount": "0.00", "courier_fee": 0, "order_tip": 0, "foods": [one, one]}
    accepted = {
        "by number": {"foods": {"0": one, "2": one}},
        "no time": {"scheduled_date": "0000-00-00 00:00:00"},
        "empty": {"address": [], "customer": [], "note": False, "foods": [one, one | {"option_groups": {}}]},
        "half": {"foods": [one | {"quantity": Decimal("1.5"), "total": 180}], "total": 180},
    }
    looked_at = {
        "unknown shape": {"foods": {"urun": "Adana"}},
        "nameless": {"foods": [one, one | {"name": ""}]},
        "two amounts": {"total": "1.250"},
        "unreadable time": {"scheduled_date": "yarın 19:30"},
    }
    placed = {name: shop.place(**plain | changes) for name, changes in (accepted | looked_at).items()}
    await shop.poll()
    rows = shop.rows("SELECT payment_key FROM delivery_actions WHERE action = 'accept'")
    assert {row["payment_key"] for row in rows} == {placed[name].key for name in accepted}
    assert {name for name, order in placed.items() if shop.order(order)["problem"]} == set(looked_at)
    lines = "SELECT quantity FROM delivery_order_items WHERE payment_key = ?"
    assert [row["quantity"] for row in shop.rows(lines, placed["half"].key)] == [1.5]
    assert len(shop.rows(lines, placed["by number"].key)) == 2


@pytest.mark.interface("Endpoints 9")
@pytest.mark.parametrize("courier", ["restaurant", "", None, "RESTAURANT", "kurye", "come_get", "Come_Get "])
async def test_only_a_courier_known_to_be_anothers_refuses_on_the_way_unsent(shop: Shop, courier: str | None):
    order = await shop.taken_in(status_id=2, courier_type=courier)
    row = shop.act("on_the_way", order)
    await shop.drain()
    is_others = courier is not None and courier.startswith(("come", "Come"))
    assert len(shop.calls("on_the_way")) == (not is_others)
    assert (shop.row(row)["error_code"] == "courier_not_restaurant") == is_others
