"""The accounts at work: they come, are polled and served, and leave. All come at a start, some at any time.

come     made known to the database, their kept tokens taken up, their jobs planned: the polls, the lists, the
         restaurants' status, the token's renewal
leave    none of their jobs begins any more; what is in flight ends and is written; then another process may have them

The database may know when the next poll of an account may leave: whoever polled it before has noted that. A stop of the
daemon waits for polls alone: everything else is read again at the next start.
"""

import asyncio
import gc
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from orderbridge import config
from orderbridge.jobs.account import Account, Roster
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.context import Context
from orderbridge.jobs.health_check import Checkup
from orderbridge.jobs.lists import Common, read_lists, read_statuses
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.poll import Poller, Polls
from orderbridge.jobs.timetable import Timetable
from orderbridge.model import Token
from orderbridge.net.http import Wire
from orderbridge.rules.cooldown import Member, first_wait, names_of, phases
from orderbridge.rules.tokens import RENEW_AGAIN_S
from orderbridge.store.accounts import Entry, kept_tokens, register

# Accounts: to look through what they are made of for what is unused, again and again, is a fifth of all work.
FROZEN_FROM = 1000
SWITCH_S = 0.001  # many: so long a thread that reads health for all of them may hold up an answer; Python's own is 5 ms
AT_ONCE = 100  # accounts that are made before other tasks get their turn
LISTS_PER_S = 25  # accounts whose restaurants and menus are read: thousands that come at once have late polls
IDLE_AGAIN_S = 0.05  # between two checks whether one that leaves is idle
LEAVE_S = 30.0  # for what is in flight; then it is cancelled, and whoever has the account next finds its note

JOBS = ("poll", "lists", "statuses", "status", "renew")
LISTS_S = 24 * 3600.0
LISTS_AGAIN_S = 60.0  # after a failure
STATUSES_S = 300.0
STATUS_AGAIN_S = 1.0  # after a restaurant was opened or closed
LISTS_LATER_S, STATUSES_LATER_S = 0.5, 2.0  # than the first poll: the orders come first
RENEW_LEAST_S = 1.0


class AccountsAtWork:
    """Has accounts come and leave, and runs their jobs."""

    def __init__(
        self,
        context: Context,
        roster: Roster,
        *,
        wire: Wire,
        polls: Polls,
        outbox: Outbox,
        timetable: Timetable,
        health: Checkup,
    ) -> None:
        market = context.settings.marketplace
        self._context = context
        self._roster = roster
        self._wire = wire
        self._polls = polls
        self._pollers: dict[str, Poller] = {}
        self._outbox = outbox
        self._timetable = timetable
        self._health = health
        self._cooldowns = polls.cooldowns
        self._cooldowns.configure(market.cooldown_scope, market.cooldown_seconds)
        self._market = market
        self._in_rhythm = context.settings.fleet.from_database  # another process may just have polled one that comes
        self._database, self._clock = context.database, context.clock
        self._common = Common(context.clock)
        self._asked: defaultdict[str, set[str]] = defaultdict(set)  # by account: restaurants whose status is read soon
        self._begun: set[str] = set()  # whose first poll was made, or tried
        self.leaving: set[str] = set()  # fingerprints of those of which something may still be in flight
        self.starts_for_s = 0.0  # from when the last ones came to the last one's first poll
        outbox.executor.on_restaurant = self._read_status

    async def begin(self, chosen: Sequence[config.Account]) -> None:
        """These are the first; what is known of other accounts' cooldowns, from before a reload, is forgotten."""
        self._cooldowns.keep({one.fingerprint for one in chosen})
        await self.come(chosen)

    async def come(self, chosen: Sequence[config.Account]) -> None:
        """These are at work from now on."""
        if not chosen:
            return
        new = self._cooldowns.come([Member(one.fingerprint, one.name, one.application) for one in chosen])
        made = []
        for place, one in enumerate(chosen):
            made.append(Account(one, self._context, self._wire))
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        kept = await self._database.read(kept_tokens)
        for account in made:
            account.take_up(kept.get(account.fingerprint))
        late = self._spread(made, new)
        entries = [self._entry(account, wait) for account, wait in zip(made, late, strict=True)]
        entries += self._entries_beside(made)
        noted = await self._database.run(lambda tx: register(tx, entries))
        late = [self._first_poll(one, noted.get(one.fingerprint), wait) for one, wait in zip(made, late, strict=True)]
        self.starts_for_s = max(late)
        self._roster.at_work.update((account.name, account) for account in made)
        self._polls.grow(len(self._roster.at_work))
        self._wire.poll_evenly(self._cooldowns.most_per_second)
        self._context.metrics.know(self._roster.at_work)
        self._roster.changed()
        for place, (account, wait) in enumerate(zip(made, late, strict=True)):
            self._plan(account, wait, max(wait, place / LISTS_PER_S))
        if len(made) >= FROZEN_FROM:
            sys.setswitchinterval(SWITCH_S)
            gc.unfreeze()  # those that have left since are garbage now
            gc.collect()
            gc.freeze()
            self._health.be_unsure(self.starts_for_s)
        self._outbox.wake()

    def _first_poll(self, account: Account, noted: datetime | None, late_s: float) -> float:
        """Seconds until its first poll here, which has its place from now on. `noted`: when its next one may leave."""
        if self._in_rhythm:
            noted_s = None if noted is None else (noted - self._clock.now()).total_seconds()
            cooldown_s = self._market.cooldown_seconds
            late_s = first_wait(noted_s, late_s, cooldown_s, self._market.timeout_seconds + cooldown_s)
        now = self._clock.monotonic()
        return self._cooldowns.begin(account.fingerprint, now + late_s) - now if late_s > 0 else late_s

    def _spread(self, made: Sequence[Account], new: Collection[str]) -> list[float]:
        """Seconds until the first poll of each."""
        coming = [account for account in made if account.fingerprint in new]
        with_login = [account.session.current is None for account in coming]
        waits = phases(with_login, self._cooldowns.round_s, self._market.logins_per_second)
        by_account = {account.fingerprint: wait for account, wait in zip(coming, waits, strict=True)}
        return [by_account.get(account.fingerprint, 0.0) for account in made]

    def _entry(self, account: Account, wait: float) -> Entry:
        first_poll = self._clock.now() + timedelta(seconds=wait)
        group = names_of(self._cooldowns.in_turn(account.fingerprint))
        anew = wait > self._cooldowns.round_s and not self._in_rhythm
        waits = wait > 0 and not self._in_rhythm
        return Entry(account.fingerprint, account.name, group, first_poll, waits=waits, anew=anew)

    def _entries_beside(self, made: Sequence[Account]) -> list[Entry]:
        """The accounts that were there before and are now polled in turn with these, too."""
        beside = {one.fingerprint: one for account in made for one in self._cooldowns.in_turn(account.fingerprint)}
        for account in made:
            beside.pop(account.fingerprint, None)
        return [Entry(who, one.name, names_of(self._cooldowns.in_turn(who))) for who, one in beside.items()]

    def begun(self) -> tuple[int, int]:
        """How many have been polled, or tried to be, since they came; of how many."""
        return len(self._begun), len(self._roster.at_work)

    async def leave(self, names: Iterable[str]) -> None:
        """These work here no longer. Returns when nothing of them is in flight, and all is written or given up."""
        at_work = self._roster.at_work
        leaving = {name: at_work.pop(name) for name in names if name in at_work}
        if not leaving:
            return
        fingerprints = {account.fingerprint for account in leaving.values()}
        self.leaving |= fingerprints
        try:
            await self._end(leaving)
        finally:
            self._cooldowns.leave(fingerprints)
            self._wire.poll_evenly(self._cooldowns.most_per_second)
            self.leaving -= fingerprints

    async def note_rest(self) -> None:
        """OKs that a till has kept from being noted; the service does not deliver these orders again. Nothing else runs."""
        for poller in self._pollers.values():
            await poller.intake.acknowledger.mark_late()

    def forget_others(self) -> None:
        """Of accounts that are not at work here no cooldown is known any more."""
        self._cooldowns.keep({account.fingerprint for account in self._roster.at_work.values()})

    async def _end(self, leaving: Mapping[str, Account]) -> None:
        self._roster.changed()
        for name, account in leaving.items():
            account.on_token = lambda _: None
            for job in _jobs(name):
                self._timetable.leave(job)
        self._begun -= leaving.keys()
        self._outbox.wake()
        until = self._clock.monotonic() + LEAVE_S
        while any(map(self._is_busy, leaving)) and self._clock.monotonic() < until:  # noqa: ASYNC110 - only asking shows it
            await asyncio.sleep(IDLE_AGAIN_S)
        for name in leaving:
            for run in self._timetable.runs_of(_jobs(name)):
                run.cancel()
            self._asked.pop(name, None)
        self._outbox.let_go(leaving)
        for name, account in leaving.items():
            await self._pollers.pop(name).intake.acknowledger.mark_late()
            await account.close()

    def _is_busy(self, name: str) -> bool:
        """Whether something of it is in flight."""
        return self._outbox.executor.has_in_hand(name) or bool(self._timetable.runs_of(_jobs(name)))

    # ---- the jobs of one account -------------------------------------------------------------------------------------

    def _plan(self, account: Account, late_s: float, lists_late_s: float) -> None:
        """The first poll leaves in `late_s`; the lists wait for their turn."""
        name, plan = account.name, self._timetable.plan
        account.on_token = partial(self._plan_renewal, account)
        if (token := account.session.current) is not None:
            self._plan_renewal(account, token)
        self._pollers[name] = poller = Poller(account, self._polls)
        plan(f"poll {name}", late_s, partial(self._poll, account, poller), vital=True)
        plan(f"lists {name}", lists_late_s + LISTS_LATER_S, partial(self._read_lists, account))
        plan(f"statuses {name}", lists_late_s + STATUSES_LATER_S, partial(self._read_statuses, account))

    def _plan_renewal(self, account: Account, _: Token) -> None:
        wait = max(account.renew_in() or 0.0, RENEW_LEAST_S)
        self._timetable.plan(f"renew {account.name}", wait, partial(self._renew, account))

    def _read_status(self, name: str, restaurant: str) -> None:
        """Soon, and once: what the service itself says after it was told to open or close."""
        if (account := self._roster.at_work.get(name)) is not None:
            self._asked[name].add(restaurant)
            self._timetable.plan(f"status {name}", STATUS_AGAIN_S, partial(self._read_asked, account))

    async def _poll(self, account: Account, poller: Poller) -> float:
        counts = Polled()
        try:
            counts = await poller.tick()
            return counts.again_in
        finally:
            if self._roster.at_work.get(account.name) is account:
                self._begun.add(account.name)
            if counts.ok and self._health.ping is not None:
                self._health.ping.polled()
            # Lanes are free again, and the poll has shown what it can: that concerns the account's own rows.
            if counts.delivered - counts.quarantined or self._outbox.queue.size(account.name):
                self._outbox.wake()

    async def _read_lists(self, account: Account) -> float:
        came = await read_lists(account, self._database, self._roster.known, self._common)
        return LISTS_S if came else LISTS_AGAIN_S

    async def _read_statuses(self, account: Account) -> float:
        await read_statuses(account, self._database, self._clock)
        return STATUSES_S

    async def _read_asked(self, account: Account) -> None:
        await read_statuses(account, self._database, self._clock, only=self._asked.pop(account.name, ()))

    async def _renew(self, account: Account) -> float | None:
        if (wait := account.renew_in()) is not None and wait <= 0:
            await account.renew()
            wait = account.renew_in()
        return None if wait is None else max(wait, RENEW_AGAIN_S if wait <= 0 else 0.0)


def _jobs(name: str) -> list[str]:
    """The names of all that is called for an account."""
    return [f"{what} {name}" for what in JOBS]
