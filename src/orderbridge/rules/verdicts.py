"""What a decision about an outbox row means beside the row itself: for its order, for who watches the log, for the cashier."""

from orderbridge.actions import ACTIONS, Doubt
from orderbridge.model import ActionState, KnownBy, LastChange, NewStatus, OutboxRow, Stored, Verdict
from orderbridge.rules.lifecycle import end_change, without_doubt
from orderbridge.rules.outbox import argument_problem
from orderbridge.rules.retry import AwaitPoll, Decision
from orderbridge.rules.statuses import ENDS, Statuses


def new_status(decision: Decision, stored: Stored, statuses: Statuses) -> NewStatus | None:
    """What a done action makes of its order, as it is `stored`; None: its status stays."""
    if not isinstance(decision, Verdict) or decision.state != ActionState.DONE or decision.status_id is None:
        return None
    # A refusal proves it, but the service itself has not shown that status.
    shown = decision.known_by != KnownBy.REFUSAL
    status_id, ended_by = decision.status_id, ENDS.get(decision.status_id)
    news = LastChange.STATUS if ended_by is None else end_change(ended_by)
    return NewStatus(
        status_id=status_id,
        status=statuses.name(status_id),
        ended_by=ended_by,
        ends=ended_by != stored.ended_by,
        shown=shown,
        problem=without_doubt(stored.problem) if shown else None,
        last_change=news if status_id != stored.status_id else None,
    )


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
