"""What the end of a poll means for its account."""

from dataclasses import replace

import pytest
from tests.rules.builders import document

from orderbridge.errors import (  # isort: skip
    CLOSED, HELD_BACK, LoginRefused, MarketplaceError, NotSent, RateLimited, ServiceFailed, Unauthorized,
    UnknownOutcome,
)  # fmt: skip
from orderbridge.rules.cooldown import Ended
from orderbridge.rules.deliveries import is_whole
from orderbridge.rules.health import LOGIN_FAILED
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.poll_ends import Failure, ListRequest, failure_of, listened, longest_listening
from orderbridge.texts import sentence

REFUSED = LoginRefused("login_refused", "no", http_status=401)
FAILED = Ended.FAILED


def same(state: str, text: str) -> Failure:
    """A failure whose stored and logged texts are equal, and which says nothing about the cooldown."""
    return Failure(state, text, text, None)


@pytest.mark.parametrize("error, failure", [
    (REFUSED, Failure("login_refused", "login_refused: no", "login_refused: HTTP 401", None)),
    (NotSent("connection_refused"), same("unreachable", "connection_refused")),
    (NotSent("unreachable", reason="dns_failed"), same("unreachable", "dns_failed")),
    (NotSent("unreachable", reason="tls_expired"), same("unreachable", "tls_expired")),
    (NotSent("unreachable", reason="proxy_invalid"), same("unreachable", "proxy_invalid")),
    (NotSent("unreachable", reason="other"), same("unreachable", "unreachable")),
    (NotSent("login_failed", "no_envelope, HTTP 404", reason="wrong_path"),
     same("unreachable", "wrong_path: no_envelope, HTTP 404")),
    (NotSent("login_failed", "no_envelope, HTTP 302", http_status=302, reason="front_redirects"),
     same("unreachable", "front_redirects: no_envelope, HTTP 302")),
    (NotSent("login_failed", "no_envelope, HTTP 403", http_status=403, reason="front_or_path"),
     same("unreachable", "front_or_path: no_envelope, HTTP 403")),
    (NotSent("login_failed", "rate_limited, HTTP 429", http_status=429, reason="rate_limited"),
     same("failing", "login_failed: rate_limited, HTTP 429")),
    (NotSent("login_failed", "broken_answer, HTTP 200", http_status=200, reason="broken_answer"),
     same("failing", "login_failed: broken_answer, HTTP 200")),
    (NotSent("login_failed", "bad_gateway, HTTP 504", http_status=504, reason="bad_gateway"),
     same("failing", "bad_gateway: bad_gateway, HTTP 504")),
    (NotSent("login_failed", "timeout", reason="timeout"), same("unreachable", "login_failed: timeout")),
    (NotSent("login_failed", "service_error, HTTP 500", http_status=500, reason="service_error"),
     same("failing", "service_error: service_error, HTTP 500")),
    (NotSent("unreachable", "Errno 24", reason="here_files"), same("unreachable", "here_files: Errno 24")),
    (UnknownOutcome("no_envelope", "HTTP 404", http_status=404, reason="wrong_path"),
     Failure("failing", "wrong_path: HTTP 404", "no_envelope: HTTP 404", FAILED)),
    (RateLimited("rate_limited", http_status=429),
     Failure("failing", "rate_limited", "rate_limited: HTTP 429", Ended.LIMITED)),
    (Unauthorized("unauthorized", http_status=401),
     Failure("failing", "unauthorized", "unauthorized: HTTP 401", FAILED)),
    (ServiceFailed("service_error", "Ayşe", http_status=500),
     Failure("failing", "service_error: Ayşe", "service_error: HTTP 500", FAILED)),
    (UnknownOutcome("timeout", "20 s"), Failure("failing", "timeout: 20 s", "timeout: 20 s", FAILED)),
], ids=lambda value: value.text if isinstance(value, Failure) else "")  # fmt: skip
def test_a_failed_poll(error: MarketplaceError, failure: Failure) -> None:
    made = failure_of(error)
    assert replace(made, text=sentence(made.text), logged=sentence(made.logged)) == failure


@pytest.mark.parametrize("reason", [CLOSED, HELD_BACK, LOGIN_FAILED])
def test_an_unsent_poll_says_nothing_about_the_account(reason: str) -> None:
    failure = failure_of(NotSent("unreachable", reason=reason))
    assert (failure.ended, failure.is_news) == (None, False)


@pytest.mark.parametrize("in_turn, longest", [(0, 70), (1, 70), (3, 210)])
def test_between_two_good_polls_lie_a_cooldown_and_two_timeouts_for_each_in_turn(in_turn: int, longest: int) -> None:
    assert longest_listening(in_turn, cooldown_s=30.0, timeout_s=20.0) == longest


@pytest.mark.parametrize("until, answered, after", [
    (None, 100.5, (100.5, 0)), (100.5, 131.0, (130.5, 30)),  # parts of a second are kept
    (100.5, 170.5, (170.5, 70)), (100.5, 171.6, (171.6, 70)),  # as long as it may be, and longer
])  # fmt: skip
def test_what_was_listened(until: float | None, answered: float, after: tuple[float, int]) -> None:
    assert listened(until, answered, 70) == after


def too_slow(*, began: bool) -> UnknownOutcome:
    error = UnknownOutcome("timeout")
    error.began = began
    return error


ROUND, WHOLE = ListRequest((1, 2, 16), 1), ListRequest()


@pytest.mark.parametrize("error, after", [
    (UnknownOutcome("body_too_large"), ROUND), (too_slow(began=True), ROUND), (too_slow(began=False), WHOLE),
    (UnknownOutcome("malformed_list"), WHOLE), (UnknownOutcome("connection_lost"), WHOLE),
    (ServiceFailed("service_error"), WHOLE), (NotSent("unreachable"), WHOLE),
])  # fmt: skip
def test_only_a_partial_list_is_requested_by_status(error: MarketplaceError, after: ListRequest) -> None:
    assert ListRequest().failed(error, Statuses()) == after


@pytest.mark.parametrize("error, passes", [
    (UnknownOutcome("body_too_large"), True), (too_slow(began=False), True), (ServiceFailed("service_error"), True),
    (NotSent("unreachable"), False), (RateLimited("rate_limited"), False), (Unauthorized("unauthorized"), False),
])  # fmt: skip
def test_a_failing_status_list_delays_no_other(error: MarketplaceError, passes: bool) -> None:
    assert ROUND.failed(error, Statuses()).status_id == (2 if passes else 1)


def test_after_the_last_status_the_whole_list_is_tried_and_ends_the_rounds_when_it_comes() -> None:
    last = ROUND.answered().answered().answered()
    assert (last.status_id, last.rounds, last.answered()) == (None, 1, ListRequest())


@pytest.mark.parametrize("keys, how, whole", [
    ("ab", {}, True), (["a", None], {}, False), ("a", {"asked": 1}, False), ("ab", {"list_limit": 2}, False),
])  # fmt: skip
def test_only_a_whole_list_of_orders_with_keys_proves_that_an_order_is_absent(keys, how, whole) -> None:
    assert is_whole([document(1, key=key) for key in keys], **how) is whole
