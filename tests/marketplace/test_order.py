"""An order from a document: what can be read is read; the rest is NULL, with a problem."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.marketplace.samples import CODES, KEY, food, listing, order, text

from orderbridge.document import Facts, Item, Option
from orderbridge.marketplace.documents import amount_due, differs, payment_code, read_listing, read_order
from orderbridge.model import Differs, Order


def read(value: dict[str, Any] | str) -> Order:
    (document,) = read_listing(listing(value if isinstance(value, str) else text(value)))
    delivered = read_order(document, payment_codes=CODES)
    # The amounts of a changed document no longer add up, which only test_sums.py tests.
    return replace(delivered, problems=tuple(code for code in delivered.problems if "total_mismatch" not in code))


@pytest.mark.interface("Option group")
def test_an_order_as_documented_is_read_whole() -> None:
    delivered = read(order())
    assert delivered.problems == ()
    assert (delivered.payment_key, delivered.status_id, delivered.status_text) == (KEY, 1, "Onay Bekliyor")
    option = Option(
        group_id=3, group_name="İçecek", type="multi", operation="+", option_id=7, option_name="Ayran",
        price=Decimal(15),
    )  # fmt: skip
    item = Item(
        item_id="9a3e6f7c-2b1d-4e5f-8a9b-0c1d2e3f4a5b", food_id=55, name="Adana Dürüm", note="acısız",
        price=Decimal("110.25"), quantity=2, total=Decimal("235.5"), options=(option,),
    )  # fmt: skip
    assert delivered.facts == Facts(
        order_number=100234, restaurant_id="77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33", restaurant_name="Kadıköy",
        shipping_method="delivery", payment_method="Nakit", payment_code="CASH", amount_due=Decimal("230.5"),
        note="Zile basmayın", total=Decimal("230.5"), discount=Decimal(10), courier_type="restaurant",
        courier_fee=Decimal(0), order_tip=Decimal(5), ordered_at="2026-11-21 12:30:00", scheduled_for=None,
        customer_name="Ayşe Yılmaz", customer_phone="+905550001122", address="Moda Caddesi",
        address_description="mavi kapı", apartment_no="4", building_no="12", neighborhood_name="Caferağa",
        district_name="Kadıköy", city_name="İstanbul", items=(item,),
    )  # fmt: skip


def test_an_order_with_only_a_key_is_an_order() -> None:
    delivered = read({"payment_key": KEY})
    assert delivered.problems == ("status_unreadable", "missing:total", "missing:foods")
    facts = {name: getattr(delivered.facts, name) for name in Facts.__slots__}
    assert (facts.pop("items"), set(facts.values())) == ((), {None})


@pytest.mark.interface("Versioning")
def test_the_status_and_unknown_fields_are_no_facts() -> None:
    changed = order(status_id=None, status_text="Restoran Kuryeye Verildi", new_field={"a": [1]})
    assert read(changed).facts == read(order()).facts


# The attribute that is read from each field, by the field's path in the document.
AMOUNT_FIELDS = {name: name for name in ("total", "discount", "courier_fee", "order_tip")}
AMOUNT_FIELDS |= {"foods.price": "price", "foods.total": "total", "foods.option_groups.options.price": "price"}
INTEGER_FIELDS = {
    "id": "order_number", "foods.food_id": "food_id", "foods.option_groups.id": "group_id",
    "foods.option_groups.options.id": "option_id",
}  # fmt: skip
TEXT_FIELDS = {
    **{name: name for name in ("restaurant_id", "restaurant_name", "shipping_method")},
    **{name: name for name in ("payment_method", "courier_type")},
    "date": "ordered_at", "customer.name": "customer_name", "customer.phone": "customer_phone",
    **{f"address.{name}": name for name in ("address", "apartment_no", "building_no")},
    **{f"address.{name}": name for name in ("neighborhood_name", "district_name", "city_name")},
    "foods.id": "item_id", "foods.name": "name", "foods.option_groups.name": "group_name",
    "foods.option_groups.type": "type", "foods.option_groups.operation": "operation",
    "foods.option_groups.options.name": "option_name",
}  # fmt: skip


def read_field(path: str, served: str, attribute: str) -> tuple[object, set[str]]:
    """What is read if one field is served so, and the problems, except those of its meaning."""
    document: dict[str, Any] = order()
    inner: Any = document
    *way, last = path.split(".")
    for step in way:
        inner = inner[step][0] if isinstance(inner[step], list) else inner[step]
    inner[last] = "HERE"
    delivered = read(text(document).replace('"HERE"', served))
    (item,) = delivered.facts.items
    holder = item.options[0] if "option_groups" in way else item if way[:1] == ["foods"] else delivered.facts
    of_meaning = ("missing:", "not_positive:")
    codes = {*delivered.problems, *delivered.remarks}  # test_readings.py tests which is which
    return getattr(holder, attribute), {code for code in codes if not code.startswith(of_meaning)}


# By what is read and its problem: the served values.
AMOUNTS: dict[tuple[str | None, str | None], tuple[str, ...]] = {
    ("0", None): ("0", "0e999999", "-0.0"), ("1", None): ("1." + "0" * 9000,), ("7", None): ('"+7"',),
    ("12", None): ('" 12 "',), ("12.5", None): ("12.5", "12.50000", '"12.50"', '"12,50"'), ("100", None): ("1E+2",),
    ("1234", None): ('"1\u00a0234"',), ("1234.5", None): ('"1.234,50"', '"1,234.50"', '"1 234,50"'),
    ("1234567", None): ('"1.234.567"', '"1,234,567"'), ("1234567.8", None): ('"1.234.567,8"',),
    ("100000", None): ('"1e5"',), ("0.125", None): ('"0.125"',), ("1234.125", None): ('"1234.125"',),
    ("-0.125", None): ('"-0,125"',), ("-0.5", None): ('"-0,5"',), ("-3.25", None): ("-3.25",),
    ("9999999999.9999", None): ("9999999999.9999",), ("-9999999999.9999", None): ("-9999999999.9999",),
    ("0", "amount_rounded"): ("1e-999999",), ("0.0000", "amount_rounded"): ("0.00005",),
    ("0.0002", "amount_rounded"): ("0.00015", "0.00025"), ("1.2346", "amount_rounded"): ("1.23456",),
    ("1.3333", "amount_rounded"): ("1." + "3" * 9000,),
    (None, None): ("{}", "[]", "false", "null", '""', '"  "', '"-"', '"N/A"'),
    (None, "ambiguous_number"): ('"1.234"', '"-12.345"', '"12,345"'),
    (None, "amount_out_of_range"): ("10000000000", "9999999999.99995", "1e400", "1e999999"),
    (None, "not_a_number|amount_out_of_range"): ("9" * 5000,),
    (None, "not_a_number"): (
        '"1.234.56"', '"1.234.5678"', '"1,234,56"', '"12,34,567"', '"12.50 TL"', '"1_000"', '"١٢"', '"abc"', '"NaN"',
        "NaN",
        "Infinity", "true", "[1]", '{"amount": 12}',
    ),
}  # fmt: skip


def rows(table: dict[tuple[Any, str | None], tuple[str, ...]]) -> list[Any]:
    """served, what is read of it, the problem."""
    return [pytest.param(one, *found, id=one[:20]) for found, served in table.items() for one in served]


@pytest.mark.interface("Order", "Order item")
@pytest.mark.parametrize("served, amount, problem", rows(AMOUNTS))
def test_amounts(served: str, amount: str | None, problem: str | None) -> None:
    for field, attribute in AMOUNT_FIELDS.items():
        found, problems = read_field(field, served, attribute)
        assert found == (None if amount is None else Decimal(amount)), field
        assert len(str(found)) <= 16, field
        allowed: list[set[str]] = [set()] if problem is None else [{f"{code}:{field}"} for code in problem.split("|")]
        assert problems in allowed


INTEGERS: dict[tuple[int | None, str | None], tuple[str, ...]] = {
    (0, None): ("0e999999",), (5, None): ("5", "5.0", '"5"', '"5.0"'), (-5, None): ("-5",), (500, None): ("5e2",),
    (100001, None): ('"100001"', "100001.0"), (2**63 - 1, None): ("9223372036854775807",),
    (-(2**63), None): ("-9223372036854775808",), (None, None): ("null", '""', "{}"),
    (None, "not_an_integer"): ("5.5", "1e-999999"), (None, "not_a_number"): ("true", '"five"', '{"a": 1}'),
    (None, "ambiguous_number"): ('"1.000"', '"1,000"'),
    (None, "integer_out_of_range"): (
        "9223372036854775808", "-9223372036854775809", "9223372036854775808.0", "1e999999", '"99999999999999999999"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("served, number, problem", rows(INTEGERS))
def test_integers(served: str, number: int | None, problem: str | None) -> None:
    for field, attribute in INTEGER_FIELDS.items():
        assert read_field(field, served, attribute) == (number, {f"{problem}:{field}"} if problem else set())


TEXTS = [
    ('"Ayşe"', "Ayşe", None), ('""', "", None), ("5", "5", None), ("12.50", "12.50", None), ("9" * 50, "9" * 50, None),
    ("NaN", "NaN", None), ("null", None, None), ("true", None, "not_text"), ('["x"]', None, "not_text"),
    ('{"x": 1}', None, "not_text"), ('"a\\u0000b"', "a\ufffdb", None), ('"a\\ud800b\\udc00"', "a\ufffdb\ufffd", None),
    ('"\\ud83c\\udf5d"', "\N{SPAGHETTI}", None), ('"' + "x" * 255 + '"', "x" * 255, None),
    ('"' + "ş" * 256 + '"', "ş" * 255, "text_cut"),
]  # fmt: skip


@pytest.mark.parametrize("served, expected, problem", TEXTS, ids=[served[:20] for served, _, _ in TEXTS])
def test_texts(served: str, expected: str | None, problem: str | None) -> None:
    for field, attribute in TEXT_FIELDS.items():
        assert read_field(field, served, attribute) == (expected, {f"{problem}:{field}"} if problem else set())


def test_notes_and_directions_are_never_cut() -> None:
    long = "ş" * 70_000
    delivered = read(order(note=long, address=order()["address"] | {"description": long}, foods=[food(note=long)]))
    facts = delivered.facts
    assert (delivered.problems, facts.note, facts.address_description, facts.items[0].note) == ((), long, long, long)
    twice = read(order(foods=[food(price="x", quantity="y")] * 50)).problems
    assert twice == ("not_a_number:foods.price", "not_a_number:foods.quantity"), "each is reported once"


CHANGES: dict[Differs, list[dict[str, Any]]] = {
    Differs.NOTHING: [{}, {"unnamed": 1}, {"status_text": "Onaylandı"}],
    Differs.DETAILS: [
        {"customer": {"name": "A. Y.", "phone": "1"}}, {"scheduled_date": "2026-11-21 19:00:00"},
        {"courier_type": "platform_courier"},
    ],
    Differs.PRINT: [
        {"note": "Zile basın"}, {"total": "231.5"}, {"order_tip": "6"}, {"payment_method": "Kredi Kartı"},
        {"foods": []},
        {"foods": [food(note="acılı")]}, {"foods": [food(option_groups=[])]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("expected", Differs)
def test_only_items_notes_and_money_require_a_new_print(expected: Differs) -> None:
    for changes in CHANGES[expected]:
        assert differs(read(order() | changes), text(order()), payment_codes=CODES) == expected, changes


@pytest.mark.parametrize("payload", [None, "[]", '{"no": "key"}'])
def test_without_the_old_document_the_difference_is_unknown(payload: str | None) -> None:
    assert differs(read(order()), payload, payment_codes=CODES) == Differs.PRINT


LOOSE = {"Kart (kapıda)": "DOOR", "Kart (pre-paid)": "CREDIT_CARD", "Çek (x)": "A", "Çek (y)": "A", "Kag\u0306ıt": "B"}

NAMES = {
    "CASH": ("Nakit", " Nakit ", "CASH", "Nakit (kapıda)", "nakit", "NAK\u0130T "),
    "CREDIT_CARD": ("Kredi Kartı (pre-paid)", "Kredi Kartı", "KREDI  KARTI", "credit_card"),
    "DEBIT_CARD": ("DEBIT_CARD",),
    None: ("Kredi Kartı".replace("ı", "i\u0307"), "Kredi Kartı (kapıda)", "Yemek Kartı", "", None),
}


@pytest.mark.parametrize("name, code", [(name, code) for code, names in NAMES.items() for name in names])
def test_a_payment_method_matches_with_or_without_its_suffix(name: str | None, code: str | None) -> None:
    assert payment_code(name, CODES) == code


@pytest.mark.parametrize("name, code", [
    *[("Kart", None), ("Kart (kapıda)", "DOOR"), ("Kart (pre-paid)", "CREDIT_CARD"), ("DOOR", "DOOR")],
    *[("Çek", "A"), ("C\u0327ek", "A"), ("Kağıt", "B"), ("Kag\u0306ıt", "B"), ("Nakit", None)],
])  # fmt: skip
def test_an_ambiguous_method_name_matches_none(name: str, code: str | None) -> None:
    assert payment_code(name, LOOSE) == code


@pytest.mark.interface("Payment and shipping methods")
def test_the_amount_due() -> None:
    due = {"CASH": Decimal(7), "CREDIT_CARD": Decimal(0), "DEBIT_CARD": Decimal(0), "TRANSFER": None, None: None}
    assert {code: amount_due(Decimal(7), code) for code in due} == due
