"""What an answer means: the service's words first, then the HTTP status."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.marketplace.samples import failure, success, text

from orderbridge.errors import (
    MarketplaceError,
    RateLimited,
    Refused,
    ServiceFailed,
    Unauthorized,
    UnknownOutcome,
)
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
@pytest.mark.parametrize(
    "data", ["OK", None, [], {"a": 1}, 0, False], ids=["ok", "null", "list", "object", "zero", "false"]
)
def test_success_gives_its_data(data: Any) -> None:
    assert read_envelope(200, success(data)) == data


@pytest.mark.parametrize("status", [200, 201, 299])
def test_any_2xx_can_be_a_success(status: int) -> None:
    assert read_envelope(status, success("OK")) == "OK"


@pytest.mark.interface("Endpoints 3", "Endpoints 4", "Endpoints 5")
@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 422, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("error, code", REFUSALS, ids=[code for _, code in REFUSALS])
def test_a_known_text_decides_under_any_status(status: int, error: str, code: str) -> None:
    caught = error_of(status, failure(error, "neden"))
    assert isinstance(caught, Refused)
    assert (caught.code, caught.http_status) == (code, status)


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("status", [200, 403, 500, 502])
def test_the_text_of_a_bad_token_is_a_401_under_any_status(status: int) -> None:
    caught = error_of(status, failure("yetkisiz erişim", "Token expired or invalid"))
    assert isinstance(caught, Unauthorized)
    assert (caught.code, caught.http_status) == ("unauthorized", status)


@pytest.mark.interface("Errors")
def test_wrong_credentials_have_a_code_of_their_own() -> None:
    assert error_of(401, failure("yetkisiz erişim", "Invalid credentials")).code == "invalid_credentials"


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("status", [200, 429, 500])
def test_the_text_of_too_many_requests_is_a_429_under_any_status(status: int) -> None:
    assert isinstance(error_of(status, failure("çok fazla istek", "30 saniye bekleyin")), RateLimited)


def test_a_decomposed_text_is_the_same_text() -> None:
    body = failure(unicodedata.normalize("NFD", "sipariş bulunamadı"))
    assert error_of(404, body).code == "order_not_found"


@pytest.mark.parametrize(
    "error", ["Sipariş bulunamadı", "siparis bulunamadi", " sipariş bulunamadı", "SİPARİŞ BULUNAMADI"]
)
def test_a_text_that_is_only_similar_is_another_refusal(error: str) -> None:
    assert error_of(404, failure(error)).code == "refused"


def test_a_known_text_without_status_is_the_services_word_still() -> None:
    assert error_of(404, text({"error": "sipariş bulunamadı"}).encode()).code == "order_not_found"


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
    assert isinstance(caught, UnknownOutcome)
    assert (caught.code, caught.http_status) == ("no_envelope", status)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", success("OK"), failure("başka")], ids=["empty", "page", "true", "other"]
)
@pytest.mark.parametrize(
    "status, kind, code",
    [
        (401, Unauthorized, "unauthorized"),
        (429, RateLimited, "rate_limited"),
        (500, ServiceFailed, "service_error"),
        (501, ServiceFailed, "service_error"),
        (503, ServiceFailed, "service_error"),
        (599, ServiceFailed, "service_error"),
        (502, UnknownOutcome, "bad_gateway"),
        (504, UnknownOutcome, "bad_gateway"),
    ],
)
def test_these_statuses_need_no_envelope(status: int, kind: type[MarketplaceError], code: str, body: bytes) -> None:
    caught = error_of(status, body)
    assert type(caught) is kind
    assert (caught.code, caught.http_status) == (code, status)


@pytest.mark.parametrize("status", [302, 400, 404, 422])
def test_success_under_another_status_is_no_success(status: int) -> None:
    assert error_of(status, success("OK")).code == "no_envelope"


@pytest.mark.parametrize("status", [200, 400, 403, 404, 409, 422])
def test_any_other_false_is_a_refusal(status: int) -> None:
    caught = error_of(status, failure("durum uygun değil", "daha sonra"))
    assert isinstance(caught, Refused)
    assert (caught.code, caught.detail) == ("refused", "durum uygun değil: daha sonra")


def test_false_under_a_redirect_is_no_refusal() -> None:
    assert error_of(302, failure("durum uygun değil")).code == "no_envelope"


@pytest.mark.parametrize("error", [None, 5, ["x"], {"a": 1}, True], ids=["null", "number", "list", "object", "true"])
def test_a_refusal_without_text_is_a_refusal(error: Any) -> None:
    caught = error_of(404, text({"status": False, "error": error}).encode())
    assert (caught.code, caught.detail) == ("refused", "")


@pytest.mark.interface("Errors")
def test_the_detail_is_one_short_line() -> None:
    caught = error_of(
        404, text({"status": False, "error": "a\nb\r\n\u2028c\x00\ud800" + "x" * 900}).encode("utf-8", "surrogatepass")
    )
    assert caught.detail.startswith("a b c")
    assert len(caught.detail) == 200
    assert caught.detail.isprintable()


def test_the_detail_holds_nothing_that_hides_or_turns_what_follows_it() -> None:
    body = failure("a\u202eb\u200b\u200bc\ufeff", "\u2066d")
    assert error_of(404, body).detail == "a b c : d"


def test_a_byte_order_mark_is_dropped() -> None:
    assert read_envelope(200, b"\xef\xbb\xbf" + success("OK")) == "OK"


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert read_envelope(200, b'{"status": true, "data": "a\xffb"}') == "a\ufffdb"


@pytest.mark.parametrize(
    "number",
    ["9" * 5000, "1e99999999999999999999", "NaN", "-Infinity", "1." + "3" * 9000],
    ids=["long", "exponent", "nan", "inf", "decimals"],
)
def test_no_number_is_too_much(number: str) -> None:
    read_envelope(200, b'{"status": true, "data": ' + number.encode() + b"}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([error for error, _ in REFUSALS]),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["status", "error", "message", "data"]) | st.text(), inner)
    ),
)


@given(
    status=st.integers(100, 599),
    body=st.binary() | JSON.map(lambda value: text(value).encode("utf-8", "surrogatepass")),
)
def test_only_marketplace_errors_come_out_of_any_body(status: int, body: bytes) -> None:
    """And each knows its HTTP status."""
    try:
        read_envelope(status, body)
    except MarketplaceError as error:
        assert error.http_status == status
    else:
        assert 200 <= status < 300
