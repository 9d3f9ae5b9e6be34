"""Adds accounts to the running daemon, schedules their jobs, and removes them.

add     registers the accounts in the database, restores their tokens and schedules their jobs: polls, lists,
        restaurants' status, the menu, renewal of the token
remove  starts no more of their jobs, and waits until the work in flight is finished and written; then another process
        may have the accounts

All accounts are added at the start; those of a fleet are added and removed at any time. The next poll of an account
waits for the time that its previous process noted in the database. A stop of the daemon waits for polls only: all other
jobs run again after the next start.
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
from orderbridge.jobs.menu import read_menu
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.poll import Poller, Polls
from orderbridge.jobs.timetable import Timetable
from orderbridge.model import Token
from orderbridge.net.http import Wire
from orderbridge.rules.cooldown import Member, first_wait, names_of, phases
from orderbridge.rules.tokens import RENEW_AGAIN_S
from orderbridge.store.accounts import Entry, kept_tokens, register

# With so many accounts their objects are excluded from garbage collection, which would take a fifth of the CPU time.
FROZEN_FROM = 1000
SWITCH_S = 0.001  # thread switch interval with so many (default 5 ms), so that the health check does not delay answers
AT_ONCE = 100  # accounts that are created before other tasks may run
LISTS_PER_S = 25  # accounts whose lists are read in a second, so that the lists do not delay polls
IDLE_AGAIN_S = 0.05  # between two checks whether a leaving account is idle
LEAVE_S = 30.0  # for work in flight; then it is cancelled, and the account's next process recovers it

JOBS = ("poll", "lists", "statuses", "status", "menu", "renew")
LISTS_S = 24 * 3600.0
LISTS_AGAIN_S = 60.0  # after a failure
STATUS_AGAIN_S = 1.0  # after a restaurant was opened or closed
LISTS_LATER_S, STATUSES_LATER_S, MENU_LATER_S = 0.5, 2.0, 4.0  # after the first poll: orders come first
MENUS_AT_ONCE = 4  # in this process, because one can be large
RENEW_MIN_S = 1.0


class AccountsAtWork:
    """Adds and removes accounts, and runs their jobs."""

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
        self._context, self._roster, self._market = context, roster, market
        self._wire, self._outbox, self._timetable, self._health = wire, outbox, timetable, health
        self._polls, self._cooldowns = polls, polls.cooldowns
        self._cooldowns.configure(market.cooldown_scope, market.cooldown_seconds)
        self._pollers: dict[str, Poller] = {}
        self._is_fleet = context.settings.fleet.from_database  # another process may have polled a new account just now
        self._database, self._clock = context.database, context.clock
        self._common = Common()
        self._asked: defaultdict[str, set[str]] = defaultdict(set)  # by account: restaurants whose status is read soon
        self._menus = asyncio.Semaphore(MENUS_AT_ONCE)
        self._begun: set[str] = set()  # accounts whose first poll was made, or tried
        self.leaving: set[str] = set()  # fingerprints of leaving accounts with work in flight
        self.starts_for_s = 0.0  # how long the first polls of the newest accounts take
        outbox.executor.on_restaurant = self._read_status

    async def begin(self, chosen: Sequence[config.Account]) -> None:
        """Add the first accounts, and forget the cooldowns of others from before a reload."""
        self._cooldowns.keep({one.fingerprint for one in chosen})
        await self.add(chosen)

    async def add(self, chosen: Sequence[config.Account]) -> None:
        """Add accounts."""
        if not chosen:
            return
        new = self._cooldowns.add([Member(one.fingerprint, one.name, one.application) for one in chosen])
        made = []
        for place, one in enumerate(chosen):
            made.append(Account(one, self._context, self._wire))
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        kept = await self._database.read(kept_tokens)
        for account in made:
            account.restore_token(kept.get(account.fingerprint))
        late = self._spread(made, new)
        entries = [self._entry(account, wait) for account, wait in zip(made, late, strict=True)]
        entries += self._entries_beside(made)
        noted = await self._database.run(lambda tx: register(tx, entries))
        late = [self._first_poll(one, noted.get(one.fingerprint), wait) for one, wait in zip(made, late, strict=True)]
        self.starts_for_s = max(late)
        self._roster.at_work.update((account.name, account) for account in made)
        self._polls.add_places(len(self._roster.at_work))
        self._wire.set_poll_rate(self._cooldowns.most_per_second)
        self._context.metrics.know(self._roster.at_work)
        self._roster.changed()
        for place, (account, wait) in enumerate(zip(made, late, strict=True)):
            self._plan(account, wait, max(wait, place / LISTS_PER_S))
        if len(made) >= FROZEN_FROM:
            sys.setswitchinterval(SWITCH_S)
            gc.unfreeze()  # so that accounts that left are collected
            gc.collect()
            gc.freeze()
            self._health.expect_late_polls(self.starts_for_s)
        self._outbox.wake()

    def _first_poll(self, account: Account, noted: datetime | None, late_s: float) -> float:
        """Reserve the account's first poll and return the seconds until then. `noted`: the earliest time, if known."""
        if self._is_fleet:
            noted_s = None if noted is None else (noted - self._clock.now()).total_seconds()
            cooldown_s = self._market.cooldown_seconds
            late_s = first_wait(noted_s, late_s, cooldown_s, self._market.timeout_seconds + cooldown_s)
        now = self._clock.monotonic()
        return self._cooldowns.begin(account.fingerprint, now + late_s) - now if late_s > 0 else late_s

    def _spread(self, made: Sequence[Account], new: Collection[str]) -> list[float]:
        """Seconds until the first poll of each account."""
        added = [account for account in made if account.fingerprint in new]
        with_login = [account.session.current is None for account in added]
        waits = phases(with_login, self._cooldowns.round_s, self._market.logins_per_second)
        by_account = {account.fingerprint: wait for account, wait in zip(added, waits, strict=True)}
        return [by_account.get(account.fingerprint, 0.0) for account in made]

    def _entry(self, account: Account, wait: float) -> Entry:
        first_poll = self._clock.now() + timedelta(seconds=wait)
        group = names_of(self._cooldowns.in_turn(account.fingerprint))
        anew = wait > self._cooldowns.round_s and not self._is_fleet
        waits = wait > 0 and not self._is_fleet
        return Entry(account.fingerprint, account.name, group, first_poll, waits=waits, anew=anew)

    def _entries_beside(self, made: Sequence[Account]) -> list[Entry]:
        """Entries for the earlier accounts that share a cooldown with new ones."""
        beside = {one.fingerprint: one for account in made for one in self._cooldowns.in_turn(account.fingerprint)}
        for account in made:
            beside.pop(account.fingerprint, None)
        return [Entry(who, one.name, names_of(self._cooldowns.in_turn(who))) for who, one in beside.items()]

    def begun(self) -> tuple[int, int]:
        """How many accounts had their first poll, and how many there are."""
        return len(self._begun), len(self._roster.at_work)

    async def remove(self, names: Iterable[str]) -> None:
        """Remove accounts. Returns when all their work in flight is written or given up."""
        at_work = self._roster.at_work
        leaving = {name: at_work.pop(name) for name in names if name in at_work}
        if not leaving:
            return
        fingerprints = {account.fingerprint for account in leaving.values()}
        self.leaving |= fingerprints
        try:
            await self._end(leaving)
        finally:
            self._cooldowns.remove(fingerprints)
            self._wire.set_poll_rate(self._cooldowns.most_per_second)
            self.leaving -= fingerprints

    async def note_rest(self) -> None:
        """At the stop, note OKs that locked rows have delayed: the marketplace does not deliver these orders again."""
        for poller in self._pollers.values():
            await poller.intake.acknowledger.mark_late()

    def forget_others(self) -> None:
        """Forget the cooldowns of accounts that this process does not work for."""
        self._cooldowns.keep({account.fingerprint for account in self._roster.at_work.values()})

    async def _end(self, leaving: Mapping[str, Account]) -> None:
        self._roster.changed()
        for name, account in leaving.items():
            account.on_token = lambda _: None
            for job in _jobs(name):
                self._timetable.remove(job)
        self._begun -= leaving.keys()
        self._outbox.wake()
        until = self._clock.monotonic() + LEAVE_S
        while any(map(self._is_busy, leaving)) and self._clock.monotonic() < until:  # noqa: ASYNC110 - has no event
            await asyncio.sleep(IDLE_AGAIN_S)
        for name in leaving:
            for run in self._timetable.runs_of(_jobs(name)):
                run.cancel()
            self._asked.pop(name, None)
        self._outbox.release(leaving)
        for name, account in leaving.items():
            await self._pollers.pop(name).intake.acknowledger.mark_late()
            await account.close()

    def _is_busy(self, name: str) -> bool:
        """Whether the account has work in flight."""
        return self._outbox.executor.is_executing(name) or bool(self._timetable.runs_of(_jobs(name)))

    # ---- the jobs of one account -------------------------------------------------------------------------------------

    def _plan(self, account: Account, late_s: float, lists_late_s: float) -> None:
        """Schedule the account's jobs: the first poll in `late_s`, the lists after `lists_late_s`."""
        name, plan = account.name, self._timetable.plan
        account.on_token = partial(self._plan_renewal, account)
        if (token := account.session.current) is not None:
            self._plan_renewal(account, token)
        self._pollers[name] = poller = Poller(account, self._polls)
        plan(f"poll {name}", late_s, partial(self._poll, account, poller), vital=True)
        plan(f"lists {name}", lists_late_s + LISTS_LATER_S, partial(self._read_lists, account))
        plan(f"statuses {name}", lists_late_s + STATUSES_LATER_S, partial(read_statuses, account))
        plan(f"menu {name}", lists_late_s + MENU_LATER_S, partial(self._read_menu, account))

    def _plan_renewal(self, account: Account, _: Token) -> None:
        wait = max(account.renew_in() or 0.0, RENEW_MIN_S)
        self._timetable.plan(f"renew {account.name}", wait, partial(self._renew, account))

    def _read_status(self, name: str, restaurant: str) -> None:
        """Schedule one read of a restaurant's status, after an open or close."""
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
            # The poll has freed lanes and may have resolved rows of this account.
            if counts.delivered - counts.quarantined or self._outbox.queue.size(account.name):
                self._outbox.wake()

    async def _read_lists(self, account: Account) -> float:
        were_known = account.restaurants_known
        are_whole = await read_lists(account, self._roster.known, self._common)
        if account.restaurants_known and not were_known:
            self._outbox.wake()  # rows may wait for this
        return LISTS_S if are_whole else LISTS_AGAIN_S

    async def _read_menu(self, account: Account) -> float:
        async with self._menus:
            return await read_menu(account)

    async def _read_asked(self, account: Account) -> None:
        await read_statuses(account, only=self._asked.pop(account.name, ()))

    async def _renew(self, account: Account) -> float | None:
        if (wait := account.renew_in()) is not None and wait <= 0:
            await account.renew()
            wait = account.renew_in()
        return None if wait is None else max(wait, RENEW_AGAIN_S if wait <= 0 else 0.0)


def _jobs(name: str) -> list[str]:
    """The names of the account's jobs."""
    return [f"{what} {name}" for what in JOBS]
