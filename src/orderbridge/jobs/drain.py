"""The outbox at work: claim what may go, send it, write the verdicts.

read: every unfinished row (short, by a partial index)
decide: rules.outbox which rows go or end unsent, rules.retry what an answer makes of a row
write: claims and verdicts in batches, each guarded by the state the row must have

A row is marked as sent before its request leaves, so that a crash in between is seen as an unknown outcome.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.carry import Claim, Result, carry
from orderbridge.jobs.choose import Chooser, Survey
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.verdicts import Verdicts, about, tell_verdict
from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome, Verdict
from orderbridge.rules.lifecycle import RESTAURANT_ACTIONS
from orderbridge.rules.outbox import Head, order_lane
from orderbridge.rules.retry import Again, Pace, Step, decide, next_step, resend_at
from orderbridge.store import actions, locks, reference
from orderbridge.store.database import Database, is_busy, remedy

STUCK_S = 0.5  # between two tries to write the verdicts whose rows a till holds
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
        self._stuck_until = 0.0
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
        lost, held = await self._database.run(self._recover)
        self._shaken = bool(held)
        if lost:
            _log.warning("outbox.recovered", rows=lost)

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
        return bool(not self._stopping or self._sending or self._results or self._stuck)

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
        on_wire, taken = dict(self._on_wire), self._lanes.taken()
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

        def work(connection: Connection) -> list[Claim]:
            now = self._clock.now()
            held = locks.held_rows(connection, [claim.row.id for claim in claims])
            free = [claim for claim in claims if claim.row.id not in held]
            return [claim for claim in free if actions.start(connection, claim.row, claim.number, now)]

        started: list[Claim] = []
        try:
            started = await self._database.run(work, urgent=True) if claims else []
        finally:
            for claim in claims:
                if claim not in started:
                    self._on_wire.pop(claim.row.id, None)
                    self._lanes.free(claim.lane)
        return started

    async def _end_unsent(self, survey: Survey) -> int:
        """Write the ends of the rows that are not sent: together, or one by one when one of them is to blame."""
        ends = [partial(self._end_row, row=row, verdict=verdict) for row, verdict in survey.plan.verdicts]
        ends += [
            partial(self._verdicts.refuse_unreadable, row_id=row_id, now=self._clock.now())
            for row_id in survey.unreadable
        ]
        if not ends:
            return 0
        try:
            return await self._database.run(lambda tx: sum(end(tx) for end in ends), urgent=True)
        except DBAPIError as error:
            if self._is_held_whole(error):
                raise
            return sum([await self._end_one(end) for end in ends])

    async def _end_one(self, end: Callable[[Connection], bool]) -> bool:
        try:
            return await self._database.run(end, urgent=True)
        except DBAPIError as error:  # the next tick decides anew
            _log.warning("action.verdict_waits", error=type(error.orig).__name__)
            return False

    def _is_held_whole(self, error: Exception) -> bool:
        """Who holds a SQLite file holds all of it: each row alone would wait as long again."""
        return self._database.is_sqlite and isinstance(error, DBAPIError) and is_busy(error)

    def _end_row(self, connection: Connection, *, row: OutboxRow, verdict: Verdict) -> bool:
        if _is_held(connection, row):
            return False  # the next tick decides anew
        done = self._verdicts.finish(connection, row, verdict, row.attempts, self._clock.now())
        if done:
            tell_verdict(row, verdict)
        return done

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
        results, self._results = self._results, []
        waiting = {result.claim.row.id for result in self._stuck}
        if self._clock.monotonic() >= self._stuck_until:
            results, self._stuck = results + self._stuck, []
        if not results:
            return 0
        try:
            written = await self._database.run(lambda tx: self._write_all(tx, results), urgent=True)
        except Exception as error:  # noqa: BLE001 - one of them is to blame, the others need not wait
            alone = [] if self._is_held_whole(error) else results
            written = {result.claim.row.id for result in alone if await self._settle_one(result)}
        for result in results:
            row = result.claim.row
            if row.id in written:
                self._on_wire.pop(row.id, None)
                self._lanes.free_after_action(result.claim.lane)
                continue
            if row.id not in waiting:
                _log.warning("action.verdict_waits", id=row.id, **about(row))
            self._stuck.append(result)
            self._stuck_until = self._clock.monotonic() + STUCK_S
        return len(written)

    async def _settle_one(self, result: Result) -> bool:
        try:
            return bool(await self._database.run(lambda tx: self._write_all(tx, [result]), urgent=True))
        except Exception as error:  # noqa: BLE001 - a verdict is never thrown away; it is tried until it is written
            _log.debug("action.verdict_failed", id=result.claim.row.id, error=type(error).__name__)
            return False

    def _write_all(self, connection: Connection, results: Sequence[Result]) -> set[int]:
        """Write what nobody holds. Returns the rows that were written."""
        rows = locks.held_rows(connection, [result.claim.row.id for result in results])
        orders = locks.held_orders(connection, [result.claim.row.payment_key for result in results])
        free = [r for r in results if r.claim.row.id not in rows and r.claim.row.payment_key not in orders]
        for result in free:
            self._write(connection, result)
        return {result.claim.row.id for result in free}

    def _write(self, connection: Connection, result: Result) -> None:
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
        if isinstance(decision, Verdict):
            tell_verdict(claim.row, decision)
            if claim.row.action in RESTAURANT_ACTIONS and decision.state == ActionState.DONE:
                shown = "Open" if claim.row.action == Action.OPEN_RESTAURANT else "Closed"
                key = claim.row.restaurant_id or ""
                reference.set_restaurant_status(connection, claim.account.name, key, shown, now)
        else:
            last = history[-1]
            again = decision.at.isoformat() if isinstance(decision, Again) else "after the next poll"
            _log.info(
                "action.waits",
                id=claim.row.id,
                action=claim.row.action,
                code=last.code,
                again=again,
                **about(claim.row),
            )

    def _recover(self, connection: Connection) -> tuple[int, int]:
        """How many attempts were lost, and how many of their rows a till holds: these are left for the next time."""
        now = self._clock.now()
        lost = actions.unfinished_attempts(connection)
        recovered = held = 0
        if not lost:
            return recovered, held
        rows = {row.id: row for row in actions.read_unfinished(connection, sending_only=True)[0]}
        histories = actions.histories(connection, rows)
        for row_id, number in lost:
            row = rows.get(row_id)
            if row is None or row_id in self._on_wire:
                continue
            if _is_held(connection, row):
                held += 1
                continue
            attempt = Attempt(Outcome.UNKNOWN, "stopped_while_sending")
            actions.record(connection, row_id, number, attempt, now)
            history = [*histories[row_id], attempt]
            decision = decide(row.action, history, now=now, pace=self._pace(), retry_at=now)
            self._verdicts.carry_out(connection, row, history, decision, now)
            recovered += 1
        return recovered, held

    def _pace(self) -> Pace:
        waits = self._settings.actions.retry_waits_seconds
        return Pace(waits, self._settings.marketplace.cooldown_seconds, self._random.random())


def _is_held(connection: Connection, row: OutboxRow) -> bool:
    return bool(locks.held_rows(connection, [row.id]) or locks.held_orders(connection, [row.payment_key]))
