"""The accounts at work: they come, are polled and served, and leave. All of them at a start, some at any time.

come     made known to the database, their kept tokens taken up, their jobs put onto the timetable
leave    nothing of them begins any more; what is in flight comes to its end and is written; then another may have them

Of one that comes the database may know when its next poll may leave: whoever polled it before has noted that.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from orderbridge import config
from orderbridge.jobs.account import Account, make_known, take_up, token_writer
from orderbridge.jobs.context import Context
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.pollers import Pollers
from orderbridge.jobs.recurring import Recurring
from orderbridge.jobs.roster import Roster
from orderbridge.net.http import Wire
from orderbridge.rules.cooldown import Cooldowns, first_wait, phases
from orderbridge.rules.shared_cooldown import Member, names_of
from orderbridge.store.accounts import Entry

# Accounts: to look through what they are made of for what is unused, again and again, is a fifth of all work.
FROZEN_FROM = 1000
SWITCH_S = 0.001  # many: so long a thread that reads health for all of them may hold up an answer; Python's own is 5 ms
MANY_FROM = 200  # accounts: what comes at about the same moment is written together
TOKENS_S = 0.1  # many: for so long a token waits for others that are kept with it
AT_ONCE = 100  # accounts that are made before somebody else gets his turn
LISTS_PER_S = 25  # accounts whose restaurants and menus are read: thousands that come at once have late polls
LOOK_S = 0.05  # between two looks whether one that leaves is idle
LEAVE_S = 30.0  # for what is in flight; then it is ended where it is, and whoever is next finds its note


class Working:
    """Has accounts come and leave."""

    def __init__(
        self,
        context: Context,
        roster: Roster,
        *,
        wire: Wire,
        recurring: Callable[[Account], Recurring],
        pollers: Pollers,
        outbox: Outbox,
        cooldowns: Cooldowns,
    ) -> None:
        """`recurring` makes an account's jobs."""
        market, in_rhythm = context.settings.marketplace, context.settings.fleet.from_database
        self._context = context
        self._roster = roster
        self._wire = wire
        self._token_group = token_writer(context.database, TOKENS_S if is_many(context.settings) else 0.0)
        self._recurring_of = recurring
        self._pollers = pollers
        self._outbox = outbox
        self._cooldowns = cooldowns
        cooldowns.configure(market.cooldown_scope)
        self._cooldown_s = market.cooldown_seconds
        self._timeout_s = market.timeout_seconds
        self._logins_per_second = market.logins_per_second
        self._in_rhythm = in_rhythm  # another process may just have polled an account that comes
        self._database = context.database
        self._clock = context.clock
        self._metrics = context.metrics
        self._recurring: dict[str, Recurring] = {}
        # Many have come: the last one's first poll is so far away.
        self.on_many: Callable[[float], None] = lambda _: None
        self.leaving: set[str] = set()  # fingerprints of those of which something may still be in flight
        self.starts_for_s = 0.0  # from when the last ones came to the last one's first poll

    def recurring(self, account: str) -> Recurring | None:
        """The jobs of an account that is at work."""
        return self._recurring.get(account)

    async def begin(self, chosen: Sequence[config.Account]) -> None:
        """These are the first; what is known of other accounts' cooldowns, from before a reload, is forgotten."""
        new = self._cooldowns.know([_member(one) for one in chosen], self._cooldown_s)
        await self._start(chosen, new)

    async def come(self, chosen: Sequence[config.Account]) -> None:
        """These are at work from now on."""
        if not chosen:
            return
        new = self._cooldowns.come([_member(one) for one in chosen], self._cooldown_s)
        await self._start(chosen, new)

    async def _start(self, chosen: Sequence[config.Account], new: Collection[str]) -> None:
        made = []
        for place, one in enumerate(chosen):
            made.append(Account(one, self._context, self._wire, token_group=self._token_group))
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        await take_up(self._database, made)
        late = self._spread(made, new)
        entries = [self._entry(account, wait) for account, wait in zip(made, late, strict=True)]
        entries += self._entries_beside(made)
        noted = await make_known(self._database, entries)
        if self._in_rhythm:
            late = [self._wait(noted.get(one.fingerprint), wait) for one, wait in zip(made, late, strict=True)]
        now = self._clock.monotonic()
        for place, account in enumerate(made):
            if late[place] > 0:
                late[place] = self._cooldowns.begin(account.fingerprint, now + late[place]) - now
        self.starts_for_s = max(late, default=0.0)
        self._roster.at_work.update((account.name, account) for account in made)
        self._pollers.grow(len(self._roster.at_work))
        self._wire.poll_evenly(self._cooldowns.most_per_second)
        self._metrics.know(self._roster.at_work)
        self._roster.changed()
        for place, (account, wait) in enumerate(zip(made, late, strict=True)):
            jobs = self._recurring[account.name] = self._recurring_of(account)
            jobs.begin(wait, max(wait, place / LISTS_PER_S))
        if len(made) >= FROZEN_FROM:
            sys.setswitchinterval(SWITCH_S)
            gc.unfreeze()  # those that have left since are garbage now
            gc.collect()
            gc.freeze()
            self.on_many(self.starts_for_s)
        self._outbox.wake()

    def _spread(self, made: Sequence[Account], new: Collection[str]) -> list[float]:
        """Seconds until the first poll of each."""
        coming = [account for account in made if account.fingerprint in new]
        with_login = [account.session.current is None for account in coming]
        waits = phases(with_login, self._cooldowns.round_s, self._logins_per_second)
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
        return sum(one.has_begun for one in self._recurring.values()), len(self._recurring)

    def _wait(self, noted: datetime | None, late_s: float) -> float:
        longest_s = self._timeout_s + self._cooldown_s
        noted_s = None if noted is None else (noted - self._clock.now()).total_seconds()
        return first_wait(noted_s, late_s, self._cooldown_s, longest_s)

    async def leave(self, names: Iterable[str]) -> None:
        """These work here no longer. Returns when nothing of them is in flight, and all is written or given up."""
        leaving = {name: account for name in names if (account := self._roster.at_work.pop(name, None)) is not None}
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

    def forget_others(self) -> None:
        """Of accounts that are not at work here no cooldown is known any more."""
        self._cooldowns.keep({account.fingerprint for account in self._roster.at_work.values()})

    async def _end(self, leaving: Mapping[str, Account]) -> None:
        self._roster.changed()
        jobs = [self._recurring.pop(name) for name in leaving if name in self._recurring]
        for one in jobs:
            one.end()
        self._outbox.wake()
        await self._idle(jobs, leaving)
        for one in jobs:
            one.cut()
        self._outbox.let_go(leaving)
        for name, account in leaving.items():
            await self._pollers.forget(name)
            await account.close()

    async def _idle(self, jobs: Sequence[Recurring], leaving: Collection[str]) -> None:
        """Until nothing of them is in flight; what takes too long is left."""
        until = self._clock.monotonic() + LEAVE_S
        busy, acting = list(jobs), set(leaving)
        while (busy or acting) and self._clock.monotonic() < until:
            busy = [one for one in busy if one.is_busy()]
            acting = {name for name in acting if self._outbox.executor.has_in_hand(name)}
            if busy or acting:
                await asyncio.sleep(LOOK_S)


def is_many(settings: config.Settings) -> bool:
    """Whether it is worth a wait to do things of several accounts together."""
    return settings.fleet.from_database or len(settings.accounts) >= MANY_FROM


def _member(account: config.Account) -> Member:
    return Member(account.fingerprint, account.name, account.application)
