"""What an answer means (docs/interface.md, Errors; docs/design.md, Behaviour): its data, or the error that says what to do. Pure.

The service's own words decide before the HTTP status does: docs/interface.md gives no status for the errors of complete,
restaurants and foods, and an error may come under HTTP 200.
"""

import unicodedata
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from orderbridge.errors import (
    MarketplaceError,
    RateLimited,
    Refused,
    ServiceFailed,
    Unauthorized,
    UnknownOutcome,
)
from orderbridge.hiding import longest, without_secrets
from orderbridge.marketplace.scan import BrokenText, decode, utf8

_Failure = tuple[type[MarketplaceError], str]
_UNAUTHORIZED: _Failure = (Unauthorized, "unauthorized")
_TOO_MANY: _Failure = (RateLimited, "rate_limited")
_INVALID_CREDENTIALS = "Invalid credentials"
# Exactly as written, each decides under any HTTP status.
_WORDS: Mapping[str, _Failure] = {
    "yetkisiz erişim": _UNAUTHORIZED,
    "çok fazla istek": _TOO_MANY,
    "URL hatalı": (Refused, "bad_url_id"),
    "sipariş bulunamadı": (Refused, "order_not_found"),
    "ürün bulunamadı": (Refused, "food_not_found"),
    "restoran bulunamadı": (Refused, "restaurant_not_found"),
    "eksik alan": (Refused, "missing_field"),
}
_CLIENT_ERRORS = 400
_SERVER_ERRORS = 500
_STATUSES: Mapping[int, _Failure] = {
    HTTPStatus.UNAUTHORIZED: _UNAUTHORIZED,
    HTTPStatus.TOO_MANY_REQUESTS: _TOO_MANY,
    # A program in between speaks; the service may have done what was asked.
    HTTPStatus.BAD_GATEWAY: (UnknownOutcome, "bad_gateway"),
    HTTPStatus.GATEWAY_TIMEOUT: (UnknownOutcome, "bad_gateway"),
}
# Who says so without the envelope is not the service: a web server that has not this path, or who stands before it.
_STRANGERS = {
    **dict.fromkeys((301, 302, 303, 307, 308, 511), "front_redirects"),
    **dict.fromkeys((402, 403, 406, 451), "front_or_path"),
    **dict.fromkeys((404, 405, 410), "wrong_path"),
}
_DETAIL_LENGTH = 200
_READ_LENGTH = 1000
# Normalizing takes the square of the accents on one letter, and no word of docs/interface.md is longer.
_WORD_LENGTH = 100


def is_success(http_status: int) -> bool:
    return HTTPStatus.OK <= http_status < HTTPStatus.MULTIPLE_CHOICES


def read_envelope(http_status: int, body: bytes) -> Any:
    """The `data` of a success (docs/interface.md, Conventions). Raises the MarketplaceError that the answer amounts to."""
    try:
        members = decode(utf8(body))
    except BrokenText:
        members = None
    return judge(http_status, members)


def judge(http_status: int, members: object) -> Any:
    """As `read_envelope`, for a body that has been read already; None for one that could not be read."""
    envelope = members if isinstance(members, Mapping) else {}
    success, status, detail = is_success(http_status), envelope.get("status"), _detail(envelope)
    failure = None if status is True else _WORDS.get(_normal(envelope.get("error")))
    if failure is _UNAUTHORIZED and _normal(envelope.get("message")) == _INVALID_CREDENTIALS:
        failure = (Unauthorized, "invalid_credentials")
    failure = failure or _STATUSES.get(http_status)
    if http_status >= _SERVER_ERRORS:
        failure, detail = failure or (ServiceFailed, "service_error"), detail or f"HTTP {http_status}"
    if failure is None and status is False and (success or http_status >= _CLIENT_ERRORS):
        failure = (Refused, "refused")
    if failure is not None:
        kind, code = failure
        raise kind(code, detail, http_status=http_status)
    if status is True and success:
        return envelope.get("data")
    reason = _STRANGERS.get(http_status, "")
    raise UnknownOutcome("no_envelope", f"HTTP {http_status}", http_status=http_status, reason=reason)


def _normal(value: object) -> str:
    return unicodedata.normalize("NFC", value) if isinstance(value, str) and len(value) <= _WORD_LENGTH else ""


def _detail(envelope: Mapping[str, Any]) -> str:
    """The service's own words on one short line, which goes to a log: nothing in it hides or turns what follows."""
    texts = [value for key in ("error", "message") if isinstance(value := envelope.get(key), str)]
    # Long ones are read to a length behind which no secret can be cut, and so half of it shown.
    words = [without_secrets(value[: _READ_LENGTH + longest()])[:_READ_LENGTH] for value in texts]
    letters = (letter if letter.isprintable() else " " for letter in ": ".join(filter(None, words)))
    return " ".join("".join(letters).split())[:_DETAIL_LENGTH]
