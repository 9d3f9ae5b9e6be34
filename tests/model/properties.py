"""The properties that must hold in every state (promises 2, 4 and 6), and the known exceptions."""

from tests.model.books import UNFINISHED, Row
from tests.model.machine import Machine, State

from orderbridge.actions import ACTIONS
from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, Action, ActionState, KnownBy

# The blind spots of the interface: errors that need a change by another client, and that no client could avoid.
UNSEEN = "another client ends the order, and no list shows it"
OTHER_END = "another client ends the order, and the refusal of ours is taken for its repetition"


def settled(machine: Machine, state: State) -> bool:
    """Nothing is under way, nothing waits, and a poll would bring nothing."""
    busy = state.wire or state.poll or state.survey or any(row.row.state in UNFINISHED for row in state.rows)
    return not busy and not machine.listed(state)


def wrong(machine: Machine, state: State) -> list[str]:
    mistakes = [words for row in state.rows if (words := _wrong_row(state, row))]
    if not mistakes and settled(machine, state) and (words := _wrong_order(state)):
        mistakes.append(words)
    return mistakes


def _wrong_row(state: State, row: Row) -> str:
    verdict, action = row.verdict, row.row.action
    if row.effects > 1:
        return f"{action} has its effect twice"
    if verdict is None:
        return ""
    ends = f"{action} ends {verdict.state} ({verdict.code}, known by {verdict.known_by})"
    match verdict.state:
        case ActionState.DONE:
            if ACTIONS[action].target in state.been or state.lied:
                return ""
            by_refusal = verdict.known_by == KnownBy.REFUSAL and state.ended_by_others
            return OTHER_END if by_refusal else f"{ends}, and the order was never there"
        case ActionState.REFUSED if verdict.code == "order_cancelled":
            return "" if CANCELED in state.been else f"{ends}, and it was not cancelled"
        case ActionState.REFUSED if verdict.code == "order_completed" and row.doubted:
            return ""  # retried by hand, and nothing can be asked any more
        case ActionState.REFUSED | ActionState.EXPIRED | ActionState.WITHDRAWN:
            return f"{ends}, and it was done" if row.effects else ""
        case ActionState.FAILED if verdict.code == "outcome_unknown":
            return "" if row.doubted else f"{ends}, and nothing was ever lost"
        case ActionState.FAILED:
            return f"{ends}, and it was done" if row.effects else ""
        case _:
            return ""


def _wrong_order(state: State) -> str:
    stored = None if state.order is None else state.order.status_id
    if stored == state.status or state.lied or _left_to_a_person(state):
        return ""
    if state.order is None and state.status in {CANCELED, COMPLETE_WITH_PAYMENT}:
        return ""  # over before we ever heard of it
    if state.ended_by_others and stored not in {CANCELED, COMPLETE_WITH_PAYMENT}:  # a wrong end is worse
        return UNSEEN
    return f"in the end the order is in {state.status} and stored is {stored}"


def _left_to_a_person(state: State) -> bool:
    """An end that no list shows, brought about by a row of ours that ends `outcome_unknown`: a person must read the panel."""
    return any(
        row.verdict is not None
        and row.verdict.code == "outcome_unknown"
        and ACTIONS[row.row.action].target == state.status
        and row.row.action in {Action.COMPLETE, Action.CANCEL}
        for row in state.rows
    )
