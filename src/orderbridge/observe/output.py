"""stdout and stderr of the daemon: a reader that stops holds up nothing.

Whoever reads them may stop: a pager, a log shipper that hangs, a terminal after Ctrl-S, a full disk. A full pipe would then
block the event loop in the middle of a log line. So a thread of its own writes; what it cannot write waits in memory, so
much of it, and what comes then is dropped, counted, and reported as soon as something is read again.
"""

import atexit
import io
import os
import select
import sys
import threading
from collections import deque
from typing import Final, TextIO

import structlog

from orderbridge.clock import SystemClock
from orderbridge.texts import say

MOST_WAITING: Final = 1024 * 1024  # characters: a busy hour
PIECE: Final = 4096  # bytes: a pipe takes them whole or not at all
DRAIN_S: Final = 2.0  # at the end of the process

_log = structlog.get_logger(__name__)
_clock = SystemClock()


class Output(io.TextIOBase):
    """Stands for a stream with a descriptor of its own. `write` never blocks and never fails."""

    def __init__(self, stream: TextIO, most_waiting: int = MOST_WAITING) -> None:
        self._stream = stream
        self._most_waiting = most_waiting
        self._waiting: deque[str] = deque()
        self._size = 0  # characters that are not written yet
        self._dropped = 0  # lines
        self._since: float | None = None  # the piece at hand is being written, or failed and none was written after it
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="output", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # so click finds out that this is no stream of bytes
            raise TypeError(type(text).__name__)
        with self._changed:
            if self._size + len(text) > self._most_waiting:
                self._dropped += text.count("\n")
            else:
                self._waiting.append(text)
                self._size += len(text)
                self._changed.notify_all()
        return len(text)

    def drain(self) -> None:
        """Wait until all is written, but not for long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._size, DRAIN_S)

    def stuck_s(self) -> float:
        """For how long nothing could be written although something waits."""
        since = self._since
        return 0.0 if since is None else _clock.monotonic() - since

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                text = "".join(self._waiting)
                self._waiting.clear()
            lost = self._write_out(text)
            with self._changed:
                self._size -= len(text)
                self._dropped += lost
                dropped, self._dropped = (self._dropped, 0) if self._since is None else (0, self._dropped)
                self._changed.notify_all()
            if dropped:
                _log.error("log.lines_dropped", count=dropped, reason=say("log.not_read"))

    def _write_out(self, text: str) -> int:
        """Returns how many lines were lost, because the system refused them."""
        data = memoryview(text.encode(self.encoding, self.errors))
        while data:
            self._since = self._since or _clock.monotonic()
            try:
                written = os.write(self.fileno(), data[:PIECE])
            except BlockingIOError:  # whoever started us made it so
                select.select([], [self.fileno()], [])
            except (OSError, ValueError):
                return bytes(data).count(b"\n")
            else:
                data, self._since = data[written:], None
        return 0


_outputs: list[Output] = []


def stuck_s() -> float:
    """For how many seconds whoever reads stdout or stderr has taken nothing."""
    return max((output.stuck_s() for output in _outputs), default=0.0)


def never_wait() -> None:
    """From now on no write to stdout or stderr waits for its reader. Streams of a test stay as they are."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream is getattr(sys, f"__{name}__"):
            _outputs.append(Output(stream))
            setattr(sys, name, _outputs[-1])
            atexit.register(_outputs[-1].drain)
