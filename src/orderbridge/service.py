"""The daemon as a service: its signals, its configuration read anew, and its place when another one works already."""

import asyncio
import signal
from collections.abc import Callable

import structlog
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.errors import OrderbridgeError
from orderbridge.observe import systemd
from orderbridge.store.database import Workers
from orderbridge.store.sole import Sole

ASK_S = 1.0  # between two tries to become the one that works
GUARD_S = 5.0  # between two looks at whether we still are

_log = structlog.get_logger(__name__)


class Service:
    """Runs daemons one after another, as signals and the other daemons of the database say."""

    def __init__(self, settings: config.Settings, load: Callable[[], config.Settings]) -> None:
        self._wanted: config.Settings | None = settings
        self._load = load
        self._daemon: Daemon | None = None
        self._called = asyncio.Event()

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. SIGHUP: what is in flight is finished, and it goes on by what `load` gives."""
        loop = asyncio.get_running_loop()
        for number, heard in ((signal.SIGTERM, self._end), (signal.SIGINT, self._end), (signal.SIGHUP, self._reload)):
            loop.add_signal_handler(number, heard)
        sole: Sole | None = None
        try:
            while (settings := self._wanted) is not None:
                self._called.clear()
                self._daemon = daemon = Daemon(settings)
                if sole is not None and not sole.serves(daemon.database.engine):
                    sole.close()
                    sole = None
                sole = sole or Sole(daemon.database.engine)  # kept: one that waits must not come in between
                try:
                    if await self._may_work(sole):
                        await self._work(daemon, sole)
                finally:
                    daemon.database.close()
        finally:
            if sole is not None:
                sole.close()

    async def _may_work(self, sole: Sole) -> bool:
        """Wait for the right to work, also while the server is away. False: a signal came first."""
        waiting = False
        while not self._called.is_set():
            try:
                if await asyncio.to_thread(sole.take):
                    return True
            except DBAPIError:
                if not waiting:  # at the start it is said, and the exit code tells it
                    raise
            if not waiting:
                waiting = True
                _log.warning("daemon.waiting", reason="another daemon works on this database")
                systemd.notify(systemd.READY)
            systemd.notify(systemd.ALIVE)
            try:
                async with asyncio.timeout(ASK_S):
                    await self._called.wait()
            except TimeoutError:
                continue
        return False

    async def _work(self, daemon: Daemon, sole: Sole) -> None:
        asking = Workers(
            1, "db-guard"
        )  # a thread that hangs in a server's silence must not keep the program from ending
        guard = asyncio.create_task(self._watch(daemon, sole, asking))
        try:
            await daemon.run()
        finally:
            guard.cancel()
            await asyncio.gather(guard, return_exceptions=True)
            asking.close()

    async def _watch(self, daemon: Daemon, sole: Sole, asking: Workers) -> None:
        """Stop in order when another daemon has taken our place while the server was away."""
        while not await asking.submit(sole.is_lost, urgent=False):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(GUARD_S)
        _log.error("daemon.replaced", reason="the database's server was away, and another daemon was quicker")
        daemon.stop(systemd.RELOADING)

    def _end(self) -> None:
        self._wanted = None
        self._call(systemd.STOPPING)

    def _reload(self) -> None:
        """A configuration that cannot be used changes nothing."""
        if self._wanted is None:
            return
        try:
            settings = self._load()
            Daemon(settings).database.close()  # a certificate or a database that cannot be used shows here
        except OrderbridgeError as error:
            _log.error("config.reload_failed", error=str(error))
        else:
            self._wanted = settings
            _log.info("config.reloaded")
            self._call(systemd.RELOADING)

    def _call(self, word: str) -> None:
        self._called.set()
        if self._daemon is not None:
            self._daemon.stop(word)
