"""Documents with undescribed shapes and words: what is read, what a person must check, what is auto-accepted.

A wrong guess must never look like an order that can be cooked, and a harmless form must stop nothing. Each row changes
an ordinary order of two lines; `columns` are the differences.
"""

from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.marketplace.samples import CODES, KEY, listing, order, text

from orderbridge.document import Facts, Item
from orderbridge.marketplace.documents import read_listing, read_order
from orderbridge.model import Order
from orderbridge.rules.deliveries import accepts_itself

ADANA: dict[str, Any] = {
    "id": "a", "food_id": 100001, "name": "Adana Dürüm", "note": "", "price": 120, "quantity": 1, "total": 120,
    "option_groups": [],
}  # fmt: skip
AYRAN = ADANA | {"id": "b", "food_id": 100002, "name": "Ayran", "price": 30, "quantity": 2, "total": 60}
KASAR = {"id": 7, "name": "Kaşar", "price": 0}
GROUP = {"id": 3, "name": "Ekstra", "type": "multi", "operation": "+", "options": KASAR}
MONEY: dict[str, Any] = {"total": 180, "discount": "0.00", "courier_fee": 0, "order_tip": 0}
LONG = "x" * 300


def one(**changes: Any) -> dict[str, Any]:
    return {"foods": [ADANA | changes], "total": 120}


def chosen(groups: Any) -> dict[str, Any]:
    return one(option_groups=groups)


def picked(options: Any) -> dict[str, Any]:
    return chosen([GROUP | {"options": options}])


TWO_LINES = {"names": ["Adana Dürüm", "Ayran"]}
NO_LINES: dict[str, Any] = {"names": []}
UNREADABLE_TIME = "unreadable_time:scheduled_date"
WITHOUT_OPTIONS, WITHOUT_NAME = "missing:foods.option_groups.options", "missing:foods.option_groups.options.name"
# (document, columns, problem, remarks). Without a problem, or with total_mismatch alone, it is accepted automatically.
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "an ordinary order": ({}, TWO_LINES, "", ""),
    # lists in other shapes
    "lines by numbers, with a gap": ({"foods": {"0": ADANA, "2": AYRAN}}, TWO_LINES, "", ""),
    "lines by food_id": ({"foods": {"100001": ADANA, "100002": AYRAN}}, TWO_LINES, "", ""),
    "lines by uuid": ({"foods": {KEY: ADANA, KEY[::-1]: AYRAN}}, TWO_LINES, "", ""),
    "lines within a word": ({"foods": {"item": ADANA}, "total": 120}, {"names": ["Adana Dürüm"]}, "", ""),
    "one line alone": ({"foods": ADANA, "total": 120}, {"names": ["Adana Dürüm"]}, "", ""),
    "by its food_id": (
        {"foods": {"food_id": 1, "quantity": 1}, "total": 120}, {"names": [None]}, "missing:foods.name", ""),
    "lines in a list within": ({"foods": {"items": [ADANA, AYRAN]}}, NO_LINES, "not_a_list:foods", ""),
    "a list in a list": ({"foods": [[ADANA, AYRAN]]}, NO_LINES, "not_an_object:foods", ""),
    "lines as a text": ({"foods": text([ADANA, AYRAN])}, NO_LINES, "not_a_list:foods", ""),
    "an object of nothing known": ({"foods": {"urun": "Adana", "adet": 1}}, NO_LINES, "not_a_list:foods", ""),
    "lines a number": ({"foods": 5}, NO_LINES, "not_a_list:foods", ""),
    "lines null": ({"foods": None}, NO_LINES, "missing:foods", ""),
    "lines an empty object": ({"foods": {}}, NO_LINES, "missing:foods", ""),
    "a line that is a text": ({"foods": [ADANA, "Ayran"]}, {"names": ["Adana Dürüm"]}, "not_an_object:foods", ""),
    "a line in other words": (
        {"foods": [{"urun": "Adana", "adet": 1, "tutar": 180}]}, {"names": [None]},
        "missing:foods.name,missing:foods.quantity", "",
    ),
    # what a line must be
    "a name that is empty": (one(name=""), {"names": [""]}, "missing:foods.name", ""),
    "a name of blanks": (one(name=" \t "), {"names": [" \t "]}, "missing:foods.name", ""),
    "a name that is null": (one(name=None), {"names": [None]}, "missing:foods.name", ""),
    "a name that is a number": (one(name=100001), {"names": ["100001"]}, "missing:foods.name", ""),
    "a name of languages": (one(name={"tr": "Adana", "en": "Adana"}), {"names": [None]}, "not_text:foods.name", ""),
    "a name of 300 letters": (one(name=LONG), {"names": [LONG[:255]]}, "", "text_cut:foods.name"),
    "food_id 0": (one(food_id=0), {"food_id": 0}, "", "not_positive:foods.food_id"),
    "one and a half": (one(quantity=1.5, total=180), {"quantity": Decimal("1.5")}, "total_mismatch:total", ""),
    "one and a half as a text": (one(quantity="1,5", total=180) | {"total": 180}, {"quantity": Decimal("1.5")}, "", ""),
    "a quantity with a word": (one(quantity="2 adet"), {"quantity": None}, "not_a_number:foods.quantity", ""),
    "a quantity of nothing": (
        one(quantity=0, total=0) | {"total": 0}, {"quantity": 0}, "not_positive:foods.quantity", ""),
    "a quantity below nothing": (one(quantity=-1, total=-120) | {"total": -120}, {"quantity": -1},
                                 "not_positive:total,not_positive:foods.quantity", ""),
    "no quantity": (one(quantity=None), {"quantity": None}, "missing:foods.quantity", ""),
    # options
    "options by numbers": (chosen({"0": GROUP, "3": GROUP}), {"options": ["Kaşar", "Kaşar"]}, "", ""),
    "options of a group by numbers": (picked({"1": KASAR}), {"options": ["Kaşar"]}, "", ""),
    "options by uuid": (picked({KEY: KASAR}), {"options": ["Kaşar"]}, "", ""),
    "options in a list": (picked([KASAR, KASAR]), {"options": ["Kaşar", "Kaşar"]}, "", ""),
    "a number": (picked([KASAR, 5]), {"options": ["Kaşar"]}, "not_an_object:foods.option_groups.options", ""),
    "a group that is a number": (chosen([5, GROUP]), {"options": ["Kaşar"]}, "not_an_object:foods.option_groups", ""),
    "groups as a text": (chosen("x"), {"options": []}, "not_a_list:foods.option_groups", ""),
    "one group alone": (chosen(GROUP), {"options": ["Kaşar"]}, "", ""),
    "no groups: an object": (chosen({}), {"options": []}, "", ""),
    "no groups: a text": (chosen(""), {"options": []}, "", ""),
    "no groups: false": (chosen(False), {"options": []}, "", ""),
    "no groups: an empty one": (chosen([{}]), {"options": []}, "", ""),
    "no groups: empty ones": (chosen([None, [], ""]), {"options": []}, "", ""),
    "no options: of nulls": (picked({"id": None, "name": "", "price": None}), {"options": []}, "", WITHOUT_OPTIONS),
    "a line that is null": ({"foods": [ADANA, None, AYRAN]}, TWO_LINES, "", ""),
    "lines that are null": ({"foods": [None]}, NO_LINES, "missing:foods", ""),
    "nothing chosen in a group": (picked([]), {"options": []}, "", WITHOUT_OPTIONS),
    "a group without options": (chosen([{"id": 3, "name": "Acısız"}]), {"options": [None]}, WITHOUT_OPTIONS, ""),
    "one group alone without options": (chosen({"id": 3, "name": "Acısız"}), {"options": [None]}, WITHOUT_OPTIONS, ""),
    "an option without a name": (picked({"id": 7, "name": None, "price": 0}), {"options": [None]}, WITHOUT_NAME, ""),
    "an option by its id": (picked({"id": 7, "price": 0}), {"options": [None]}, WITHOUT_NAME, ""),
    "nothing known": (picked({"secenek": "x"}), {"options": [None]}, "not_a_list:foods.option_groups.options", ""),
    # amounts
    "an amount that may be two": (
        one(price="1.250", total="1.250") | {"total": "1.250"}, {"total": None, "amount_due": None},
        "ambiguous_number:total,ambiguous_number:foods.price,ambiguous_number:foods.total", "",
    ),
    "no total": ({"total": None}, {"total": None}, "missing:total", ""),
    "a total of a dash": ({"total": "-"}, {"total": None}, "missing:total", ""),
    "a total below nothing": ({"total": -180}, {"total": Decimal(-180)}, "not_positive:total,total_mismatch:total", ""),
    "a discount that may be two": ({"discount": "1.250"}, {"discount": None}, "", "ambiguous_number:discount"),
    "a tip in words": ({"order_tip": "yok"}, {"order_tip": None}, "", "not_a_number:order_tip"),
    "a fee that is empty": ({"courier_fee": []}, {"courier_fee": None}, "", ""),
    "a rounded fee": ({"courier_fee": 0.000004}, {"courier_fee": Decimal(0)}, "", "amount_rounded:courier_fee"),
    # what is empty in another type
    "no address: a list": ({"address": []}, {"address": None}, "", ""),
    "no address: a text": ({"address": ""}, {"address": None}, "", ""),
    "no address: a word": ({"address": "null"}, {"address": None}, "", ""),
    "no customer: a list": ({"customer": []}, {"customer_name": None}, "", ""),
    "no customer: false": ({"customer": False}, {"customer_name": None}, "", ""),
    "no note: false": ({"note": False}, {"note": None}, "", ""),
    "no note: a list": ({"note": []}, {"note": None}, "", ""),
    "a note of a dash is a note": ({"note": "-"}, {"note": "-"}, "", ""),
    "an address as a text": (
        {"address": "Moda Caddesi 12"}, {"address": "Moda Caddesi 12"}, "", "not_an_object:address"),
    "a street of 300 letters": (
        {"address": {"address": LONG}}, {"address": LONG[:255]}, "", "text_cut:address.address"),
    "a customer as a number": ({"customer": 5}, {"customer_name": None}, "", "not_an_object:customer"),
    "an address as a list": ({"address": ["Moda Caddesi"]}, {"address": None}, "not_an_object:address", ""),
    "a customer as a text": ({"customer": "Ayşe"}, {"customer_name": "Ayşe"}, "", "not_an_object:customer"),
    "a note as an object": ({"note": {"tr": "acısız"}}, {"note": None}, "not_text:note", ""),
    # times; the order's own is 2026-11-21 12:30:00 in Istanbul
    **{
        f"no time: {said}": ({"scheduled_date": said}, {"scheduled_for": None}, "", "")
        for said in (
            "0000-00-00 00:00:00", "0000-00-00", "-0001-11-30 00:00:00", "1970-01-01 02:00:00", "1899-12-30",
            "Invalid date", "9999-12-31 23:59:59", "null", "0", "-", "N/A", False, [], 0, "2026-11-21 12:30:00",
            "2026-11-21T09:30:00Z",
            "21.11.2026 12:00", "2026-11-21",
        )
    },
    **{
        f"a time: {said}": ({"scheduled_date": said}, {"scheduled_for": str(said)}, "", "")
        for said in (
            "2026-11-21 12:31:00", "2026-11-21T10:30:00Z", "2026-11-21T11:45:00+02:00", "21.11.2026 19:30",
            1795283400, "1795283400000",
        )
    },
    **{
        f"no readable time: {text}": ({"scheduled_date": text}, {"scheduled_for": None}, UNREADABLE_TIME, "")
        for text in ("yarın 19:30", "19:30", "2026-13-45 99:00", "hemen değil", 20)
    },
    "a time as an object": (
        {"scheduled_date": {"date": "2026-11-22"}}, {"scheduled_for": None}, "not_text:scheduled_date", ""),
    # words
    "a courier of another word": ({"courier_type": "RESTAURANT"}, {"courier_type": "RESTAURANT"}, "", ""),
    "a method in capitals": (
        {"payment_method": " NAKİT"}, {"payment_code": "CASH", "amount_due": Decimal(180)}, "", ""),
    "a method as an object": (
        {"payment_method": {"key": "CASH"}}, {"payment_code": None}, "not_text:payment_method", ""),
    "a status that is confirmed": ({"status_id": 2}, {"total": 180}, "", ""),
    "a status as a text": ({"status_id": "1"}, {"total": 180}, "", ""),
    "a number as a text": ({"id": "n-1"}, {"order_number": None}, "", "not_a_number:id"),
    "a restaurant in capitals and braces": ({"restaurant_id": f"{{{KEY.upper()}}}"}, {"restaurant_id": KEY}, "", ""),
    # what a printer or a terminal obeys
    "control characters": (
        {"note": "bebek\x1bp\x00\x19\u009b2J\x07 uyuyor\r\nkapı\ttekrar\n", "customer": {"name": "\x1b@Ayşe"}},
        {"note": "bebekp\ufffd2J uyuyor\nkapı\ttekrar\n", "customer_name": "@Ayşe"}, "", "",
    ),
    "a name of control characters": (one(name="\x1b\x07"), {"names": [""]}, "missing:foods.name", ""),
}  # fmt: skip


def read(changes: dict[str, Any]) -> Order:
    (document,) = read_listing(listing(element := text(order(foods=[ADANA, AYRAN], **MONEY) | changes)))
    assert document.payload == element
    return read_order(document, payment_codes=CODES, zone=ZoneInfo("Europe/Istanbul"))


def column(facts: Facts, name: str) -> Any:
    if name == "names":
        return [item.name for item in facts.items]
    if name == "options":
        return [option.option_name for item in facts.items for option in item.options]
    return getattr(facts.items[0] if name in Item.__slots__ and name not in Facts.__slots__ else facts, name)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_how_a_broken_document_is_read_and_who_must_check_it(row: tuple[dict[str, Any], dict[str, Any], str, str]):
    changes, columns, problem, remarks = row
    delivered = read(changes)
    assert {name: column(delivered.facts, name) for name in columns} == columns
    assert (",".join(delivered.problems), ",".join(delivered.remarks)) == (problem, remarks)
    is_plain = all(code.startswith("total_mismatch") for code in delivered.problems) and delivered.status_id == 1
    assert accepts_itself(delivered, scheduled_too=True) == is_plain
    assert accepts_itself(delivered, scheduled_too=False) == (is_plain and delivered.facts.scheduled_for is None)


def test_a_list_of_orders_by_numbers_is_a_list() -> None:
    first, second = text(order()), text(order(payment_key=KEY.replace("0", "1")))
    body = f'{{"status": true, "data": {{"0": {first}, "3" : {second}, "7": {{"broken": 1,}}}}}}'.encode()
    *good, broken = read_listing(body)
    assert [(one.payload, one.reason) for one in good] == [(first, None), (second, None)]
    assert (broken.reason, read_listing(b'{"status": true, "data": {}}')) == ("not_json", ())
