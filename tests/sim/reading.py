"""The expected columns of a document, written from docs/design.md, Behaviour, and the POS guide.

It uses no code of the program, and knows only the simulation's documents.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

SUMMED = {"foods", "foods.option_groups", "foods.option_groups.options"}  # unreadable amounts are in no sum
# Fields that neither a kitchen nor a cashier needs.
MINOR = {"id", "status_text", "restaurant_name", "discount", "courier_type", "courier_fee", "order_tip", "date"} | {
    "customer", "customer.name", "customer.phone", "foods.id", "foods.food_id", "foods.option_groups.id",
    "foods.option_groups.name", "foods.option_groups.type", "foods.option_groups.options.id",
}  # fmt: skip
ALWAYS_REMARKS = {"text_cut", "amount_rounded"}
NO_LIST = "none"  # a word that means null
LONGEST = 255  # names and codes
STATUS_WORDS = {1: "RECEIVED", 2: "CONFIRMED", 5: "COMPLETE_WITH_PAYMENT", 6: "CANCELED", 16: "IN_DELIVERY"}
ENDS = {5: "completed", 6: "cancelled"}
# From the service's list: name, remark, code.
PAYMENT = {
    "Nakit": ("", "CASH"),
    "Kredi Kartı": ("(pre-paid)", "CREDIT_CARD"),
    "Banka Kartı": ("(pre-paid)", "DEBIT_CARD"),
}
# The number that a text means; a str: the problem. Any other text is a JSON number.
SAID = {
    "": None,
    "12,50": Decimal("12.50"),
    "1.234,50": Decimal("1234.50"),
    "1,234": "ambiguous_number",
    "a lot": "not_a_number",
    "%10": "not_a_number",
}
MONEY = {"amount_due", "total", "discount", "courier_fee", "order_tip", "price"}
SAME_NAME = "restaurant_id restaurant_name shipping_method payment_method courier_type".split()
ORDER_TEXTS = {name: name for name in SAME_NAME} | {"date": "ordered_at", "scheduled_date": "scheduled_for"}
ADDRESS_TEXTS = ("address", "apartment_no", "building_no", "neighborhood_name", "district_name", "city_name")
LINE_COLUMNS = ("line_no", "item_id", "food_id", "name", "note", "price", "quantity", "total")
OPTION_COLUMNS = tuple("line_no option_no group_id group_name type operation option_id option_name price".split())

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DECODER = json.JSONDecoder(parse_float=Decimal)


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One element of a list, as it was served."""

    text: str
    value: Any

    @property
    def key(self) -> str | None:
        key = self.value.get("payment_key") if isinstance(self.value, dict) else None
        return key.lower() if isinstance(key, str) and _UUID.fullmatch(key.lower()) else None

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def status(self) -> int | None:
        return status_in(self.value)


def status_in(document: Mapping[str, Any]) -> int | None:
    """The readable status: text is read as a number, anything else as none."""
    status = document.get("status_id")
    return int(status) if isinstance(status, str) else status if isinstance(status, int) else None


def documents_in(body: bytes) -> Iterator[Document]:
    """The documents of a list that the service made itself."""
    text = body.decode()
    at = text.index("[") + 1
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        yield Document(text[at:end], value)
        at = end + (text[end] == ",")


def furthest(listed: list[Document], needs_payment: int | None) -> dict[str, Document]:
    """Each order of a list once, with its furthest status."""
    rank = {1: 1, 2: 2, 16: 3, needs_payment: 4, 5: 5, 6: 6}
    chosen: dict[str, Document] = {}
    for document in listed:
        key = document.key
        if key is not None and (key not in chosen or rank[document.status] >= rank[chosen[key].status]):
            chosen[key] = document
    return chosen


@dataclass(slots=True)
class Reading:
    """The expected columns of one document, except its status."""

    status_text: str | None = None

    columns: dict[str, Any] = field(default_factory=dict)
    lines: list[tuple[Any, ...]] = field(default_factory=list)
    options: list[tuple[Any, ...]] = field(default_factory=list)
    problems: set[str] = field(default_factory=set)
    remarks: set[str] = field(default_factory=set)

    def note(self, code: str, name: str) -> None:
        (self.remarks if name in MINOR or code in ALWAYS_REMARKS else self.problems).add(f"{code}:{name}")

    def text(self, value: Any, name: str, longest: int | None = LONGEST) -> str | None:
        if value is None:
            return None
        if isinstance(value, bool | dict | list):
            if value:
                self.note("not_text", name)
            return None
        text = re.sub("[\0\ud800-\udfff]", "\ufffd", str(value))
        if longest is not None and len(text) > longest:
            self.note("text_cut", name)
        return text[:longest]

    def number(self, value: Any, name: str) -> Decimal | None:
        said: Any = SAID.get(value, value) if isinstance(value, str) else value
        if said is False or said in ([], {}):
            return None
        if isinstance(said, bool | dict | list) or said in ("not_a_number", "ambiguous_number"):
            self.note(said if isinstance(said, str) else "not_a_number", name)
            return None
        return None if said is None else Decimal(said)

    def money(self, value: Any, name: str) -> Decimal | None:
        number = self.number(value, name)
        if number is None:
            return None
        if abs(number) >= 10**10:
            self.note("amount_out_of_range", name)
            return None
        rounded = number.quantize(Decimal("0.0001"), rounding=ROUND_HALF_EVEN)
        if rounded != number:
            self.note("amount_rounded", name)
        return rounded

    def integer(self, value: Any, name: str) -> int | None:
        number = self.number(value, name)
        if number is None:
            return None
        if number != int(number):
            self.note("not_an_integer", name)
            return None
        if not -(2**63) <= number < 2**63:
            self.note("integer_out_of_range", name)
            return None
        return int(number)

    def members(self, value: Any, name: str, text_is: str) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        if isinstance(value, str) and value:
            self.remarks.add(f"not_an_object:{name}")
            return {text_is: value}
        if value:
            self.note("not_an_object", name)
        return {}

    def several(self, value: Any, name: str) -> list[Mapping[str, Any]]:
        """An object, a list or null."""
        if not value or value == NO_LIST:
            return []
        if isinstance(value, dict):
            return [value]
        if not isinstance(value, list):
            self.note("not_a_list", name)
            return []
        if any(not isinstance(one, dict) for one in value):
            self.note("not_an_object", name)
        return [one for one in value if isinstance(one, dict)]


def read(document: Document) -> Reading:
    made, value = Reading(), document.value
    columns = made.columns
    if document.status is None:
        made.problems.add("status_unreadable")
    made.status_text = made.text(value.get("status_text"), "status_text")
    columns["order_number"] = made.integer(value.get("id"), "id")
    for name, column in ORDER_TEXTS.items():
        columns[column] = made.text(value.get(name), name)
    if (columns["scheduled_for"] or "") <= (columns["ordered_at"] or ""):  # both in the simulation's format
        columns["scheduled_for"] = None
    columns["note"] = made.text(value.get("note"), "note", longest=None)
    for name in ("total", "discount", "courier_fee", "order_tip"):
        columns[name] = made.money(value.get(name), name)
    if not value.get("total") and value.get("total") != 0:
        made.problems.add("missing:total")
    columns["payment_code"] = code = _payment_code(columns["payment_method"])
    columns["amount_due"] = columns["total"] if code == "CASH" else None if code is None else Decimal(0)
    customer = made.members(value.get("customer"), "customer", "name")
    columns["customer_name"] = made.text(customer.get("name"), "customer.name")
    columns["customer_phone"] = made.text(customer.get("phone"), "customer.phone")
    address = made.members(value.get("address"), "address", "address")
    for name in ADDRESS_TEXTS:
        columns[name] = made.text(address.get(name), f"address.{name}")
    columns["address_description"] = made.text(address.get("description"), "address.description", longest=None)
    if not value.get("foods") or value["foods"] == NO_LIST:
        made.problems.add("missing:foods")
    for line_no, food in enumerate(made.several(value.get("foods"), "foods"), start=1):
        _read_line(made, line_no, food)
    if not any(problem.split(":")[-1] in SUMMED for problem in made.problems):
        made.problems.update(_wrong_sums(made))
    return made


def _wrong_sums(made: Reading) -> Iterator[str]:
    """Amounts that no reading of the interface explains, with a cent for each rounding."""
    paid = made.columns
    for line_no, *_, price, quantity, total in made.lines:
        chosen = [option for option in made.options if option[0] == line_no and option[-3:] != (None, None, None)]
        extras = [option[-1] for option in chosen]
        if None in (price, quantity, total, *extras) or any(option[5] not in (None, "", "+") for option in chosen):
            continue
        once, each = price * quantity + sum(extras), (price + sum(extras)) * quantity
        if min(abs(total - once), abs(total - each)) > max(abs(quantity), 1) * Decimal("0.01"):
            yield f"total_mismatch:line_{line_no}"
            break
    lines = [line[-1] for line in made.lines]
    amounts = [paid[name] for name in ("total", "discount", "courier_fee", "order_tip")]
    if not lines or None in lines + amounts or (paid["total"] == 0 and paid["payment_code"] != "CASH"):
        return
    total, discount, fee, tip = amounts
    goods = sum(lines) - abs(discount)
    likely = {start + more for start in (goods, max(goods, 0)) for more in (0, fee, tip, fee + tip)}
    likely |= {max(sum_, Decimal(0)) for sum_ in likely}
    if min(abs(total - sum_) for sum_ in likely) > (len(lines) + 1) * Decimal("0.01"):
        yield "total_mismatch:total"


def _payment_code(name: str | None) -> str | None:
    """The code of a name, with or without its remark. With another remark it is unknown."""
    wanted = (name or "").strip()
    if wanted in {code for _, code in PAYMENT.values()}:
        return wanted
    bare, opened, remark = wanted.partition("(")
    listed, code = PAYMENT.get(bare.strip(), (None, None))
    return code if listed in ("", opened + remark) or not opened else None


def _read_line(made: Reading, line_no: int, food: Mapping[str, Any]) -> None:
    name, note = made.text(food.get("name"), "foods.name"), made.text(food.get("note"), "foods.note", longest=None)
    ids = made.text(food.get("id"), "foods.id"), made.integer(food.get("food_id"), "foods.food_id")
    amounts = (made.money(food.get(one), f"foods.{one}") for one in ("price", "quantity", "total"))
    made.lines.append((line_no, *ids, name, note, *amounts))
    if name is None or not re.search("[^\\W\\d_]", name):
        made.problems.add("missing:foods.name")
    if food.get("quantity") is None:
        made.problems.add("missing:foods.quantity")
    option_no = 0
    for group in made.several(food.get("option_groups"), "foods.option_groups"):
        of = "foods.option_groups"
        texts = (made.text(group.get(one), f"{of}.{one}") for one in ("name", "type", "operation"))
        shown = made.integer(group.get("id"), f"{of}.id"), *texts
        chosen = made.several(group.get("options"), f"{of}.options")
        if not chosen:
            made.remarks.add(f"missing:{of}.options")
        for option in chosen:
            option_no += 1
            number, text = made.integer(option.get("id"), f"{of}.options.id"), option.get("name")
            price = made.money(option.get("price"), f"{of}.options.price")
            made.options.append((line_no, option_no, *shown, number, made.text(text, f"{of}.options.name"), price))


def plain(columns: Mapping[str, Any] | tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The row in a form that can be compared: SQLite's NUMERIC is a double, exact after rounding."""
    return {
        name: round(Decimal(str(value)), 4) if name in MONEY and value is not None else value
        for name, value in dict(columns).items()
    }
