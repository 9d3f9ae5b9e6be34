"""What the board shows of an order, when it sounds, and what can be tapped."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from orderbridge.actions import ORDER_ACTIONS
from orderbridge.model import Action, ActionState, LastChange
from orderbridge.rules.lifecycle import NEEDS_PAYMENT, STATUS_NAMES, UNKNOWN_STATUS, may_send
from orderbridge.rules.problems import Cause, Code, Link, Problem, Severity
from orderbridge_board import cards
from orderbridge_board.cards import BESIDE, TILL, Seen, Sound
from orderbridge_board.devices import ACT, Device
from orderbridge_board.door import words
from orderbridge_board.watch import HEARD_S, SURE_S, AudibleTablets

KEY = "5f0c1c9e-0b7a-4c53-9d3b-1f8f4a6c2e10"
NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass
class Row:
    action: str
    state: str = ActionState.PENDING
    id: int = 1
    preparing_time: int | None = None
    finished_utc: datetime | None = None
    request_id: str = "x"
    attempts: int = 0
    next_attempt_utc: datetime | None = None


ACCEPT, CANCEL = Action.ACCEPT, Action.CANCEL
ANSWERS = [Row(action, state) for action in (ACCEPT, CANCEL) for state in ("pending", "sending", "done")]
NO_ANSWERS = [Row(action, state) for action in (ACCEPT, CANCEL) for state in set(ActionState) - cards.ANSWERED]


def order(status_id: int | None = 1, status: str = "RECEIVED", **changes: Any) -> Seen:
    values = {
        "courier_type": "restaurant",
        "revision": 1,
        "pos_revision": 0,
        "ended_by": None,
        "amount_due": Decimal(0),
    }
    return Seen(KEY, status_id, status, **values | {"service_status_id": status_id} | changes)


CONFIRMED = {"status_id": 2, "status": "CONFIRMED"}


@pytest.mark.parametrize("mode", [BESIDE, TILL])
def test_a_new_order_rings_until_it_is_answered_and_again_when_the_answer_failed(mode):
    taken = int(mode == TILL)  # there the tap takes over
    assert cards.rings(order(), [], mode)
    assert not any(cards.rings(order(pos_revision=taken), [row], mode) for row in ANSWERS)
    assert all(cards.rings(order(pos_revision=taken), [row], mode) for row in NO_ANSWERS)
    assert not cards.rings(order(), [NO_ANSWERS[0], ANSWERS[0]], mode)
    assert not cards.rings(order(ended_by="cancelled"), [], mode)
    assert not cards.rings(order(pos_revision=1), [], BESIDE)  # a till took over


def test_an_order_without_a_choice_rings_until_seen_on_a_board_used_as_till():
    for status in ((2, "CONFIRMED"), (16, "IN_DELIVERY"), (None, "UNKNOWN"), (9, "COMPLETE_NEEDS_PAYMENT")):
        assert not cards.rings(order(*status), [], BESIDE)
        assert cards.rings(order(*status), [], TILL)
        assert not cards.rings(order(*status, pos_revision=1), [], TILL)


@pytest.mark.parametrize("seen, wanted", [
    (order(), [ACCEPT, CANCEL]), (order(**CONFIRMED), [Action.ON_THE_WAY, CANCEL]),
    (order(**CONFIRMED, courier_type="come_get"), [CANCEL]),
    (order(**CONFIRMED, courier_type=" Platform_Courier"), [CANCEL]),
    (order(16, "IN_DELIVERY", courier_type="platform_courier"), [CANCEL]),
    (order(**CONFIRMED, courier_type=None), [Action.ON_THE_WAY, CANCEL]),
    (order(**CONFIRMED, courier_type=""), [Action.ON_THE_WAY, CANCEL]),
    (order(16, "IN_DELIVERY"), [Action.COMPLETE, CANCEL]),
    (order(9, "COMPLETE_NEEDS_PAYMENT"), [Action.COMPLETE, CANCEL]), (order(None, "UNKNOWN"), [CANCEL]),
    (order(77, "UNKNOWN"), [CANCEL]), (order(ended_by="cancelled"), []), (order(**CONFIRMED, ended_by="silence"), []),
    (order(service_status_id=2), [CANCEL]), (order(service_status_id=6), []),
])  # fmt: skip
def test_the_buttons(seen, wanted):
    assert cards.offered(seen, []) == wanted


@pytest.mark.parametrize("courier", ["restaurant", "come_get", "platform_courier", "", None])
def test_no_button_asks_for_what_is_refused_unsent_or_done_already(courier):
    statuses = [*STATUS_NAMES, 77, None]
    rows = [[], *([Row(action, state)] for action in ORDER_ACTIONS for state in ActionState)]
    for shown, service, word, asked in product(statuses, statuses, [UNKNOWN_STATUS, NEEDS_PAYMENT], rows):
        seen = order(shown, word, service_status_id=service, courier_type=courier)
        found = cards.offered(seen, asked)
        assert all(may_send(action, seen) is None for action in found)
        assert Action.COMPLETE not in found or word == NEEDS_PAYMENT or not cards.is_handed_next(seen)


def test_while_an_action_is_open_only_a_cancel_is_offered():
    some = Row(ACCEPT), Row(ACCEPT, "sending"), Row("dance")
    assert [cards.offered(order(), [one]) for one in some] == [[CANCEL]] * 3
    assert cards.offered(order(), [Row(CANCEL)]) == cards.offered(order(), [Row(Action.COMPLETE, "sending")]) == []
    for over in (Row(ACCEPT, "failed"), Row(CANCEL, "refused")):
        assert cards.offered(order(), [over]) == [ACCEPT, CANCEL]


# These break no link of the chain: orders still arrive, the card shows the problem, or the page is seen to work.
UNBROKEN = {
    Code.UNANSWERED, Code.AUTO_ACCEPT_PAUSED, Code.ACCEPT_FAILED, Code.OUTCOME_UNKNOWN, Code.UNDECIDED,
    Code.NOT_ACKNOWLEDGED, Code.LEARNED_OTHERWISE, Code.COOLDOWN_SHARED, Code.CREDENTIALS_SHARED, Code.CLOCK_WRONG,
    Code.TIMEZONE_WRONG, Code.RESTAURANT_CLOSED, Code.WAL_LARGE, Code.LAST_WORD_NOT_WRITTEN, Code.NO_RESTAURANT,
    Code.DATABASE_SLOW, Code.JOURNAL_NOT_WRITTEN, Code.ALARM_FAILING, Code.WRITES_FENCED, Code.LOG_NOT_READ,
    Code.HEALTHCHECK_TAKEN, Code.BOARD_UNHEARD, Code.PAGE_NOT_SERVED, Code.CERTIFICATE_REFUSED, Code.CERTIFICATE_ENDS,
}  # fmt: skip


def link(code: Code) -> str | None:
    return cards.link_of(Problem(code, "", NOW, Severity.SEVERE))


LINKS = {Cause.CUT_OFF: {"internet", "login", "daemon"}, Cause.NO_LIST: {"marketplace", "daemon"}}
LINKS |= {Cause.NO_DATABASE: {"database"}, Cause.PAGE: {None}}


def test_each_problem_breaks_the_link_of_its_cause_or_none_for_a_reason():
    assert {code for code in Code if link(code) is None} == UNBROKEN
    assert {f"link_{one}" for one in Link} <= words().keys()
    assert {cause: {link(code) for code in Code if code.kind.cause is cause} for cause in LINKS} == LINKS


@pytest.mark.parametrize("changes, rows, mode, wanted", [
    ({}, [], BESIDE, "needed"), ({}, [Row(ACCEPT)], BESIDE, "sending"),
    ({}, [Row(CANCEL, "sending")], BESIDE, "sending"), ({}, [Row(ACCEPT, "done")], BESIDE, None),
    *(({"pos_revision": 1}, [Row(ACCEPT, state)], BESIDE, "failed") for state in ("refused", "failed", "expired")),
    ({}, [Row(ACCEPT, "failed"), Row(CANCEL, "refused")], BESIDE, "failed"),
    ({}, [Row(ACCEPT, "failed"), Row(ACCEPT)], BESIDE, "sending"), ({}, [Row(CANCEL, "failed")], BESIDE, "needed"),
    ({}, [Row(ACCEPT, "withdrawn")], BESIDE, "needed"), ({"pos_revision": 1}, [], BESIDE, "at_till"),
    ({"pos_revision": 1}, [], TILL, "needed"),
    ({"status_id": 2, "status": "CONFIRMED"}, [Row(ACCEPT, "failed")], BESIDE, None),
    ({"ended_by": "cancelled"}, [], BESIDE, None),
], ids=str)  # fmt: skip
def test_which_orders_wait_for_an_answer(changes, rows, mode, wanted):
    assert cards.answer(order(**changes), rows, mode) == wanted


def test_only_a_cancellation_by_others_stops_the_kitchen():
    gone = order(6, "CANCELED", ended_by="cancelled", revision=2)
    assert cards.is_stopped(gone, [], [])
    assert cards.sounds(gone, [], BESIDE, NOW, []) == [Sound.CANCELLED]
    assert all(cards.is_stopped(gone, [Row(ACCEPT, state)], []) for state in ActionState)
    stopped = {state for state in ActionState if cards.is_stopped(gone, [Row(CANCEL, state)], [])}
    assert stopped == set(ActionState) - {"pending", "sending", "done"}
    silences = ([cards.silence_of("cancelled", KEY)], ["cancelled:another"])
    assert [cards.is_stopped(gone, [], silenced) for silenced in silences] == [False, True]
    assert not any(cards.is_stopped(other, [], []) for other in (order(), order(ended_by="silence")))
    read = replace(gone, pos_revision=2)  # by a till: silent, and shown until it is touched
    assert (cards.is_stopped(read, [], []), cards.sounds(read, [], BESIDE, NOW, [])) == (True, [])


def accepted(state: str = "done", minutes: int = 20, at: datetime = NOW) -> Row:
    return Row(ACCEPT, state, preparing_time=minutes, finished_utc=at)


def test_an_accepted_order_is_due_by_its_newest_accept_and_sounds_until_it_is_seen():
    seen = order(**CONFIRMED)
    assert cards.due(seen, [accepted(), accepted("failed", 5)]) == NOW + 20 * MINUTE
    assert cards.due(seen, [accepted(), accepted(minutes=30)]) == NOW + 30 * MINUTE
    assert cards.due(seen, [Row(CANCEL, "refused")]) is None
    assert cards.due(order(16, "IN_DELIVERY"), [accepted()]) is None
    assert cards.due(order(**CONFIRMED, ended_by="silence"), [accepted()]) is None
    later = NOW + timedelta(hours=5)
    assert cards.due(order(**CONFIRMED, scheduled=later), [accepted()]) == later
    assert cards.due(order(**CONFIRMED, scheduled=NOW), [accepted()]) == NOW + 20 * MINUTE
    seen, late = order(**CONFIRMED, pos_revision=1), NOW + 20 * MINUTE
    moments = (late, []), (late + MINUTE, []), (late + MINUTE, [cards.silence_of("overdue", KEY)])
    assert [cards.sounds(seen, [accepted()], BESIDE, *one) for one in moments] == [[], [Sound.OVERDUE], []]


def test_a_scheduled_order_rings_from_its_start_until_it_is_touched():
    seen = order(**CONFIRMED, pos_revision=1, start_utc=NOW, scheduled=NOW + 30 * MINUTE)
    late = NOW + MINUTE
    assert cards.sounds(seen, [], BESIDE, NOW - MINUTE, []) == []
    assert cards.sounds(seen, [], BESIDE, late, []) == [Sound.START]
    assert cards.sounds(seen, [], TILL, late, [cards.silence_of("start", KEY)]) == []
    for over in ({"ended_by": "cancelled"}, {"status_id": 16, "status": "IN_DELIVERY"}):
        assert Sound.START not in cards.sounds(replace(seen, **over), [], BESIDE, late, [])


def test_changed_contents_are_shown_where_the_board_is_the_till():
    seen = order(**CONFIRMED | {"revision": 2, "pos_revision": 1, "last_change": LastChange.CONTENTS})
    assert (cards.is_changed(seen, TILL), cards.is_changed(seen, BESIDE)) == (True, False)
    others = ({"pos_revision": 0}, {"pos_revision": 2}, {"last_change": LastChange.STATUS}, {"ended_by": "cancelled"})
    assert not any(cards.is_changed(replace(seen, **other), TILL) for other in others)


def test_each_try_of_a_button_is_one_row():
    subjects = (KEY, KEY[:-1] + "1", "1005/kadikoy", "1005/" + "k" * 64, "1005/" + "k" * 63)
    made = {cards.request_id(*button) for button in product(Action, subjects, (0, 1, 10**9, -739000))}
    assert (len(made), max(map(len, made)) <= cards.LONGEST_REQUEST) == (len(Action) * 5 * 4, True)
    assert all(one.startswith("board:") for one in made)
    rows = [Row(ACCEPT, "failed"), Row(ACCEPT, "done"), Row(ACCEPT), Row(CANCEL, "failed")]
    assert (cards.tries(rows, ACCEPT), cards.tries(rows, CANCEL)) == (2, 1)


def test_money_the_newest_row_and_the_broken_link():
    shown = {None: "ask", Decimal("0.01"): "collect", Decimal(0): "paid"}
    assert {due: cards.money(order(amount_due=due)) for due in shown} == shown
    waits, over = Row(ACCEPT, id=1), Row(CANCEL, "refused", id=2)
    assert [cards.newest(rows) for rows in ([waits, over], [over], [])] == [waits, over, None]
    beside = Problem(Code.NOT_TAKEN_OVER, "", NOW, Severity.SEVERE)
    # by="board": the board is the till
    assert [cards.link_of(one) for one in (beside, replace(beside, facts={"by": "board"}))] == ["pos", None]


def test_the_board_is_unheard_a_while_after_the_last_tablet():
    tablets = AudibleTablets(100.0)
    assert not tablets.is_none_audible(100.0 + SURE_S - 1)  # tablets come back by themselves
    assert tablets.is_none_audible(100.0 + SURE_S)
    a, b = (Device(one, one, ACT, NOW) for one in "ab")
    tablets.heard(a, 200.0, audible=True)
    tablets.heard(b, 201.0, audible=False)
    tablets.heard(a, 202.0, audible=False)  # its second page, hidden
    assert tablets.names(202.0) == ["a"]
    assert [tablets.is_none_audible(200.0 + HEARD_S - early) for early in (0.1, 0)] == [False, True]
    assert HEARD_S + 5 < 15  # with a health check every 5 s it is reported within 15 s


@pytest.mark.parametrize("seen, is_next", [
    (order(**CONFIRMED, courier_type="come_get"), True), (order(**CONFIRMED, courier_type="platform_courier"), True),
    (order(16, "IN_DELIVERY", courier_type="platform_courier"), True),
    (order(16, "IN_DELIVERY"), False),  # its own courier may have completed it elsewhere
    (order(**CONFIRMED), False),
])  # fmt: skip
def test_an_answered_order_is_put_away_after_a_moment_and_shows_again_when_it_is_cancelled(seen, is_next):
    assert cards.is_handed_next(seen) is is_next
    touched = {cards.silence_of("handed", KEY): NOW}
    for rows in ([], [Row(Action.COMPLETE, "refused")]):
        assert [cards.handed_at(seen, rows, one) for one in (touched, {})] == [NOW + cards.HOLD, None]
    cancelled = order(6, "CANCELED", ended_by="cancelled")
    assert (cards.handed_at(cancelled, [], touched), cards.is_stopped(cancelled, [], touched)) == (None, True)


def test_an_order_with_an_open_action_is_not_put_away():
    pickup, touched = order(**CONFIRMED, courier_type="come_get"), {cards.silence_of("handed", KEY): NOW}
    for row in [Row(ACCEPT), *(Row(Action.COMPLETE, state) for state in ("pending", "sending", "done")), Row(CANCEL)]:
        assert (cards.may_be_handed(pickup, [row]), cards.handed_at(pickup, [row], touched)) == (False, None)
    assert not cards.may_be_handed(order(), [])  # its customer waits


@pytest.mark.parametrize("changes, rows, mode, wanted", [
    ({}, [], BESIDE, "new"), (CONFIRMED, [], BESIDE, "cook"),
    (CONFIRMED, [], TILL, "new"),  # accepted automatically: it rings
    ({"status_id": None, "status": "UNKNOWN"}, [], BESIDE, "cook"),
    ({"status_id": 16, "status": "IN_DELIVERY"}, [], BESIDE, "way"),
    ({"status_id": 9, "status": "COMPLETE_NEEDS_PAYMENT"}, [], BESIDE, "way"),
    ({"ended_by": "cancelled"}, [], BESIDE, "new"), ({"ended_by": "cancelled"}, [Row(ACCEPT, "done")], BESIDE, "cook"),
])  # fmt: skip
def test_each_card_stands_in_one_lane(changes, rows, mode, wanted):
    assert cards.lane(order(**changes), rows, mode) == wanted


def test_only_unsent_rows_can_be_taken_back_and_delayed_ones_for_a_moment():
    held = Row(Action.COMPLETE, request_id="board:1", next_attempt_utc=NOW)
    assert cards.held_until(held) == NOW
    for other in ({"request_id": "pos"}, {"state": "sending"}, {"attempts": 1}, {"action": ACCEPT}):
        assert cards.held_until(replace(held, **other)) is None
    assert cards.may_be_taken_back(Row(ACCEPT))
    assert not any(cards.may_be_taken_back(Row(ACCEPT, state, attempts=1)) for state in ("pending", "sending"))


def test_after_an_outage_the_waiting_time_counts_from_the_order():
    assert cards.waits_since(NOW, None) == NOW
    for late, counts in ((MINUTE / 2, False), (20 * MINUTE, True), (180 * MINUTE, False), (-180 * MINUTE, False)):
        assert cards.waits_since(NOW, NOW - late) == (NOW - late if counts else NOW), late  # hours are a time zone
