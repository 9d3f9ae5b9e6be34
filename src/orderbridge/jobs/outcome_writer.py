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

Each method of OutcomeWriter is one transaction's work, for many rows. What a decision changes is written by
jobs.verdicts. Claims and outcomes come by jobs.executor; `Ends` and `Recovery` have the rest written.

A row that ends unsent (expired, withdrawn, superseded, refused here) is ENDING from its decision until its end is on
disk: it keeps its lane, so that nothing behind it overtakes an end that may yet fail.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog
from sqlalchemy import Connection

from orderbridge.actions import ACTIONS, key_of
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.jobs.postponed import STUCK_S, Postponed
from orderbridge.jobs.verdicts import Posting, best_effort
from orderbridge.model import ActionState, Attempt, OutboxRow, Outcome, Verdict
from orderbridge.observe.metrics import ACTIONS_ENDED, UNREADABLE
from orderbridge.rules.outbox_rows import Lane, has_changed, order_lane, with_reason
from orderbridge.rules.queue import Entry, Queue
from orderbridge.rules.retry import Decision, NextRequest, RetryAt, RetryPolicy, decide, next_request, resend_at
from orderbridge.store import actions, orders, reference, unfinished
from orderbridge.store.group_commit import write_batch
from orderbridge.store.unfinished import Found

MOST_ENDS = 200  # rows that end unsent in one transaction: a POS on the same file waits for it

_log = structlog.get_logger(__name__)


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


Fresh = tuple[OutboxRow, ...] | None  # what the table has in place of a row of the queue; None: it is locked
End = tuple[OutboxRow, Verdict]


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
        written = self.context.verdicts.post_free(connection, [self._decide(result, now) for result in results], now)
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
        return [one.row.id for one in self.context.verdicts.post_free(connection, postings, now)]

    def end(self, connection: Connection, ends: Sequence[End]) -> list[tuple[End, Verdict | Fresh]]:
        """What became of each; a Verdict is written."""
        now = self.context.clock.now()
        known, locked = orders.hold(connection, [row.payment_key for row, _ in ends if row.payment_key])
        _, fresh = self._read(connection, [row for row, _ in ends], now)
        answers: list[tuple[End, Verdict | Fresh]] = []
        postings = []
        for row, verdict in ends:
            now_there = None if row.payment_key in locked else fresh[row.id]
            if (one := _unchanged(row, now_there)) is not None:
                postings.append(Posting(one, with_reason(verdict, one)))
            answers.append(((row, verdict), now_there if one is None else with_reason(verdict, one)))
        self.context.verdicts.post(connection, postings, known, now)
        return answers


def _unchanged(known: OutboxRow, fresh: Fresh) -> OutboxRow | None:
    """The row as it was read again, when it is as it was, and alone."""
    return fresh[0] if fresh and len(fresh) == 1 and not has_changed(known, fresh[0]) else None


def shows_restaurant(row: OutboxRow, decision: Decision) -> str | None:
    """The status that a restaurant has by now, when this has opened or closed it."""
    is_done = isinstance(decision, Verdict) and decision.state == ActionState.DONE
    return ACTIONS[row.action].target_shown if is_done else None


@dataclass(slots=True, eq=False)
class Ends:
    """Writes the ends of rows that are not sent, in groups, while the lanes of those that were sent once are ours."""

    context: Context
    queue: Queue
    reader: OutboxReader
    writer: OutcomeWriter
    postponed: Postponed
    due: list[End] = field(default_factory=list)  # decided, and not written yet

    async def write_some(self) -> int:
        """Write the ends of rows that are not sent, so many at a time."""
        self.due += self.queue.ends()
        if not self.due:
            return 0
        some, self.due = self.due[:MOST_ENDS], self.due[MOST_ENDS:]
        ours = [(row, verdict) for row, verdict in some if row.id in self.queue]  # the others were let go meanwhile
        ends, lanes = self._with_lanes(ours)
        ended, settled = 0, set[int]()
        try:
            answers, failed = await write_batch(self.context.database, self.writer.end, ends, urgent=True)
            aside: list[tuple[OutboxRow, Exception | None]] = [(row, error) for (row, _), error in failed]
            aside += [(row, None) for (row, _), answer in answers if answer is None]
            self.postponed.put_aside(aside)
            settled = {row.id for row, _ in aside}
            for (row, _), answer in answers:
                if answer is not None:
                    settled.add(row.id)
                    ended += self._not_sent(row, answer)
        finally:
            for lane in lanes:
                self.context.lanes.free_after_action(lane)
            # A row that stayed ENDING would hold its lane for ever.
            for row, _ in ends:
                if row.id not in settled:
                    self.queue.give_back(row.id)
        return ended

    def _with_lanes(self, ends: Sequence[End]) -> tuple[list[End], list[Lane]]:
        """Those that can be written now, and the lanes that were taken for it.

        An unresolved row of an order ends while its lane is ours: a list that is being taken in must not see it end.
        """
        free: list[End] = []
        lanes: list[Lane] = []
        for row, verdict in ends:
            if row.state == ActionState.SENDING and row.payment_key is not None:
                lane = order_lane(row.payment_key)
                if not self.context.lanes.take(lane):
                    self.postponed.leave(row.id)
                    continue
                lanes.append(lane)
            free.append((row, verdict))
        return free, lanes

    def _not_sent(self, row: OutboxRow, answer: Verdict | tuple[OutboxRow, ...]) -> bool:
        """Whether it ended."""
        self.postponed.forget(row.id)
        if not isinstance(answer, Verdict):
            self.reader.replace(row.id, answer)
            return False
        self.queue.drop(row.id)
        self.context.verdicts.tell(row, answer)
        return True

    async def refuse_unreadable(self) -> int:
        """Rows that slipped past the constraints and cannot even be read."""
        unreadable = [row_id for row_id in self.reader.unreadable if not self.postponed.waits(row_id)][:MOST_ENDS]
        if not unreadable:
            return 0
        refuse = partial(self.context.verdicts.refuse_unreadable, now=self.context.clock.now())
        refused, broken = await write_batch(self.context.database, refuse, unreadable, urgent=True)
        self.postponed.put_off(dict(broken), {})
        for row_id, _ in refused:
            self.postponed.forget(row_id)
            self.reader.unreadable.discard(row_id)
        ended = sum(ended for _, ended in refused)
        self.context.metrics.count(ACTIONS_ENDED, UNREADABLE, ActionState.REFUSED, by=ended)
        return ended


@dataclass(slots=True, eq=False)
class Recovery:
    """Finds lost requests and has it written that their outcome is unknown."""

    context: Context
    reader: OutboxReader
    writer: OutcomeWriter
    postponed: Postponed
    again_at: float = math.inf  # by the monotonic clock: when those that could not be written are tried again

    async def run(self, mine: Collection[int]) -> None:
        """`mine`: rows that are on the wire indeed."""
        lost = await self.context.database.read(lambda tx: self._lost(tx, mine))
        recovered, failed = await write_batch(self.context.database, self.writer.lose, lost)
        errors, rows = {row.id: error for (row, _), error in failed}, {row.id: row for row, _ in lost}
        times = self.postponed.put_off(errors, rows)
        for row_id in recovered:
            self.postponed.forget(row_id)
        if recovered:
            _log.warning("outbox.recovered", rows=len(recovered))
        soon = self.context.clock.monotonic() + STUCK_S  # what a till holds, or where the database is away
        held = [] if len(recovered) + len(failed) == len(lost) else [soon]
        self.again_at = min([*times.values(), *held], default=math.inf)

    def _lost(self, connection: Connection, mine: Collection[int]) -> list[tuple[OutboxRow, int]]:
        """The rows that are marked as on the wire and are not, each with the attempt that was lost."""
        lost = unfinished.unfinished_attempts(connection)
        sending = unfinished.read_unfinished(connection, sending_only=True)[0] if lost else []
        # A row that another replica has on the wire is none of those.
        rows = {row.id: row for row in sending if row.id not in mine and self.reader.is_ours(row)}
        return [(rows[row_id], number) for row_id, number in lost if row_id in rows]
