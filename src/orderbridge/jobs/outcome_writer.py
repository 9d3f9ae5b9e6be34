"""Writes claims, outcomes and ends of outbox rows, with their effects on the orders.

    claim     read the rows again, locked, and mark each unchanged one as in flight. A changed row goes back to the
              queue, which decides again (rules.queue). A row locked by another session is left for a moment
    post      write the outcomes of requests: the attempt and the decision about it (rules.retry)
    end       write the ends of rows that are not sent. They are read again first, because a poll, a POS or a person may
              have changed them since the decision
    lose      write an unknown outcome for orphaned rows: marked as in flight when the program or the database stopped

What `claim` and `end` return for a row, by what the table has:

      the table has                                    claim               end
      the same row, and no unknown row of its order    a Claim, to send    a Verdict, written
      a changed row, or an unknown row of its order    these rows          these rows (others do not matter)
      nothing: the row ended or is gone                no rows             no rows
      a row locked by another session                  None                None (also if its order is locked)

Each method of OutcomeWriter is the work of one transaction for many rows. jobs.executor calls it for claims and
outcomes, jobs.outbox for the rest. A decision about a row is a `Posting`; jobs.reconciler makes some from polls. After
the rows and orders are locked (`hold`), `post` writes:

    rows         the state, text and attempts of rows that end; the time, or the poll, that other rows wait for
    orders       the new status after a done action, the doubt after a refusal, a line of the history. Nothing is
                 written if another session has already ended all these rows, with their effects
    `report`     the log and the metrics, after the COMMIT, because the COMMIT may fail

The row is written first, the order in a savepoint. If a trigger of the POS refuses the write to the order, the row
still gets its verdict: otherwise it would stay `sending`, and be sent again after a restart although it was answered.
The refusal is logged, and the next delivery of the order brings its status.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.actions import ACTIONS, key_of
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.model import ActionState, Attempt, OutboxRow, Outcome, Stored, Verdict
from orderbridge.observe.metrics import ACTIONS_ENDED
from orderbridge.rules.closures import planned_end
from orderbridge.rules.lifecycle import doubts_status, new_status, with_doubt
from orderbridge.rules.outbox_rows import Lane, has_changed, is_alarm, stands_after, with_reason, wrong_argument
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import (
    AwaitPoll,
    Decision,
    NextRequest,
    RetryAt,
    RetryPolicy,
    after_status,
    counted,
    decide,
    is_uncertain,
    next_request,
    resend_at,
)
from orderbridge.store import actions, foods, orders, reference, unfinished
from orderbridge.store.actions import End, Wait
from orderbridge.store.ddl import as_stored
from orderbridge.store.failures import is_refusal
from orderbridge.store.rows import ROW, lock_naming_held
from orderbridge.store.unfinished import Found
from orderbridge.texts import text

_NEVER_SENT = Attempt(Outcome.NOT_SENT)
_LOST = Attempt(Outcome.UNKNOWN, "stopped_while_sending")
_log = structlog.get_logger(__name__)


def about(row: OutboxRow) -> dict[str, str | int]:
    """The ids of a row's subject, for the log."""
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
    again: RetryAt | None = None  # set if it is too early to send again; used if the status shows no effect
    known: Verdict | None = None  # by the food's status; nothing is sent


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a claim. `decision` is set if a status decided it, and nothing was sent."""

    claim: Claim
    attempt: Attempt | None
    decision: Verdict | RetryAt | None = None

    @property
    def history(self) -> tuple[Attempt, ...]:
        """All attempts of the row."""
        return self.claim.history if self.attempt is None else (*self.claim.history, self.attempt)


@dataclass(frozen=True, slots=True)
class Posting:
    """A decision about a row, with the attempts that it is based on (`history`, the newest last).

    `number` is that of the attempt that ends now; `attempt` is its outcome, or None if no request was sent.
    """

    row: OutboxRow
    decision: Decision
    history: Sequence[Attempt] = ()
    number: int | None = None
    attempt: Attempt | None = None

    @property
    def counted(self) -> int:
        """The number of attempts that count."""
        return counted(self.history) if self.history else self.row.attempts


Fresh = tuple[OutboxRow, ...] | None  # the rows that replace a row of the queue; None: it is locked
Due = tuple[OutboxRow, Verdict]  # a row that is to end unsent


@dataclass
class OutcomeWriter:
    """Writes for all accounts of this process. Rows that other sessions have locked are left out."""

    context: Context
    accounts: Mapping[str, Account]
    reader: OutboxReader

    def claim(self, connection: Connection, entries: Sequence[Entry]) -> list[tuple[Entry, Claim | Fresh]]:
        """Claim rows. A row with a Claim is marked as in flight; see the table above for the others."""
        if not entries:
            return []
        now = self.context.clock.now()
        found, fresh = self._read(connection, [entry.row for entry in entries], now)
        self._add_unknown(connection, found, fresh, now)
        histories = unfinished.histories(connection, [row.id for row in found.rows if row.tried])
        answers = [(entry, self._claim(entry, fresh[entry.row.id], histories, now)) for entry in entries]
        answers = self._known(connection, answers, now)
        claims = [one for _, one in answers if isinstance(one, Claim)]
        actions.start(connection, [(claim.row, claim.number) for claim in claims], now)
        return answers

    def _read(
        self, connection: Connection, known: Sequence[OutboxRow], now: datetime
    ) -> tuple[Found, dict[int, Fresh]]:
        """Lock these rows and read them again."""
        found, locked = unfinished.claim(connection, [row.id for row in known], self.reader.server, now)
        fresh: dict[int, Fresh] = {row.id: None if row.id in locked else () for row in known}
        return found, fresh | {row.id: (row,) for row in found.rows}

    def _add_unknown(self, connection: Connection, found: Found, fresh: dict[int, Fresh], now: datetime) -> None:
        """Add rows of the same orders that the queue does not know yet: it must have all to decide which goes first."""
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
        if account is None:  # it left, and another process has its rows now
            return ()
        history = tuple(histories.get(row.id, ()))
        request, again = next_request(row.action, history), None
        if request == NextRequest.ASK_THEN_SEND:
            at = resend_at(history, now=now, policy=self._policy())
            again = RetryAt(at, history[-1].code) if at > now else None
        return Claim(row, entry.lane, account, request, history, len(history) + 1, again)

    def _known(
        self, connection: Connection, answers: Sequence[tuple[Entry, Claim | Fresh]], now: datetime
    ) -> list[tuple[Entry, Claim | Fresh]]:
        """The claims, with a verdict where a newer menu shows the effect of a food's row in doubt."""
        doubtful = [
            (one.account.name, one.row.food_id)
            for _, one in answers
            if isinstance(one, Claim) and one.row.food_id is not None and is_uncertain(one.history)
        ]
        if not doubtful:
            return list(answers)
        statuses = foods.statuses(connection, doubtful, now)
        return [(entry, _by_menu(one, statuses) if isinstance(one, Claim) else one) for entry, one in answers]

    def _policy(self) -> RetryPolicy:
        settings = self.context.settings
        waits, cooldown_s = settings.actions.retry_waits_seconds, settings.marketplace.cooldown_seconds
        return RetryPolicy(waits, cooldown_s, self.context.random.random())

    def post(self, connection: Connection, results: Sequence[Result]) -> list[tuple[Result, Decision]]:
        """Write the outcomes of requests. Returns those that were written, with the decisions."""
        if not results:
            return []
        now = self.context.clock.now()
        by_row = {result.claim.row.id: result for result in results}
        written = post_free(self.context, connection, [self._decide(result, now) for result in results], now)
        for one in written:
            row, name = one.row, by_row[one.row.id].claim.account.name
            if shown := shows_status(row, one.decision):
                with best_effort(connection, row):
                    if row.food_id is None:
                        reference.set_restaurant_status(connection, name, key_of(row), shown, now, row_id=row.id)
                    else:
                        foods.set_status(connection, name, row.food_id, shown, now)
        return [(by_row[one.row.id], one.decision) for one in written]

    def _decide(self, result: Result, now: datetime) -> Posting:
        claim, history = result.claim, result.history
        decision = result.decision or decide(
            claim.row.action, history, now=now, policy=self._policy(), retry_at=claim.account.retry_at()
        )
        return Posting(claim.row, decision, history, claim.number, result.attempt)

    def lose(self, connection: Connection, lost: Sequence[tuple[OutboxRow, int]]) -> list[int]:
        """Write the unknown outcome of these attempts and the decision. Returns the ids of the written rows."""
        now = self.context.clock.now()
        histories = unfinished.histories(connection, [row.id for row, _ in lost])
        postings = []
        for row, number in lost:
            history = [*histories[row.id], _LOST]
            decision = decide(row.action, history, now=now, policy=self._policy(), retry_at=now)
            postings.append(Posting(row, decision, history, number, _LOST))
        return [one.row.id for one in post_free(self.context, connection, postings, now)]

    def end(self, connection: Connection, ends: Sequence[Due]) -> list[tuple[Due, Verdict | Fresh]]:
        """Write ends. Returns a Verdict for each row that ended, else what the table has."""
        now = self.context.clock.now()
        known, locked = orders.hold(connection, [row.payment_key for row, _ in ends if row.payment_key])
        _, fresh = self._read(connection, [row for row, _ in ends], now)
        histories = unfinished.histories(connection, [row.id for row, _ in ends if row.state == ActionState.SENDING])
        answers: list[tuple[Due, Verdict | Fresh]] = []
        postings = []
        for row, verdict in ends:
            now_there = None if row.payment_key in locked else fresh[row.id]
            if (one := _unchanged(row, now_there)) is not None:
                postings.append(Posting(one, with_reason(verdict, one), histories.get(one.id, ())))
            answers.append(((row, verdict), now_there if one is None else with_reason(verdict, one)))
        post(self.context, connection, postings, known, now)
        return answers


def _unchanged(known: OutboxRow, fresh: Fresh) -> OutboxRow | None:
    """The row that was read again, if it is unchanged and the only one; else None."""
    return fresh[0] if fresh and len(fresh) == 1 and not has_changed(known, fresh[0]) else None


def _by_menu(claim: Claim, statuses: Mapping[tuple[str, int], Any]) -> Claim:
    """The claim, with the verdict if a menu that was requested after the last attempt shows its effect."""
    shown, ended = statuses.get((claim.account.name, claim.row.food_id or 0)), claim.history[-1:]
    if not ended or shown is None or ended[0].ended_utc is None or shown.seen_utc <= as_stored(ended[0].ended_utc):
        return claim
    return replace(claim, known=after_status(claim.row.action, shown.status, claim.history))


def shows_status(row: OutboxRow, decision: Decision) -> str | None:
    """The new status of the row's restaurant or food, if this decision means that it was switched."""
    is_done = isinstance(decision, Verdict) and decision.state == ActionState.DONE
    return ACTIONS[row.action].target_shown if is_done else None


@contextlib.contextmanager
def best_effort(connection: Connection, row: OutboxRow) -> Iterator[None]:
    """A savepoint for the writes to orders and restaurants: if a trigger refuses them, the row keeps its verdict."""
    try:
        with connection.begin_nested():
            yield
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        _log.error("action.order_not_written", id=row.id, error=type(error.orig).__name__, **about(row))


def report(context: Context, row: OutboxRow, verdict: Verdict) -> None:
    """Log and count a row's end, after the commit."""
    log = _log.error if is_alarm(row, verdict) else _log.info
    facts = {"code": verdict.code, "known_by": verdict.known_by, **about(row)}
    log(f"action.{verdict.state}", id=row.id, action=row.action, **facts)
    context.metrics.count(ACTIONS_ENDED, row.action, verdict.state)


def hold(connection: Connection, rows: Sequence[OutboxRow]) -> tuple[dict[int, OutboxRow], dict[str, Stored]]:
    """Lock these rows and their orders. Returns the rows that are free, and the stored orders."""
    locked = lock_naming_held(connection, ROW, [row.id for row in rows])
    known, held = orders.hold(connection, {row.payment_key for row in rows if row.payment_key})
    return {row.id: row for row in rows if row.id not in locked and row.payment_key not in held}, known


def post_free(context: Context, connection: Connection, postings: Sequence[Posting], now: datetime) -> list[Posting]:
    """Write the decisions of rows that are not locked. Returns the written ones."""
    rows, known = hold(connection, [one.row for one in postings])
    free = [one for one in postings if one.row.id in rows]
    post(context, connection, free, known, now)
    return free


def post(
    context: Context, connection: Connection, postings: Sequence[Posting], known: Mapping[str, Stored], now: datetime
) -> int:
    """Write ended attempts, and decisions to the rows and to the `known` orders. Returns how many rows ended."""
    postings = _with_lost(connection, postings)
    noted = [(one.row.id, one.number, one.attempt or _NEVER_SENT) for one in postings if one.number is not None]
    actions.record(connection, noted, now)
    ends: list[tuple[int, End]] = []
    waits: list[tuple[int, Wait]] = []
    for one in postings:
        match one.decision:
            case Verdict() as verdict:
                words = _words(context, one.row, verdict.code, verdict.state)
                until = planned_end(one.row, verdict, now)
                ends.append((one.row.id, End(verdict, words, one.counted, until)))
            case RetryAt() | AwaitPoll() as goes_on:
                waits.append((one.row.id, _wait(context, one, goes_on)))
    ended = actions.finish(connection, ends, now)
    actions.postpone(connection, waits)
    if ended or not ends:
        _write_orders(context, connection, [one for one in postings if one.row.payment_key in known], known, now)
    return ended


def _with_lost(connection: Connection, postings: Sequence[Posting]) -> Sequence[Posting]:
    """Add the interrupted attempts whose unknown outcomes the database has refused (`lose`)."""
    sent = {one.row.id: one for one in postings if one.number is None and one.row.state == ActionState.SENDING}
    for row_id, number, _ in unfinished.unfinished_attempts(connection) if sent else ():
        if (one := sent.get(row_id)) is not None:
            sent[row_id] = replace(one, history=(*one.history, _LOST), number=number, attempt=_LOST)
    return [sent.get(one.row.id, one) for one in postings]


def refuse_unreadable(context: Context, connection: Connection, ids: Sequence[int]) -> list[tuple[int, bool]]:
    """Refuse rows that passed the constraints but cannot be parsed. Returns whether each was found unfinished."""
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
    """Write to the orders together; if a trigger of the POS refuses one, one by one."""
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
