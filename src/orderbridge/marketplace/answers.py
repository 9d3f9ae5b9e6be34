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

_UNAUTHORIZED = "yetkisiz erişim"
_TOO_MANY = "çok fazla istek"
_INVALID_CREDENTIALS = "Invalid credentials"
_REFUSALS = {
    "URL hatalı": "bad_url_id",
    "sipariş bulunamadı": "order_not_found",
    "ürün bulunamadı": "food_not_found",
    "restoran bulunamadı": "restaurant_not_found",
    "eksik alan": "missing_field",
}
_CLIENT_ERRORS = 400
_SERVER_ERRORS = 500
_GATEWAY = (
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.GATEWAY_TIMEOUT,
)  # somebody in between speaks; the service may have done what was asked
# Who says so without the envelope is not the service: a web server that has not this path, or who stands before it.
_STRANGERS = {
    **dict.fromkeys((301, 302, 303, 307, 308, 511), "front_redirects"),
    **dict.fromkeys((402, 403, 406, 451), "front_or_path"),
    **dict.fromkeys((404, 405, 410), "wrong_path"),
}
_DETAIL_LENGTH = 200
_READ_LENGTH = 1000
_WORD_LENGTH = (
    100  # normalizing takes the square of the accents on one letter, and no word of docs/interface.md is longer
)


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
    if envelope.get("status") is not True:
        _raise_known(http_status, envelope)
    detail = _detail(envelope)
    if http_status == HTTPStatus.UNAUTHORIZED:
        raise Unauthorized("unauthorized", detail, http_status=http_status)
    if http_status == HTTPStatus.TOO_MANY_REQUESTS:
        raise RateLimited("rate_limited", detail, http_status=http_status)
    if http_status >= _SERVER_ERRORS:
        raise _server_error(http_status, detail)
    return _data_or_refusal(http_status, envelope, detail)


def _data_or_refusal(http_status: int, envelope: Mapping[str, Any], detail: str) -> Any:
    success = is_success(http_status)
    match envelope.get("status"):
        case True if success:
            return envelope.get("data")
        case False if success or http_status >= _CLIENT_ERRORS:
            raise Refused("refused", detail, http_status=http_status)
        case _:
            reason = _STRANGERS.get(http_status, "")
            raise UnknownOutcome("no_envelope", f"HTTP {http_status}", http_status=http_status, reason=reason)


def _raise_known(http_status: int, envelope: Mapping[str, Any]) -> None:
    """One of docs/interface.md's error texts, exactly as written, decides under any HTTP status (docs/interface.md, Errors)."""
    error = _normal(envelope.get("error"))
    detail = _detail(envelope)
    if error == _UNAUTHORIZED:
        wrong_secrets = _normal(envelope.get("message")) == _INVALID_CREDENTIALS
        code = "invalid_credentials" if wrong_secrets else "unauthorized"
        raise Unauthorized(code, detail, http_status=http_status)
    if error == _TOO_MANY:
        raise RateLimited("rate_limited", detail, http_status=http_status)
    if error in _REFUSALS:
        raise Refused(_REFUSALS[error], detail, http_status=http_status)


def _server_error(http_status: int, detail: str) -> MarketplaceError:
    if http_status in _GATEWAY:
        return UnknownOutcome("bad_gateway", detail or f"HTTP {http_status}", http_status=http_status)
    return ServiceFailed("service_error", detail or f"HTTP {http_status}", http_status=http_status)


def _normal(value: object) -> str:
    if not isinstance(value, str) or len(value) > _WORD_LENGTH:
        return ""
    return unicodedata.normalize("NFC", value)


def _start(value: str) -> str:
    """What is looked at of a long text, without our secrets; none of them is cut, and so half of it shown."""
    return without_secrets(value[: _READ_LENGTH + longest()])[:_READ_LENGTH]


def _detail(envelope: Mapping[str, Any]) -> str:
    """The service's own words on one short line, which goes to a log: nothing in it hides or turns what follows."""
    words = [_start(value) for key in ("error", "message") if isinstance(value := envelope.get(key), str)]
    letters = (letter if letter.isprintable() else " " for letter in ": ".join(filter(None, words)))
    return " ".join("".join(letters).split())[:_DETAIL_LENGTH]
