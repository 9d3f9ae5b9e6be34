"""What an answer means: the service's words first, then the HTTP status."""

import unicodedata
from typing import Any

import pytest
from tests.marketplace.samples import KEY, failure, success, text

from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized, UnknownOutcome

from orderbridge.marketplace.answers import (  # isort: skip
    read_cancel_reasons, read_envelope, read_grant, read_restaurant_status, read_restaurants, read_variables,
)  # fmt: skip
from orderbridge.model import Grant, Restaurant, Variables
from orderbridge.texts import sentence

REFUSALS = {
    "URL hatalı": "bad_url_id", "sipariş bulunamadı": "order_not_found", "ürün bulunamadı": "food_not_found",
    "restoran bulunamadı": "restaurant_not_found", "eksik alan": "missing_field",
}  # fmt: skip


def error_of(status: int, body: bytes) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        read_envelope(status, body)
    return caught.value


@pytest.mark.interface("Conventions")
@pytest.mark.parametrize("data", ["OK", None, [], False], ids=["ok", "null", "list", "false"])
@pytest.mark.parametrize("status", [200, 299])
def test_success_under_any_2xx_gives_its_data(status: int, data: Any) -> None:
    assert read_envelope(status, success(data)) == data


@pytest.mark.interface("Endpoints 3", "Endpoints 4", "Endpoints 5", "Errors")
@pytest.mark.parametrize("status", [200, 302, 401, 403, 429, 500, 502])
def test_a_known_text_decides_under_any_status(status: int) -> None:
    known = [(error, "neden", Refused, code) for error, code in REFUSALS.items()]
    known.append(("yetkisiz erişim", "Token expired or invalid", Unauthorized, "unauthorized"))
    known.append(("yetkisiz erişim", "Invalid credentials", Unauthorized, "invalid_credentials"))
    known.append(("çok fazla istek", "30 saniye bekleyin", RateLimited, "rate_limited"))
    for error, message, kind, code in known:
        caught = error_of(status, failure(error, message))
        assert (type(caught), caught.code, caught.http_status) == (kind, code, status)


@pytest.mark.parametrize("body, code", [
    (failure(unicodedata.normalize("NFD", "sipariş bulunamadı")), "order_not_found"),
    (failure("Sipariş bulunamadı"), "refused"), (failure("siparis bulunamadi"), "refused"),
    (failure(" sipariş bulunamadı"), "refused"), (text({"error": "sipariş bulunamadı"}).encode(), "order_not_found"),
])  # fmt: skip
def test_an_error_text_must_match_exactly(body: bytes, code: str) -> None:
    assert error_of(404, body).code == code


BODIES = [
    b"", b"<html>404</html>", b"[1]", b'"OK"', b'{"data": "OK"}', b'{"status": 1, "data": "OK"}',
    b'{"status": "true", "data": "OK"}', b'{"status": null}', b'{"status": true, "data": "O',
    b'{"status": true, "data": "OK"} {}', b"\xff\xfe\xfa", b'{"status": true, "data": ' + b"[" * 200_000,
]  # fmt: skip


@pytest.mark.interface("Conventions")
@pytest.mark.parametrize("status", [200, 302, 404])
def test_a_body_without_the_envelope_is_an_unknown_outcome(status: int) -> None:
    for body in [*BODIES, *([success("OK")] if status > 299 else []), *([failure("a")] if status == 302 else [])]:
        caught = error_of(status, body)
        assert (type(caught), caught.code, caught.http_status) == (UnknownOutcome, "no_envelope", status)


@pytest.mark.parametrize("body", [b"", success("OK"), failure("başka")], ids=["empty", "true", "other"])
@pytest.mark.parametrize("status, kind, code", [
    (401, Unauthorized, "unauthorized"), (429, RateLimited, "rate_limited"),
    *((status, ServiceFailed, "service_error") for status in (500, 503, 599)),
    *((status, UnknownOutcome, "bad_gateway") for status in (502, 504)),
])  # fmt: skip
def test_these_statuses_need_no_envelope(status: int, kind: type[MarketplaceError], code: str, body: bytes) -> None:
    caught = error_of(status, body)
    assert (type(caught), caught.code, caught.http_status) == (kind, code, status)


@pytest.mark.parametrize("error, detail", [("olmaz", "olmaz: daha sonra"), (None, "daha sonra"), (5, "daha sonra")])
@pytest.mark.parametrize("status", [200, 400, 404, 409])
def test_any_other_false_is_a_refusal(status: int, error: Any, detail: str) -> None:
    caught = error_of(status, text({"status": False, "error": error, "message": "daha sonra"}).encode())
    assert (type(caught), caught.code, caught.detail) == (Refused, "refused", detail)


@pytest.mark.interface("Errors")
def test_the_detail_is_one_short_line_without_control_characters() -> None:
    body = text({"status": False, "error": "a\nb\r\n\u2028c\x00\ud800" + "x" * 900})
    detail = error_of(404, body.encode("utf-8", "surrogatepass")).detail
    assert (detail[:5], len(detail), detail.isprintable()) == ("a b c", 200, True)
    assert error_of(404, failure("a\u202eb\u200b\u200bc\ufeff", "\u2066d")).detail == "a b c : d"


@pytest.mark.parametrize("body, data", [
    (b"\xef\xbb\xbf" + success("OK"), "OK"),
    (b'{"status": true, "data": "a\xffb"}', "a\ufffdb"),
    (b'{"status": true, "data": %b}' % (b"9" * 5000), "9" * 5000),
    (b'{"status": true, "data": 1e99999999999999999999}', "1e99999999999999999999"),
    (b'{"status": true, "data": -Infinity}', "-Infinity"),
    (text({"status": True, "data": "OK", "error": "sipariş bulunamadı"}).encode(), "OK"),
])  # fmt: skip
def test_lenient_json_is_read(body: bytes, data: str) -> None:
    assert read_envelope(200, body) == data


READERS = [read_grant, read_restaurants, read_restaurant_status, read_cancel_reasons, read_variables]


def malformed(read: Any, data: Any) -> None:
    with pytest.raises(UnknownOutcome) as caught:
        read(data)
    assert caught.value.code == "malformed_data" and "a\nb" not in sentence(caught.value)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("data", [None, 5, True, "OK", [5], {"a": 1}], ids=repr)
def test_an_unexpected_shape_is_an_unknown_outcome(read: Any, data: Any) -> None:
    if read is read_variables and isinstance(data, dict):
        assert read(data) == Variables({}, {})
    else:
        malformed(read, data)


@pytest.mark.interface("Endpoints 2")
def test_restaurants() -> None:
    data = [{"id": "a", "name": "A"}, {"id": "", "name": "x"}, 5, {"name": "x"}, {"id": "b"}, {"id": 7, "name": 8}]
    assert read_restaurants(data) == (Restaurant("a", "A"), Restaurant("b", ""), Restaurant("7", "8"))
    assert read_restaurants([]) == ()
    data = [{"id": KEY.upper(), "name": "A"}, {"id": f"{KEY} ", "name": "B"}, {"id": "Şube-A", "name": "C"}]
    in_lower_case = (Restaurant(KEY, "A", KEY.upper()), Restaurant(KEY, "B"), Restaurant("Şube-A", "C"))
    assert read_restaurants(data) == in_lower_case, "a UUID is, another id is not"


@pytest.mark.interface("Cancel reason")
def test_cancel_reasons() -> None:
    data = [{"id": 1, "reason": "Ürün tükendi"}, {"id": "2", "reason": "x"}, {"id": None}, {"id": "x"}, None]
    assert read_cancel_reasons(data) == {1: "Ürün tükendi", 2: "x"}
    by_number = {"0": {"id": 1, "reason": "Ürün tükendi"}, "7": {"id": 8, "reason": "Diğer"}}
    assert list(read_cancel_reasons(by_number)) == [1, 8]
    assert read_cancel_reasons([{"id": 1, "reason": "Kapandı"}, {"id": 1, "reason": "Kapalı"}]) == {1: "Kapalı"}


@pytest.mark.interface("Payment and shipping methods")
def test_variables() -> None:
    data = {"paymentMethod": [{"key": "CASH", "name": "Nakit"}, {"name": "x"}]}
    data["shippingMethod"] = [{"key": "pickup", "name": "Gel Al"}]
    assert read_variables(data) == Variables({"CASH": "Nakit"}, {"pickup": "Gel Al"})


@pytest.mark.interface("Endpoints 13")
@pytest.mark.parametrize("wrong", [None, {}, "x", [5]], ids=repr)
@pytest.mark.parametrize("name", ["paymentMethod", "shippingMethod"])
def test_variables_with_another_list_are_no_answer(name: str, wrong: Any) -> None:
    malformed(read_variables, {"paymentMethod": [], "shippingMethod": []} | {name: wrong})


@pytest.mark.interface("Restaurant")
@pytest.mark.parametrize("status", ["Open", "Closed", "open", "CLOSED", " Open"])
def test_the_status_of_a_restaurant(status: str) -> None:
    assert read_restaurant_status(status) == status.strip().capitalize()


@pytest.mark.interface("Endpoints 1")
def test_a_grant_keeps_the_date_as_it_came() -> None:
    for date, expected in (("2026-11-22 10:00:00", "2026-11-22 10:00:00"), ("x", "x"), (None, None), ([], None)):
        assert read_grant({"access_token": "abc", "expiration_date": date}) == Grant("abc", expected)
    grant = read_grant({"access_token": "abc"})
    assert grant.expiration_date is None and "abc" not in repr(grant)


@pytest.mark.parametrize(
    "read, data",
    [(read_grant, {"access_token": token}) for token in (None, "", " ", "a\nb", "a\x00", "şifre", " a", "a ", [], True)]
    + [(read_restaurant_status, status) for status in ("Açık", "1", "")],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_an_unusable_token_and_an_unknown_status_are_refused(read: Any, data: Any) -> None:
    malformed(read, data)
