"""The properties that must hold in every state: no effect twice, and in the end the service's status is stored.

Whether a verdict is right, tests/rules/test_retry.py and the simulation judge.
"""

from tests.model.books import UNFINISHED
from tests.model.machine import Machine, State

from orderbridge.actions import ACTIONS
from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, Action


def settled(machine: Machine, state: State) -> bool:
    """Whether nothing is under way, nothing waits, and a poll would bring nothing."""
    busy = state.wire or state.poll or state.survey or any(row.row.state in UNFINISHED for row in state.rows)
    return not busy and not machine.listed(state)


def wrong(machine: Machine, state: State) -> list[str]:
    mistakes = [f"{row.row.action} has its effect twice" for row in state.rows if row.effects > 1]
    if not mistakes and settled(machine, state) and (words := _wrong_order(state)):
        mistakes.append(words)
    return mistakes


def _wrong_order(state: State) -> str:
    stored = None if state.order is None else state.order.status_id
    if stored == state.status or state.lied or _left_to_a_person(state):
        return ""
    if state.order is None and state.status in {CANCELED, COMPLETE_WITH_PAYMENT}:
        return ""  # over before we ever heard of it
    return f"in the end the order is in {state.status} and stored is {stored}"


def _left_to_a_person(state: State) -> bool:
    """Whether our row with `outcome_unknown` has ended the order, which no list shows: a person must read the panel."""
    return any(
        row.verdict is not None
        and row.verdict.code == "outcome_unknown"
        and ACTIONS[row.row.action].target == state.status
        and row.row.action in {Action.COMPLETE, Action.CANCEL}
        for row in state.rows
    )
