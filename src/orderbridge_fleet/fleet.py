"""A daemon of a fleet: its accounts are in the database, and other replicas may work there, too.

beat       every second: which buckets are ours, and which of them another replica is to have (store.membership)
read       every two seconds: which accounts have changed (store.account_settings)
reconcile  after each of them: accounts of our buckets come, all others leave; a bucket is given back when nothing of its
           accounts is in flight any more

Whoever has bucket 0 is the lead: it does what is there once for all, and answers for rows that belong to no account.
A replica that has not heard of its buckets for LEASE_S sends nothing more: the server may have ended its session, and
another replica may have them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any
from zlib import crc32

import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import SharedClock
from orderbridge.errors import Fenced
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.roster import Roster
from orderbridge.jobs.working import Working
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.problems import Code
from orderbridge.store.columns import utc_now
from orderbridge.store.database import Database
from orderbridge.store.failures import kind, remedy
from orderbridge.store.workers import detached
from orderbridge.texts import say
from orderbridge_fleet import account_settings
from orderbridge_fleet.account_settings import Loaded
from orderbridge_fleet.buckets import bucket_of
from orderbridge_fleet.membership import Beat, Membership
from orderbridge_fleet.sealing import Fault, MasterKeys
from orderbridge_fleet.single_node import Alone

BEAT = "beat"  # what the database is asked for, as its trouble is told
BEAT_S = 1.0
READ_S = 2.0
LEASE_S = 4.5  # less than GRACE_S, and than the silence after which the server ends our session
LEAD_BUCKET = 0
READ_ANEW_S = 60.0  # rows that could not be read may be sealed anew, and that is no change

ALONE = Beat(frozenset({LEAD_BUCKET}), frozenset(), 1, frozenset({""}))

_NOW = select(utc_now())
_log = structlog.get_logger(__name__)


class Fleet:
    """Of one daemon. `membership`: None where nobody else is let in; then all buckets are ours."""

    def __init__(
        self,
        settings: config.Settings,
        roster: Roster,
        working: Working,
        *,
        database: Database,
        clock: SharedClock,
        known: DaemonProblems,
        metrics: Metrics,
    ) -> None:
        self.membership: Membership | Alone | None = None
        self.on_lead: Callable[[], None] = lambda: None  # called when this replica becomes the lead, or no longer is
        self.lead_runs: Callable[[], Collection[asyncio.Task[None]]] = tuple  # of what the lead does, what is under way
        self._settings = settings
        self._keys = MasterKeys(settings.fleet.master_keys)
        self._in_file = {account.name: account.fingerprint for account in settings.accounts}
        self._roster = roster
        self._working = working
        self._database = database
        self._clock = clock
        self._known = known
        self._metrics = metrics
        self._beat = Beat(frozenset(), frozenset(), 1, frozenset())  # nothing is ours yet
        self._heard = float("-inf")  # when the last good beat began, by the monotonic clock
        self._version: int | None = None  # of the accounts, as they were read last
        self._broken: set[str] = set()
        self._elsewhere = 0  # of the accounts, when all of them were read
        self._read_whole = float("-inf")  # when all of them were, by the monotonic clock
        # A bucket of ours is let go, then idle, then given back; at the end it is given once.
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._idle: set[int] = set()
        self._given: set[int] = set()
        self._going: dict[str, asyncio.Task[None]] = {}  # accounts of our buckets that changed, or are gone
        self._is_draining, self._is_first, self._is_refused = False, True, False
        self._is_replaced = False  # the fence said so
        self._news = asyncio.Event()  # for reconcile
        self._hurry = asyncio.Event()  # for beat: there is something to be given back
        self._has_beaten = asyncio.Event()
        roster.is_lead = False
        roster.owns, roster.is_current = self._owns, self._is_current

    # ---- what others ask ---------------------------------------------------------------------------------------------

    def may_leave(self) -> bool:
        """Whether a request may leave: nobody else can have our accounts by now."""
        is_heard = self.membership is None or self._clock.monotonic() < self._heard + LEASE_S
        return is_heard and not self._is_replaced

    def fence(self, connection: Connection) -> None:
        """Begins each transaction that writes. Raises Fenced when another replica may have our accounts."""
        if self.membership is None:
            return
        try:
            self.membership.fence(connection)
        except Fenced:
            self._is_replaced = True
            self._metrics.fenced(self._clock.now())
            raise

    def _owns(self, account: str) -> bool:
        """Whether the rows of an account that nobody knows are ours."""
        return bucket_of(account, self._beat.count) in self._mine()

    def _is_current(self, connection: Connection) -> bool:
        """Whether all accounts are known that there are now."""
        return account_settings.version(connection) == self._version

    def _mine(self) -> frozenset[int]:
        """The buckets whose accounts we work for."""
        gone = self._leaving.keys() | self._idle
        return frozenset() if self._is_draining else self._beat.held - self._beat.excess - gone

    # ---- from its start to its end -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Know the buckets and the accounts. Raises Fenced or DBAPIError."""
        await self._beat_once()  # first: the session that a reload left has not spoken for a while
        await self._read()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What runs beside everything else, until it is cancelled. Raises Fenced when this daemon was replaced."""
        return [self._beat_on(), self._read_on(), self._reconcile_on()]

    async def drain(self) -> None:
        """Give everything back, each bucket as soon as nothing of it is in flight. For the end, beside `tasks`."""
        self._is_draining = True
        self._news.set()
        while self._idle or not self._given.issuperset(self._beat.held):
            self._has_beaten.clear()
            await self._has_beaten.wait()

    # ---- buckets -----------------------------------------------------------------------------------------------------

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._beat_once()
            except DBAPIError as error:
                self._tell_silence(error)
            else:
                self._database.trouble.worked(BEAT)
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._hurry.wait()

    def _tell_silence(self, error: DBAPIError) -> None:
        """Once nothing leaves for it: all other work with the database may go well."""
        if not self.may_leave():
            self._database.trouble.failed(BEAT, type(error.orig).__name__, remedy(error), kind(error))

    def _tell_refused(self, error: DBAPIError | None) -> None:
        """That buckets cannot change hands: accounts of a replica that ends are nobody's then."""
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
        self._heard = began
        self._tell_refused(beat.refused)
        self._idle -= given
        if self._is_draining:
            self._given |= given
        if beat != self._beat:
            told = {
                "held": len(beat.held),
                "excess": len(beat.excess),
                "of": beat.count,
                "replicas": len(beat.replicas),
            }
            _log.info("fleet.buckets", **told)
            self._beat = beat
            self._news.set()
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
            self._version = None
        loaded = await self._database.read(self._changes)
        if loaded is None:
            return
        is_whole, self._version = self._version is None, loaded.version
        if is_whole:
            self._read_whole = now
            self._tell_elsewhere(loaded.elsewhere)
        self._know(loaded)
        told = {"known": len(self._roster.known), "changed": len(loaded.accounts), "gone": len(loaded.gone)}
        _log.info("fleet.accounts", broken=len(self._broken), **told)
        self._roster.changed()
        self._news.set()

    def _tell_elsewhere(self, count: int) -> None:
        """Under another address each account has a cooldown of its own, which no other replica knows."""
        if count and not self._elsewhere:
            _log.error("fleet.noted_elsewhere", accounts=count, remedy=say("log.noted_elsewhere"))
        self._elsewhere = count

    def _changes(self, connection: Connection) -> Loaded | None:
        follow_server(self._clock, connection)
        if self._is_current(connection):
            return None
        base_url = self._settings.marketplace.base_url
        return account_settings.read(connection, self._keys, base_url, since=self._version)

    def _know(self, loaded: Loaded) -> None:
        """From now on these are the accounts. One that cannot be read goes on as it was, if it did."""
        known = self._roster.known
        broken: dict[str, str] = dict(loaded.broken)
        for account in loaded.accounts:
            if account.name in self._in_file:
                _log.warning("fleet.account_in_file", account=account.name)
            elif account.fingerprint in self._in_file.values():
                broken[account.name] = Fault.SAME_SECRETS
            else:
                known[account.name] = account
                self._mended(account.name)
        for name in loaded.gone - self._in_file.keys():
            known.pop(name, None)
            self._mended(name)
        for name in broken.keys() - self._in_file.keys():
            known.setdefault(name, None)
            self._broken.add(name)
            self._known.begin(Code.ACCOUNT_UNREADABLE, name, account=name, fault=broken[name])

    def _mended(self, name: str) -> None:
        self._broken.discard(name)
        self._known.end(Code.ACCOUNT_UNREADABLE, name)

    # ---- both --------------------------------------------------------------------------------------------------------

    async def _reconcile_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._reconcile()
            except DBAPIError as error:  # once more, when the database answers again
                _log.warning("fleet.not_taken", error=type(error.orig).__name__)
                await asyncio.sleep(BEAT_S)
                self._news.set()
            await asyncio.sleep(0)

    async def _reconcile(self) -> None:
        mine, of = self._mine(), self._beat.count
        known, at_work = self._roster.known, self._roster.at_work
        self._lead(LEAD_BUCKET in mine)
        here: dict[int, set[str]] = defaultdict(set)
        for name in at_work:
            here[bucket_of(name, of)].add(name)
        # What an account that is being changed has in flight is waited for, too, before its bucket is another replica's.
        changing = {bucket_of(name, of) for name in self._going}
        for bucket in self._beat.held - mine - self._leaving.keys() - self._idle - self._given - changing:
            self._leaving[bucket] = asyncio.create_task(self._let_go(bucket, here.get(bucket, ())))
        for name, account in list(at_work.items()):
            if bucket_of(name, of) in mine and self._wanted(name) is not account.settings:
                self._going[name] = asyncio.create_task(self._swap(name))
        # One pair of secrets works once: under its former name it may still have a poll in flight.
        used = {account.fingerprint for account in at_work.values()} | self._working.leaving
        come = [
            account
            for name, account in known.items()
            if account is not None and name not in at_work and name not in self._going
            if bucket_of(name, of) in mine and account.fingerprint not in used
        ]
        await self._working.come(sorted(come, key=_spread))
        if self._is_first:
            self._is_first = False
            self._working.forget_others()

    def _wanted(self, name: str) -> config.Account | None:
        """What it should be at work as: what cannot be read stays as it was."""
        wanted = self._roster.known.get(name)
        if wanted is None and name in self._broken:
            return self._roster.at_work[name].settings
        return wanted

    async def _let_go(self, bucket: int, names: Collection[str]) -> None:
        try:
            await self._leave(names)
            if bucket == LEAD_BUCKET and (runs := self.lead_runs()):  # else it would write over what the next one finds
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
            self._news.set()

    async def _leave(self, names: Collection[str]) -> None:
        try:
            await self._working.leave(names)
        except Exception as error:  # noqa: BLE001 - what could not be written is read again by whoever is next
            _log.error("fleet.left_in_haste", accounts=len(names), exc_info=error)

    async def close(self) -> None:
        """End what is leaving where it is."""
        leaving = [*self._leaving.values(), *self._going.values()]
        for one in leaving:
            one.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    def _lead(self, is_ours: bool) -> None:
        if is_ours == self._roster.is_lead:
            return
        self._roster.is_lead = is_ours
        self._roster.changed()
        _log.info("fleet.lead", is_ours=is_ours)
        self.on_lead()


def follow_server(clock: SharedClock, connection: Connection) -> None:
    """Set the clock by the database server's."""
    began = clock.monotonic()
    there = connection.execute(_NOW).scalar_one()
    clock.follow(there, clock.monotonic() - began)


def _spread(account: config.Account) -> int:
    """The order of first polls: neighbours by name are not neighbours in time."""
    return crc32(account.name.encode()[::-1])
