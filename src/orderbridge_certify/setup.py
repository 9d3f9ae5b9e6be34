"""The environment of a till: the sandbox, a real daemon that a scenario can stop or cut off, and the till's processes.

The standard output of a till that was started by `--start` counts as its printer.
"""

import asyncio
import codecs
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.daemon import Daemon
from orderbridge.errors import ConfigError, StoreError
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
    """The sandbox and the daemon that a till works with."""

    def __init__(self, sandbox: Sandbox, settings: config.Settings) -> None:
        self.world = sandbox.world
        self._sandbox = sandbox
        self._settings = settings
        self._daemon: Daemon | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Start a daemon in its own thread and event loop. It polls at once."""
        begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(begun,), name="daemon", daemon=True)
        self._thread.start()
        begun.wait(START_S)
        self.check()

    def stop(self) -> None:
        """Stop the daemon cleanly. After that nothing is polled or sent."""
        if self._thread is not None and self._loop is not None and self._daemon is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._daemon.stop)
            self._thread.join()
        self._thread = None

    def check(self) -> None:
        """Raise StoreError if the daemon has ended by itself."""
        if self._thread is not None and not self._thread.is_alive() and self._failure is not None:
            raise StoreError("certify.daemon_ended", error=type(self._failure).__name__) from self._failure

    def line(self, line: Line) -> None:
        """Set the state of the network line."""
        self.world.set_options(line=line, line_seconds=0.0)

    def until_line(self, line: Line) -> None:
        """Wait until the sandbox has this state."""
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
    """Run the sandbox and the daemon during the block."""
    cooldown = max(LEAST_COOLDOWN_S, min(1.0, pace))
    options = Options(cooldown_seconds=cooldown, changed_are_listed_again=True)
    world = World.default(seed=seed, options=options, report=lambda _: None)
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


LOG = "till.log"
# A word that certify writes in an order's note, to recognize the order's papers.
WORD = re.compile(r"certify-[0-9a-f]{8}")
COPY = re.compile(r"copy|nüsha|\bstop\b", re.IGNORECASE)  # a STOP slip may show the note, too
EMPTY_LINES = re.compile(r"\n{2,}")
STOP_WITHIN = 200  # characters between the word STOP and the order's number or reference
CHUNK = 65_536
QUIET_S = 0.5
LONGEST_QUIET_S = 10.0


class Printer:
    """A till's process, and what it has printed. While the printer is jammed, the till blocks at its next paper."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.text = ""
        self._flows, self._is_still = threading.Event(), threading.Event()
        self._flows.set()
        out, into = os.pipe()
        # A separate open file: a non-blocking end shared with the till would give it errors.
        self._filler = os.open(f"/proc/self/fd/{into}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            with log.open("ab") as errors:
                self.process = subprocess.Popen(  # noqa: S603 - the command that the technician named
                    command, stdin=subprocess.DEVNULL, stdout=into, stderr=errors, start_new_session=True
                )
        except OSError as error:
            raise ConfigError("certify.not_started", command=shlex.join(command), error=error) from error
        finally:
            os.close(into)
        threading.Thread(target=self._read, args=(out,), name="printer", daemon=True).start()

    def jam(self) -> None:
        """Stop reading, and fill the pipe with empty lines."""
        self._is_still.clear()
        self._flows.clear()
        self._fill(1)
        self._is_still.wait()
        for size in (512, 1):
            while self._fill(size):
                pass

    def flow(self) -> None:
        """Read what the till prints."""
        self._flows.set()

    def _fill(self, size: int) -> bool:
        try:
            return os.write(self._filler, b"\n" * size) == size
        except BlockingIOError:
            return False

    def _read(self, out: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            if not self._flows.is_set():
                self._is_still.set()
                self._flows.wait()
            self.text += EMPTY_LINES.sub("\n", decoder.decode(os.read(out, CHUNK)))


class Started:
    """The tills that were started with `--start`."""

    def __init__(self, command: str, folder: Path) -> None:
        self._command, self._log = shlex.split(command), folder / LOG
        self._printers: list[Printer] = []

    def start(self) -> None:
        """Start one more till."""
        self._printers.append(Printer(self._command, self._log))

    def jam(self) -> None:
        """Jam every printer."""
        for printer in self._printers:
            printer.jam()

    def flow(self) -> None:
        """End the jam of every printer."""
        for printer in self._printers:
            printer.flow()

    def until_quiet(self) -> None:
        """Wait until nothing more is printed."""
        clock = SystemClock()
        over, before = clock.monotonic() + LONGEST_QUIET_S, None
        while before != (before := self.printed) and clock.monotonic() < over:
            threading.Event().wait(QUIET_S)

    def kill(self) -> None:
        """Kill the tills' processes with SIGKILL, but not the processes that they started."""
        for printer in self._printers:
            printer.process.kill()
            printer.process.wait()
            printer.flow()

    def close(self) -> None:
        """Kill the tills, and all processes that they started."""
        for printer in self._printers:
            with suppress(ProcessLookupError):
                os.killpg(printer.process.pid, signal.SIGKILL)
        self.kill()

    @property
    def printed(self) -> str:
        """All that the tills have printed."""
        return "\n".join(printer.text for printer in self._printers).strip()

    def papers(self, word: str) -> list[bool]:
        """For each ticket with this word, whether a line above marks it as a possible second copy or as a STOP slip."""
        found = []
        for printer in self._printers:
            text, begun = printer.text, 0
            for match in WORD.finditer(text):
                if match.group() == word:
                    found.append(COPY.search(text, begun, match.start()) is not None)
                begun = match.end()
        return found

    def stopped(self, names: tuple[str, ...]) -> bool:
        """Whether a paper has STOP, followed by one of the order's names."""
        named = "|".join(re.escape(name) for name in names if name)
        return re.search(rf"\bSTOP\b[\s\S]{{0,{STOP_WITHIN}}}?\b(?:{named})\b", self.printed) is not None
