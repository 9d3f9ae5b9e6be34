"""The outbox at work: claim what may go, send it, write the verdicts.

read: every unfinished row (short, by a partial index)
decide: rules.outbox which rows go or end unsent, rules.retry what an answer makes of a row
write: claims and verdicts in batches, each guarded by the state the row must have

A row is marked as sent before its request leaves, so that a crash in between is seen as an unknown outcome.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.batch import write_batch
from orderbridge.jobs.carry import Claim, Result, carry
from orderbridge.jobs.choose import Chooser, Survey
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.verdicts import Verdicts, about, beside, tell_verdict
from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome, Verdict
from orderbridge.rules.lifecycle import RESTAURANT_ACTIONS
from orderbridge.rules.outbox import Head, order_lane
from orderbridge.rules.retry import Again, Decision, Pace, Step, decide, next_step, resend_at
from orderbridge.store import actions, locks, reference
from orderbridge.store.database import Database, is_refusal, remedy

STUCK_S = 0.5  # between two tries to write the verdicts whose rows a till holds
REFUSED_S = 60.0  # between two tries to write a row that a trigger or a constraint refuses
FLOOR_S = 2.0  # the outbox is looked at this often, whatever wakes or does not

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Drained:
    """What one tick did. `again_in`: seconds until the next one is due at the latest."""

    claimed: int = 0
    settled: int = 0
    unsent: int = 0
    again_in: float = FLOOR_S


class Outbox:
    """Carries out what the POS writes, for all accounts of this process."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        settings: config.Settings,
        *,
        database: Database,
        lanes: Lanes,
        clock: Clock,
        random: Random,
        verdicts: Verdicts,
    ) -> None:
        self._accounts = accounts
        self._settings = settings
        self._database = database
        self._lanes = lanes
        self._clock = clock
        self._random = random
        self._verdicts = verdicts
        self._chooser = Chooser(accounts, settings, clock)
        self._on_wire: dict[int, str] = {}  # row to account
        self._sending: set[asyncio.Task[None]] = set()
        self._results: list[Result] = []
        self._stuck: list[Result] = []  # verdicts that could not be written: a till holds their order
        # Rows that could not be written: when it is tried again, and whether the database itself refused it.
        self._later: dict[int, tuple[float, bool]] = {}
        self._woken = asyncio.Event()
        self._stopping = False
        self._shaken = False  # the last tick failed, or could not recover all: what was begun may be half done

    def wake(self) -> None:
        """Something may have changed: look at once."""
        self._woken.set()

    async def recover(self) -> None:
        """What is marked as on the wire and is not: the program stopped, or the database lost our word, in between.

        Its outcome is unknown.
        """
        lost = await self._database.read(self._lost)
        recovered, failed = await write_batch(self._database, self._recover, lost)
        for (row, _), error in failed:
            self._put_off(row.id, error, **about(row))
        self._shaken = len(recovered) + sum(_is_refused(error) for _, error in failed) < len(lost)
        if recovered:
            _log.warning("outbox.recovered", rows=len(recovered))

    async def run(self) -> None:
        """Until `stop`: a tick at each wake and at each due time."""
        while self._has_work():
            self._woken.clear()
            done = await self._safe_tick()
            if not self._has_work():
                break
            try:
                async with asyncio.timeout(done.again_in):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _has_work(self) -> bool:
        """What the database refuses is not waited for at the end."""
        soon = self._clock.monotonic() + STUCK_S
        stuck = any(self._later[result.claim.row.id][0] <= soon for result in self._stuck)
        return bool(not self._stopping or self._sending or self._results or stuck)

    async def _safe_tick(self) -> Drained:
        """A tick that fails is made again: the outbox outlives whatever the database, or a fault of ours, does."""
        try:
            if self._shaken:
                await self.recover()
            return await self.tick()
        except DBAPIError as error:
            # Told once; of trouble that concerns all the database has told itself.
            told = _log.debug if self._shaken or self._database.trouble else _log.warning
            told("outbox.database_failed", error=type(error.orig).__name__, remedy=remedy(error))
        except Exception:  # noqa: BLE001 - see above
            _log.exception("outbox.crashed")
        self._shaken = True
        return Drained()

    def stop(self) -> None:
        """Take nothing more; `run` ends when what is on the wire is answered and written."""
        self._stopping = True
        self.wake()

    async def tick(self) -> Drained:
        """Write what was answered, then send what may go."""
        done = Drained(settled=await self._settle())
        if self._stopping:
            return done
        free = self._settings.actions.max_in_flight - len(self._on_wire)
        # What is put off is left alone as if it were on the wire, and takes no place.
        on_wire = dict.fromkeys(filter(self._is_put_off, self._later), "") | self._on_wire
        taken = self._lanes.taken()
        survey = await self._database.read(lambda tx: self._chooser.survey(tx, free, on_wire, taken))
        for claim in await self._start(self._take(survey)):
            done.claimed += 1
            task = asyncio.create_task(self._carry(claim))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        done.unsent = await self._end_unsent(survey)
        for row, _ in survey.plan.verdicts:
            if row.state == ActionState.SENDING and row.payment_key is not None:
                self._lanes.touch(order_lane(row.payment_key))
        await self._explain(survey.waiting)
        if done.unsent:
            self.wake()  # what ended unsent may have freed its lane
        done.again_in = self._until(survey.plan.due)
        if self._stuck:
            done.again_in = min(done.again_in, STUCK_S)
        return done

    # ---- claiming ----------------------------------------------------------------------------------------------------

    def _take(self, survey: Survey) -> list[Claim]:
        claims = []
        for head, name, history in survey.ready:
            if head.row.id not in self._on_wire and self._lanes.take(head.lane):
                self._on_wire[head.row.id] = name
                claims.append(self._claim(head, self._accounts[name], history))
        return claims

    def _claim(self, head: Head, account: Account, history: tuple[Attempt, ...]) -> Claim:
        step, now, again = next_step(head.row.action, history), self._clock.now(), None
        if step == Step.ASK_THEN_SEND:
            at = resend_at(history, now=now, pace=self._pace())
            again = Again(at, history[-1].code) if at > now else None
        return Claim(head.row, head.lane, account, step, history, number=len(history) + 1, again=again)

    async def _start(self, claims: Sequence[Claim]) -> list[Claim]:
        """Mark the claims as sent. What cannot be marked is given back."""

        def work(connection: Connection, claims: Sequence[Claim]) -> list[Claim]:
            now = self._clock.now()
            free = locks.free_rows(connection, [claim.row.id for claim in claims])
            mine = [claim for claim in claims if claim.row.id in free]
            return [claim for claim in mine if actions.start(connection, claim.row, claim.number, now)]

        started: list[Claim] = []
        try:
            started, failed = await write_batch(self._database, work, claims, urgent=True)
            self._shaken |= len(started) < len(claims)  # a commit that failed may have come through
            for claim, error in failed:
                if _is_refused(error):
                    self._put_off(claim.row.id, error, **about(claim.row))
        finally:
            for claim in claims:
                if claim in started:
                    self._later.pop(claim.row.id, None)
                else:
                    self._on_wire.pop(claim.row.id, None)
                    self._lanes.free(claim.lane)
        return started

    async def _end_unsent(self, survey: Survey) -> int:
        """Write the ends of the rows that are not sent."""
        ended, failed = await write_batch(self._database, self._end_rows, survey.plan.verdicts, urgent=True)
        for row, verdict in ended:
            self._later.pop(row.id, None)
            tell_verdict(row, verdict)
        for (row, _), error in failed:
            self._put_off(row.id, error, **about(row))
        unreadable = [row_id for row_id in survey.unreadable if not self._is_put_off(row_id)]
        refused, broken = await write_batch(self._database, self._refuse_unreadable, unreadable, urgent=True)
        for row_id, error in broken:
            self._put_off(row_id, error)
        return len(ended) + len(refused)

    async def _explain(self, waiting: Sequence[tuple[OutboxRow, str]]) -> None:
        """Rows that an account's line or login holds up say so, also those that were not tried: somebody waits."""
        listed = [one for one in waiting if not self._is_put_off(one[0].id)]
        _, failed = await write_batch(self._database, self._explain_rows, listed)
        for (row, _), error in failed:
            self._put_off(row.id, error, **about(row))

    def _explain_rows(
        self, connection: Connection, waiting: Sequence[tuple[OutboxRow, str]]
    ) -> Sequence[tuple[OutboxRow, str]]:
        held = locks.held_rows(connection, [row.id for row, _ in waiting])
        for row, code in waiting:
            if row.id not in held:
                self._verdicts.explain(connection, row, code)
        return waiting

    def _end_rows(
        self, connection: Connection, ends: Sequence[tuple[OutboxRow, Verdict]]
    ) -> list[tuple[OutboxRow, Verdict]]:
        """What a till holds is left out: the next tick decides anew."""
        now = self._clock.now()
        return [
            (row, verdict)
            for row, verdict in ends
            if not _is_held(connection, row) and self._verdicts.finish(connection, row, verdict, row.attempts, now)
        ]

    def _refuse_unreadable(self, connection: Connection, row_ids: Sequence[int]) -> list[int]:
        now = self._clock.now()
        return [row_id for row_id in row_ids if self._verdicts.refuse_unreadable(connection, row_id, now)]

    def _put_off(self, row_id: int, error: Exception | None, **facts: str | int) -> None:
        """A row that could not be written is tried again later; why, is told once. No error: a till holds it."""
        refused = error is not None and _is_refused(error)
        if row_id not in self._later or self._later[row_id][1] != refused:
            cause = getattr(error, "orig", error)
            name = None if cause is None else type(cause).__name__
            if refused:
                said = "A trigger or a constraint on delivery_actions refuses what orderbridge writes: correct it."
                _log.error("action.database_refused", id=row_id, error=name, remedy=said, **facts)
            else:
                _log.warning("action.verdict_waits", id=row_id, error=name, **facts)
        self._later[row_id] = self._clock.monotonic() + (REFUSED_S if refused else STUCK_S), refused

    def _is_put_off(self, row_id: int) -> bool:
        return row_id in self._later and self._later[row_id][0] > self._clock.monotonic()

    def _until(self, due: datetime | None) -> float:
        if due is None:
            return FLOOR_S
        return min(max((due - self._clock.now()).total_seconds(), 0.01), FLOOR_S)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def _carry(self, claim: Claim) -> None:
        try:
            result = await carry(claim)
        except Exception as error:  # noqa: BLE001 - one row must not take the others along; its outcome is unknown
            _log.exception("action.crashed", id=claim.row.id)
            result = Result(claim, Attempt(Outcome.UNKNOWN, "internal_error", None, type(error).__name__))
        self._results.append(result)
        self.wake()

    # ---- settling ----------------------------------------------------------------------------------------------------

    async def _settle(self) -> int:
        """Write the ends of what was answered, together; what a till holds is repeated until it is written."""
        results, self._results = self._results + self._stuck, []
        self._stuck = [result for result in results if self._is_put_off(result.claim.row.id)]
        results = [result for result in results if result not in self._stuck]
        written, failed = await write_batch(self._database, self._write_all, results, urgent=True)
        for result, decision in written:
            row = result.claim.row
            self._on_wire.pop(row.id, None)
            self._later.pop(row.id, None)
            self._lanes.free_after_action(result.claim.lane)
            _tell(row, decision)
        done = {result.claim.row.id for result, _ in written}
        errors = {result.claim.row.id: error for result, error in failed}
        for result in results:
            row = result.claim.row
            if row.id not in done:
                self._put_off(row.id, errors.get(row.id), **about(row))
                self._stuck.append(result)
        return len(written)

    def _write_all(self, connection: Connection, results: Sequence[Result]) -> list[tuple[Result, Decision]]:
        """Write what nobody holds. Returns what was written, and what was decided."""
        rows = locks.held_rows(connection, [result.claim.row.id for result in results])
        orders = locks.held_orders(connection, [result.claim.row.payment_key for result in results])
        free = [r for r in results if r.claim.row.id not in rows and r.claim.row.payment_key not in orders]
        return [(result, self._write(connection, result)) for result in free]

    def _write(self, connection: Connection, result: Result) -> Decision:
        now = self._clock.now()
        claim = result.claim
        history = list(claim.history)
        if result.attempt is None:
            actions.forget_attempt(connection, claim.row.id, claim.number)
        else:
            actions.record(connection, claim.row.id, claim.number, result.attempt, now)
            history.append(result.attempt)
        decision = result.decision or decide(
            claim.row.action, history, now=now, pace=self._pace(), retry_at=claim.account.retry_at()
        )
        self._verdicts.carry_out(connection, claim.row, history, decision, now)
        if (
            isinstance(decision, Verdict)
            and claim.row.action in RESTAURANT_ACTIONS
            and decision.state == ActionState.DONE
        ):
            shown = "Open" if claim.row.action == Action.OPEN_RESTAURANT else "Closed"
            with beside(connection, claim.row):
                key = claim.row.restaurant_id or ""
                reference.set_restaurant_status(connection, claim.account.name, key, shown, now)
        return decision

    def _lost(self, connection: Connection) -> list[tuple[OutboxRow, int]]:
        """The rows that are marked as on the wire and are not, each with the attempt that was lost."""
        lost = actions.unfinished_attempts(connection)
        sending = actions.read_unfinished(connection, sending_only=True)[0] if lost else []
        rows = {row.id: row for row in sending if row.id not in self._on_wire}
        return [(rows[row_id], number) for row_id, number in lost if row_id in rows]

    def _recover(self, connection: Connection, lost: Sequence[tuple[OutboxRow, int]]) -> list[int]:
        """What a till holds is left out."""
        now = self._clock.now()
        free = [(row, number) for row, number in lost if not _is_held(connection, row)]
        histories = actions.histories(connection, [row.id for row, _ in free])
        for row, number in free:
            attempt = Attempt(Outcome.UNKNOWN, "stopped_while_sending")
            actions.record(connection, row.id, number, attempt, now)
            history = [*histories[row.id], attempt]
            decision = decide(row.action, history, now=now, pace=self._pace(), retry_at=now)
            self._verdicts.carry_out(connection, row, history, decision, now)
        return [row.id for row, _ in free]

    def _pace(self) -> Pace:
        waits = self._settings.actions.retry_waits_seconds
        return Pace(waits, self._settings.marketplace.cooldown_seconds, self._random.random())


def _tell(row: OutboxRow, decision: Decision) -> None:
    if isinstance(decision, Verdict):
        tell_verdict(row, decision)
        return
    again = decision.at.isoformat() if isinstance(decision, Again) else "after the next poll"
    _log.info("action.waits", id=row.id, action=row.action, code=decision.code, again=again, **about(row))


def _is_refused(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and is_refusal(error)


def _is_held(connection: Connection, row: OutboxRow) -> bool:
    return bool(locks.held_rows(connection, [row.id]) or locks.held_orders(connection, [row.payment_key]))
