"""What an answer means: the service's words first, then the HTTP status."""

import unicodedata
from typing import Any

import pytest
from tests.marketplace.samples import failure, success, text

from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized, UnknownOutcome
from orderbridge.marketplace.answers import read_envelope

REFUSALS = [
    ("URL hatalı", "bad_url_id"),
    ("sipariş bulunamadı", "order_not_found"),
    ("ürün bulunamadı", "food_not_found"),
    ("restoran bulunamadı", "restaurant_not_found"),
    ("eksik alan", "missing_field"),
]


def error_of(status: int, body: bytes) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        read_envelope(status, body)
    return caught.value


@pytest.mark.interface("Conventions")
@pytest.mark.parametrize("data", ["OK", None, [], False], ids=["ok", "null", "list", "false"])
@pytest.mark.parametrize("status", [200, 299])
def test_success_under_any_2xx_gives_its_data(status: int, data: Any) -> None:
    assert read_envelope(status, success(data)) == data


@pytest.mark.interface("Endpoints 3", "Endpoints 4", "Endpoints 5")
@pytest.mark.parametrize("status", [200, 302, 403, 404, 422, 429, 500, 502])
@pytest.mark.parametrize("error, code", REFUSALS, ids=[code for _, code in REFUSALS])
def test_a_known_text_decides_under_any_status(status: int, error: str, code: str) -> None:
    caught = error_of(status, failure(error, "neden"))
    assert (type(caught), caught.code, caught.http_status) == (Refused, code, status)


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("status", [200, 401, 403, 429, 500, 502])
@pytest.mark.parametrize(
    "error, message, kind, code",
    [
        ("yetkisiz erişim", "Token expired or invalid", Unauthorized, "unauthorized"),
        ("yetkisiz erişim", "Invalid credentials", Unauthorized, "invalid_credentials"),
        ("çok fazla istek", "30 saniye bekleyin", RateLimited, "rate_limited"),
    ],
)
def test_the_text_of_a_401_and_a_429_decides_under_any_status(
    error: str, message: str, kind: type[MarketplaceError], code: str, status: int
) -> None:
    caught = error_of(status, failure(error, message))
    assert (type(caught), caught.code, caught.http_status) == (kind, code, status)


@pytest.mark.parametrize(
    "body, code",
    [
        (failure(unicodedata.normalize("NFD", "sipariş bulunamadı")), "order_not_found"),
        (failure("Sipariş bulunamadı"), "refused"),
        (failure("siparis bulunamadi"), "refused"),
        (failure(" sipariş bulunamadı"), "refused"),
        (text({"error": "sipariş bulunamadı"}).encode(), "order_not_found"),
    ],
    ids=["decomposed", "capital", "no Turkish letters", "blank", "without status"],
)
def test_a_text_counts_exactly_as_it_is_written(body: bytes, code: str) -> None:
    assert error_of(404, body).code == code


def test_a_success_with_an_error_text_is_a_success() -> None:
    body = text({"status": True, "data": "OK", "error": "sipariş bulunamadı"}).encode()
    assert read_envelope(200, body) == "OK"


BODIES = {
    "empty": b"",
    "page": b"<html>404</html>",
    "list": b"[1]",
    "text": b'"OK"',
    "no status": b'{"data": "OK"}',
    "status 1": b'{"status": 1, "data": "OK"}',
    "status text": b'{"status": "true", "data": "OK"}',
    "status null": b'{"status": null}',
    "cut": b'{"status": true, "data": "O',
    "twice": b'{"status": true, "data": "OK"} {}',
    "not utf-8": b"\xff\xfe\xfa",
    "deep": b'{"status": true, "data": ' + b"[" * 200_000,
}


@pytest.mark.interface("Conventions")
@pytest.mark.parametrize("status", [200, 204, 302, 400, 403, 404])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_without_the_envelope_is_nobodys_word(status: int, body: bytes) -> None:
    caught = error_of(status, body)
    assert (type(caught), caught.code, caught.http_status) == (UnknownOutcome, "no_envelope", status)


@pytest.mark.parametrize("body", [b"", success("OK"), failure("başka")], ids=["empty", "true", "other"])
@pytest.mark.parametrize(
    "status, kind, code",
    [
        (401, Unauthorized, "unauthorized"),
        (429, RateLimited, "rate_limited"),
        (500, ServiceFailed, "service_error"),
        (503, ServiceFailed, "service_error"),
        (599, ServiceFailed, "service_error"),
        (502, UnknownOutcome, "bad_gateway"),
        (504, UnknownOutcome, "bad_gateway"),
    ],
)
def test_these_statuses_need_no_envelope(status: int, kind: type[MarketplaceError], code: str, body: bytes) -> None:
    caught = error_of(status, body)
    assert (type(caught), caught.code, caught.http_status) == (kind, code, status)


@pytest.mark.parametrize(
    "error, detail", [("durum uygun değil", "durum uygun değil: daha sonra"), (None, "daha sonra"), (5, "daha sonra")]
)
@pytest.mark.parametrize("status", [200, 400, 404, 409])
def test_any_other_false_is_a_refusal(status: int, error: Any, detail: str) -> None:
    caught = error_of(status, text({"status": False, "error": error, "message": "daha sonra"}).encode())
    assert (type(caught), caught.code, caught.detail) == (Refused, "refused", detail)


@pytest.mark.parametrize(
    "status, body", [(status, success("OK")) for status in (302, 400, 404)] + [(302, failure("a"))]
)
def test_success_under_another_status_and_false_under_a_redirect_are_none(status: int, body: bytes) -> None:
    assert error_of(status, body).code == "no_envelope"


@pytest.mark.interface("Errors")
def test_the_detail_is_one_short_line() -> None:
    body = text({"status": False, "error": "a\nb\r\n\u2028c\x00\ud800" + "x" * 900})
    detail = error_of(404, body.encode("utf-8", "surrogatepass")).detail
    assert (detail[:5], len(detail), detail.isprintable()) == ("a b c", 200, True)


def test_the_detail_holds_nothing_that_hides_or_turns_what_follows_it() -> None:
    body = failure("a\u202eb\u200b\u200bc\ufeff", "\u2066d")
    assert error_of(404, body).detail == "a b c : d"


@pytest.mark.parametrize(
    "body, data",
    [
        (b"\xef\xbb\xbf" + success("OK"), "OK"),
        (b'{"status": true, "data": "a\xffb"}', "a\ufffdb"),
        (b'{"status": true, "data": %b}' % (b"9" * 5000), "9" * 5000),
        (b'{"status": true, "data": 1e99999999999999999999}', "1e99999999999999999999"),
        (b'{"status": true, "data": -Infinity}', "-Infinity"),
    ],
    ids=["byte order mark", "no UTF-8", "long number", "large exponent", "infinity"],
)
def test_what_a_strict_reader_refuses_is_read(body: bytes, data: str) -> None:
    assert read_envelope(200, body) == data
