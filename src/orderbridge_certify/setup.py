"""The sandbox and a real daemon, whose line and whose life a scenario can end and begin again."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.errors import StoreError
from orderbridge.store.database import Database
from orderbridge_certify import notes
from orderbridge_sandbox import Options, World
from orderbridge_sandbox.demo import settings_for
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.server import Sandbox

START_S = 60.0
LEAST_COOLDOWN_S = 0.2

MORE = """
[actions]
retry_waits_seconds = [0.5, 1, 2]
[orders]
journal = "off"
"""


class Setup:
    """What a till has around it."""

    def __init__(self, sandbox: Sandbox, settings: config.Settings) -> None:
        self.world = sandbox.world
        self._sandbox = sandbox
        self._settings = settings
        self._daemon: Daemon | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """A daemon, in a thread and a loop of its own; it polls at once."""
        begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(begun,), name="daemon", daemon=True)
        self._thread.start()
        begun.wait(START_S)
        self.check()

    def stop(self) -> None:
        """End it in order; nothing is polled, nothing is sent."""
        if self._thread is not None and self._loop is not None and self._daemon is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._daemon.stop)
            self._thread.join()
        self._thread = None

    def check(self) -> None:
        """Raise StoreError when the daemon has ended by itself."""
        if self._thread is not None and not self._thread.is_alive() and self._failure is not None:
            raise StoreError("certify.daemon_ended", error=type(self._failure).__name__) from self._failure

    def line(self, line: Line) -> None:
        """Make the line bad, or good again."""
        self.world.set_options(line=line, line_seconds=0.0)

    def until_line(self, line: Line) -> None:
        """Until the sandbox plays it."""
        self.world.wait_for(lambda: self._sandbox.line is line, timeout=START_S)

    def _run(self, begun: threading.Event) -> None:
        try:
            asyncio.run(self._work(begun))
        except Exception as error:  # noqa: BLE001 - check() raises it
            self._failure = error
        finally:
            begun.set()

    async def _work(self, begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        chosen = self._settings.database
        database = Database(chosen.url, busy_timeout_s=chosen.busy_timeout_seconds, accept_unsafe_durability=True)
        notes.mark(database.engine)
        self._daemon = Daemon(self._settings, database=database)
        begun.set()
        await self._daemon.run()


@contextmanager
def running(database: str, *, seed: int, pace: float) -> Iterator[Setup]:
    """Sandbox and daemon, until the end of the block."""
    cooldown = max(LEAST_COOLDOWN_S, min(1.0, pace))
    options = Options(cooldown_seconds=cooldown, changed_are_listed_again=True)
    world = World.default(seed=seed, options=options, tell=lambda _: None)
    with (
        tempfile.TemporaryDirectory(prefix="orderbridge-certify-") as folder,
        Sandbox(world, directory=Path(folder)) as sandbox,
    ):
        made = Setup(sandbox, settings_for(sandbox, database, MORE))
        made.start()
        try:
            yield made
        finally:
            made.stop()
