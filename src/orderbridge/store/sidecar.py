"""Small files that stand beside the tables and say what these cannot: how far they went, what was told of their loss."""

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orderbridge.clock import SystemClock

MODE = 0o600
LONGEST = 8_000_000  # bytes: thousands of problems


def read_document(path: Path) -> Any:
    """None where there is none that can be read: it is a help, and no reason not to work."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(LONGEST))
    except (OSError, ValueError):
        return None


def write_document(path: Path, document: object) -> None:
    """In one step: whoever reads it finds the last one or this one. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        os.write(descriptor, json.dumps(document, default=lambda moment: moment.isoformat()).encode())
        os.fsync(descriptor)
        if os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
    finally:
        os.close(descriptor)
    beside.replace(path)


class SidecarWriter:
    """Writes one file in a thread of its own. Of several documents that wait, only the newest is written.

    Nobody waits for it: a disk that hangs keeps this thread, and is seen by `slow_s`. `inline`: written on the spot.
    """

    def __init__(self, path: Path, *, inline: bool = False) -> None:
        self.path = path
        self.error: str | None = None  # of the last attempt
        self._inline = inline
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._make: Callable[[], object] | None = None
        self._since: float | None = None  # the writing that is under way began then
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def put(self, make: Callable[[], object]) -> None:
        """Write what this makes, as soon as the former writing has ended. The document is made in the thread, too."""
        if self._inline:
            self._write(make)
            return
        with self._changed:
            self._make = make
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sidecar", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def slow_s(self) -> float:
        """For how many seconds the present writing has been under way."""
        since = self._since
        return 0.0 if since is None else self._clock.monotonic() - since

    def close(self, within_s: float) -> None:
        """Wait so long at most for the last writing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._make is None and not self._is_closed:
                    self._changed.wait()
                make, self._make = self._make, None
                if make is None:
                    return
                self._since = self._clock.monotonic()
            self._write(make)
            self._since = None

    def _write(self, make: Callable[[], object]) -> None:
        try:
            write_document(self.path, make())
        except OSError as error:
            self.error = error.strerror or type(error).__name__
        else:
            self.error = None
