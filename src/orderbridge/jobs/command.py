"""A command of the restaurant's own, run for each alarm: bounded in time, with everything that it starts.

It has a session of its own, and whatever is left of its process group when it ends, or when its time is up, is killed.
What it writes goes nowhere: it may hold a password. Our own settings are not in its environment.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from orderbridge.texts import say

NOT_ITS_BUSINESS = ("ORDERBRIDGE_", "NOTIFY_SOCKET", "WATCHDOG_", "CREDENTIALS_DIRECTORY", "LISTEN_", "JOURNAL_STREAM")


class Command:
    """Runs in a thread: starting a program can take its time, too."""

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        self._words = tuple(words)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self, arguments: Sequence[str], document: bytes) -> str | None:
        """None when it went well, else what went wrong, in a few words. Never raises for what the command does."""
        if self._ends():
            return say("log.command_stopping")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the technician's own words
                [*self._words, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=_environment(os.environ),
            )
        except (OSError, ValueError) as error:
            return say("log.command_not_started", error=getattr(error, "strerror", None) or type(error).__name__)
        if self._ends():  # meanwhile
            self.end()
        return self._ended(self._process, document)

    def _ended(self, process: "subprocess.Popen[bytes]", document: bytes) -> str | None:
        late, wrong = False, None
        try:
            process.communicate(document, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        except OSError as error:  # of the pipe, or of the waiting: the daemon goes on, and it is told again
            wrong = error
            if process.stdin is not None:
                process.stdin.close()
        finally:
            _kill_group(process.pid)
            process.wait()
            self._process = None
        if wrong is not None:
            return say("log.command_broken", error=wrong.strerror)
        if late:
            return say("log.command_late", seconds=f"{self._timeout_s:g}")
        if process.returncode < 0:
            return say("log.command_signal", number=-process.returncode)
        return None if process.returncode == 0 else say("log.command_code", code=process.returncode)

    def _ends(self) -> bool:
        return self._is_over

    def end(self) -> None:
        """Now, and for good."""
        self._is_over = True
        if (process := self._process) is not None:
            _kill_group(process.pid)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(NOT_ITS_BUSINESS)}
