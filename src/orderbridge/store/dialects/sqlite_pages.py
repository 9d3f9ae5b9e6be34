"""Whether somebody has written into the SQLite file past SQLite, as `cp backup.db pos.db` does: the inode stays the same.

While a connection is open, only checkpoints write into the file, and all they write are pages of the -wal:

- a checkpoint copies of each page the newest frame that it may, and then notes in the -shm how far it has come (`copied`).
  So a page whose frames were all copied is the newest of them. Any other one is what it was when that -wal began, or one
  of its frames. (How far a checkpoint is going to come, an SQLite before 3.12 does not note, and a till may have one.)
- a copy that was put over the file lacks something that was copied, or holds what is in no frame.

Pages are looked at when the file has another time or size than before: those that were copied, those that are written
all the time, and some spread over the file. A VACUUM, a backup, and a till that is killed in the middle of a checkpoint keep to the rule.
The layouts are those of SQLite's "WAL-mode File Format".
"""

import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from orderbridge.clock import SystemClock

WAL_HEAD = 32  # bytes
FRAME_HEAD = 24
SHM_HEAD = 100
SPREAD = 256  # pages, evenly over the file
COPIED = 1000  # pages, the newest
LATEST = 64  # frames
RECENT_NS = 50_000_000  # more than a tick of the clock that files have
LOOK_AGAIN = 64  # frames more: others are written all the time by now
# Looks that must agree. A wrong answer stops the daemon, and under load one look in some hundred is wrong.
LOOKS, BETWEEN_S = 5, 0.1

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Wal:
    """What the -shm says of the -wal. One with other `salts` began when the former one was copied whole."""

    salts: bytes
    page_size: int
    copied: int
    frames: int = field(compare=False)


class Pages:
    """Of one file and its -wal."""

    def __init__(self, wal: str) -> None:
        self._wal = wal
        self._key: Key | None = None  # of the file when it was looked at last
        self._salts = b""
        self._frames = 0
        self._known: dict[int, int] = {}  # hashes of pages of the file

    def are_foreign(self, main: int, shm: int) -> bool:
        """Whether a page is none that SQLite has written. `main`, `shm`: descriptors, which stay open."""
        for look in range(LOOKS):
            if look:
                threading.Event().wait(BETWEEN_S)
            if not self._is_foreign_now(main, shm):
                return False
        return True

    def _is_foreign_now(self, main: int, shm: int) -> bool:
        key, wal = _key(main), _state(shm)
        if wal is None:
            return False
        if key == self._key:
            # The file is what it was when another -wal began.
            self._salts, grown = wal.salts, wal.frames - self._frames
            if 0 <= grown < LOOK_AGAIN:
                return False
        try:
            with open(self._wal, "rb", buffering=0) as file:  # noqa: PTH123 - between two transactions
                is_foreign, known = self._look(main, file.fileno(), wal)
        except OSError:
            return False
        if _state(shm) != wal or _key(main) != key:
            return False  # a checkpoint came in between: the next check looks at what it has made
        # What is written a moment later may get the same time: then it is looked at once more.
        is_recent = abs(SystemClock().now().timestamp() * 1e9 - key[0]) < RECENT_NS
        self._key = None if is_recent or is_foreign else key
        if not is_foreign:
            self._salts, self._frames, self._known = wal.salts, wal.frames, known
        return is_foreign

    def _look(self, main: int, log: int, wal: _Wal) -> tuple[bool, dict[int, int]]:
        size, before = wal.page_size, self._known if self._salts == wal.salts else {}
        heads = list(_heads(log, wal))
        frames: dict[int, list[int]] = {}
        for number, (page, _) in enumerate(heads, 1):
            frames.setdefault(page, []).append(number)
        # A checkpoint leaves out pages beyond the end, and the end may have been nearer meanwhile: after a VACUUM.
        count = min([os.fstat(main).st_size // size, *(pages for _, pages in heads if pages)])
        whole = sorted((page for page, of in frames.items() if of[-1] <= wal.copied), key=lambda page: frames[page][-1])
        spread = range(1, count + 1, max(count // SPREAD, 1))
        pages = {*spread, *whole[-COPIED:], *(page for page, _ in heads[-LATEST:])}
        known = {page: hash(os.pread(main, size, (page - 1) * size)) for page in pages if page <= count}

        def frame(number: int) -> int:
            return hash(os.pread(log, size, _at(number, size) + FRAME_HEAD))

        for page, there in known.items():
            of = frames.get(page, [])
            if of and of[-1] <= wal.copied:
                is_foreign = there != frame(of[-1])
            else:
                is_foreign = before.get(page, there) != there and there not in map(frame, reversed(of))
            if is_foreign:
                return True, known
        return False, known


def _heads(log: int, wal: _Wal) -> Iterator[tuple[int, int]]:
    """Of each frame: its page, and how many pages the database has where it ends a transaction, else 0."""
    for number in range(1, wal.frames + 1):
        head = os.pread(log, 8, _at(number, wal.page_size))
        if len(head) < 8:  # noqa: PLR2004 - the -wal was cut meanwhile
            return
        yield struct.unpack(">II", head)


def _at(number: int, page_size: int) -> int:
    return WAL_HEAD + (number - 1) * (FRAME_HEAD + page_size)


def _key(main: int) -> Key:
    found = os.fstat(main)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _state(shm: int) -> _Wal | None:
    """None while there is nothing in it."""
    head = os.pread(shm, SHM_HEAD, 0)
    if len(head) < SHM_HEAD or not head[12]:
        return None
    page_size, frames = struct.unpack_from("=HI", head, 14)
    copied = struct.unpack_from("=I", head, 96)[0]
    size = (page_size & 0xFE00) | ((page_size & 1) << 16)
    if not size or copied > frames:  # another -wal is just beginning
        return None
    return _Wal(head[32:40], size, copied, frames)
