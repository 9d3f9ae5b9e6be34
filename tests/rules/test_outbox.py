"""Which rows are sent and which end unsent: no overtaking, none forgotten, and a cancel first."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.rules.builders import (  # isort: skip
    ACCEPT_VALID, KEY, LONGEST_WAIT, NOW, ORDER_ACTIONS, OTHER_KEY, OTHER_RESTAURANT, RESTAURANT, VALID, Head, Moment,
    Plan, directory, plan, row, unresolved, view,
)  # fmt: skip
from orderbridge.model import (  # isort: skip
    CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, Action, ActionState, KnownBy, OutboxRow, Verdict,
)  # fmt: skip
from orderbridge.rules.lifecycle import Refusal

from orderbridge.rules.outbox_rows import (  # isort: skip
    ENDS, Cause, Directory, Standing, argument_problem, end_by, expiry, has_changed, order_end, order_lane,
    refused_unsent, standing_of,
)  # fmt: skip

ACCEPT, ON_THE_WAY, COMPLETE, CANCEL = Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL
OPEN, CLOSE = Action.OPEN_RESTAURANT, Action.CLOSE_RESTAURANT
ACTIVATE, DEACTIVATE = Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD
ACTIONS = list(Action)

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=1)
LONG_AGO = NOW - timedelta(days=1)
FAR_AHEAD = NOW.replace(year=9001)
SOON = NOW + timedelta(seconds=10)


def going(made: Plan) -> list[int]:
    return [head.row.id for head in made.heads]


def ends(made: Plan) -> dict[int, tuple[ActionState, str | None]]:
    found = {one.id: (verdict.state, verdict.code) for one, verdict in made.verdicts}
    assert len(found) == len(made.verdicts), "a row ends once"
    return found


EXPIRED = (ActionState.EXPIRED, "expired")
WITHDRAWN = (ActionState.WITHDRAWN, "withdrawn")
SUPERSEDED = (ActionState.SUPERSEDED, "superseded")
DOUBTFUL_FOR_LONG = unresolved(ACCEPT, created_utc=LONG_AGO)
OUTCOME_UNKNOWN = (ActionState.FAILED, "outcome_unknown")
REFUSED = (ActionState.REFUSED, "bad_arguments")
NO_RESTAURANT, NO_ACCOUNT = (ActionState.REFUSED, "restaurant_unknown"), (ActionState.REFUSED, "account_needed")
REACHED = directory("kadikoy", "besiktas", reach={RESTAURANT: ["besiktas"]})
NOT_REACHED, UNKNOWN_YET = directory("kadikoy", "besiktas"), directory("kadikoy", "besiktas", complete=False)
CANCELLED = (ActionState.REFUSED, "order_cancelled")
Case = tuple[list[OutboxRow], Moment, list[int], dict[int, tuple[ActionState, str]]]


def case(*rows: OutboxRow, go: Sequence[int] = (), end: dict[int, Any] | None = None, **moment: Any) -> Case:
    """These rows at this moment: which may be sent, and which end. The others wait."""
    return list(rows), view(**moment), list(go), end or {}


CASES = {
    # a bad row
    "it holds up no lane": case(row(ACCEPT, preparing_time=0), row(ACCEPT, 2), go=[2], end={1: REFUSED}),
    "a bad cancel supersedes nothing": case(row(ACCEPT), row(CANCEL, 2, reason_id=9), go=[1], end={2: REFUSED}),
    **{
        f"the POS calls it sent, next at {at}": case(
            row(ACCEPT, state=ActionState.SENDING, next_attempt_utc=at, tried=False), row(ON_THE_WAY, 2),
            go=[2], end={1: REFUSED},
        )
        for at in (None, NOW - MINUTE, SOON)
    },
    # withdrawn
    "withdrawn in time": case(row(ACCEPT, withdraw=True), go=[], end={1: WITHDRAWN}),
    "withdrawn too late": case(row(ACCEPT, withdraw=True, created_utc=LONG_AGO), go=[], end={1: WITHDRAWN}),
    "in doubt, it waits for a poll": case(unresolved(COMPLETE, withdraw=True), go=[]),
    "in doubt, it is due": case(unresolved(COMPLETE, withdraw=True, next_attempt_utc=NOW), go=[1]),
    # retried by hand
    "retried by hand and withdrawn": case(row(OPEN, withdraw=True, expires_utc=SOON), go=[], end={1: OUTCOME_UNKNOWN}),
    "retried by hand and too old": case(row(COMPLETE, expires_utc=NOW), go=[], end={1: OUTCOME_UNKNOWN}),
    # too old
    **{
        f"{action} in doubt has lost its age: {at}": case(unresolved(action, created_utc=at), end={1: OUTCOME_UNKNOWN})
        for action in (ACCEPT, OPEN, ACTIVATE)
        for at in (None, FAR_AHEAD)
    },
    **{
        f"{action} in doubt is too old, next at {at}": case(
            unresolved(action, created_utc=LONG_AGO, next_attempt_utc=at), go=[], end={1: OUTCOME_UNKNOWN}
        )
        for action in ACTIONS
        for at in (None, NOW - MINUTE, SOON)
    },
    # a cancel
    "a cancel goes past others": case(row(ACCEPT), row(COMPLETE, 2), row(CANCEL, 3), go=[2], end={1: SUPERSEDED}),
    **{
        f"a cancel supersedes a {first.state} {first.action}": case(first, row(CANCEL, 2), go=[2], end={1: SUPERSEDED})
        for first in (row(ACCEPT), row(ON_THE_WAY), unresolved(ACCEPT), unresolved(ON_THE_WAY))
    },
    "a cancel does not supersede a complete": case(row(COMPLETE), row(CANCEL, 2), go=[1]),
    "a cancel does not supersede a complete in doubt": case(unresolved(COMPLETE), row(CANCEL, 2), go=[]),
    "a cancel does not supersede a cancel": case(row(CANCEL), row(CANCEL, 2), go=[1]),
    "a withdrawn row is not superseded": case(row(ACCEPT, withdraw=True), row(CANCEL, 2), go=[2], end={1: WITHDRAWN}),
    **{
        f"a {first.state} row that is too old is not superseded": case(first, row(CANCEL, 2), go=[2], end={1: how})
        for first, how in ((row(ACCEPT, created_utc=LONG_AGO), EXPIRED), (DOUBTFUL_FOR_LONG, OUTCOME_UNKNOWN))
    },
    "a cancel supersedes nothing later": case(row(CANCEL), row(ACCEPT, 2), row(ON_THE_WAY, 3), go=[1]),
    "a cancel of another order": case(row(ACCEPT, payment_key=OTHER_KEY), row(CANCEL, 2), go=[1, 2]),
    "a cancel waits for what is in flight": case(unresolved(ACCEPT), row(CANCEL, 2), in_flight={1}, go=[]),
    "a withdrawn cancel": case(row(ACCEPT), row(CANCEL, 2, withdraw=True), go=[1], end={2: WITHDRAWN}),
    "an expired cancel": case(row(ACCEPT), row(CANCEL, 2, created_utc=LONG_AGO), go=[1], end={2: EXPIRED}),
    # toggles
    **{
        f"of {older} and {newer} the newest": case(
            row(older), unresolved(newer, 2), row(older, 3), row(newer, 4),
            go=[4], end=dict.fromkeys((1, 2, 3), SUPERSEDED),
        )
        for older, newer in (
            (OPEN, CLOSE), (CLOSE, OPEN), (OPEN, OPEN), (ACTIVATE, DEACTIVATE), (DEACTIVATE, DEACTIVATE))
    },
    "a toggle in flight is waited for": case(unresolved(OPEN), row(CLOSE, 2), in_flight={1}, go=[]),
    "a newer toggle that ends unsent": case(
        row(OPEN), row(CLOSE, 2, withdraw=True), row(CLOSE, 3, created_utc=LONG_AGO),
        go=[1], end={2: WITHDRAWN, 3: EXPIRED},
    ),
    "toggles of different things": case(
        row(OPEN), row(CLOSE, 2, restaurant_id=OTHER_RESTAURANT), row(ACTIVATE, 3), row(DEACTIVATE, 4, food_id=1006),
        go=[1, 2, 3, 4],
    ),
    "toggles of one food on two menus": case(
        row(ACTIVATE, account="kadikoy"), row(DEACTIVATE, 2, account="besiktas"),
        row(ACTIVATE, 3, restaurant_id=RESTAURANT), directory=REACHED, go=[1, 3], end={2: SUPERSEDED},
    ),
    # a lane
    "one row of an order at a time": case(row(ACCEPT), row(ON_THE_WAY, 2), row(COMPLETE, 3), go=[1]),
    "a retry holds its lane": case(row(ACCEPT, next_attempt_utc=SOON), row(COMPLETE, 2), go=[]),
    "a retry in doubt holds its lane": case(unresolved(ACCEPT, next_attempt_utc=SOON), row(COMPLETE, 2), go=[]),
    "what waits for a poll holds its lane": case(unresolved(ACCEPT), row(COMPLETE, 2), go=[]),
    "what is in flight holds its lane": case(unresolved(ACCEPT), row(COMPLETE, 2), in_flight={1}, go=[]),
    "an acknowledgement holds its lane": case(row(ACCEPT), row(COMPLETE, 2), taken={order_lane(KEY)}, go=[]),
    "another order's lane": case(row(ACCEPT), taken={order_lane(OTHER_KEY)}, go=[1]),
    "a row ends in a held lane": case(row(ACCEPT, created_utc=LONG_AGO), taken={order_lane(KEY)}, end={1: EXPIRED}),
    "no row on the wire ends by itself": case(replace(DOUBTFUL_FOR_LONG, withdraw=True), row(CANCEL, 2), in_flight={1}),
    "a lower id that was committed later": case(row(COMPLETE, 4), unresolved(CANCEL, 5, next_attempt_utc=SOON), go=[]),
    # the time of a retry
    **{
        f"a retry, {make.__name__}, at {at}": case(make(COMPLETE, next_attempt_utc=at), go=heads)
        for make in (row, unresolved)
        for at, heads in ((NOW - MINUTE, [1]), (NOW, [1]), (NOW + MOMENT, []))
    },
    "the longest wait": case(row(CANCEL, next_attempt_utc=NOW + LONGEST_WAIT), go=[]),
    "a longer one: the clock was set back": case(row(CANCEL, next_attempt_utc=NOW + LONGEST_WAIT + MOMENT), go=[1]),
    # whose it is
    "a restaurant of no account": case(row(OPEN), directory=NOT_REACHED, end={1: NO_RESTAURANT}),
    "a food of no account": case(row(ACTIVATE), directory=NOT_REACHED, end={1: NO_ACCOUNT}),
    "a food of a restaurant of no account": case(
        row(ACTIVATE, restaurant_id=RESTAURANT), directory=NOT_REACHED, end={1: NO_RESTAURANT},
    ),
    "its restaurant left": case(row(OPEN, expires_utc=SOON), directory=NOT_REACHED, end={1: OUTCOME_UNKNOWN}),
    "in doubt, its restaurant left": case(unresolved(OPEN), directory=NOT_REACHED, go=[]),
    "sent by one that left": case(unresolved(OPEN, account="", next_attempt_utc=NOW), directory=directory("kadikoy")),
    "foods of two restaurants whose menus are not known yet": case(
        *(row(DEACTIVATE, number, restaurant_id=one) for number, one in enumerate((RESTAURANT, OTHER_RESTAURANT), 1)),
        directory=UNKNOWN_YET,
    ),
    "an unknown order, and one that was sent": case(
        row(ACCEPT, owner=None), unresolved(ACCEPT, 2, owner=None, payment_key=OTHER_KEY, next_attempt_utc=NOW),
        end={1: (ActionState.REFUSED, "order_unknown")},
    ),
    "of a cancelled order, beside a cancel in doubt": case(
        unresolved(CANCEL, service_status_id=CANCELED), row(COMPLETE, 2, service_status_id=CANCELED),
    ),
    "of a cancelled order": case(row(COMPLETE, service_status_id=CANCELED), end={1: CANCELLED}),
    "an order's row needs no restaurants": case(row(ACCEPT), directory=UNKNOWN_YET, go=[1]),
}  # fmt: skip


@pytest.mark.parametrize("rows, moment, goes, ended", CASES.values(), ids=CASES)
def test_each_row_is_sent_ended_or_kept_waiting(rows, moment, goes, ended) -> None:
    made = plan(rows, moment)
    assert (sorted(going(made)), ends(made)) == (goes, ended)


WRONG = {
    **{("payment_key", action): (None, "") for action in sorted(ORDER_ACTIONS)},
    ("preparing_time", ACCEPT): (None, 0, 1441, "25"), ("reason_id", CANCEL): (None, 0, 9),
    ("restaurant_id", OPEN): (None, ""), ("restaurant_id", CLOSE): (None, ""),
    ("food_id", ACTIVATE): (None, "1005", 0), ("food_id", DEACTIVATE): (None,),
    ("valid_minutes", CLOSE): (0, -5, 10081), ("valid_until_minutes", CLOSE): (0, 10081, "30"),
    ("valid_until_minutes", OPEN): (30,), ("created_utc", CLOSE): (None, FAR_AHEAD),
}  # fmt: skip


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_a_row_against_the_constraints_is_refused_with_the_reason(of: tuple[str, Action]) -> None:
    for wrong in WRONG[of]:
        bad = row(of[1], **{of[0]: wrong})
        assert argument_problem(bad) == of[0]
        made = plan([bad], view())
        assert (going(made), ends(made)) == ([], {1: (ActionState.REFUSED, "bad_arguments")})


def test_times_thousands_of_years_away_are_handled() -> None:
    one = row(CLOSE, created_utc=NOW.replace(year=9000))
    assert (argument_problem(one), expiry(one, view())) == (None, NOW.replace(year=9000) + VALID)
    assert expiry(replace(row(CLOSE, created_utc=NOW), action="dance"), view()) == NOW + VALID  # `audit` may meet it


@pytest.mark.interface("Limits")
@pytest.mark.parametrize("action, column, bounds", [
    (CLOSE, "valid_minutes", (1, 10080)), (DEACTIVATE, "valid_until_minutes", (1, 10080)),
    (CANCEL, "reason_id", (1, 8)), (ACCEPT, "preparing_time", (1, 1440)), (ACTIVATE, "food_id", (1, 2**31)),
])  # fmt: skip
def test_the_least_and_the_greatest_argument_are_taken(action: Action, column: str, bounds: tuple[int, int]) -> None:
    assert [argument_problem(row(action, **{column: number})) for number in bounds] == [None, None]


@pytest.mark.parametrize("one, valid", [
    *((row(action, created_utc=NOW), ACCEPT_VALID if action == ACCEPT else VALID) for action in ACTIONS),
    (row(ACCEPT, created_utc=NOW, valid_minutes=3), 3 * MINUTE),
    (row(CANCEL, created_utc=NOW, valid_minutes=300), 300 * MINUTE),
    (row(ACCEPT, created_utc=LONG_AGO, valid_minutes=3, expires_utc=SOON), SOON - NOW),  # it is retried
], ids=lambda one: one.action if isinstance(one, OutboxRow) else str(one))  # fmt: skip
def test_a_row_is_valid_for_a_time_and_expires_at_its_end(one: OutboxRow, valid: timedelta) -> None:
    end = NOW + valid
    assert expiry(one, view()) == end
    made = plan([one], view(now=end - MOMENT))
    assert (going(made), ends(made)) == ([1], {})
    made = plan([one], view(now=end))
    assert (going(made), ends(made)) == ([], {1: OUTCOME_UNKNOWN if one.expires_utc else EXPIRED})


def test_the_next_cycle_is_at_the_earliest_time_of_all_rows() -> None:
    rows = [row(CANCEL, 1, next_attempt_utc=SOON), row(OPEN, 2), row(ACTIVATE, 3, valid_minutes=5)]
    assert [plan(some, view()).due for some in (rows, rows[1:], [])] == [SOON, NOW + 4 * MINUTE, None]
    for one in (row(ACCEPT), unresolved(ACCEPT), row(ACCEPT, next_attempt_utc=NOW + LONGEST_WAIT)):
        assert plan([one], view()).due == expiry(one, view())
    assert plan([row(COMPLETE, 1), row(COMPLETE, 2, valid_minutes=2)], view()).due == NOW + MINUTE


@pytest.mark.parametrize("action, shown, expected", [
    (ACCEPT, COMPLETE_WITH_PAYMENT, OUTCOME_UNKNOWN), (ON_THE_WAY, COMPLETE_WITH_PAYMENT, OUTCOME_UNKNOWN),
    (CANCEL, COMPLETE_WITH_PAYMENT, OUTCOME_UNKNOWN), (COMPLETE, COMPLETE_WITH_PAYMENT, (ActionState.DONE, "already")),
    (ON_THE_WAY, CANCELED, CANCELLED), (ON_THE_WAY, CONFIRMED, None), (ON_THE_WAY, None, OUTCOME_UNKNOWN),
])  # fmt: skip
def test_a_row_that_was_retried_by_hand_stays_unknown_when_its_order_refuses_it(action, shown, expected) -> None:
    made = order_end(row(action, expires_utc=SOON, owner=shown and "kadikoy", service_status_id=shown))
    assert (made and (made.state, made.code)) == expected
    assert made is None or (made.code == "already") is (made.known_by == KnownBy.POLL)


def test_an_entry_has_its_row_lane_and_account() -> None:
    known = directory("kadikoy", "besiktas", reach={RESTAURANT: ["besiktas"]})
    rows = [row(ACCEPT, 1), row(OPEN, 2), row(ACTIVATE, 3, account="kadikoy")]
    lanes = [order_lane(KEY), ("restaurant", RESTAURANT), ("food kadikoy", "1005")]
    assert plan(rows, view(directory=known)).heads == [*map(Head, rows, lanes, (None, "besiktas", "kadikoy"))]


TWO = {RESTAURANT: ["kadikoy"], OTHER_RESTAURANT: ["besiktas", "kadikoy"]}
UNKNOWN_RESTAURANT, NEEDS_ACCOUNT = Refusal("restaurant_unknown"), Refusal("account_needed")
BRANCH = {"restaurant_id": RESTAURANT}


@pytest.mark.parametrize("known, named, account", [
    (directory("kadikoy", "besiktas", reach=TWO), None, "besiktas"),  # the first that reaches it
    (directory("kadikoy", "besiktas", reach=TWO), "kadikoy", "kadikoy"),  # the named one, which reaches it, too
    (directory("kadikoy", reach=TWO), None, "kadikoy"),  # one that has left reaches nothing
    (directory("kadikoy", "moda", reach=TWO), "moda", "kadikoy"),  # the named one does not reach it
    (directory("kadikoy", "moda", default="kadikoy"), "moda", "moda"),  # none reaches it: the named one
    (directory("kadikoy", "moda", default="moda"), None, "moda"),  # or the default
    (directory("kadikoy", default="kadikoy"), "gone", "kadikoy"),
    (directory("kadikoy", "moda"), None, UNKNOWN_RESTAURANT),
    (directory("kadikoy", "moda"), "gone", UNKNOWN_RESTAURANT),
    (directory("kadikoy", "moda", complete=False), None, None),  # not known yet
])  # fmt: skip
def test_a_restaurant_has_its_account(known: Directory, named: str | None, account: str | Refusal | None) -> None:
    assert known.of_restaurant(OTHER_RESTAURANT, named) == account


@pytest.mark.parametrize("known, columns, account", [
    (directory(), {}, "kadikoy"),  # the only one
    (directory("a", "b", default="b"), {}, "b"),
    (directory("a", "b"), {}, NEEDS_ACCOUNT),
    (directory("a", "b", default="b"), {"account": "a"}, "a"),
    (directory("a", "b", default="b"), {"account": "c"}, NEEDS_ACCOUNT),
    (directory("a", "b", default="b", reach={RESTAURANT: ["a"]}), BRANCH, "a"),
    (directory("a", "b", reach={RESTAURANT: ["a", "b"]}), BRANCH | {"account": "b"}, "b"),
    (directory("a", "b", complete=False), BRANCH, None),
    (directory("a", "b"), BRANCH, UNKNOWN_RESTAURANT),
    # of an account that has left: the default has another menu
    (directory("a", default="a", reach={RESTAURANT: ["b"]}), BRANCH, UNKNOWN_RESTAURANT),
    (directory("a", default="a", reach={RESTAURANT: ["b"]}, complete=False), BRANCH, None),
    (directory("a", default="a", complete=False), BRANCH, None),  # it may be of an account that has left
])  # fmt: skip
def test_a_food_has_its_menu(known: Directory, columns: dict[str, Any], account: str | Refusal | None) -> None:
    assert known.of_food(replace(row(ACTIVATE), **columns)) == account


def test_a_food_that_was_sent_keeps_the_lane_of_its_account_when_that_is_gone() -> None:
    """It blocks later rows of that menu, and none of another menu."""
    gone = unresolved(ACTIVATE, account="besiktas", next_attempt_utc=NOW)
    (head,) = plan([gone], view(directory=directory("kadikoy", "moda"))).heads
    assert (head.lane, head.account) == (("food besiktas", "1005"), "besiktas")


@pytest.mark.parametrize("reach, goes, ended", [
    ({}, [], {}),
    ({RESTAURANT: ["kadikoy"]}, [2], {1: SUPERSEDED}),
    ({OTHER_RESTAURANT: ["kadikoy"]}, [2], {}),  # so the other restaurant is not of this account
    ({RESTAURANT: ["besiktas"]}, [1, 2], {}),
])  # fmt: skip
def test_a_food_row_waits_while_an_older_one_may_be_of_its_menu(reach, goes, ended) -> None:
    rows = [row(ACTIVATE, 1, restaurant_id=RESTAURANT), row(DEACTIVATE, 2, account="kadikoy")]
    made = plan(rows, view(directory=directory("kadikoy", "besiktas", reach=reach, complete=False)))
    assert (going(made), ends(made)) == (goes, ended)


@pytest.mark.parametrize("one", [row(OPEN), row(ACTIVATE, restaurant_id=RESTAURANT)], ids=["restaurant", "food"])
def test_until_the_restaurants_are_known_a_row_waits_and_expires(one: OutboxRow) -> None:
    early = view(directory=directory("kadikoy", "besiktas", complete=False))
    made = plan([one], early)
    assert (going(made), ends(made), made.due) == ([], {}, expiry(one, early))
    assert ends(plan([one], replace(early, now=NOW + VALID))) == {1: EXPIRED}


STAND = {
    Standing.WAITING: row(CANCEL), Standing.RETRIED: row(CANCEL, expires_utc=NOW),
    Standing.UNRESOLVED: unresolved(CANCEL),
}  # fmt: skip


@pytest.mark.parametrize("standing", STAND)
@pytest.mark.parametrize("cause", Cause)
def test_a_row_that_may_have_had_its_effect_never_ends_as_unsent(standing: Standing, cause: Cause) -> None:
    assert (standing_of(STAND[standing]), STAND[standing].state) == (standing, standing.state)
    end = end_by(STAND[standing], cause)
    assert (end is None) == (standing is Standing.UNRESOLVED and cause in {Cause.WITHDRAWN, Cause.REFUSED})
    unsent = {ActionState.WITHDRAWN, ActionState.EXPIRED, ActionState.REFUSED}
    assert end is None or end.state == ActionState.SUPERSEDED or (end.state in unsent) == (standing is Standing.WAITING)
    assert (Standing.ON_THE_WIRE, cause) not in ENDS, "only its answer ends a row on the wire"
    cancelled = Verdict(ActionState.REFUSED, "order_cancelled")
    assert refused_unsent(STAND[standing], "order_cancelled") == cancelled, "whatever a row had, its order is over"


CHANGES: list[dict[str, Any]] = [
    {"state": ActionState.SENDING}, {"withdraw": True}, {"created_utc": NOW}, {"next_attempt_utc": NOW},
    {"expires_utc": NOW}, {"owner": "besiktas"}, {"service_status_id": CONFIRMED}, {"courier_type": "platform_courier"},
]  # fmt: skip
NO_CHANGES: list[dict[str, Any]] = [{"attempts": 1}, {"waits_for": "timeout"}, {"service_status_id": 99}]


@pytest.mark.parametrize("changes", [*CHANGES, *NO_CHANGES], ids=str)
def test_a_row_counts_as_changed_if_it_changes_the_decision(changes: dict[str, Any]) -> None:
    known = row(ON_THE_WAY if "courier_type" in changes else ACCEPT)
    assert has_changed(known, replace(known, **changes)) == (changes in CHANGES)
