"""The till as processes of certify's own (`--start`). Its standard output is the printer, and certify reads the papers."""

import codecs
import os
import re
import shlex
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from orderbridge.clock import SystemClock
from orderbridge.errors import ConfigError

LOG = "till.log"
# What certify writes into an order's note, so that a paper of the order is known by it.
WORD = re.compile(r"certify-[0-9a-f]{8}")
COPY = re.compile("copy|nüsha", re.IGNORECASE)
EMPTY_LINES = re.compile(r"\n{2,}")
STOP_WITHIN = 200  # letters between the word STOP and the order's number or reference
CHUNK = 65_536
QUIET_S = 0.5
LONGEST_QUIET_S = 10.0


class Printer:
    """One process and what it has printed. While the printer is jammed the till stands at its next paper."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.text = ""
        self._flows, self._stands = threading.Event(), threading.Event()
        self._flows.set()
        out, into = os.pipe()
        # A description of its own: that the till's end does not block would be an error to the till.
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
        """Take nothing more, and fill the pipe with empty lines."""
        self._stands.clear()
        self._flows.clear()
        self._fill(1)
        self._stands.wait()
        for size in (512, 1):
            while self._fill(size):
                pass

    def flow(self) -> None:
        """Take what it prints."""
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
                self._stands.set()
                self._flows.wait()
            self.text += EMPTY_LINES.sub("\n", decoder.decode(os.read(out, CHUNK)))


class Started:
    """The tills that `--start` has started."""

    def __init__(self, command: str, folder: Path) -> None:
        self._command, self._log = shlex.split(command), folder / LOG
        self._printers: list[Printer] = []

    def start(self) -> None:
        """One more."""
        self._printers.append(Printer(self._command, self._log))

    def jam(self) -> None:
        """Every printer stands still."""
        for printer in self._printers:
            printer.jam()

    def flow(self) -> None:
        """No printer is jammed any more."""
        for printer in self._printers:
            printer.flow()

    def until_quiet(self) -> None:
        """Until nothing more is printed."""
        clock = SystemClock()
        over, before = clock.monotonic() + LONGEST_QUIET_S, None
        while before != (before := self.printed) and clock.monotonic() < over:
            threading.Event().wait(QUIET_S)

    def kill(self) -> None:
        """Kill what was started, as the kernel does; a process that it has started itself lives on."""
        for printer in self._printers:
            printer.process.kill()
            printer.process.wait()
            printer.flow()

    def close(self) -> None:
        """Kill all, with whatever they have started."""
        for printer in self._printers:
            with suppress(ProcessLookupError):
                os.killpg(printer.process.pid, signal.SIGKILL)
        self.kill()

    @property
    def printed(self) -> str:
        """All of it."""
        return "\n".join(printer.text for printer in self._printers).strip()

    def papers(self, word: str) -> list[bool]:
        """For each paper with this word, whether it says above it that it may be a second copy."""
        found = []
        for printer in self._printers:
            text, begun = printer.text, 0
            for match in WORD.finditer(text):
                if match.group() == word:
                    found.append(COPY.search(text, begun, match.start()) is not None)
                begun = match.end()
        return found

    def stopped(self, names: tuple[str, ...]) -> bool:
        """Whether a paper says STOP and one of the order's names below it."""
        named = "|".join(re.escape(name) for name in names if name)
        return re.search(rf"\bSTOP\b[\s\S]{{0,{STOP_WITHIN}}}?\b(?:{named})\b", self.printed) is not None
