"""Carrying out a decision about an outbox row: the row's end, the order's status and its story, in one transaction.

What was decided comes as a `Posting` from jobs.outcome_writer (answers, ends, what was lost) and jobs.reconciler
(polls). They open the transaction and lock rows and orders in it (`hold`); `post` writes in this order:

    rows      an end gets its state, its words and its attempts; a row that goes on gets when, or on what, it waits
    orders    the status that a done action gives them, the doubt that a refusal raises, a line of their story. Where
              none of the rows that were to end is unfinished any more, nothing: they were ended before, by another
              session, with all that follows
    `tell`    the log and the numbers, called by the same jobs after the COMMIT. Before it they would tell of an end
              that a failed commit takes back

The row goes first, and the order's part is in a savepoint of its own. A trigger of the POS that refuses what is written of
the order must not take the row's verdict along: the row would stay `sending`, and be sent again after a restart
although it had its answer. Such a refusal is logged; the next delivery of the order brings its status.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.actions import key_of
from orderbridge.model import ActionState, Attempt, OutboxRow, Outcome, Stored, Verdict
from orderbridge.observe.metrics import ACTIONS_ENDED, Metrics
from orderbridge.rules.lifecycle import doubts_status, new_status, with_doubt
from orderbridge.rules.outbox_rows import is_alarm, wrong_argument
from orderbridge.rules.retry import AwaitPoll, Decision, RetryAt, counted, stands_after
from orderbridge.rules.statuses import Statuses
from orderbridge.store import actions, orders
from orderbridge.store.actions import End, Wait
from orderbridge.store.failures import is_refusal
from orderbridge.store.rows import ROW, lock_naming_held
from orderbridge.texts import text

_NEVER_SENT = Attempt(Outcome.NOT_SENT)
_log = structlog.get_logger(__name__)


def about(row: OutboxRow) -> dict[str, str | int]:
    """What a row is about, for the log."""
    facts = {"payment_key": row.payment_key, "restaurant_id": row.restaurant_id, "food_id": row.food_id}
    return {name: value for name, value in facts.items() if value is not None}


@contextlib.contextmanager
def best_effort(connection: Connection, row: OutboxRow) -> Iterator[None]:
    """For what a verdict writes elsewhere. Where a trigger of the POS refuses that, the row still gets its verdict."""
    try:
        with connection.begin_nested():
            yield
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        _log.error("action.order_not_written", id=row.id, error=type(error.orig).__name__, **about(row))


@dataclass(frozen=True, slots=True)
class Posting:
    """What was decided about a row. `history`: its attempts, the newest last, where it was decided by them.

    `number`: of the attempt that ends with it; `attempt`: how; None: its request was not sent, and there was none.
    """

    row: OutboxRow
    decision: Decision
    history: Sequence[Attempt] = ()
    number: int | None = None
    attempt: Attempt | None = None

    @property
    def counted(self) -> int:
        """How many attempts it has had."""
        return counted(self.history) if self.history else self.row.attempts


class Verdicts:
    """What every writer of verdicts needs to know: the cashier's language and the service's statuses."""

    def __init__(self, language: str, statuses: Statuses | None, metrics: Metrics | None = None) -> None:
        self._language = language
        self.statuses = statuses or Statuses()
        self.metrics = metrics or Metrics()

    def tell(self, row: OutboxRow, verdict: Verdict) -> None:
        """A row has ended, and that is on disk: one line in the log, and a number."""
        log = _log.error if is_alarm(row, verdict) else _log.info
        facts = {"code": verdict.code, "known_by": verdict.known_by, **about(row)}
        log(f"action.{verdict.state}", id=row.id, action=row.action, **facts)
        self.metrics.count(ACTIONS_ENDED, row.action, verdict.state)

    def hold(self, connection: Connection, rows: Sequence[OutboxRow]) -> tuple[dict[int, OutboxRow], dict[str, Stored]]:
        """Lock these rows and their orders. Returns the rows that no other session has locked, and what is stored."""
        locked = lock_naming_held(connection, ROW, [row.id for row in rows])
        known, held = orders.hold(connection, {row.payment_key for row in rows if row.payment_key})
        return {row.id: row for row in rows if row.id not in locked and row.payment_key not in held}, known

    def post_free(self, connection: Connection, postings: Sequence[Posting], now: datetime) -> list[Posting]:
        """Write what ended attempts have led to, of rows that no other session has locked. Returns what was written."""
        rows, known = self.hold(connection, [one.row for one in postings])
        free = [one for one in postings if one.row.id in rows]
        ended = [(one.row.id, one.number, one.attempt) for one in free if one.number is not None]
        actions.record(connection, [(row_id, number, one) for row_id, number, one in ended if one is not None], now)
        actions.forget_attempts(connection, [(row_id, number) for row_id, number, one in ended if one is None])
        self.post(connection, free, known, now)
        return free

    def post(
        self, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
    ) -> int:
        """Write decisions about rows, and into the orders that are known. Returns how many rows ended by it."""
        ends: list[tuple[int, End]] = []
        waits: list[tuple[int, Wait]] = []
        for one in postings:
            match one.decision:
                case Verdict() as verdict:
                    words = self._words(one.row, verdict.code, verdict.state)
                    ends.append((one.row.id, End(verdict, words, one.counted)))
                case RetryAt() | AwaitPoll() as goes_on:
                    waits.append((one.row.id, self._wait(one, goes_on)))
        ended = actions.finish(connection, ends, now)
        actions.postpone(connection, waits)
        if ended or not ends:
            self._write_orders(connection, [one for one in postings if one.row.payment_key in known], known, now)
        return ended

    def explain(self, connection: Connection, ids: Sequence[int], code: str) -> None:
        """Write for what rows wait that have not been sent."""
        actions.explain(connection, ids, code, text(code, self._language, state=ActionState.PENDING))

    def refuse_unreadable(self, connection: Connection, ids: Sequence[int], now: datetime) -> list[tuple[int, bool]]:
        """End rows that slipped past the constraints and cannot even be read. Whether each was there to be ended."""
        words = text("bad_arguments", self._language, argument="action", problem="unknown")
        end = End(Verdict(ActionState.REFUSED, "bad_arguments"), words, 0)
        return [(row_id, bool(actions.finish(connection, [(row_id, end)], now))) for row_id in ids]

    def _wait(self, one: Posting, decision: RetryAt | AwaitPoll) -> Wait:
        last = one.history[-1] if one.history else _NEVER_SENT
        state = stands_after(decision, one.history).state
        at = decision.at if isinstance(decision, RetryAt) else None
        return Wait(state, at, last.code, last.http_status, self._words(one.row, last.code, state), one.counted)

    def _write_orders(
        self, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
    ) -> None:
        """All together; where a trigger of the POS refuses one, each by itself."""
        if len(postings) > 1:
            try:
                with connection.begin_nested():
                    self._order_parts(connection, postings, known, now)
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
            else:
                return
        for one in postings:
            with best_effort(connection, one.row):
                self._order_parts(connection, [one], known, now)

    def _order_parts(
        self, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
    ) -> None:
        news, doubted, story = [], [], []
        for one in postings:
            order, verdict = known[key_of(one.row)], one.decision
            if doubts_status(verdict) and (problem := with_doubt(order.problem)) is not None:
                doubted.append((order.payment_key, problem))
            if not isinstance(verdict, Verdict):
                continue
            if (status := new_status(verdict, order, self.statuses)) is not None:
                news.append((order.payment_key, status))
            became = verdict.status_id if verdict.status_id is not None else order.status_id
            word = self.statuses.name(became)
            story.append((order.payment_key, f"{one.row.action}.{verdict.state}", became, word, verdict.code))
        orders.set_status(connection, news, now)
        orders.doubt_status(connection, doubted)
        orders.append_events(connection, now, story)

    def _words(self, row: OutboxRow, code: str | None, state: ActionState) -> str | None:
        if code is None:
            return None
        argument, problem = wrong_argument(row)
        return text(code, self._language, state=state, argument=argument, problem=problem)
