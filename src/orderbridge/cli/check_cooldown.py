"""`check --cooldown`: whose cooldown is it, each account's own, its application's or this address's?

Up to three accounts are asked for their orders, one straight after the other. An OK straight after an OK: these two share
none. A 429 straight after an OK: they may share one, or a stranger polls with the second one's credential; so it counts
when it comes again with the two the other way round, a cooldown later. Accounts that reach the same restaurant say nothing
about applications: it may be the restaurant's cooldown.

It loses no order: what comes is neither stored nor acknowledged, so that the next poll delivers it again. It respects
each account's cooldown, and notes its own in the database: the daemon that starts next respects those. Neither a daemon
nor a replica works meanwhile, because this command holds the right to work.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import click

from orderbridge.cli.accounts import account_of, wire_for
from orderbridge.cli.common import Context
from orderbridge.cli.report import Report, bad, failed, good, warn
from orderbridge.errors import MarketplaceError, NotSent, RateLimited, StoreError
from orderbridge.rules.cooldown import MARGIN_S
from orderbridge.texts import say

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from orderbridge import config
    from orderbridge.clock import Clock
    from orderbridge.store.database import Database
    from orderbridge.store.leader import LeaderLock
    from orderbridge_fleet.sealing import Fault


class Scope(StrEnum):
    """What was found."""

    CREDENTIAL = "credential"  # each account has its own
    NOT_ADDRESS = "not_address"  # accounts of different applications have their own; more could not be asked
    APPLICATION = "application"
    ADDRESS = "address"
    APPLICATION_OR_ADDRESS = "application_or_address"
    UNKNOWN = "unknown"  # somebody else polls with one of these credentials


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked. `beside`: of the same application as `first`; `other`: of another one; None: there is none."""

    first: str
    beside: str | None
    other: str | None

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.first, self.beside, self.other)))


def choose(accounts: Iterable[tuple[str, str]]) -> Asked | None:
    """`accounts`: names and their applications; no more are looked at than it takes. None: no two tell anything.

    Two of one application and one of another tell most.
    """
    by_application: dict[str, list[str]] = {}
    several: list[str] | None = None
    for name, application in accounts:
        mine = by_application.setdefault(application, [])
        mine.append(name)
        several = several or (mine if len(mine) > 1 else None)
        if several and len(by_application) > 1:
            break
    mine = several or next(iter(by_application.values()), [])
    other = next((names[0] for names in by_application.values() if names is not mine), None)
    found = Asked(mine[0], mine[1] if several else None, other) if mine else None
    return found if found is not None and len(found.all) > 1 else None


def judge(asked: Asked, shared: Sequence[str]) -> Scope:
    """`shared`: who of them was answered 429 straight after the first, both ways round."""
    beside, other = asked.beside in shared, asked.other in shared
    if other:
        return Scope.ADDRESS if asked.beside is None or beside else Scope.UNKNOWN
    if beside:
        return Scope.APPLICATION_OR_ADDRESS if asked.other is None else Scope.APPLICATION
    return Scope.NOT_ADDRESS if asked.beside is None else Scope.CREDENTIAL


def check_cooldown(context: Context, report: Report) -> bool:
    """Whether it could be told. Raises StoreError when a daemon works, or the tables are not there."""
    from orderbridge.store import schema, workers
    from orderbridge.store.leader import LeaderLock

    with closing(context.database()) as database, closing(LeaderLock(database)) as leader:
        database.read_now(schema.check)
        if not leader.take():
            raise StoreError(say("check.cooldown_at_work"))
        met = _Met(context.settings)
        asked = database.read_now(lambda tx: choose(met.told(tx)))
        met.tell_broken(report)
        if asked is None:
            report.add(bad("cooldown", say("check.cooldown_one_account"), say("check.cooldown_two_accounts")))
            return False
        click.echo(say("check.cooldown_asking", names=", ".join(asked.all)), err=True)
        return workers.run(_Asking(context, database, leader, asked, met.accounts, report).run())


class _Met:
    """The accounts that the daemon would poll, those of the file first, as far as somebody has asked for them."""

    def __init__(self, settings: "config.Settings") -> None:
        self.accounts: dict[str, config.Account] = {}
        self._broken: dict[str, Fault] = {}
        self._settings = settings

    def told(self, connection: "Connection") -> Iterator[tuple[str, str]]:
        """Their names and applications. Of those in the database none is opened before it is asked for."""
        for account in self._listed(connection):
            self.accounts[account.name] = account
            yield account.name, account.application

    def _listed(self, connection: "Connection") -> Iterator["config.Account"]:
        from orderbridge_fleet import account_settings
        from orderbridge_fleet.sealing import Fault, MasterKeys

        settings = self._settings
        yield from settings.accounts
        if not settings.fleet.from_database:
            return
        keys = MasterKeys(settings.fleet.master_keys)
        account_settings.refuse_strange(connection, keys)
        names = {one.name for one in settings.accounts}
        secrets = {one.fingerprint for one in settings.accounts}
        for name, account in account_settings.enabled_ones(connection, keys, settings.marketplace.base_url):
            if isinstance(account, Fault):
                self._broken[name] = account
            elif name not in names and account.fingerprint not in secrets:
                secrets.add(account.fingerprint)
                yield account

    def tell_broken(self, report: Report) -> None:
        """It is in nobody's way here: others can be asked."""
        from orderbridge_fleet.cli.check import broken

        for finding in broken(self._broken, warn):
            report.add(finding)


def _clock_of(settings: "config.Settings", database: "Database") -> "Clock":
    """The one by which polls are noted: of replicas it is the database server's."""
    from orderbridge.clock import SharedClock, SystemClock
    from orderbridge_fleet.fleet import follow_server

    if not settings.fleet.from_database:
        return SystemClock()
    clock = SharedClock(SystemClock())
    database.read_now(partial(follow_server, clock))
    return clock


class _Asking:
    """One run of it."""

    def __init__(
        self,
        context: Context,
        database: "Database",
        leader: "LeaderLock",
        asked: Asked,
        accounts: "dict[str, config.Account]",
        report: Report,
    ) -> None:
        market = context.settings.marketplace
        self._cooldown = timedelta(seconds=market.cooldown_seconds + MARGIN_S)
        self._longest = self._cooldown + timedelta(seconds=market.timeout_seconds)
        self._wire = wire_for(context)
        self._clock = _clock_of(context.settings, database)
        self._database = database
        self._leader = leader
        self._asked = asked
        self._report = report
        self._accounts = {name: account_of(context, self._wire, database, accounts[name]) for name in asked.all}
        self._at = asked.first  # who is asked just now

    async def run(self) -> bool:
        try:
            restaurants = []
            for name, account in self._accounts.items():
                self._at = name
                await account.start()
                restaurants.append(await account.client.restaurants())
            is_one_place = len({one.id for some in restaurants for one in some}) < sum(map(len, restaurants))
            scope = await self._find()
        except MarketplaceError as error:
            self._report.add(failed("account", error, has_worked=False, subject=self._at))
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
        if await self._is_limited(first):
            return None
        return [name for name in others if await self._is_limited(name)]

    async def _wait(self) -> None:
        """Until the cooldowns of all accounts are over, of those too that are not asked: they may share one with these."""
        from orderbridge.store.accounts import last_noted_poll

        now = self._clock.now()
        until = min(self._database.read_now(last_noted_poll) or now, now + self._longest)
        await asyncio.sleep(max((until - now).total_seconds() + MARGIN_S, 0.0))
        if self._leader.is_lost():
            raise StoreError(say("check.cooldown_at_work"))

    async def _is_limited(self, name: str) -> bool:
        """One poll, with its notes, as the daemon does it. What it delivers is dropped here, and comes again.

        What else is noted of a next poll is no cooldown: those were waited for.
        """
        from orderbridge.store.accounts import note_poll

        self._at, account = name, self._accounts[name]
        await account.session.token()
        now = self._clock.now()
        note = partial(note_poll, fingerprint=account.fingerprint)
        self._database.write_now(partial(note, last_poll_utc=now, next_poll_utc=now + self._longest))
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
            self._database.write_now(partial(note, next_poll_utc=next_poll))
        return False

    def _tell(self, scope: Scope, *, is_one_place: bool) -> None:
        facts = say(f"scopes.{scope}", names=", ".join(self._asked.all))
        if is_one_place and scope not in {Scope.CREDENTIAL, Scope.NOT_ADDRESS}:
            facts = f"{facts} {say('check.cooldown_one_place')}"
        match scope:
            case Scope.CREDENTIAL | Scope.NOT_ADDRESS:
                finding = good("cooldown", facts, subject=scope)
            case Scope.UNKNOWN:
                finding = bad("cooldown", facts, say("check.cooldown_stranger"), subject=scope)
            case _:
                finding = warn("cooldown", facts, say("poll.cooldown_scope"), subject=scope)
        self._report.add(finding)
