"""`check --cooldown`: whose cooldown is it, each account's own, its application's or this address's?

Up to three accounts are asked for their orders, one straight after the other, and once more the other way round where one
was answered 429 (rules.scope). It loses no order: what comes is neither stored nor acknowledged, so that the next poll
delivers it again; and it is asked as the daemon asks, because a list of one status may be counted otherwise. It respects
each account's cooldown, and notes its own in the database: the daemon that starts next respects those. No daemon works
meanwhile, because this command holds the right to work.
"""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from orderbridge.cli.accounts import account_of, wire_for
from orderbridge.cli.common import Context
from orderbridge.cli.report import Report
from orderbridge.errors import MarketplaceError, NotSent, RateLimited, StoreError
from orderbridge.rules.cooldown import MARGIN_S
from orderbridge.rules.scope import Asked, Scope, choose, judge
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.jobs.account import Account
    from orderbridge.store.database import Database

LOOKED_AT = 1000  # accounts among which three are chosen


def check_cooldown(context: Context, report: Report) -> bool:
    """Whether it could be told. Raises StoreError when a daemon works, or the tables are not there."""
    from orderbridge.store import schema
    from orderbridge.store.leader import LeaderLock

    listed = context.settings.accounts[:LOOKED_AT]
    asked = choose([(one.name, one.application) for one in listed])
    if asked is None:
        report.bad("cooldown", say("check.cooldown_one_account"), say("check.cooldown_two_accounts"))
        return False
    with closing(context.database()) as database, closing(LeaderLock(database)) as leader:
        database.read_now(schema.check)
        if not leader.take():
            raise StoreError(say("check.cooldown_at_work"))
        click.echo(say("check.cooldown_asking", names=", ".join(asked.all)), err=True)
        return asyncio.run(_Asking(context, database, asked, report).run())


class _Asking:
    """One run of it."""

    def __init__(self, context: Context, database: "Database", asked: Asked, report: Report) -> None:
        from orderbridge.clock import SystemClock

        market = context.settings.marketplace
        self._cooldown = timedelta(seconds=market.cooldown_seconds + MARGIN_S)
        self._longest = self._cooldown + timedelta(seconds=market.timeout_seconds)
        self._wire = wire_for(context)
        self._clock = SystemClock()
        self._database = database
        self._asked = asked
        self._report = report
        listed = {account.name: account for account in context.settings.accounts}
        self._accounts = {name: account_of(context, self._wire, database, listed[name]) for name in asked.all}
        self._fingerprints = [account.fingerprint for account in context.settings.accounts]

    async def run(self) -> bool:
        try:
            for account in self._accounts.values():
                await account.start()
            restaurants = [await account.client.restaurants() for account in self._accounts.values()]
            is_one_place = len({one.id for some in restaurants for one in some}) < sum(map(len, restaurants))
            scope = await self._find()
        except MarketplaceError as error:
            self._report.failed("cooldown", error)
            return False
        finally:
            for account in self._accounts.values():
                await account.close()
            await self._wire.close()
        self._tell(scope, is_one_place=is_one_place)
        return scope != Scope.UNKNOWN

    async def _find(self) -> Scope:
        first, *others = self._asked.all
        limited = await self._ask(first, others)
        if limited is None:
            return Scope.UNKNOWN
        shared = [name for name in limited if await self._ask(name, [first]) == [first]]
        return judge(self._asked, shared) if shared == limited else Scope.UNKNOWN

    async def _ask(self, first: str, others: Sequence[str]) -> list[str] | None:
        """Who of the others is answered 429 straight after the first; None: the first one is, though all cooldowns are over."""
        await self._wait()
        if await self._is_limited(self._accounts[first]):
            return None
        return [name for name in others if await self._is_limited(self._accounts[name])]

    async def _wait(self) -> None:
        """Until the cooldowns of all accounts are over, of those too that are not asked: they may share one with these."""
        from orderbridge.store.accounts import noted_polls

        now = self._clock.now()
        noted = self._database.read_now(lambda tx: noted_polls(tx, self._fingerprints))
        until = max((min(one, now + self._longest) for one in noted), default=now)
        await asyncio.sleep(max((until - now).total_seconds() + MARGIN_S, 0.0))

    async def _is_limited(self, account: "Account") -> bool:
        """One poll, with its notes, as the daemon does it. What it delivers is dropped here, and comes again."""
        from orderbridge.store import accounts

        await account.session.token()
        now, who = self._clock.now(), account.fingerprint
        reserve = partial(
            accounts.reserve_poll, fingerprint=who, now=now, until=now + self._longest, longest=self._longest
        )
        if self._database.write_now(reserve) is not None:
            raise StoreError(say("check.cooldown_at_work"))
        next_poll = None
        try:
            await account.client.current_orders()
        except RateLimited:
            return True
        except NotSent:
            next_poll = now
            raise
        finally:
            next_poll = next_poll or self._clock.now() + self._cooldown
            self._database.write_now(partial(accounts.note_poll, fingerprint=who, next_poll_utc=next_poll))
        return False

    def _tell(self, scope: Scope, *, is_one_place: bool) -> None:
        facts = say(f"scopes.{scope}", names=", ".join(self._asked.all))
        if is_one_place and scope not in {Scope.CREDENTIAL, Scope.NOT_ADDRESS}:
            facts = f"{facts} {say('check.cooldown_one_place')}"
        match scope:
            case Scope.CREDENTIAL | Scope.NOT_ADDRESS:
                self._report.good("cooldown", facts, subject=scope)
            case Scope.UNKNOWN:
                self._report.bad("cooldown", facts, say("check.cooldown_stranger"), subject=scope)
            case _:
                self._report.look("cooldown", facts, say("poll.shared_cooldown"), subject=scope)
