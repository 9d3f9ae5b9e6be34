"""`accounts cooldown` tests whether a cooldown is shared by an account, an application or this address.

It polls up to three accounts, one right after another. An OK right after an OK means that the two do not share a
cooldown. A 429 right after an OK may mean a shared cooldown, or another program that uses the second credential. So it
counts only if it occurs again in the reverse order, a cooldown later.

No order is lost: the delivered orders are neither stored nor acknowledged, and the next poll delivers them again. All
cooldowns are kept and noted in the database, for the next daemon. No daemon or replica works meanwhile, because this
command holds the leader lock.
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

from orderbridge.cli.check import FAILED, OK, WARNING, Finding, Report, bad, failed, warn
from orderbridge.cli.common import Context, as_json, pass_context
from orderbridge.cli.line import account_of, wire_for
from orderbridge.errors import MarketplaceError, NotSent, RateLimited, StoreError
from orderbridge.rules.cooldown import MARGIN_S
from orderbridge.texts import say

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from orderbridge import config
    from orderbridge.clock import Clock
    from orderbridge.jobs.account import Account
    from orderbridge.store.database import Database
    from orderbridge.store.leader import LeaderLock
    from orderbridge_fleet.account_settings import Fault


class Scope(StrEnum):
    """The result of the test."""

    CREDENTIAL = "credential"  # each account has its own
    NOT_ADDRESS = "not_address"  # accounts of different applications have their own; each application has one account
    APPLICATION = "application"
    ADDRESS = "address"
    APPLICATION_OR_ADDRESS = "application_or_address"
    UNKNOWN = "unknown"  # another client polls with one of these credentials


@dataclass(frozen=True, slots=True)
class Asked:
    """The accounts to poll. `beside` has the same application as `first`, `other` another one. None: there is none."""

    first: "config.Account"
    beside: "config.Account | None"
    other: "config.Account | None"

    @property
    def all(self) -> tuple["config.Account", ...]:
        return tuple(filter(None, (self.first, self.beside, self.other)))


def choose(accounts: Iterable["config.Account"]) -> Asked | None:
    """Choose two accounts of one application and one of another, and read no more accounts than needed.

    None if there are no two accounts to compare.
    """
    by_application: dict[str, list[config.Account]] = {}
    for account in accounts:
        by_application.setdefault(account.application, []).append(account)
        if len(by_application) > 1 and max(map(len, by_application.values())) > 1:
            break
    largest, *others = sorted(by_application.values(), key=len, reverse=True) or [[]]
    if not largest or len(largest) + len(others) == 1:
        return None
    return Asked(largest[0], largest[1] if len(largest) > 1 else None, others[0][0] if others else None)


def judge(asked: Asked, shared: Sequence[str]) -> Scope:
    """The result. `shared`: the accounts that were answered 429 right after the first one, in both orders."""
    beside, other = (one is not None and one.name in shared for one in (asked.beside, asked.other))
    if other:
        return Scope.ADDRESS if asked.beside is None or beside else Scope.UNKNOWN
    if beside:
        return Scope.APPLICATION_OR_ADDRESS if asked.other is None else Scope.APPLICATION
    return Scope.NOT_ADDRESS if asked.beside is None else Scope.CREDENTIAL


@click.command("cooldown")
@as_json
@pass_context
def cooldown(context: Context, as_json: bool) -> None:
    """Find out which accounts share a cooldown, for cooldown_scope. It takes a minute; stop the daemon first."""
    from orderbridge.observe import logs

    logs.configure(level="critical")  # the command itself prints the result
    context.reload()
    report = Report(machine=as_json)
    try:
        is_found = _find(context, report)
    except StoreError as error:
        report.add(bad("cooldown", error))
        is_found = False
    report.show()
    raise SystemExit(not is_found)


def _find(context: Context, report: Report) -> bool:
    """Run the test. False if it has no result. Raises StoreError if a daemon works, or there are no tables."""
    from orderbridge.store import schema, workers
    from orderbridge.store.leader import LeaderLock
    from orderbridge_fleet.cli.check import broken as findings_of

    with closing(context.database()) as database, closing(LeaderLock(database)) as leader:
        database.read_now(schema.check)
        if not leader.take():
            raise StoreError("check.cooldown_at_work")
        broken: dict[str, Fault] = {}
        asked = database.read_now(lambda tx: choose(_accounts(context.settings, tx, broken)))
        for finding in findings_of(broken, warn):
            report.add(finding)
        if asked is None:
            report.add(bad("cooldown", say("check.cooldown_one_account"), say("check.cooldown_two_accounts")))
            return False
        names = ", ".join(one.name for one in asked.all)
        click.echo(say("check.cooldown_asking", names=names), err=True)
        test = _Test(context, database, leader)
        try:
            scope = workers.run(test.run(asked))
        except MarketplaceError as error:
            report.add(failed("account", error, has_worked=False, subject=test.account))
            return False
    remedies = {Scope.CREDENTIAL: "", Scope.NOT_ADDRESS: "", Scope.UNKNOWN: say("check.cooldown_stranger")}
    remedy = remedies.get(scope, say("poll.cooldown_scope"))
    level = FAILED if scope == Scope.UNKNOWN else WARNING if remedy else OK
    report.add(Finding(level, "cooldown", say(f"scopes.{scope}", names=names), remedy, scope))
    return scope != Scope.UNKNOWN


def _accounts(
    settings: "config.Settings", connection: "Connection", broken: "dict[str, Fault]"
) -> Iterator["config.Account"]:
    """The accounts that the daemon would poll, those of the file first. Those in the database are decrypted lazily."""
    from orderbridge_fleet import account_settings
    from orderbridge_fleet.account_settings import Fault, MasterKeys

    yield from settings.accounts
    if not settings.fleet.from_database:
        return
    keys = MasterKeys(settings.fleet.master_keys)
    account_settings.refuse_strange(connection, keys)
    names, secrets = ({getattr(one, key) for one in settings.accounts} for key in ("name", "fingerprint"))
    for name, account in account_settings.enabled_ones(connection, keys, settings.marketplace.base_url):
        if isinstance(account, Fault):
            broken[name] = account
        elif name not in names and account.fingerprint not in secrets:
            secrets.add(account.fingerprint)
            yield account


class _Test:
    """Polls accounts. `account`: the one that is polled at present."""

    def __init__(self, context: Context, database: "Database", leader: "LeaderLock") -> None:
        market = context.settings.marketplace
        self.account = ""
        self._cooldown = timedelta(seconds=market.cooldown_seconds + MARGIN_S)
        self._longest = self._cooldown + timedelta(seconds=market.timeout_seconds)
        self._context = context
        self._database = database
        self._leader = leader
        self._clock = _clock_of(context.settings, database)
        self._accounts: dict[str, Account] = {}

    async def run(self, asked: Asked) -> Scope:
        """Return the result. Raises MarketplaceError, and StoreError if the leader lock is lost."""
        wire = wire_for(self._context)
        self._accounts = {one.name: account_of(self._context, wire, self._database, one) for one in asked.all}
        try:
            for account in self._accounts.values():
                await account.start()
            first, *others = self._accounts
            limited = await self._ask(first, others)
            if limited is None:
                return Scope.UNKNOWN
            shared = [name for name in limited if await self._ask(name, [first]) == [first]]
            return judge(asked, shared) if shared == limited else Scope.UNKNOWN
        finally:
            for account in self._accounts.values():
                await account.close()
            await wire.close()

    async def _ask(self, first: str, others: Sequence[str]) -> list[str] | None:
        """The others that are answered 429 right after the first; None if the first one itself is."""
        from orderbridge.store.accounts import last_noted_poll

        now = self._clock.now()  # waits for the cooldowns of all accounts, which may be shared
        until = min(self._database.read_now(last_noted_poll) or now, now + self._longest)
        for name in (first, *others):
            self.account = name
            await self._accounts[name].session.token()
        await asyncio.sleep(max((until - self._clock.now()).total_seconds() + MARGIN_S, 0.0))
        if self._leader.is_lost():
            raise StoreError("check.cooldown_at_work")
        if await self._is_limited(first):
            return None
        return [name for name in others if await self._is_limited(name)]

    async def _is_limited(self, name: str) -> bool:
        """Poll once and note it in the database, as the daemon does. The orders are dropped: the next poll has them.

        An older note of the next poll is overwritten: the wait before this has ended it.
        """
        from orderbridge.store.accounts import note_poll

        self.account, account = name, self._accounts[name]
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


def _clock_of(settings: "config.Settings", database: "Database") -> "Clock":
    """The clock by which polls are noted. Replicas use the database server's."""
    from orderbridge.clock import SystemClock
    from orderbridge_fleet.replicas import SharedClock

    if not settings.fleet.from_database:
        return SystemClock()
    clock = SharedClock(SystemClock())
    database.read_now(clock.follow)
    return clock
