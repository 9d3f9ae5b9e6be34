"""Runs the daemon as a systemd service: signals, reloads, and waiting while another daemon works.

Rules of this file:

- The event loop never waits for a database. Opening one, or taking the leader lock, runs in a thread, which is
  abandoned at a SIGTERM or a timeout.
- A reload prepares the next daemon while the current one works. If that fails, nothing changes.
- After RELOADING systemd always gets READY, even if the reload failed. STOPPING is sent only at the end.
"""

import asyncio
import contextlib
import os
import platform
import signal
from collections.abc import Callable
from functools import partial

import structlog
from sqlalchemy.exc import DBAPIError

from orderbridge import __version__, config
from orderbridge.daemon import Daemon
from orderbridge.errors import Fenced, NoThread, OrderbridgeError, StoreError
from orderbridge.extension import Extension, named
from orderbridge.jobs.context import Kept
from orderbridge.observe import liveness, systemd
from orderbridge.observe.metrics import READY, WORKING, Metrics
from orderbridge.rules.problems import Code, Readiness, Severity
from orderbridge.store.database import Database, open_configured
from orderbridge.store.failures import remedy
from orderbridge.store.leader import RightToWork
from orderbridge.store.workers import detached
from orderbridge.texts import read_ahead, say, sentence
from orderbridge.web.listening import Listening, Pages

ASK_S = 1.0  # between two tries to take the leader lock
GUARD_S = 5.0  # between two checks that we still hold it
ALIVE_S = 2.0  # between two messages to systemd's watchdog, which waits for half a minute
SHOWN_WITHIN_S = 3.0  # the web server starts at the latest this long after the start
POLLED_S = 0.25  # for a first poll to be answered
OPEN_WITHIN_S = 20.0  # timeout of a reload, for a disk or a database that does not answer

_log = structlog.get_logger(__name__)


class Service:
    """Runs one daemon after another, controlled by signals and by other daemons on the database."""

    def __init__(self, settings: config.Settings, load: Callable[[], config.Settings]) -> None:
        self._settings = settings
        self._load = load
        self._name = liveness.name_of(settings.source.file)
        self.extensions: dict[str, Extension] = {}  # loaded ones, by name
        self._daemon: Daemon | None = None  # the current one
        self._next: Daemon | None = None  # made ready by a reload
        self._leader: RightToWork | None = None
        self._called = asyncio.Event()  # set by a reload: the waiting or working daemon must end
        self._ending = False
        self._serving: asyncio.Task[None] | None = None
        self._shown: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._reload_wanted = False
        self._metrics = Metrics(codes=Code, severities=Severity, build=(__version__, platform.python_version()))
        self._listening = Listening(self, settings.web)
        self._kept = Kept(self._metrics, page=lambda: self._listening.page)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT. After SIGHUP it continues with the settings from `load`."""
        loop = asyncio.get_running_loop()
        for number, heard in ((signal.SIGTERM, self.end), (signal.SIGINT, self.end), (signal.SIGHUP, self.reload)):
            loop.add_signal_handler(number, heard)
        systemd.handle_reloads()
        alive = asyncio.gather(self._say_alive(), liveness.answer(self._name, self._answer, on_holder=self._on_holder))
        self._serving = asyncio.create_task(self._serve())
        try:
            await self._serving
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            systemd.notify(systemd.STOPPING)
            others = [task for task in (alive, self._reloading, self._shown) if task is not None]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._drop_next()
            await self._drop_leader()

    async def _say_alive(self) -> None:
        """Notify systemd's watchdog as long as the event loop runs and nothing hangs."""
        before: str | None = None
        while True:
            hung = self.hung()
            if hung is None:
                systemd.notify(systemd.ALIVE)
            elif before is None:
                _log.error("daemon.hung", reason=hung, remedy=say("log.watchdog"))
            before = hung
            await asyncio.sleep(ALIVE_S)

    # ---- for the web server (web.listening) --------------------------------------------------------------------------

    def hung(self) -> str | None:
        """What hangs, so that a restart would help, or None."""
        return None if self._daemon is None else self._daemon.hung()

    def readiness(self) -> Readiness:
        """The daemon's readiness. A service that waits for another daemon is not ready."""
        return Readiness() if self._daemon is None else self._daemon.report.readiness()

    def measured(self) -> Metrics:
        """The metrics with current gauges."""
        self._metrics.set(WORKING, to=0)
        if self._daemon is not None:
            self._daemon.report.measure()
        self._metrics.set(READY, to=self.readiness().is_ready)
        return self._metrics

    def pages(self) -> list[Pages]:
        """The pages of the extensions that the configuration needs."""
        found = [self.extensions[name].pages() for name in self._settings.extensions]
        return [one for one in found if one is not None]

    def _on_holder(self, peer: liveness.Peer | None) -> None:
        """Note which other process answers healthchecks under our name.

        It is ignored while this service waits for another daemon, and among replicas, which may share a configuration.
        """
        is_replica = peer is not None and peer.uid == os.geteuid() and self._settings.fleet.from_database
        found = None if peer is None or self._daemon is None or is_replica else str(peer)
        if found is not None and found != self._kept.name_holder:
            _log.warning("healthcheck.name_taken", holder=found, reason=say("log.name_taken"))
        self._kept.name_holder = found

    # ---- working -----------------------------------------------------------------------------------------------------

    def _answer(self) -> str:
        """The answer for `orderbridge healthcheck`."""
        hung = self.hung()
        status = "" if self._daemon is None else self._daemon.upkeep.status
        return f"{liveness.ALIVE if hung is None else f'hung: {hung}'}\n{status}\n"

    async def _serve(self) -> None:
        while not self._ending:
            daemon, self._next = self._next, None
            daemon = daemon or await self._make_ready(self._settings)
            if self._shown is None:  # after a failed start, its reason should be the first line of the log
                self._shown = asyncio.create_task(self._show())
            if self._next is None:  # else a reload came first, and this one ends at once
                self._called.clear()
            try:
                if await self._may_work(daemon):
                    await self._work(daemon)
            except Fenced:  # start again, like after a kill
                await self._drop_leader()
                self._kept.cooldowns.keep(())
            finally:
                daemon.database.close()

    async def _make_ready(self, settings: config.Settings) -> Daemon:
        """Make a daemon that can work with these settings. Raises OrderbridgeError."""
        for name in settings.extensions:
            if name not in self.extensions:
                self.extensions[name] = (await detached(partial(named, name)))()
        await detached(read_ahead)  # the sentences, with those of extensions
        database = await detached(partial(_open, settings), unwanted=Database.close)
        try:
            daemon = Daemon(settings, database=database, kept=self._kept)
            await detached(partial(daemon.roster.check, database))
        except BaseException:
            database.close()
            raise
        return daemon

    async def _show(self) -> None:
        """Start the web server after the first polls, because loading it takes a tenth of a second of CPU time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHOWN_WITHIN_S):
                await self._kept.begun.wait()
                await asyncio.sleep(POLLED_S)
        await self._listening.run()

    async def _leader_of(self, daemon: Daemon) -> RightToWork:
        """The leader lock. It is kept during a reload, so that a waiting daemon cannot take it."""
        leader = daemon.roster.right_to_work(daemon.database, self._leader)
        if leader is not self._leader:
            await self._drop_leader()
            self._leader = leader
        return leader

    async def _drop_leader(self) -> None:
        leader, self._leader = self._leader, None
        if leader is not None:
            with contextlib.suppress(NoThread):  # then it ends with the process
                await detached(leader.close)

    async def _may_work(self, daemon: Daemon) -> bool:
        """Wait for the leader lock, also while the database server is down. Returns False if a reload came first."""
        leader, waiting = await self._leader_of(daemon), False
        while not self._called.is_set():
            try:
                if await detached(leader.take):
                    return not self._called.is_set()  # a reload may have come meanwhile
            except DBAPIError:
                if not waiting:  # an error at the start ends the program
                    raise
            if not waiting:
                waiting = True
                self._kept.begun.set()
                _log.warning("daemon.waiting", reason=say("daemon.waiting"), by=await _worker(daemon.database) or "?")
                systemd.notify(f"{systemd.READY}\nSTATUS={say('status.waiting', self._settings.language)}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_S):
                    await self._called.wait()
        return False

    async def _work(self, daemon: Daemon) -> None:
        self._daemon = daemon
        leader = await self._leader_of(daemon)
        guard = asyncio.create_task(self._watch(daemon, leader))
        seen = daemon.for_extensions()
        extensions = [self.extensions[name] for name in seen.settings.extensions]
        for one in extensions:
            one.begin(seen)
        try:
            await daemon.run()
        finally:
            self._daemon = None
            for one in extensions:
                one.end()
            guard.cancel()
            await asyncio.gather(guard, return_exceptions=True)

    async def _watch(self, daemon: Daemon, leader: RightToWork) -> None:
        """Stop in order if another daemon took the lock while the database server was down."""
        while True:
            with contextlib.suppress(NoThread):
                if await detached(leader.is_lost):
                    break
            await asyncio.sleep(GUARD_S)
        _log.error("daemon.replaced", reason=say("log.replaced"))
        daemon.stop()

    # ---- signals -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop in order, as after SIGTERM."""
        self._ending = True
        systemd.notify(systemd.STOPPING)
        if self._daemon is not None:
            self._daemon.stop(for_good=True)
        elif self._serving is not None:  # nothing is in flight yet
            self._serving.cancel()

    def reload(self) -> None:
        """Read the configuration again, as after SIGHUP."""
        self._reload_wanted = True
        if not self._ending and (self._reloading is None or self._reloading.done()):
            systemd.notify(systemd.reloading())
            self._reloading = asyncio.create_task(self._make_next())

    async def _make_next(self) -> None:
        """Prepare the next daemon. An unusable configuration changes nothing. Another SIGHUP meanwhile starts again."""
        while self._reload_wanted:
            self._reload_wanted = False
            try:
                await self._open_next()
            except Exception as error:  # noqa: BLE001 - a bug; systemd still needs READY
                _log.exception("config.reload_failed", error=type(error).__name__)
        if self._next is None:
            systemd.notify(systemd.READY)
            return
        self._called.set()
        if self._daemon is not None:
            self._daemon.stop()

    async def _open_next(self) -> None:
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                settings = await detached(self._load)  # the disk may hang
                made = await self._make_ready(settings)
        except OrderbridgeError as error:
            _log.error("config.reload_failed", error=sentence(error))
        except DBAPIError as error:
            _log.error("config.reload_failed", error=f"{type(error.orig).__name__}: {sentence(remedy(error))}")
        except TimeoutError:
            _log.error("config.reload_failed", error=say("log.not_reloaded", seconds=f"{OPEN_WITHIN_S:.0f}"))
        else:
            _log.info("config.reloaded")
            self._drop_next()
            self._settings, self._next = settings, made
            self._listening.use(settings.web)

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next.database.close()
            self._next = None


async def _worker(database: Database) -> str | None:
    """The host and process of the daemon that works on the database, if known."""
    try:
        return await detached(lambda: database.read_now(database.dialect.worker))
    except DBAPIError:
        return None


def _open(settings: config.Settings) -> Database:
    database = open_configured(settings.database)
    try:
        database.refuse_closed()
        database.refuse_pooler()
        unsafe = database.check_durability()
    except BaseException:
        database.close()
        raise
    if unsafe is not None and database.dialect.unsafe_is_refused:  # only at a start
        database.close()
        raise StoreError(unsafe.key, **unsafe.facts)
    return database
