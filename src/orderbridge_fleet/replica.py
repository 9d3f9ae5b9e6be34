"""A daemon of a fleet: its accounts are in the database, and it shares them with other replicas.

beat       every second: find which buckets are ours, and which of them other replicas should have (membership.py)
read       every two seconds: find which accounts have changed (account_settings.py)
reconcile  after each of these: start the accounts of our buckets and stop all others. A bucket is released when no
           request of its accounts is in flight any more

The replica with bucket 0 is the lead: it does the work that is needed once, and handles rows without an account.
A replica without a good beat for LEASE_S sends no more requests: the server may have ended its session, so that another
replica may have its buckets.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.account import Roster
from orderbridge.jobs.upkeep import JOBS
from orderbridge.rules.problems import Code, Problem
from orderbridge.store.database import Database
from orderbridge.store.failures import kind, remedy
from orderbridge.store.leader import RightToWork
from orderbridge.store.workers import detached
from orderbridge.texts import say
from orderbridge_fleet import account_settings
from orderbridge_fleet.account_settings import Fault, Loaded, MasterKeys
from orderbridge_fleet.buckets import bucket_of
from orderbridge_fleet.membership import Beat, Membership
from orderbridge_fleet.replicas import ReplicaProblems, SharedClock

if TYPE_CHECKING:
    from orderbridge.daemon import Daemon

BEAT = "beat"  # names the work in reports of database errors
BEAT_S = 1.0
READ_S = 2.0
LEASE_S = 4.5  # less than GRACE_S, and than the inactivity after which the server ends our session
LEAD_BUCKET = 0
READ_ANEW_S = 60.0  # unreadable rows may be encrypted again, which does not raise the version

ALONE = Beat(frozenset({LEAD_BUCKET}), frozenset(), 1, frozenset({""}))

_log = structlog.get_logger(__name__)


class Replica(Roster):
    """The accounts of one daemon. `membership`: None if no other replica can join; then all buckets are ours."""

    _daemon: "Daemon"
    _problems: ReplicaProblems

    def __init__(self, settings: config.Settings) -> None:
        super().__init__(settings.accounts)
        self.membership: Membership | None = None
        self._settings = settings
        self._keys = MasterKeys(settings.fleet.master_keys)
        self._in_file = {account.name: account.fingerprint for account in settings.accounts}
        self._beat = Beat(frozenset(), frozenset(), 1, frozenset())  # no buckets yet
        self.heard = float("-inf")  # when the last good beat began, by the monotonic clock
        self._accounts_version: int | None = None  # at the last reading
        self._broken: set[str] = set()
        self._elsewhere = 0  # accounts stored for another base_url, at the last reading of all
        self._read_whole = float("-inf")  # time of the last reading of all accounts, by the monotonic clock
        # A bucket is first leaving, then idle, then given back. At the end of the daemon it is given only once.
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._idle: set[int] = set()
        self._given: set[int] = set()
        self._going: dict[str, asyncio.Task[None]] = {}  # accounts of our buckets that changed or were removed
        self._is_lead = self._is_draining = self._is_refused = False
        self._is_first = True
        self._changed = asyncio.Event()  # wakes reconcile
        self._hurry = asyncio.Event()  # wakes beat: there are buckets to give back
        self._has_beaten = asyncio.Event()

    # ---- called by the daemon ----------------------------------------------------------------------------------------

    def clock(self, machine: Clock) -> SharedClock:
        """The clock of the database server, based on the machine's."""
        self._clock = SharedClock(machine)
        return self._clock

    def check(self, database: Database) -> None:
        """Check that the master keys decrypt some of the accounts. Without tables there are none yet."""
        with suppress(DBAPIError):
            database.read_now(lambda tx: account_settings.refuse_strange(tx, self._keys))

    def right_to_work(self, database: Database, held: RightToWork | None) -> RightToWork:
        """The membership of the fleet; on SQLite, which has one daemon, the right of a single one."""
        if database.file is not None:
            return super().right_to_work(database, held)
        if not isinstance(held, Membership) or not held.serves(database):
            held = Membership(database)
        self.membership = held
        return held

    def owns(self, account: str | None) -> bool:
        """Whether the account's bucket is ours. Rows without an account belong to the lead."""
        return self._is_lead if account is None else bucket_of(account, self._beat.count) in self._mine()

    def fence(self, connection: Connection) -> None:
        """Raise Fenced if another replica has raised our epoch, as it does when it takes one of our buckets."""
        if self.membership is not None:
            self.membership.fence(connection)

    def may_send(self) -> bool:
        """Whether it is certain that no other replica has our accounts."""
        if self.membership is None:
            return True
        return not self.membership.is_over and self._clock.monotonic() < self.heard + LEASE_S

    def has_others(self) -> bool:
        """Whether other replicas may send rows."""
        return self.membership is not None

    def is_current(self, connection: Connection) -> bool:
        """Whether no account has changed since they were read; each change raises the version."""
        return account_settings.version(connection) == self._accounts_version

    async def share_problems(self, found: Sequence[Problem]) -> None:
        """Store our problems for the lead, which reports all. The lead stores none of its own."""
        await self._problems.note(() if self._is_lead else found)

    def problems_elsewhere(self, connection: Connection) -> Iterable[Problem]:
        """The problems that the other replicas have stored."""
        return self._problems.others(connection)

    def _mine(self) -> frozenset[int]:
        """The buckets whose accounts are active here."""
        gone = self._leaving.keys() | self._idle
        return frozenset() if self._is_draining else self._beat.held - self._beat.excess - gone

    # ---- start and end -----------------------------------------------------------------------------------------------

    async def begin(self, daemon: "Daemon") -> None:
        """Read the buckets and the accounts for the first time. Raises Fenced or DBAPIError."""
        self._daemon = daemon
        self._problems = ReplicaProblems(daemon.database, None if self.membership is None else self.membership.name)
        await self._beat_once()  # first, because the session had no beat during the reload
        await self._read()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """The tasks that run until they are cancelled. They raise Fenced if this daemon was replaced."""
        return [self._beat_on(), self._read_on(), self._reconcile_on()]

    async def drain(self) -> None:
        """Release each bucket as soon as none of its requests is in flight. Runs beside `tasks`, before the end."""
        self._is_draining = True
        self._changed.set()
        while self._idle or not self._given.issuperset(self._beat.held):
            self._has_beaten.clear()
            await self._has_beaten.wait()

    # ---- buckets -----------------------------------------------------------------------------------------------------

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._beat_once()
            except DBAPIError as error:
                if not self.may_send():  # before that, other work may still reach the database
                    self._daemon.database.trouble.failed(BEAT, type(error.orig).__name__, remedy(error), kind(error))
            else:
                self._daemon.database.trouble.worked(BEAT)
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._hurry.wait()

    def _report_refused(self, error: DBAPIError | None) -> None:
        """Report that buckets cannot be moved, so that the accounts of an ending replica stay without an owner."""
        if error is not None and not self._is_refused:
            _log.error("fleet.refused", error=str(error.orig), remedy=remedy(error))
        self._is_refused = error is not None

    async def _beat_once(self) -> None:
        began, given = self._clock.monotonic(), frozenset(self._idle)
        self._hurry.clear()
        if self.membership is None:
            beat = ALONE
        else:
            beat = await detached(partial(self.membership.beat, given, is_ending=self._is_draining))
        self.heard = began
        self._report_refused(beat.refused)
        self._idle -= given
        if self._is_draining:
            self._given |= given
        if beat != self._beat:
            held, excess, alive = map(len, (beat.held, beat.excess, beat.replicas))
            _log.info("fleet.buckets", held=held, excess=excess, of=beat.count, replicas=alive)
            self._beat = beat
            self._changed.set()
        self._has_beaten.set()

    # ---- accounts ----------------------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(READ_S)
            try:
                await self._read()
            except DBAPIError as error:
                _log.debug("fleet.read_failed", error=type(error.orig).__name__)

    async def _read(self) -> None:
        now = self._clock.monotonic()
        if self._broken and now >= self._read_whole + READ_ANEW_S:
            self._accounts_version = None
        loaded = await self._daemon.database.read(self._changes)
        if loaded is None:
            return
        is_whole, self._accounts_version = self._accounts_version is None, loaded.version
        if is_whole:
            self._read_whole = now
            if loaded.elsewhere and not self._elsewhere:  # their cooldowns are noted for that address
                _log.error("fleet.noted_elsewhere", accounts=loaded.elsewhere, remedy=say("log.noted_elsewhere"))
            self._elsewhere = loaded.elsewhere
        self._know(loaded)
        counts = {"known": len(self.known), "changed": len(loaded.accounts), "gone": len(loaded.gone)}
        _log.info("fleet.accounts", broken=len(self._broken), **counts)
        self.changed()
        self._changed.set()

    def _changes(self, connection: Connection) -> Loaded | None:
        self._clock.follow(connection)
        if self.is_current(connection):
            return None
        base_url = self._settings.marketplace.base_url
        return account_settings.read(connection, self._keys, base_url, since=self._accounts_version)

    def _know(self, loaded: Loaded) -> None:
        """Use these accounts from now on. An unreadable one that is active continues with its old settings."""
        broken: dict[str, str] = dict(loaded.broken)
        for account in loaded.accounts:
            if account.name in self._in_file:
                _log.warning("fleet.account_in_file", account=account.name)
            elif account.fingerprint in self._in_file.values():
                broken[account.name] = Fault.SAME_SECRETS
            else:
                self.known[account.name] = account
                self._mended(account.name)
        for name in loaded.gone - self._in_file.keys():
            self.known.pop(name, None)
            self._mended(name)
        for name in broken.keys() - self._in_file.keys():
            self.known.setdefault(name, None)
            self._broken.add(name)
            self._daemon.own_problems.begin(Code.ACCOUNT_UNREADABLE, name, account=name, fault=broken[name])

    def _mended(self, name: str) -> None:
        self._broken.discard(name)
        self._daemon.own_problems.end(Code.ACCOUNT_UNREADABLE, name)

    # ---- reconciling -------------------------------------------------------------------------------------------------

    async def _reconcile_on(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._reconcile()
            except DBAPIError as error:  # repeated when the database answers again
                _log.warning("fleet.not_taken", error=type(error.orig).__name__)
                await asyncio.sleep(BEAT_S)
                self._changed.set()
            await asyncio.sleep(0)

    async def _reconcile(self) -> None:
        mine, of = self._mine(), self._beat.count
        known, at_work = self.known, self.at_work
        self._lead(LEAD_BUCKET in mine)
        here: dict[int, set[str]] = defaultdict(set)
        for name in at_work:
            here[bucket_of(name, of)].add(name)
        # Before a bucket is released, requests of accounts that are being changed must end, too.
        changing = {bucket_of(name, of) for name in self._going}
        for bucket in self._beat.held - mine - self._leaving.keys() - self._idle - self._given - changing:
            self._leaving[bucket] = asyncio.create_task(self._release(bucket, here.get(bucket, ())))
        for name, account in list(at_work.items()):
            if bucket_of(name, of) in mine and self._wanted(name) is not account.settings:
                self._going[name] = asyncio.create_task(self._swap(name))
        # The same secrets are active once only: under the account's former name a poll may still be in flight.
        used = {account.fingerprint for account in at_work.values()} | self._daemon.working.leaving
        new = [
            account
            for name, account in known.items()
            if account is not None and name not in at_work and name not in self._going
            if bucket_of(name, of) in mine and account.fingerprint not in used
        ]
        await self._daemon.working.add(sorted(new, key=_spread))
        if self._is_first:
            self._is_first = False
            self._daemon.working.forget_others()

    def _wanted(self, name: str) -> config.Account | None:
        """The settings that the account should be active with. If they cannot be read, its present ones."""
        wanted = self.known.get(name)
        if wanted is None and name in self._broken:
            return self.at_work[name].settings
        return wanted

    async def _release(self, bucket: int, names: Collection[str]) -> None:
        try:
            await self._leave(names)
            # Otherwise a run in progress would overwrite the work of the next lead.
            if bucket == LEAD_BUCKET and (runs := self._daemon.timetable.runs_of(JOBS)):
                await asyncio.wait(runs)
        finally:
            del self._leaving[bucket]
            self._idle.add(bucket)
            self._hurry.set()

    async def _swap(self, name: str) -> None:
        try:
            await self._leave([name])
        finally:
            del self._going[name]
            self._changed.set()

    async def _leave(self, names: Collection[str]) -> None:
        try:
            await self._daemon.working.remove(names)
        except Exception as error:  # noqa: BLE001 - the bucket's next replica reads the unwritten work again
            _log.error("fleet.left_in_haste", accounts=len(names), exc_info=error)

    async def close(self) -> None:
        """Cancel the tasks of accounts and buckets that are leaving."""
        leaving = [*self._leaving.values(), *self._going.values()]
        for one in leaving:
            one.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    def _lead(self, is_ours: bool) -> None:
        if is_ours == self._is_lead:
            return
        self._is_lead = is_ours
        self.changed()
        _log.info("fleet.lead", is_ours=is_ours)
        self._daemon.health.reset()


def _spread(account: config.Account) -> int:
    """A sort key for the first polls, so that accounts with similar names are not polled one after another."""
    return crc32(account.name.encode()[::-1])
