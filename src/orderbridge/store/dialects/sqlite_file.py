"""The SQLite file under a Database: still the one at its path, and locked by one daemon alone (promises 1 and 3).

A file that was removed, moved or replaced lives on as long as it is open. Everything would go on working, and what is
acknowledged then stands in a file that no program will ever open. So device and inode of the path are compared with those
of the open file around each transaction, and those of its -wal and -shm, in which the newest commits are. What is written over
the file in place has the same inode: then its pages are compared (below).

Of each file this process has one descriptor besides SQLite's own, and it is not closed while a Database has the file
open: closing any descriptor of a file ends all POSIX locks of the process on it, SQLite's among them. The next program
that closes the file would be taken for the last one, and remove the -wal that we are still writing to.
"""

import ctypes
import fcntl
import os
import sqlite3
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from sqlalchemy import Engine, event

from orderbridge.clock import SystemClock
from orderbridge.errors import FileLost, Message, StoreError
from orderbridge.mounts import give_to_owner_of

Identity = tuple[int, int]  # device and inode

BESIDE = ("-wal", "-shm")  # SQLite gives them the file's own mode
OVERWRITTEN = "-overwritten"  # beside the file: the salts of the -wal that does not belong to it any more
WAL_SALTS = slice(16, 24)
SHARED_BYTE = 128  # of the -shm, SQLite's "dead man switch"
NEW_FILE = 0o660  # less umask: customers' data, for this user and the group of the POS


@dataclass(slots=True)
class _Open:
    """A file that this process has open. The lock is the descriptor's, so who of us holds it is noted here."""

    descriptor: int
    users: int = 0
    holder: object | None = None


_guard = threading.RLock()  # a connection that is collected as garbage closes wherever the thread is just then
_files: dict[Identity, _Open] = {}


def salts(path: str) -> bytes:
    """What only this -wal has, as long as no other one has begun in its place."""
    with Path(path + "-wal").open("rb") as file:
        return file.read(WAL_SALTS.stop)[WAL_SALTS]


class SqliteFile:
    """Made before SQLite opens the file. One that is not there yet is made, by the umask's rules.

    (SQLite itself would keep a POS of the same group from writing to it.) Raises OSError when it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._named = path
        self.path = os.path.realpath(path)
        self.identity = _enter(self.path)
        self._is_closed = False
        self._connections = 0
        self._expected = {"": self.identity}  # by suffix
        self._pages = Pages(self.path + "-wal")
        self._shm: int | None = None  # SQLite's own descriptor: to close one of ours would end its locks
        self._is_overwritten = False

    def watch(self, engine: Engine) -> None:
        """Check before SQLite opens the file. As long as it has it open, -wal and -shm stay the same files, too."""
        event.listen(engine, "do_connect", lambda *_: self.check())
        event.listen(engine, "connect", lambda *_: self._count(1))
        event.listen(engine, "close", lambda *_: self._count(-1))

    def _count(self, more: int) -> None:
        with _guard:
            self._connections += more
            if self._connections == 0:  # the last one takes them away
                self._expected = {"": self.identity}

    def check(self) -> None:
        """Raise FileLost when the path does not lead to the open file any more."""
        for suffix in ("", *BESIDE) if self._connections else ("",):
            found = _identity(self.path + suffix if suffix else self._named)
            with _guard:
                expected = self._expected.get(suffix) if found is None else self._expected.setdefault(suffix, found)
            if found != expected:
                key = "database.file_removed" if found is None else "database.file_replaced"
                raise FileLost("database.file_lost", event=Message(key, file=f"{self._named}{suffix}"))
        with _guard:
            if not self._is_overwritten and (shm := self._find_shm()) is not None and self.identity in _files:
                self._is_overwritten = self._pages.are_foreign(_files[self.identity].descriptor, shm)
                if self._is_overwritten:
                    self._keep_wal()
        if self._is_overwritten:
            raise FileLost("database.file_overwritten", file=self._named)

    def _find_shm(self) -> int | None:
        """None where SQLite has not opened it yet, or the system does not say which files are open."""
        wanted = self._expected.get("-shm")
        if wanted is None:
            return None
        if self._shm is None or _identity(self._shm) != wanted:
            with suppress(OSError):
                numbers = map(int, os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths
                self._shm = next((number for number in numbers if _identity(number) == wanted), None)
        return self._shm

    def _keep_wal(self) -> None:
        """The newest orders are in it: neither the end of this process nor its next start may write it into the file."""
        with suppress(OSError):
            Path(self.path + OVERWRITTEN).write_bytes(salts(self.path))
        with suppress(sqlite3.Error):
            # As long as one connection has the file open, none of the others is the last, who would do that. So one is
            # never closed, not even by the interpreter's end.
            connection = sqlite3.connect(self.path, timeout=0)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def lock(self) -> bool:
        """Take the lock on the file itself, which its holder's death ends. False: another daemon has it."""
        self.check()
        with _guard:
            file = _files[self.identity]
            if file.holder is not None:
                return file.holder is self
            try:
                fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                raise StoreError("database.no_locks", path=self.path, reason=error.strerror) from error
            file.holder = self
            file.users += 1  # the lock outlives its Database over a reload
            return True

    def is_locked(self) -> bool:
        """Whether a daemon works on it, in whatever container: the list of locks in /proc has this one's alone.

        The kernel tells by being asked for the lock. A daemon that asks in that very moment tries again.
        """
        with _guard:
            file = _files[self.identity]
            if file.holder is not None:
                return True
            try:
                fcntl.flock(file.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # it is taken, or there are no locks: then it is unknown
                return True
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)
            return False

    def unlock(self) -> None:
        """Give the lock back, if it is ours."""
        with _guard:
            file = _files.get(self.identity)
            if file is not None and file.holder is self:
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)
                file.holder = None
                _leave(self.identity)

    def log_size(self) -> int:
        """Bytes of its -wal."""
        with suppress(OSError):
            return Path(f"{self.path}-wal").stat().st_size
        return 0

    def close(self) -> None:
        """After SQLite's own connections."""
        if not self._is_closed:
            self._is_closed = True
            _leave(self.identity)


def is_open(path: str) -> bool:
    """Whether a program has the file open in WAL mode, idle or not: each keeps a shared lock on this byte of the -shm."""
    try:
        with Path(f"{path}-shm").open("r+b") as shared:
            fcntl.lockf(shared, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, SHARED_BYTE)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _enter(path: str) -> Identity:
    with _guard:
        identity = _identity(path)
        if identity is None or identity not in _files:
            is_new = identity is None
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, NEW_FILE)
            found = os.fstat(descriptor)
            if is_new:
                give_to_owner_of(Path(path).parent, descriptor)
            identity = found.st_dev, found.st_ino
            _files.setdefault(identity, _Open(descriptor))  # not ours when two were swapped just now: left open, then
        _files[identity].users += 1
        return identity


def _leave(identity: Identity) -> None:
    with _guard:
        file = _files[identity]
        file.users -= 1
        if not file.users:
            os.close(_files.pop(identity).descriptor)


def _identity(file: str | int) -> Identity | None:
    """Of a path or a descriptor; None when nothing is there."""
    try:
        found = os.stat(file)  # noqa: PTH116 - three times a transaction: to parse the path would take longer
    except OSError:
        return None
    return found.st_dev, found.st_ino


# ---- pages -----------------------------------------------------------------------------------------------------------
# Whether the file was written into past SQLite, as `cp backup.db pos.db` does: the inode stays the same.
#
# While a connection is open, only checkpoints write into the file, and all they write are pages of the -wal:
#
# - A checkpoint copies of each page the newest frame that it may, and then notes in the -shm how far it has come (`copied`).
#   So a page whose frames were all copied is the newest of them. Any other one is what it was when that -wal began, or one
#   of its frames. (How far a checkpoint is going to come, an SQLite before 3.12 does not note, and a till may have one.)
# - A copy that was put over the file lacks something that was copied, or holds what is in no frame.
#
# Pages are compared when the file has another time or size than before: those that were copied, those that are written all
# the time, and some spread over the file. A VACUUM, a backup, and a till that is killed in the middle of a checkpoint keep
# to the rule. The layouts are those of SQLite's "WAL-mode File Format".

WAL_HEAD = 32  # bytes
FRAME_HEAD = 24
SHM_HEAD = 100
SPREAD = 256  # pages, evenly over the file
COPIED = 1000  # pages, the newest
LATEST = 64  # frames
RECENT_NS = 50_000_000  # more than a tick of the clock that files have
COMPARE_AGAIN = 64  # frames more: others are written all the time by now
# Comparisons that must agree. A wrong answer stops the daemon, and under load one in some hundred is wrong.
COMPARISONS, BETWEEN_S = 5, 0.1

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
        self._key: Key | None = None  # of the file when it was compared last
        self._salts = b""
        self._frames = 0
        self._known: dict[int, int] = {}  # hashes of pages of the file

    def are_foreign(self, main: int, shm: int) -> bool:
        """Whether a page is none that SQLite has written. `main`, `shm`: descriptors, which stay open."""
        for number in range(COMPARISONS):
            if number:
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
            if 0 <= grown < COMPARE_AGAIN:
                return False
        try:
            with open(self._wal, "rb", buffering=0) as file:  # noqa: PTH123 - between two transactions
                is_foreign, known = self._compare(main, file.fileno(), wal)
        except OSError:
            return False
        if _state(shm) != wal or _key(main) != key:
            return False  # a checkpoint came in between: the next check compares what it has made
        # What is written a moment later may get the same time: then it is compared once more.
        is_recent = abs(SystemClock().now().timestamp() * 1e9 - key[0]) < RECENT_NS
        self._key = None if is_recent or is_foreign else key
        if not is_foreign:
            self._salts, self._frames, self._known = wal.salts, wal.frames, known
        return is_foreign

    def _compare(self, main: int, log: int, wal: _Wal) -> tuple[bool, dict[int, int]]:
        size, before = wal.page_size, self._known if self._salts == wal.salts else {}
        places = range(WAL_HEAD, WAL_HEAD + wal.frames * (FRAME_HEAD + size), FRAME_HEAD + size)
        # Of each frame: its page, and how many pages the database has where it ends a transaction, else 0. Less than 8
        # bytes are there when the -wal was cut meanwhile.
        read = takewhile(lambda head: len(head) == 8, (os.pread(log, 8, at) for at in places))  # noqa: PLR2004
        heads = [struct.unpack(">II", head) for head in read]
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
            return hash(os.pread(log, size, places[number - 1] + FRAME_HEAD))

        for page, there in known.items():
            of = frames.get(page, [])
            if of and of[-1] <= wal.copied:
                is_foreign = there != frame(of[-1])
            else:
                is_foreign = before.get(page, there) != there and there not in map(frame, reversed(of))
            if is_foreign:
                return True, known
        return False, known


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
