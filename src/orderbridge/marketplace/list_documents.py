"""The short documents: login, restaurants, reasons, methods (docs/interface.md, Resources). Bad entries are left out. Pure.

Each reader takes the `data` of a success and raises UnknownOutcome("malformed_data") for another container than
docs/interface.md's, and for a list of which nothing can be used: an empty result would be believed.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from orderbridge.errors import UnknownOutcome
from orderbridge.marketplace.fields import Reader, compared, elements_of
from orderbridge.model import CancelReason, Grant, Method, Restaurant, Variables

MOST_TOKEN = 16 * 1024  # characters; no server takes a longer header
_STATUSES = {"open": "Open", "closed": "Closed"}
_Entry = TypeVar("_Entry")


def read_grant(data: object) -> Grant:
    """docs/interface.md, Access token. A token that no header can carry is none."""
    members = data if isinstance(data, dict) else {}
    token = Reader().text(members.get("access_token"), "access_token", limit=None)
    if not token or len(token) > MOST_TOKEN or not token.isascii() or not token.isprintable() or token != token.strip():
        raise _malformed("access_token")
    return Grant(token, Reader().text(members.get("expiration_date"), "expiration_date"))


def read_restaurants(data: object) -> tuple[Restaurant, ...]:
    """docs/interface.md, Restaurant."""
    return _entries(data, "restaurants", _restaurant)


def read_restaurant_status(data: object) -> str:
    """docs/interface.md, Restaurant: `Open` or `Closed`, whatever its case."""
    if isinstance(data, str) and (status := _STATUSES.get(data.strip().lower())):
        return status
    raise _malformed("restaurant status")


def read_cancel_reasons(data: object) -> tuple[CancelReason, ...]:
    """docs/interface.md, Cancel reason."""
    return _entries(data, "cancel reasons", _reason)


def read_variables(data: object) -> Variables:
    """docs/interface.md, Payment and shipping methods. A list that is missing is empty."""
    if not isinstance(data, dict):
        raise _malformed("variables")
    return Variables(
        payment_methods=_entries(data.get("paymentMethod", []), "paymentMethod", _method),
        shipping_methods=_entries(data.get("shippingMethod", []), "shippingMethod", _method),
    )


def _entries(data: object, name: str, read: Callable[[Mapping[str, Any]], _Entry | None]) -> tuple[_Entry, ...]:
    elements = elements_of(data, lambda entry: bool({"id", "key"} & entry.keys()))
    if elements is None or data == {}:
        raise _malformed(name)
    read_or_none = [read(entry) for entry in elements if isinstance(entry, dict)]
    entries = tuple(entry for entry in read_or_none if entry is not None)
    if data and not entries:
        raise _malformed(name)
    return entries


def _restaurant(entry: Mapping[str, Any]) -> Restaurant | None:
    sent = Reader().text(entry.get("id"), "id")
    if not sent:
        return None
    key = compared(sent)
    return Restaurant(
        key, Reader().text(entry.get("name"), "name") or "", sent.strip() if key != sent.strip() else None
    )


def _reason(entry: Mapping[str, Any]) -> CancelReason | None:
    number = Reader().integer(entry.get("id"), "id")
    return None if number is None else CancelReason(number, Reader().text(entry.get("reason"), "reason") or "")


def _method(entry: Mapping[str, Any]) -> Method | None:
    code = Reader().text(entry.get("key"), "key")
    return Method(code, Reader().text(entry.get("name"), "name") or "") if code else None


def _malformed(what: str) -> UnknownOutcome:
    return UnknownOutcome("malformed_data", what)
