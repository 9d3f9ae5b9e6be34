"""Carrying out a decision about an outbox row: the row's end, the order's status and its story, in one transaction."""

import contextlib
from collections.abc import Iterator
from datetime import datetime

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.model import Action, ActionState, Attempt, KnownBy, OutboxRow, Verdict
from orderbridge.rules import lifecycle
from orderbridge.rules.outbox import argument_problem
from orderbridge.rules.retry import Again, AwaitLook, Decision, counted, is_uncertain
from orderbridge.store import actions, orders
from orderbridge.store.database import is_refusal
from orderbridge.texts import text

_log = structlog.get_logger(__name__)


def tell_verdict(row: OutboxRow, verdict: Verdict) -> None:
    """One line for each verdict.

    An accept that came to nothing is an alarm: a customer was not answered. So is an on_the_way of which nobody knows
    what it did: somebody has to look.
    """
    unanswered = row.action == Action.ACCEPT and verdict.state in {ActionState.FAILED, ActionState.EXPIRED}
    unknown = row.action == Action.ON_THE_WAY and verdict.code == "outcome_unknown"
    told = _log.error if unanswered or unknown else _log.info
    told(
        f"action.{verdict.state}",
        id=row.id,
        action=row.action,
        code=verdict.code,
        known_by=verdict.known_by,
        **about(row),
    )


def about(row: OutboxRow) -> dict[str, str | int]:
    """What a row is about, for the log."""
    facts = {"payment_key": row.payment_key, "restaurant_id": row.restaurant_id, "food_id": row.food_id}
    return {name: value for name, value in facts.items() if value is not None}


@contextlib.contextmanager
def beside(connection: Connection, row: OutboxRow) -> Iterator[None]:
    """For what a verdict writes elsewhere. Where a trigger of the POS refuses that, the row still gets its verdict."""
    try:
        with connection.begin_nested():
            yield
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        _log.error("action.order_not_written", id=row.id, error=type(error.orig).__name__, **about(row))


class Verdicts:
    """What every writer of verdicts needs to know: the cashier's language and the configured status id."""

    def __init__(self, language: str, needs_payment_id: int | None) -> None:
        self._language = language
        self._needs_payment_id = needs_payment_id

    def carry_out(
        self, connection: Connection, row: OutboxRow, history: list[Attempt], decision: Decision, now: datetime
    ) -> None:
        """Write what was decided after the newest attempt, the last of `history`."""
        match decision:
            case Again(at=at):
                state = ActionState.SENDING if is_uncertain(history) else ActionState.PENDING
                self._postpone(connection, row, history, state, at)
            case AwaitLook():
                self._postpone(connection, row, history, ActionState.SENDING, None)
                self._doubt(connection, row)
            case Verdict():
                self.finish(connection, row, decision, counted(history), now)

    def explain(self, connection: Connection, row: OutboxRow, code: str) -> None:
        """Say for what a row waits that has not been sent."""
        actions.explain(connection, row.id, code, self._words(row, code, ActionState.PENDING))

    def _postpone(
        self, connection: Connection, row: OutboxRow, history: list[Attempt], state: ActionState, at: datetime | None
    ) -> None:
        last = history[-1]
        words = self._words(row, last.code, state)
        actions.postpone(connection, row.id, state, at, last, words, counted(history))

    def finish(
        self,
        connection: Connection,
        row: OutboxRow,
        verdict: Verdict,
        attempts: int,
        now: datetime,
    ) -> bool:
        """End a row. False when somebody ended it first."""
        words = self._words(row, verdict.code, verdict.state)
        if not actions.finish(connection, row.id, verdict, words, attempts, now):
            return False
        if row.payment_key is not None:
            with beside(connection, row):
                self._tell_order(connection, row, verdict, now)
        return True

    def _tell_order(self, connection: Connection, row: OutboxRow, verdict: Verdict, now: datetime) -> None:
        known = orders.stored(connection, [row.payment_key or ""]).get(row.payment_key or "")
        if known is None:
            return
        status_id = verdict.status_id
        if verdict.state == ActionState.DONE and status_id is not None:
            word = lifecycle.status_name(status_id, self._needs_payment_id)
            ended_by = lifecycle.ENDS.get(status_id)
            shown = (
                verdict.known_by != KnownBy.REFUSAL
            )  # it proves it, but the service itself has not shown that status
            orders.set_status(connection, known, status_id, word, ended_by, now, shown=shown)
        elif verdict.state == ActionState.REFUSED and verdict.http_status is not None:
            orders.doubt_status(connection, known)
        became = status_id if status_id is not None else known.status_id
        name = lifecycle.status_name(became, self._needs_payment_id)
        orders.tell(connection, now, [(known.payment_key, f"{row.action}.{verdict.state}", became, name, verdict.code)])

    def refuse_unreadable(self, connection: Connection, row_id: int, now: datetime) -> bool:
        """A row that slipped past the constraints and cannot even be read."""
        words = text("bad_arguments", self._language, argument="action", problem="unknown")
        return actions.finish(connection, row_id, Verdict(ActionState.REFUSED, "bad_arguments"), words, 0, now)

    def _doubt(self, connection: Connection, row: OutboxRow) -> None:
        known = orders.stored(connection, [row.payment_key or ""]).get(row.payment_key or "")
        if known is not None:
            with beside(connection, row):
                orders.doubt_status(connection, known)

    def _words(self, row: OutboxRow, code: str | None, state: ActionState) -> str | None:
        if code is None:
            return None
        argument = argument_problem(row)
        problem = "not_empty" if argument is None else _problem(getattr(row, argument))
        return text(code, self._language, state=state, argument=argument or "state", problem=problem)


def _problem(value: object) -> str:
    """The word of texts.PROBLEMS for an argument that can never be right."""
    if value is None or value == "":
        return "missing"
    return "no_number" if isinstance(value, str | float | bytes) else "out_of_range"
