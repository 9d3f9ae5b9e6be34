"""Small files beside the tables that hold what these cannot: how far they went, and which alarms about their loss were sent."""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from orderbridge.clock import SystemClock
from orderbridge.store.workers import detached

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
    """In one step: a reader finds the last one or this one. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        os.write(descriptor, json.dumps(document, default=lambda moment: moment.isoformat()).encode())
        os.fsync(descriptor)
        give_to_owner_of(path.parent, descriptor)
    finally:
        os.close(descriptor)
    beside.replace(path)


def give_to_owner_of(folder: Path, made: Path | int) -> None:
    """What root makes by hand, by its path or descriptor: the daemon has to work on it."""
    if os.geteuid() == 0:
        around = folder.stat()
        os.chown(made, around.st_uid, around.st_gid)


def sync_folder(folder: Path) -> None:
    """Have the names of its files on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SidecarWriter:
    """Writes one file beside the event loop. Of several documents that wait, only the newest is written.

    Nothing waits for it: a disk that hangs keeps its thread, and is seen by `slow_s`. `inline`: written on the spot.
    """

    def __init__(self, path: Path, *, inline: bool = False) -> None:
        self.path = path
        self.error: str | None = None  # of the last attempt
        self._inline = inline
        self._clock = SystemClock()
        self._make: Callable[[], object] | None = None
        self._since: float | None = None  # the writing that is under way began then
        self._writing: asyncio.Task[None] | None = None

    def put(self, make: Callable[[], object]) -> None:
        """Write what this makes, as soon as the former writing has ended. The document is made in the thread, too."""
        if self._inline:
            self._write(make)
            return
        self._make = make
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())

    def slow_s(self) -> float:
        """For how many seconds the present writing has been under way."""
        since = self._since
        return 0.0 if since is None else self._clock.monotonic() - since

    async def close(self, within_s: float) -> None:
        """Wait so long at most for the last writing."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=within_s)

    async def _write_all(self) -> None:
        while (make := self._make) is not None:
            self._make, self._since = None, self._clock.monotonic()
            await detached(partial(self._write, make))
            self._since = None

    def _write(self, make: Callable[[], object]) -> None:
        try:
            write_document(self.path, make())
        except OSError as error:
            self.error = error.strerror or type(error).__name__
        else:
            self.error = None
