"""What is written about outbox rows: that they leave, what became of their requests, and how the others end unsent.

    claim     rows whose turn it is are read again, locked. A row that is as the queue has it is noted as on the wire;
              what has changed goes back to the queue, which decides again (rules.queue). A row that another session has
              locked is left for a moment
    post      outcomes of requests: the attempt, and what is decided by it (rules.retry)
    end       rows that the queue ends unsent, read again in the same way: without that a row would end by what it was a
              moment ago, though a poll, a POS or a person has changed it since
    lose      a row that is marked as on the wire and is not (the program stopped, or the database lost a COMMIT) has an
              unknown outcome

      the table says                                         claim               end
      as the queue has it, and no other row of its order     noted, and sent     written
      something else, or another row of its order            these rows          these rows (others do not matter)
      nothing: the row ended or is gone                      no rows             no rows
      locked by another session                              None                None (also where its order is)

Each method of OutcomeWriter is one transaction's work, for many rows. jobs.executor calls it for claims and outcomes,
jobs.outbox for the rest. What is decided about a row is a `Posting`; jobs.reconciler has some, too, from polls. Rows and
orders are locked (`hold`), then `post` writes in this order:

    rows      an end gets its state, its words and its attempts; a row that goes on gets when, or on what, it waits
    orders    the status that a done action gives them, the doubt that a refusal raises, a line of their story. Nothing,
              where none of the rows that were to end is unfinished any more: another session has ended them before, with
              all that follows
    `tell`    the log and the numbers, after the COMMIT: a commit that fails takes the end back

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

from orderbridge.actions import ACTIONS, key_of
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.model import ActionState, Attempt, OutboxRow, Outcome, Stored, Verdict
from orderbridge.observe.metrics import ACTIONS_ENDED
from orderbridge.rules.lifecycle import doubts_status, new_status, with_doubt
from orderbridge.rules.outbox_rows import Lane, has_changed, is_alarm, stands_after, with_reason, wrong_argument
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import (
    AwaitPoll,
    Decision,
    NextRequest,
    RetryAt,
    RetryPolicy,
    counted,
    decide,
    next_request,
    resend_at,
)
from orderbridge.store import actions, orders, reference, unfinished
from orderbridge.store.actions import End, Wait
from orderbridge.store.failures import is_refusal
from orderbridge.store.rows import ROW, lock_naming_held
from orderbridge.store.unfinished import Found
from orderbridge.texts import text

_NEVER_SENT = Attempt(Outcome.NOT_SENT)
_log = structlog.get_logger(__name__)


def about(row: OutboxRow) -> dict[str, str | int]:
    """What a row is about, for the log."""
    facts = {"payment_key": row.payment_key, "restaurant_id": row.restaurant_id, "food_id": row.food_id}
    return {name: value for name, value in facts.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that is ours to send."""

    row: OutboxRow
    lane: Lane
    account: Account
    request: NextRequest
    history: tuple[Attempt, ...]
    number: int
    again: RetryAt | None = None  # the resend, when what was asked for is not there and its time has not come


@dataclass(frozen=True, slots=True)
class Result:
    """How a claim's request ended. `decision`: the restaurant's own status decided it, and nothing was sent."""

    claim: Claim
    attempt: Attempt | None
    decision: Verdict | RetryAt | None = None

    @property
    def history(self) -> tuple[Attempt, ...]:
        """All attempts of the row."""
        return self.claim.history if self.attempt is None else (*self.claim.history, self.attempt)


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


Fresh = tuple[OutboxRow, ...] | None  # what the table has in place of a row of the queue; None: it is locked
Due = tuple[OutboxRow, Verdict]  # a row, and how it ends unsent


@dataclass
class OutcomeWriter:
    """Writes for all accounts of this process. What another session has locked is left out."""

    context: Context
    accounts: Mapping[str, Account]
    reader: OutboxReader

    def claim(self, connection: Connection, entries: Sequence[Entry]) -> list[tuple[Entry, Claim | Fresh]]:
        """What becomes of each row. A Claim is on the wire from now on, as far as the table is concerned."""
        if not entries:
            return []
        now = self.context.clock.now()
        found, fresh = self._read(connection, [entry.row for entry in entries], now)
        self._add_unknown(connection, found, fresh, now)
        histories = unfinished.histories(connection, [row.id for row in found.rows if row.tried])
        answers = [(entry, self._claim(entry, fresh[entry.row.id], histories, now)) for entry in entries]
        claims = [one for _, one in answers if isinstance(one, Claim)]
        actions.start(connection, [(claim.row, claim.number) for claim in claims], now)
        return answers

    def _read(
        self, connection: Connection, known: Sequence[OutboxRow], now: datetime
    ) -> tuple[Found, dict[int, Fresh]]:
        """These rows again, locked."""
        found, locked = unfinished.claim(connection, [row.id for row in known], self.reader.server, now)
        fresh: dict[int, Fresh] = {row.id: None if row.id in locked else () for row in known}
        return found, fresh | {row.id: (row,) for row in found.rows}

    def _add_unknown(self, connection: Connection, found: Found, fresh: dict[int, Fresh], now: datetime) -> None:
        """Which row of an order goes first is decided when the queue has them all."""
        knows = self.reader.knows
        unknown = {row.id: {one for one in found.of_order.get(row.id, ()) if not knows(one)} for row in found.rows}
        if wanted := sorted(set().union(*unknown.values())):
            others = unfinished.these(connection, wanted, self.reader.server, now).rows
            for row in found.rows:
                fresh[row.id] = (row, *(one for one in others if one.id in unknown[row.id]))

    def _claim(
        self, entry: Entry, fresh: Fresh, histories: Mapping[int, Sequence[Attempt]], now: datetime
    ) -> Claim | Fresh:
        row = _unchanged(entry.row, fresh)
        if row is None:
            return fresh
        account = self.accounts.get(entry.account or "")
        if account is None:  # it has left: the row is another process's by now
            return ()
        history = tuple(histories.get(row.id, ()))
        request, again = next_request(row.action, history), None
        if request == NextRequest.ASK_THEN_SEND:
            at = resend_at(history, now=now, policy=self._policy())
            again = RetryAt(at, history[-1].code) if at > now else None
        return Claim(row, entry.lane, account, request, history, len(history) + 1, again)

    def _policy(self) -> RetryPolicy:
        settings = self.context.settings
        waits, cooldown_s = settings.actions.retry_waits_seconds, settings.marketplace.cooldown_seconds
        return RetryPolicy(waits, cooldown_s, self.context.random.random())

    def post(self, connection: Connection, results: Sequence[Result]) -> list[tuple[Result, Decision]]:
        """Write what became of requests. Returns what was written, and what was decided."""
        if not results:
            return []
        now = self.context.clock.now()
        by_row = {result.claim.row.id: result for result in results}
        written = post_free(self.context, connection, [self._decide(result, now) for result in results], now)
        for one in written:
            row, name = one.row, by_row[one.row.id].claim.account.name
            if shown := shows_restaurant(row, one.decision):
                with best_effort(connection, row):
                    reference.set_restaurant_status(connection, name, key_of(row), shown, now, row_id=row.id)
        return [(by_row[one.row.id], one.decision) for one in written]

    def _decide(self, result: Result, now: datetime) -> Posting:
        claim, history = result.claim, result.history
        decision = result.decision or decide(
            claim.row.action, history, now=now, policy=self._policy(), retry_at=claim.account.retry_at()
        )
        return Posting(claim.row, decision, history, claim.number, result.attempt)

    def lose(self, connection: Connection, lost: Sequence[tuple[OutboxRow, int]]) -> list[int]:
        """Write that the outcome of these attempts is unknown, and what follows. Returns the rows that were written."""
        now = self.context.clock.now()
        histories = unfinished.histories(connection, [row.id for row, _ in lost])
        attempt = Attempt(Outcome.UNKNOWN, "stopped_while_sending")
        postings = []
        for row, number in lost:
            history = [*histories[row.id], attempt]
            decision = decide(row.action, history, now=now, policy=self._policy(), retry_at=now)
            postings.append(Posting(row, decision, history, number, attempt))
        return [one.row.id for one in post_free(self.context, connection, postings, now)]

    def end(self, connection: Connection, ends: Sequence[Due]) -> list[tuple[Due, Verdict | Fresh]]:
        """What became of each; a Verdict is written."""
        now = self.context.clock.now()
        known, locked = orders.hold(connection, [row.payment_key for row, _ in ends if row.payment_key])
        _, fresh = self._read(connection, [row for row, _ in ends], now)
        answers: list[tuple[Due, Verdict | Fresh]] = []
        postings = []
        for row, verdict in ends:
            now_there = None if row.payment_key in locked else fresh[row.id]
            if (one := _unchanged(row, now_there)) is not None:
                postings.append(Posting(one, with_reason(verdict, one)))
            answers.append(((row, verdict), now_there if one is None else with_reason(verdict, one)))
        post(self.context, connection, postings, known, now)
        return answers


def _unchanged(known: OutboxRow, fresh: Fresh) -> OutboxRow | None:
    """The row as it was read again, when it is as it was, and alone."""
    return fresh[0] if fresh and len(fresh) == 1 and not has_changed(known, fresh[0]) else None


def shows_restaurant(row: OutboxRow, decision: Decision) -> str | None:
    """The status that a restaurant has by now, when this has opened or closed it."""
    is_done = isinstance(decision, Verdict) and decision.state == ActionState.DONE
    return ACTIONS[row.action].target_shown if is_done else None


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


def tell(context: Context, row: OutboxRow, verdict: Verdict) -> None:
    """A row has ended, and that is on disk: one line in the log, and a number."""
    log = _log.error if is_alarm(row, verdict) else _log.info
    facts = {"code": verdict.code, "known_by": verdict.known_by, **about(row)}
    log(f"action.{verdict.state}", id=row.id, action=row.action, **facts)
    context.metrics.count(ACTIONS_ENDED, row.action, verdict.state)


def hold(connection: Connection, rows: Sequence[OutboxRow]) -> tuple[dict[int, OutboxRow], dict[str, Stored]]:
    """Lock these rows and their orders. Returns the rows that no other session has locked, and what is stored."""
    locked = lock_naming_held(connection, ROW, [row.id for row in rows])
    known, held = orders.hold(connection, {row.payment_key for row in rows if row.payment_key})
    return {row.id: row for row in rows if row.id not in locked and row.payment_key not in held}, known


def post_free(context: Context, connection: Connection, postings: Sequence[Posting], now: datetime) -> list[Posting]:
    """Write what ended attempts have led to, of rows that no other session has locked. Returns what was written."""
    rows, known = hold(connection, [one.row for one in postings])
    free = [one for one in postings if one.row.id in rows]
    ended = [(one.row.id, one.number, one.attempt) for one in free if one.number is not None]
    actions.record(connection, [(row_id, number, one) for row_id, number, one in ended if one is not None], now)
    actions.forget_attempts(connection, [(row_id, number) for row_id, number, one in ended if one is None])
    post(context, connection, free, known, now)
    return free


def post(
    context: Context, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
) -> int:
    """Write decisions about rows, and into the orders that are known. Returns how many rows ended by it."""
    ends: list[tuple[int, End]] = []
    waits: list[tuple[int, Wait]] = []
    for one in postings:
        match one.decision:
            case Verdict() as verdict:
                words = _words(context, one.row, verdict.code, verdict.state)
                ends.append((one.row.id, End(verdict, words, one.counted)))
            case RetryAt() | AwaitPoll() as goes_on:
                waits.append((one.row.id, _wait(context, one, goes_on)))
    ended = actions.finish(connection, ends, now)
    actions.postpone(connection, waits)
    if ended or not ends:
        _write_orders(context, connection, [one for one in postings if one.row.payment_key in known], known, now)
    return ended


def refuse_unreadable(context: Context, connection: Connection, ids: Sequence[int]) -> list[tuple[int, bool]]:
    """End rows that slipped past the constraints and cannot even be read. Whether each was there to be ended."""
    words = text("bad_arguments", context.settings.language, argument="action", problem="unknown")
    end, now = End(Verdict(ActionState.REFUSED, "bad_arguments"), words, 0), context.clock.now()
    return [(row_id, bool(actions.finish(connection, [(row_id, end)], now))) for row_id in ids]


def _wait(context: Context, one: Posting, decision: RetryAt | AwaitPoll) -> Wait:
    last = one.history[-1] if one.history else _NEVER_SENT
    state = stands_after(decision, one.history).state
    at = decision.at if isinstance(decision, RetryAt) else None
    return Wait(state, at, last.code, last.http_status, _words(context, one.row, last.code, state), one.counted)


def _write_orders(
    context: Context, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
) -> None:
    """All together; where a trigger of the POS refuses one, each by itself."""
    if len(postings) > 1:
        try:
            with connection.begin_nested():
                _order_parts(context, connection, postings, known, now)
        except DBAPIError as error:
            if not is_refusal(error):
                raise
        else:
            return
    for one in postings:
        with best_effort(connection, one.row):
            _order_parts(context, connection, [one], known, now)


def _order_parts(
    context: Context, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
) -> None:
    news, doubted, story = [], [], []
    for one in postings:
        order, verdict = known[key_of(one.row)], one.decision
        if doubts_status(verdict) and (problem := with_doubt(order.problem)) is not None:
            doubted.append((order.payment_key, problem))
        if not isinstance(verdict, Verdict):
            continue
        if (status := new_status(verdict, order, context.statuses)) is not None:
            news.append((order.payment_key, status))
        became = verdict.status_id if verdict.status_id is not None else order.status_id
        word = context.statuses.name(became)
        story.append((order.payment_key, f"{one.row.action}.{verdict.state}", became, word, verdict.code))
    orders.set_status(connection, news, now)
    orders.doubt_status(connection, doubted)
    orders.append_events(connection, now, story)


def _words(context: Context, row: OutboxRow, code: str | None, state: ActionState) -> str | None:
    if code is None:
        return None
    argument, problem = wrong_argument(row)
    return text(code, context.settings.language, state=state, argument=argument, problem=problem)
