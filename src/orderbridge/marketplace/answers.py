"""Turns an answer into its data or a MarketplaceError, and parses the short documents (docs/interface.md, Errors).

The text in `error` decides before the HTTP status does, because docs/interface.md gives no status for the errors of
complete, restaurants and foods, and an error may have HTTP 200.

The short documents are login, restaurants, reasons and methods (docs/interface.md, Resources). Each reader gets the
`data` of a success and leaves bad entries out. It raises UnknownOutcome("malformed_data") for an unexpected container,
and for a list without a usable entry, because an empty result would be taken for the truth.
"""

import unicodedata
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized, UnknownOutcome
from orderbridge.hiding import longest, without_secrets
from orderbridge.marketplace.fields import Reader, compared, elements_of
from orderbridge.marketplace.scan import BrokenText, decode, utf8
from orderbridge.model import Grant, Restaurant, Variables

_Failure = tuple[type[MarketplaceError], str]
_UNAUTHORIZED: _Failure = (Unauthorized, "unauthorized")
_TOO_MANY: _Failure = (RateLimited, "rate_limited")
_INVALID_CREDENTIALS = "Invalid credentials"
# The exact texts of errors; each decides under any HTTP status.
_WORDS: Mapping[str, _Failure] = {
    "yetkisiz erişim": _UNAUTHORIZED,
    "çok fazla istek": _TOO_MANY,
    "URL hatalı": (Refused, "bad_url_id"),
    "sipariş bulunamadı": (Refused, "order_not_found"),
    "ürün bulunamadı": (Refused, "food_not_found"),
    "restoran bulunamadı": (Refused, "restaurant_not_found"),
    "eksik alan": (Refused, "missing_field"),
}
_SUCCESS = 2  # any 2xx
_CLIENT_ERRORS = 400
_SERVER_ERRORS = 500
_STATUSES: Mapping[int, _Failure] = {
    HTTPStatus.UNAUTHORIZED: _UNAUTHORIZED,
    HTTPStatus.TOO_MANY_REQUESTS: _TOO_MANY,
    # From a gateway; the marketplace may have executed the request.
    HTTPStatus.BAD_GATEWAY: (UnknownOutcome, "bad_gateway"),
    HTTPStatus.GATEWAY_TIMEOUT: (UnknownOutcome, "bad_gateway"),
}
# Reasons for statuses without the envelope, which another web server or a gateway sent.
_FOREIGN_REASONS = {
    **dict.fromkeys((301, 302, 303, 307, 308, 511), "front_redirects"),
    **dict.fromkeys((402, 403, 406, 451), "front_or_path"),
    **dict.fromkeys((404, 405, 410), "wrong_path"),
}
_DETAIL_LENGTH = 200
_READ_LENGTH = 1000
# Longer texts are not normalized, since that can take quadratic time. No text of docs/interface.md is longer.
_WORD_LENGTH = 100
MAX_TOKEN = 16 * 1024  # characters; no server accepts a longer header
_OPEN_OR_CLOSED = {"open": "Open", "closed": "Closed"}
_Entry = TypeVar("_Entry")


def read_envelope(http_status: int, body: bytes) -> Any:
    """The `data` of a success (docs/interface.md, Conventions). Raises MarketplaceError for any other answer."""
    try:
        members = decode(utf8(body))
    except BrokenText:
        members = None
    return judge(http_status, members)


def judge(http_status: int, members: object) -> Any:
    """Like `read_envelope`, for a parsed body; `members` is None if parsing failed."""
    envelope = members if isinstance(members, Mapping) else {}
    status, is_success = envelope.get("status"), http_status // 100 == _SUCCESS
    failure = None if status is True else _WORDS.get(_normal(envelope.get("error")))
    if failure is _UNAUTHORIZED and _normal(envelope.get("message")) == _INVALID_CREDENTIALS:
        failure = (Unauthorized, "invalid_credentials")
    failure = failure or _STATUSES.get(http_status)
    if failure is None and http_status >= _SERVER_ERRORS:
        failure = (ServiceFailed, "service_error")
    if failure is None and status is False and (is_success or http_status >= _CLIENT_ERRORS):
        failure = (Refused, "refused")
    if failure is not None:
        kind, code = failure
        without_words = f"HTTP {http_status}" if http_status >= _SERVER_ERRORS else ""
        raise kind(code, _detail(envelope) or without_words, http_status=http_status)
    if status is True and is_success:
        return envelope.get("data")
    reason = _FOREIGN_REASONS.get(http_status, "")
    raise UnknownOutcome("no_envelope", f"HTTP {http_status}", http_status=http_status, reason=reason)


def _normal(value: object) -> str:
    return unicodedata.normalize("NFC", value) if isinstance(value, str) and len(value) <= _WORD_LENGTH else ""


def _detail(envelope: Mapping[str, Any]) -> str:
    """The answer's texts on one short line, without control characters."""
    texts = [value for key in ("error", "message") if isinstance(value := envelope.get(key), str)]
    # Secrets are hidden before the text is cut, which might cut one in half.
    words = [without_secrets(value[: _READ_LENGTH + longest()])[:_READ_LENGTH] for value in texts]
    letters = (letter if letter.isprintable() else " " for letter in ": ".join(filter(None, words)))
    return " ".join("".join(letters).split())[:_DETAIL_LENGTH]


# ---- the short documents ---------------------------------------------------------------------------------------------


def read_grant(data: object) -> Grant:
    """docs/interface.md, Access token. A token that fits no header is malformed."""
    members = data if isinstance(data, dict) else {}
    token = Reader().text(members.get("access_token"), "access_token", limit=None)
    if not token or len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable() or token != token.strip():
        raise _malformed("access_token")
    return Grant(token, Reader().text(members.get("expiration_date"), "expiration_date"))


def read_restaurants(data: object) -> tuple[Restaurant, ...]:
    """docs/interface.md, Restaurant."""
    return _entries(data, "restaurants", _restaurant)


def read_restaurant_status(data: object) -> str:
    """docs/interface.md, Restaurant: `Open` or `Closed`, whatever its case."""
    if isinstance(data, str) and (status := _OPEN_OR_CLOSED.get(data.strip().lower())):
        return status
    raise _malformed("restaurant status")


def read_cancel_reasons(data: object) -> dict[int, str]:
    """docs/interface.md, Cancel reason: the reasons by id."""
    return dict(_entries(data, "cancel reasons", _reason))


def read_variables(data: object) -> Variables:
    """docs/interface.md, Payment and shipping methods. A missing list is empty."""
    if not isinstance(data, dict):
        raise _malformed("variables")
    return Variables(
        payment_methods=dict(_entries(data.get("paymentMethod", []), "paymentMethod", _method)),
        shipping_methods=dict(_entries(data.get("shippingMethod", []), "shippingMethod", _method)),
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


def _reason(entry: Mapping[str, Any]) -> tuple[int, str] | None:
    number = Reader().integer(entry.get("id"), "id")
    return None if number is None else (number, Reader().text(entry.get("reason"), "reason") or "")


def _method(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    code = Reader().text(entry.get("key"), "key")
    return (code, Reader().text(entry.get("name"), "name") or "") if code else None


def _malformed(what: str) -> UnknownOutcome:
    return UnknownOutcome("malformed_data", what)
