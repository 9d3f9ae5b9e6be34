"""The service's documents, read leniently (SPEC.md, Resources; DESIGN.md, section 4, Documents). Pure.

A kitchen must see an order that can be shown at all: whatever can be read is read, the rest is NULL and a problem
code (the table is in fields.py). Only what is no object, or has no usable payment_key, is set aside.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from orderbridge.errors import UnknownOutcome
from orderbridge.marketplace.answers import body_text, is_success, judge
from orderbridge.marketplace.fields import Reader, Unreadable, parse_integer
from orderbridge.marketplace.payment import amount_due, payment_code
from orderbridge.marketplace.scan import BROKEN, BrokenText, Piece, read_members
from orderbridge.model import Document, Facts, Item, Option, Order

_STATUS_ID_LIMIT = 2**31  # what a database's INTEGER holds; no service means more
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def read_listing(body: bytes, *, http_status: int = 200) -> tuple[Document, ...]:
    """The documents in the answer of get-current (SPEC.md, Endpoints 6), each cut out as it was received.

    Raises the MarketplaceError that the answer amounts to; UnknownOutcome("malformed_list") when it is a success
    whose list cannot be taken apart: then nothing of it counts.
    """
    text = body_text(body)
    members: dict[str, Any] | None
    try:
        members = read_members(text, cut="data")
    except BrokenText as error:
        if text.lstrip()[:1] == "{" and is_success(http_status):
            raise _malformed_list(str(error), http_status) from None
        members = None  # somebody else's page, or an error without the envelope
    pieces = judge(http_status, members)
    if not isinstance(pieces, tuple):
        raise _malformed_list("data is no list", http_status)
    return tuple(_document(piece) for piece in pieces)


def _malformed_list(detail: str, http_status: int) -> UnknownOutcome:
    return UnknownOutcome("malformed_list", detail, http_status=http_status)


def _document(piece: Piece) -> Document:
    text, value = piece
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if not isinstance(value, dict):
        reason = "not_json" if value is BROKEN else "not_an_object"
        return Document(payload=text, digest=digest, payment_key=None, status_id=None, reason=reason)
    key, reason_or_none = _payment_key(value.get("payment_key"))
    return Document(
        payload=text,
        digest=digest,
        payment_key=key,
        status_id=_status_id(value.get("status_id")),
        value=value,
        reason=reason_or_none,
    )


def _payment_key(value: object) -> tuple[str | None, str | None]:
    """The key in lower case, or the reason why there is none (SPEC.md, Order identity rule)."""
    if value is None or value == "":
        return None, "payment_key_missing"
    key = value.strip().lower() if isinstance(value, str) else ""
    if _UUID.fullmatch(key) is None:
        return None, "payment_key_invalid"
    return key, None


def _status_id(value: object) -> int | None:
    try:
        number = parse_integer(value)
    except Unreadable:
        return None
    return number if number is not None and -_STATUS_ID_LIMIT <= number < _STATUS_ID_LIMIT else None


def read_order(document: Document, *, payment_codes: Mapping[str, str]) -> Order:
    """The order in a document whose `reason` is None (SPEC.md, Order). Never raises for such a document.

    `payment_codes` gives the code for each name of the payment method list, as GET orders/variables told them.
    """
    if document.payment_key is None or not isinstance(document.value, dict):
        raise ValueError(f"a document set aside is no order: {document.reason}")
    value = document.value
    read = Reader()
    if document.status_id is None:
        read.note("status_unreadable")
    return Order(
        payment_key=document.payment_key,
        status_id=document.status_id,
        status_text=read.text(value.get("status_text"), "status_text"),
        facts=_facts(value, read, payment_codes),
        problems=read.problems,
        payload=document.payload,
        digest=document.digest,
    )


def _facts(value: Mapping[str, Any], read: Reader, payment_codes: Mapping[str, str]) -> Facts:
    """All fields but the status, so that a change of status alone leaves them equal."""
    get = value.get
    customer = read.members(get("customer"), "customer")
    address = read.members(get("address"), "address")
    payment_method = read.text(get("payment_method"), "payment_method")
    code = payment_code(payment_method, payment_codes)
    total = read.amount(get("total"), "total")
    scheduled = read.text(get("scheduled_date"), "scheduled_date")
    return Facts(
        order_number=read.integer(get("id"), "id"),
        restaurant_id=read.text(get("restaurant_id"), "restaurant_id"),
        restaurant_name=read.text(get("restaurant_name"), "restaurant_name"),
        shipping_method=read.text(get("shipping_method"), "shipping_method"),
        payment_method=payment_method,
        payment_code=code,
        amount_due=amount_due(total, code),
        note=read.text(get("note"), "note", limit=None),
        total=total,
        discount=read.amount(get("discount"), "discount"),
        courier_type=read.text(get("courier_type"), "courier_type"),
        courier_fee=read.amount(get("courier_fee"), "courier_fee"),
        order_tip=read.amount(get("order_tip"), "order_tip"),
        ordered_at=read.text(get("date"), "date"),
        scheduled_for=scheduled if scheduled and not scheduled.isspace() else None,
        customer_name=read.text(customer.get("name"), "customer.name"),
        customer_phone=read.text(customer.get("phone"), "customer.phone"),
        address=read.text(address.get("address"), "address.address"),
        address_description=read.text(address.get("description"), "address.description", limit=None),
        apartment_no=read.text(address.get("apartment_no"), "address.apartment_no"),
        building_no=read.text(address.get("building_no"), "address.building_no"),
        neighborhood_name=read.text(address.get("neighborhood_name"), "address.neighborhood_name"),
        district_name=read.text(address.get("district_name"), "address.district_name"),
        city_name=read.text(address.get("city_name"), "address.city_name"),
        items=_items(value, read),
    )


def _items(value: Mapping[str, Any], read: Reader) -> tuple[Item, ...]:
    foods = value.get("foods")
    if foods in (None, []):  # null and an empty list leave a kitchen with as little as no field does
        read.note("missing:foods")
    return tuple(_item(food, read) for food in read.objects(foods, "foods"))


def _item(food: Mapping[str, Any], read: Reader) -> Item:
    """One line of the order (SPEC.md, Order item)."""
    groups = read.objects(food.get("option_groups"), "foods.option_groups")
    return Item(
        item_id=read.text(food.get("id"), "foods.id"),
        food_id=read.integer(food.get("food_id"), "foods.food_id"),
        name=read.text(food.get("name"), "foods.name"),
        note=read.text(food.get("note"), "foods.note", limit=None),
        price=read.amount(food.get("price"), "foods.price"),
        quantity=read.integer(food.get("quantity"), "foods.quantity"),
        total=read.amount(food.get("total"), "foods.total"),
        options=tuple(option for group in groups for option in _options(group, read)),
    )


def _options(group: Mapping[str, Any], read: Reader) -> list[Option]:
    """A group and its options (SPEC.md, Option group), flat; a group without options still shows its name."""
    group_id = read.integer(group.get("id"), "foods.option_groups.id")
    name = read.text(group.get("name"), "foods.option_groups.name")
    kind = read.text(group.get("type"), "foods.option_groups.type")
    operation = read.text(group.get("operation"), "foods.option_groups.operation")
    options = read.objects(group.get("options"), "foods.option_groups.options")
    return [
        Option(
            group_id=group_id,
            group_name=name,
            type=kind,
            operation=operation,
            option_id=read.integer(option.get("id"), "foods.option_groups.options.id"),
            option_name=read.text(option.get("name"), "foods.option_groups.options.name"),
            price=read.amount(option.get("price"), "foods.option_groups.options.price"),
        )
        for option in options or [{}]
    ]
