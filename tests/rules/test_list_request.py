"""What is requested after a list could not be read, and which list proves that an order is absent."""

from typing import Any

import pytest
from tests.rules.builders import document

from orderbridge.errors import MarketplaceError, NotSent, RateLimited, ServiceFailed, Unauthorized, UnknownOutcome
from orderbridge.rules.deliveries import is_whole
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.poll_ends import ListRequest


def too_slow(*, began: bool) -> UnknownOutcome:
    error = UnknownOutcome("timeout")
    error.began = began
    return error


ROUND = ListRequest((1, 2, 16), 1)


@pytest.mark.parametrize(
    "error, after",
    [
        (UnknownOutcome("body_too_large"), ROUND), (too_slow(began=True), ROUND), (too_slow(began=False), ListRequest()),
        (UnknownOutcome("malformed_list"), ListRequest()), (UnknownOutcome("connection_lost"), ListRequest()),
        (ServiceFailed("service_error"), ListRequest()), (NotSent("unreachable"), ListRequest()),
    ],
)  # fmt: skip
def test_only_a_list_that_comes_in_part_is_asked_for_by_status(error: MarketplaceError, after: ListRequest) -> None:
    assert ListRequest().failed(error, Statuses()) == after


@pytest.mark.parametrize(
    "error, passes",
    [
        (UnknownOutcome("body_too_large"), True), (too_slow(began=False), True), (ServiceFailed("service_error"), True),
        (NotSent("unreachable"), False), (RateLimited("rate_limited"), False), (Unauthorized("unauthorized"), False),
    ],
)  # fmt: skip
def test_a_status_that_does_not_come_in_keeps_no_other_waiting(error: MarketplaceError, passes: bool) -> None:
    assert ROUND.failed(error, Statuses()).status_id == (2 if passes else 1)


def test_after_the_last_status_the_whole_list_is_tried_and_ends_the_rounds_when_it_comes() -> None:
    last = ROUND.answered().answered().answered()
    assert (last.status_id, last.rounds, last.answered()) == (None, 1, ListRequest())


def test_the_configured_status_is_asked_for_and_from_the_second_round_on_the_cancelled_ones() -> None:
    first = ListRequest().failed(UnknownOutcome("body_too_large"), Statuses(7))
    assert first.left == (1, 2, 16, 7)
    assert ListRequest((), first.rounds).failed(UnknownOutcome("body_too_large"), Statuses()).left == (1, 2, 16, 6)


@pytest.mark.parametrize(
    "keys, how, whole",
    [
        (["a", "b"], {}, True),
        (["a", None], {}, False),
        (["a"], {"asked": 1}, False),
        (["a", "b"], {"list_limit": 2}, False),
    ],
)
def test_only_a_whole_list_of_orders_with_keys_proves_that_an_order_is_absent(
    keys: list[str | None], how: dict[str, Any], whole: bool
) -> None:
    assert is_whole([document(1, key=key) for key in keys], **how) is whole
