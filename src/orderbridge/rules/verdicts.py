"""What a decision about an outbox row means beside the row itself: for its order, for who watches the log, for the cashier."""

from dataclasses import dataclass

from orderbridge.actions import ACTIONS, Doubt
from orderbridge.model import ActionState, EndedBy, KnownBy, OutboxRow, Verdict
from orderbridge.rules.outbox import argument_problem
from orderbridge.rules.retry import AwaitPoll, Decision
from orderbridge.rules.statuses import ENDS


@dataclass(frozen=True, slots=True)
class NewStatus:
    """The status that a verdict gives an order. `shown`: by the service itself."""

    status_id: int
    ended_by: EndedBy | None
    shown: bool


def new_status(decision: Decision) -> NewStatus | None:
    """What a done action makes of its order; None: its status stays."""
    if not isinstance(decision, Verdict) or decision.state != ActionState.DONE or decision.status_id is None:
        return None
    # A refusal proves it, but the service itself has not shown that status.
    shown = decision.known_by != KnownBy.REFUSAL
    return NewStatus(decision.status_id, ENDS.get(decision.status_id), shown)


def doubts_status(decision: Decision) -> bool:
    """Whether the order's stored status can hardly be right: the service refuses what that status should allow."""
    if isinstance(decision, Verdict):
        return decision.state == ActionState.REFUSED and decision.http_status is not None
    return isinstance(decision, AwaitPoll)


def is_alarm(row: OutboxRow, verdict: Verdict) -> bool:
    """Whether somebody has to act at once.

    A customer who was not answered is an alarm. So is an action of which nobody knows what it did, and which cannot just
    be repeated: somebody has to look.
    """
    kind = ACTIONS[row.action]
    unanswered = kind.answers_customer and verdict.state in {ActionState.FAILED, ActionState.EXPIRED}
    return unanswered or (kind.doubt is Doubt.POLL and verdict.code == "outcome_unknown")


def wrong_argument(row: OutboxRow) -> tuple[str, str]:
    """The argument that can never be right, and what is wrong with it: the code of a sentence in `arguments`."""
    argument = argument_problem(row)
    if argument is None:  # then it is the state, which a POS has to leave to us
        return "state", "not_empty"
    value = getattr(row, argument)
    if value is None or value == "":
        return argument, "missing"
    return argument, "no_number" if isinstance(value, str | float | bytes) else "out_of_range"
