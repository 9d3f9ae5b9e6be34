# ruff: noqa: RUF009 - whole(), money(), text() and inside() describe a field; none is a default
"""The fields of an order document: the path, the kind and the column of each, and whether it is personal.

Each line of the dataclasses below is a field, named like its column. Other modules are driven by it:
- marketplace.documents reads it (docs/interface.md, Order), and problem codes name it by its path
- store.tables has its column; store.orders writes it, and compares only these columns when a document comes again
- store.retention blanks it if it is personal
- the views and both guides show it

A new field needs a line here, a migration that adds its column and creates the views again, and its text in
docs/words.toml.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class ValueKind(StrEnum):
    """How a value is parsed and stored."""

    WHOLE = "whole"  # a number of 64 bits
    MONEY = "money"  # ten digits and four decimals
    NAME = "name"  # text of at most 255 characters
    MOMENT = "moment"  # like NAME; a blank one is None
    ID = "id"  # like NAME, with a binary collation; a UUID is in lower case
    TEXT = "text"  # unbounded text
    CODE = "code"  # one of our own codes


@dataclass(frozen=True, slots=True)
class Field:
    """One column. `path`: where its value is in the document, separated by dots; None: computed from other fields.

    `minor`: neither cooking nor payment depends on it, so an unreadable value is a remark, not a problem.
    """

    column: str
    path: str | None
    kind: ValueKind
    personal: bool
    minor: bool


def _described(path: str | None, kind: ValueKind, *, personal: bool = False, minor: bool = False) -> Any:
    return field(metadata={"path": path, "kind": kind, "personal": personal, "minor": minor})


def whole(path: str) -> int | None:
    """An integer. All of them are ids that have a text beside them, so each is minor."""
    return _described(path, ValueKind.WHOLE, minor=True)  # type: ignore[no-any-return]


def money(path: str | None, *, minor: bool = False) -> Decimal | None:
    """An amount."""
    return _described(path, ValueKind.MONEY, minor=minor)  # type: ignore[no-any-return]


def text(
    path: str | None, kind: ValueKind = ValueKind.NAME, *, personal: bool = False, minor: bool = False
) -> str | None:
    """A text. `personal`: it may identify the customer, and is blanked some time after the order's end."""
    return _described(path, kind, personal=personal, minor=minor)  # type: ignore[no-any-return]


def inside(_: type[T], path: str) -> tuple[T, ...]:
    """A list in the document, stored in a table of its own."""
    return field(metadata={"list": path})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Option:
    """One selected modifier: its group and the option in it."""

    group_id: int | None = whole("id")
    group_name: str | None = text("name", minor=True)
    type: str | None = text("type", minor=True)
    operation: str | None = text("operation")
    option_id: int | None = whole("options.id")
    option_name: str | None = text("options.name")
    price: Decimal | None = money("options.price")


@dataclass(frozen=True, slots=True)
class Item:
    """One line of an order (docs/interface.md, Order item)."""

    item_id: str | None = text("id", minor=True)
    food_id: int | None = whole("food_id")
    name: str | None = text("name")
    note: str | None = text("note", ValueKind.TEXT, personal=True)
    price: Decimal | None = money("price")
    quantity: Decimal | None = money("quantity")
    total: Decimal | None = money("total")
    options: tuple[Option, ...] = inside(Option, "option_groups")


@dataclass(frozen=True, slots=True)
class Facts:
    """All fields of an order except its status."""

    order_number: int | None = whole("id")
    restaurant_id: str | None = text("restaurant_id", ValueKind.ID)
    restaurant_name: str | None = text("restaurant_name", minor=True)
    shipping_method: str | None = text("shipping_method")
    payment_method: str | None = text("payment_method")
    payment_code: str | None = text(None, ValueKind.CODE)
    amount_due: Decimal | None = money(None)
    note: str | None = text("note", ValueKind.TEXT, personal=True)
    total: Decimal | None = money("total")
    discount: Decimal | None = money("discount", minor=True)
    courier_type: str | None = text("courier_type", minor=True)
    courier_fee: Decimal | None = money("courier_fee", minor=True)
    order_tip: Decimal | None = money("order_tip", minor=True)
    ordered_at: str | None = text("date", minor=True)
    scheduled_for: str | None = text("scheduled_date", ValueKind.MOMENT)
    customer_name: str | None = text("customer.name", personal=True, minor=True)
    customer_phone: str | None = text("customer.phone", personal=True, minor=True)
    address: str | None = text("address.address", personal=True)
    address_description: str | None = text("address.description", ValueKind.TEXT, personal=True)
    apartment_no: str | None = text("address.apartment_no", personal=True)
    building_no: str | None = text("address.building_no", personal=True)
    neighborhood_name: str | None = text("address.neighborhood_name", personal=True)
    district_name: str | None = text("address.district_name", personal=True)
    city_name: str | None = text("address.city_name", personal=True)
    items: tuple[Item, ...] = inside(Item, "foods")


def fields_of(rows: type[Facts] | type[Item] | type[Option]) -> tuple[Field, ...]:
    """The fields of one table, in the order of its columns."""
    known: list[tuple[str, Mapping[str, Any]]] = [(one.name, one.metadata) for one in fields(rows)]
    return tuple(Field(name, **kind) for name, kind in known if "kind" in kind)


def columns_of(rows: type[Facts] | type[Item] | type[Option], *, personal: bool = False) -> tuple[str, ...]:
    """The names of its columns; with `personal`, only those that may identify the customer."""
    return tuple(one.column for one in fields_of(rows) if one.personal or not personal)
