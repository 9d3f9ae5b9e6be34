"""When a closure ends, and what happens to its planned end."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from tests.rules.builders import NOW, row, unresolved

from orderbridge.model import Action, ActionState, Verdict
from orderbridge.rules.closures import Step, planned_end, step, waiting_end

CLOSE = Action.CLOSE_RESTAURANT
MINUTE = timedelta(minutes=1)
DONE = Verdict(ActionState.DONE)
EARLIER = NOW - 20 * MINUTE


@dataclass
class Plan:
    withdraw: int = 0
    until_utc: object = NOW
    valid_until_minutes: int = 30


@pytest.mark.parametrize("columns, verdict, end", [
    ({"valid_until_minutes": 30}, DONE, EARLIER + 30 * MINUTE),
    ({"valid_until_minutes": 30, "expires_utc": NOW + MINUTE}, DONE, NOW + 30 * MINUTE),
    ({"valid_until_minutes": 30, "created_utc": None}, DONE, NOW + 30 * MINUTE),
    ({"valid_until_minutes": None}, DONE, None),
    ({"valid_until_minutes": 10**6}, DONE, None),
    ({"valid_until_minutes": 30, "created_utc": NOW.replace(year=9999)}, DONE, None),
    *(({"valid_until_minutes": 30}, Verdict(state, "x"), None) for state in ActionState if state != ActionState.DONE),
])  # fmt: skip
def test_an_end_is_planned_when_the_row_is_done(columns, verdict, end):
    assert planned_end(row(CLOSE, **{"created_utc": EARLIER} | columns), verdict, NOW) == end


def test_only_a_row_that_waits_for_its_first_outcome_is_over_at_its_end():
    half_an_hour = {"created_utc": EARLIER, "valid_until_minutes": 30}
    assert waiting_end(row(CLOSE, **half_an_hour)) == EARLIER + 30 * MINUTE
    others = (
        row(CLOSE, created_utc=EARLIER),
        unresolved(CLOSE, **half_an_hour),
        row(CLOSE, **half_an_hour, expires_utc=NOW),
    )
    assert [waiting_end(other) for other in others] == [None] * 3


@pytest.mark.parametrize("plan, newer, expected", [
    (Plan(), (), Step.END), (Plan(withdraw=1), (), Step.FORGET), (Plan(until_utc=NOW + MINUTE), (), Step.WAIT),
    (Plan(until_utc=NOW + 30 * MINUTE), (), Step.WAIT), (Plan(until_utc=NOW + 31 * MINUTE), (), Step.SHORTEN),
    (Plan(), ("refused", "expired", "withdrawn", "superseded", "failed"), Step.END),
    (Plan(), ("pending",), Step.WAIT), (Plan(), ("sending",), Step.WAIT),
    (Plan(), ("done", "pending"), Step.FORGET), (Plan(until_utc=NOW + MINUTE), ("done",), Step.FORGET),
])  # fmt: skip
def test_the_next_step(plan, newer, expected):
    assert step(plan, newer, NOW) is expected
