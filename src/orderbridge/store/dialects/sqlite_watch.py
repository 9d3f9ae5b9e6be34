"""What wakes the outbox soon after a POS has committed to a SQLite file: the system's notice, and then the counter.

The notice says that the -wal file was written to (inotify, which Linux has and Python does not offer). It comes before
the commit is on disk and can be seen, so `PRAGMA data_version` on a connection of our own, which changes when anybody
else commits, is asked again and again after it. It reads a few bytes of shared memory, so it runs on the event loop
itself. Where the system gives no notices the counter is asked by the clock alone.

No descriptor of the file is opened: closing one would end SQLite's POSIX locks on it.
"""

import asyncio
import contextlib
import ctypes
import os
import sqlite3
from collections.abc import Callable
from typing import Self

from sqlalchemy import Engine

from orderbridge.store.dialects.face import readable

WATCH_S = 0.05  # without notices: 25 ms on average, 0.5 % of a core
NET_S = 1.0  # with notices: for one that was lost
ASK_S = 0.001  # after a notice: its commit is on its way to the disk
LONGER = 1.25  # each time that the counter has not moved: late by a quarter of what the disk takes, at most
REST_S = 0.005  # after a commit: a till that commits without a pause wakes 200 times a second at most
IN_MODIFY = 0x2
MOST_BYTES = 65536  # of notices that are read at once; equal ones that follow each other are one


async def watch(engine: Engine, wake: Callable[[], None]) -> None:
    """Call `wake` soon after each commit of another program; runs until it is cancelled."""
    path = str(engine.url.database)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    with contextlib.closing(connection), Notices(_log_of(path)) as notices:
        seen: int | None = None
        ask_in = ASK_S
        while True:
            noticed = notices.take()  # before the counter: what is committed after it gives another one
            version = _version(connection)
            if version is not None and version != seen:
                # Writers wait for each other. So only a notice that came with this commit may be of the next one.
                ask_in = ASK_S if noticed or seen is None else NET_S
                seen = version
                wake()
                await asyncio.sleep(REST_S)
                continue
            rest = NET_S if version is not None and notices.arm() else WATCH_S
            if noticed:
                ask_in = ASK_S
                await asyncio.sleep(ask_in)  # whatever comes meanwhile: a large transaction gives thousands
            else:
                ask_in = min(ask_in * LONGER, rest)
                await notices.within(ask_in)


def _log_of(path: str) -> str:
    return os.path.realpath(path) + "-wal"  # SQLite puts it beside the file, and not beside a link to it


def _version(connection: sqlite3.Connection) -> int | None:
    """The counter. None: another program holds the whole file, or worse, and the writer will report what it is."""
    try:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])
    except sqlite3.Error:
        return None


class Notices:
    """Of one file. Where the system has none, or no more of them, it waits by the clock alone."""

    def __init__(self, path: str) -> None:
        self._path = os.fsencode(path)
        self._library, self._descriptor = _begun()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def arm(self) -> bool:
        """Watch the file that is at the path now. Again and again: one that is watched already is not watched twice."""
        if self._library is None or self._descriptor is None:
            return False
        return bool(self._library.inotify_add_watch(self._descriptor, self._path, IN_MODIFY) >= 0)

    def take(self) -> bool:
        """Whether there are notices, which are gone then."""
        if self._descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                return bool(os.read(self._descriptor, MOST_BYTES))
        return False

    async def within(self, seconds: float) -> bool:
        """Wait for the next notice, which is left where it is. False when the time is over before."""
        if self._descriptor is None:
            await asyncio.sleep(seconds)
            return False
        return await readable(self._descriptor, seconds)


def _begun() -> tuple[ctypes.CDLL | None, int | None]:
    try:
        library = ctypes.CDLL(None)
        descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, TypeError):  # another system
        return None, None
    return library, descriptor if descriptor >= 0 else None
