"""What is written about outbox rows: that they leave, what became of their requests, and how the others end unsent.

    claim     rows whose turn it is are read again, locked. A row that is as the queue has it is noted as on the wire;
              what has changed goes back to the queue, which decides again (rules.queue). A row that another session has
              locked is left for a moment
    post      outcomes of requests: the attempt, and what is decided by it (rules.retry)
    end       rows that the queue ends unsent, read again in the same way: without that a row would end by what it was a
              moment ago, though a poll, a POS or a person has changed it since

      the table says                                         claim               end
      as the queue has it, and no other row of its order     noted, and sent     written
      something else, or another row of its order            Changed             Changed (other rows do not matter)
      nothing: the row ended or is gone                      Changed, no rows    Changed, no rows
      locked by another session                              None                None (also where its order is)

Each function is one transaction's work, for many rows. What a decision changes is written by jobs.verdicts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection

from orderbridge.actions import ACTIONS, key_of
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.verdicts import Posting, Verdicts, about, best_effort
from orderbridge.model import ActionState, Attempt, OutboxRow, Outcome, Verdict
from orderbridge.observe.metrics import ACTION_WAIT_SECONDS
from orderbridge.rules.outbox import Lane, has_changed, with_reason
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import Decision, NextRequest, RetryAt, RetryPolicy, decide, next_request, resend_at
from orderbridge.store import actions, orders, reference, unfinished
from orderbridge.store.unfinished import Found, ServerClock

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
class Changed:
    """The table has these rows in place of the one that the queue has."""

    rows: tuple[OutboxRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The claim was not written, or it is not known whether it was."""

    error: Exception | None = None


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


Claimed = Claim | Changed | None  # None: another session has locked the row
End = tuple[OutboxRow, Verdict]


class OutcomeWriter:
    """Writes for all accounts of this process. What another session has locked is left out."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        clock: Clock,
        server: ServerClock,
        policy: Callable[[], RetryPolicy],
        is_known: Callable[[int], bool],
        verdicts: Verdicts,
    ) -> None:
        """`is_known`: whether the queue has a row."""
        self._accounts = accounts
        self._clock = clock
        self._server = server
        self._policy = policy
        self._is_known = is_known
        self._verdicts = verdicts

    # ---- claims ------------------------------------------------------------------------------------------------------

    def claim(self, connection: Connection, entries: Sequence[Entry]) -> list[tuple[Entry, Claimed]]:
        """What becomes of each row. A Claim is on the wire from now on, as far as the table is concerned."""
        if not entries:
            return []
        now = self._clock.now()
        found, fresh = self._read([entry.row for entry in entries], connection, now)
        self._add_unknown(connection, found, fresh, now)
        free = {row_id: row for row_id, row in fresh.items() if isinstance(row, OutboxRow)}
        histories = unfinished.histories(connection, [row_id for row_id, row in free.items() if row.tried])
        answers: list[tuple[Entry, Claimed]] = []
        for entry in entries:
            row, owner = fresh[entry.row.id], self._accounts.get(entry.account or "")
            if not isinstance(row, OutboxRow):
                answers.append((entry, row))
            elif owner is None:  # its account has left: it is another process's by now
                answers.append((entry, Changed()))
            else:
                history = tuple(histories.get(row.id, ()))
                answers.append((entry, self._claim(row, entry.lane, owner, history, now)))
        claims = [one for _, one in answers if isinstance(one, Claim)]
        actions.start(connection, [(claim.row, claim.number) for claim in claims], now)
        return answers

    def _read(
        self, known: Sequence[OutboxRow], connection: Connection, now: datetime
    ) -> tuple[Found, dict[int, OutboxRow | Changed | None]]:
        """These rows again, locked: a row that is as it was, what has changed, or None: another session has it."""
        found, locked = unfinished.claim(connection, [row.id for row in known], self._server, now)
        fresh = {row.id: row for row in found.rows}
        said: dict[int, OutboxRow | Changed | None] = {}
        for row in known:
            one = fresh.get(row.id)
            if one is None:
                said[row.id] = None if row.id in locked else Changed()
            else:
                said[row.id] = Changed((one,)) if has_changed(row, one) else one
        return found, said

    def _add_unknown(
        self, connection: Connection, found: Found, fresh: dict[int, OutboxRow | Changed | None], now: datetime
    ) -> None:
        """Which row of an order goes first is decided when the queue has them all."""
        unknown = {
            row.id: {one for one in found.of_order.get(row.id, ()) if not self._is_known(one)} for row in found.rows
        }
        wanted = sorted(set().union(*unknown.values()))
        if not wanted:
            return
        others = {row.id: row for row in unfinished.these(connection, wanted, self._server, now).rows}
        for row in found.rows:
            if unknown[row.id]:
                fresh[row.id] = Changed((row, *(others[one] for one in sorted(unknown[row.id] & others.keys()))))

    def _claim(
        self, row: OutboxRow, lane: Lane, account: Account, history: tuple[Attempt, ...], now: datetime
    ) -> Claim:
        request, again = next_request(row.action, history), None
        if request == NextRequest.ASK_THEN_SEND:
            at = resend_at(history, now=now, policy=self._policy())
            again = RetryAt(at, history[-1].code) if at > now else None
        return Claim(row, lane, account, request, history, len(history) + 1, again)

    def count_wait(self, claim: Claim) -> None:
        """Measure the time from the insert to now, when its first request leaves."""
        if claim.number == 1 and claim.row.created_utc is not None:
            waited = (self._clock.now() - claim.row.created_utc).total_seconds()
            self._verdicts.metrics.observe(ACTION_WAIT_SECONDS, max(waited, 0.0))

    # ---- outcomes ----------------------------------------------------------------------------------------------------

    def post(self, connection: Connection, results: Sequence[Result]) -> list[tuple[Result, Decision]]:
        """Write what became of requests. Returns what was written, and what was decided."""
        if not results:
            return []
        now = self._clock.now()
        made = {one.claim.row.id: (one, self._decide(one, now)) for one in results}
        written = self._verdicts.post_free(connection, [posting for _, posting in made.values()], now)
        for posting in written:
            self._show_restaurant(connection, made[posting.row.id][0], posting.decision, now)
        return [(made[posting.row.id][0], posting.decision) for posting in written]

    def _decide(self, result: Result, now: datetime) -> Posting:
        claim = result.claim
        decision = result.decision or decide(
            claim.row.action, result.history, now=now, policy=self._policy(), retry_at=claim.account.retry_at()
        )
        return Posting.after(claim.row, result.history, decision, claim.number, result.attempt)

    def lose(self, connection: Connection, lost: Sequence[tuple[OutboxRow, int]]) -> list[int]:
        """Write that the outcome of these attempts is unknown, and what follows. Returns the rows that were written."""
        now = self._clock.now()
        histories = unfinished.histories(connection, [row.id for row, _ in lost])
        attempt = Attempt(Outcome.UNKNOWN, "stopped_while_sending")
        postings = []
        for row, number in lost:
            history = [*histories[row.id], attempt]
            decision = decide(row.action, history, now=now, policy=self._policy(), retry_at=now)
            postings.append(Posting.after(row, history, decision, number, attempt))
        return [one.row.id for one in self._verdicts.post_free(connection, postings, now)]

    def _show_restaurant(self, connection: Connection, result: Result, decision: Decision, now: datetime) -> None:
        claim = result.claim
        if shown := shows_restaurant(claim.row, decision):
            with best_effort(connection, claim.row):
                reference.set_restaurant_status(
                    connection, claim.account.name, key_of(claim.row), shown, now, row_id=claim.row.id
                )

    def log(self, result: Result, decision: Decision) -> None:
        """One line for what became of a request, once it is written."""
        row, attempt = result.claim.row, result.attempt
        if isinstance(decision, Verdict):
            self._verdicts.tell(row, decision)
            return
        # What keeps a whole account waiting is logged once for the account, and a wait once for each cause.
        before = {one.code for one in result.claim.history}
        again = attempt is None or attempt.outcome == Outcome.NOT_SENT or attempt.code in before
        log = _log.debug if again else _log.info
        at = decision.at.isoformat() if isinstance(decision, RetryAt) else "next_poll"
        log("action.waits", id=row.id, action=row.action, code=decision.code, again=at, **about(row))

    # ---- ends of rows that are not sent ------------------------------------------------------------------------------

    def end(self, connection: Connection, ends: Sequence[End]) -> list[tuple[End, Verdict | Changed | None]]:
        """What became of each; a Verdict is written."""
        now = self._clock.now()
        known, locked = orders.hold(connection, [row.payment_key for row, _ in ends if row.payment_key])
        _, fresh = self._read([row for row, _ in ends], connection, now)
        answers: list[tuple[End, Verdict | Changed | None]] = []
        postings = []
        for row, verdict in ends:
            one = None if row.payment_key in locked else fresh[row.id]
            if isinstance(one, OutboxRow):
                postings.append(Posting(one, with_reason(verdict, one), one.attempts))
                answers.append(((row, verdict), with_reason(verdict, one)))
            else:
                answers.append(((row, verdict), one))
        self._verdicts.post(connection, postings, known, now)
        return answers

    def refuse_unreadable(self, connection: Connection, row_ids: Sequence[int]) -> list[tuple[int, bool]]:
        """End rows that slipped past the constraints and cannot even be read. Whether each was there to be ended."""
        now = self._clock.now()
        return [(row_id, self._verdicts.refuse_unreadable(connection, row_id, now)) for row_id in row_ids]


def shows_restaurant(row: OutboxRow, decision: Decision) -> str | None:
    """The status that a restaurant has by now, when this has opened or closed it."""
    is_done = isinstance(decision, Verdict) and decision.state == ActionState.DONE
    return ACTIONS[row.action].target_shown if is_done else None
