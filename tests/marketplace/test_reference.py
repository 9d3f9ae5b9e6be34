"""The reference lists: bad entries are left out; another container is not an answer."""

from typing import Any

import pytest
from tests.marketplace.samples import KEY

from orderbridge.errors import UnknownOutcome
from orderbridge.marketplace.answers import (
    read_cancel_reasons,
    read_grant,
    read_restaurant_status,
    read_restaurants,
    read_variables,
)
from orderbridge.model import CancelReason, Grant, Method, Restaurant, Variables
from orderbridge.texts import sentence

READERS = [read_grant, read_restaurants, read_restaurant_status, read_cancel_reasons, read_variables]


def malformed(read: Any, data: Any) -> None:
    with pytest.raises(UnknownOutcome) as caught:
        read(data)
    assert caught.value.code == "malformed_data"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("data", [None, 5, True, "OK", [5], {"a": 1}], ids=repr)
def test_another_shape_is_no_answer(read: Any, data: Any) -> None:
    if read is read_variables and isinstance(data, dict):
        assert read(data) == Variables((), ())
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
    assert read_cancel_reasons(data) == (CancelReason(1, "Ürün tükendi"), CancelReason(2, "x"))
    by_number = {"0": {"id": 1, "reason": "Ürün tükendi"}, "7": {"id": 8, "reason": "Diğer"}}
    assert [one.id for one in read_cancel_reasons(by_number)] == [1, 8]


@pytest.mark.interface("Payment and shipping methods")
def test_variables() -> None:
    data = {
        "paymentMethod": [{"key": "CASH", "name": "Nakit"}, {"name": "x"}],
        "shippingMethod": [{"key": "pickup", "name": "Gel Al"}],
    }
    assert read_variables(data) == Variables((Method("CASH", "Nakit"),), (Method("pickup", "Gel Al"),))


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
@pytest.mark.parametrize(
    "date, expected", [("2026-11-22 10:00:00", "2026-11-22 10:00:00"), ("x", "x"), (None, None), ([], None)], ids=repr
)
def test_a_grant_keeps_the_date_as_it_came(date: Any, expected: str | None) -> None:
    assert read_grant({"access_token": "abc", "expiration_date": date}) == Grant("abc", expected)
    assert read_grant({"access_token": "abc"}).expiration_date is None


@pytest.mark.parametrize(
    "read, data",
    [(read_grant, {"access_token": token}) for token in (None, "", " ", "a\nb", "a\x00", "şifre", " a", "a ", [], True)]
    + [(read_restaurant_status, status) for status in ("Açık", "1", "")],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_a_token_that_no_header_can_carry_and_another_word_for_a_status_are_none(read: Any, data: Any) -> None:
    malformed(read, data)


def test_a_grant_and_its_errors_do_not_show_the_token() -> None:
    assert "abc" not in repr(read_grant({"access_token": "abc"}))
    with pytest.raises(UnknownOutcome) as caught:
        read_grant({"access_token": "geheim\n"})
    assert "geheim" not in sentence(caught.value)
