"""The SQLite file of a Database: detects its loss or replacement, and holds the daemon's lock (promises 1 and 3).

A file that was removed, moved or replaced continues to exist while it is open. Writes would succeed, but acknowledged
orders would be in a file that no program can open again. So around each transaction the device and inode of the path
are compared with those of the open file, and those of -wal and -shm, which hold the newest commits. If the file was
overwritten in place, its inode is unchanged; then its pages are compared (below).

This process keeps one descriptor of each file open besides SQLite's own, as long as a Database uses the file. Closing
any descriptor of a file would release all POSIX locks of the process on it, including SQLite's. Another program that
closes the file would then find no other user, and remove the -wal that we are writing to.
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
LAST_WORD = ".last-word"  # the high-water mark (store.high_water)
OVERWRITTEN = "-overwritten"  # a file with the salts of the -wal that no longer belongs to the database
WAL_SALTS = slice(16, 24)
SHARED_BYTE = 128  # of the -shm, SQLite's "dead man switch"
NEW_FILE = 0o660  # minus umask: for this user and the POS's group


@dataclass(slots=True)
class _Open:
    """A file that this process has open, with the users of its lock, which belongs to the descriptor."""

    descriptor: int
    users: int = 0
    holder: object | None = None


_guard = threading.RLock()  # reentrant, because garbage collection may close a connection at any point
_files: dict[Identity, _Open] = {}


def salts(path: str) -> bytes:
    """The salts in the header, which identify this -wal."""
    with Path(path + "-wal").open("rb") as file:
        return file.read(WAL_SALTS.stop)[WAL_SALTS]


class SqliteFile:
    """An open SQLite file. It must be made before SQLite opens the file. Raises OSError.

    A missing file is created here, because SQLite would not let the POS's group write to it.
    """

    def __init__(self, path: str) -> None:
        self._named = path
        self.path = os.path.realpath(path)
        self.identity = _acquire(self.path)
        self._is_closed = False
        self._connections = 0
        self._expected = {"": self.identity}  # by suffix
        self._pages = Pages(self.path + "-wal")
        self._shm: int | None = None  # SQLite's descriptor: closing one of ours would release its locks
        self._is_overwritten = False

    def watch(self, engine: Engine) -> None:
        """Check the file before SQLite opens it. While it is open, -wal and -shm must stay the same files, too."""
        event.listen(engine, "do_connect", lambda *_: self.check())
        event.listen(engine, "connect", lambda *_: self._count(1))
        event.listen(engine, "close", lambda *_: self._count(-1))

    def _count(self, more: int) -> None:
        with _guard:
            self._connections += more
            if self._connections == 0:  # the last connection removes them
                self._expected = {"": self.identity}

    def check(self) -> None:
        """Raise FileLost if the path no longer leads to the open file."""
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
        """SQLite's descriptor of the -shm; None if it is not open yet or cannot be found."""
        wanted = self._expected.get("-shm")
        if wanted is None:
            return None
        if self._shm is None or _identity(self._shm) != wanted:
            with suppress(OSError):
                numbers = map(int, os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths
                self._shm = next((number for number in numbers if _identity(number) == wanted), None)
        return self._shm

    def _keep_wal(self) -> None:
        """Keep the -wal with the newest orders from being written into an overwritten file."""
        with suppress(OSError):
            Path(self.path + OVERWRITTEN).write_bytes(salts(self.path))
        with suppress(sqlite3.Error):
            # The last connection that closes would do that. So one is never closed, not even at exit.
            connection = sqlite3.connect(self.path, timeout=0)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def lock(self) -> bool:
        """Take the lock on the file, which ends with its process. Returns False if another daemon holds it."""
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
            file.users += 1  # the lock survives a reload
            return True

    def is_locked(self) -> bool:
        """Whether a daemon holds the file, also in another container, whose locks /proc does not show.

        This tries to take the lock. A daemon that fails to take it at this moment tries again.
        """
        with _guard:
            file = _files[self.identity]
            if file.holder is not None:
                return True
            try:
                fcntl.flock(file.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # it is held, or locks are not supported
                return True
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)
            return False

    def unlock(self) -> None:
        """Release the lock, if we hold it."""
        with _guard:
            file = _files.get(self.identity)
            if file is not None and file.holder is self:
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)
                file.holder = None
                _release(self.identity)

    def wal(self) -> str | None:
        """The salts of its -wal; None if there is none."""
        with suppress(OSError):
            return salts(self.path).hex() or None
        return None

    def log_size(self) -> int:
        """The size of its -wal in bytes."""
        with suppress(OSError):
            return Path(f"{self.path}-wal").stat().st_size
        return 0

    def close(self) -> None:
        """Close the file, after SQLite's connections."""
        if not self._is_closed:
            self._is_closed = True
            _release(self.identity)


def is_open(path: str) -> bool:
    """Whether a program has the file open in WAL mode: each holds a shared lock on a byte of the -shm."""
    try:
        with Path(f"{path}-shm").open("r+b") as shared:
            fcntl.lockf(shared, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, SHARED_BYTE)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def is_ours(path: str) -> bool:
    """Whether this process has the file open."""
    with _guard:
        return _identity(path) in _files


def _acquire(path: str) -> Identity:
    with _guard:
        identity = _identity(path)
        if identity is None or identity not in _files:
            is_new = identity is None
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, NEW_FILE)
            found = os.fstat(descriptor)
            if is_new:
                give_to_owner_of(Path(path).parent, descriptor)
            identity = found.st_dev, found.st_ino
            _files.setdefault(identity, _Open(descriptor))  # if files were swapped just now, the descriptor stays open
        _files[identity].users += 1
        return identity


def _release(identity: Identity) -> None:
    with _guard:
        file = _files[identity]
        file.users -= 1
        if not file.users:
            os.close(_files.pop(identity).descriptor)


def _identity(file: str | int) -> Identity | None:
    """The identity of a path or a descriptor; None if it does not exist."""
    try:
        found = os.stat(file)  # noqa: PTH116 - called three times a transaction, and Path would be slower
    except OSError:
        return None
    return found.st_dev, found.st_ino


# ---- pages -----------------------------------------------------------------------------------------------------------
# Detects that the file was overwritten without SQLite, for example by `cp backup.db pos.db`, which keeps the inode.
#
# While a connection is open, only checkpoints write to the file, and only pages from the -wal:
#
# - A checkpoint copies the newest permitted frame of each page, and then notes in the -shm the number of copied frames
#   (`copied`). So a page whose frames were all copied equals the newest of them. Any other page is as it was when the
#   -wal began, or equals one of its frames. (SQLite before 3.12, which a till may have, does not note how many frames a
#   running checkpoint will copy.)
# - A copy that was put over the file lacks a page that was copied, or has a page that is in no frame.
#
# When the file's time or size has changed, these pages are compared: those that were copied, those that are written
# often, and some spread over the file. A VACUUM, a backup, and a till that is killed during a checkpoint follow the
# rule. The layouts are those of SQLite's "WAL-mode File Format".

WAL_HEAD = 32  # bytes
FRAME_HEAD = 24
SHM_HEAD = 100
SPREAD = 256  # pages, evenly over the file
COPIED = 1000  # pages, the newest
LATEST = 64  # frames
RECENT_NS = 50_000_000  # more than the resolution of file times
COMPARE_AGAIN = 64  # new frames, after which other pages may be the ones written often
# Comparisons that must agree: a wrong result stops the daemon, and under load about one in a hundred is wrong.
COMPARISONS, BETWEEN_S = 5, 0.1

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Wal:
    """The state of the -wal, from the -shm. Other `salts` mean a new -wal; the former one was copied completely."""

    salts: bytes
    page_size: int
    copied: int
    frames: int = field(compare=False)

    def is_in(self, log: int) -> bool:
        """Whether the -wal has these frames; not if another program emptied it, or wrote over it."""
        size = WAL_HEAD + self.frames * (FRAME_HEAD + self.page_size)
        return not self.frames or (os.fstat(log).st_size >= size and os.pread(log, 8, WAL_SALTS.start) == self.salts)


class Pages:
    """The pages of one file and its -wal."""

    def __init__(self, wal: str) -> None:
        self._wal = wal
        self._key: Key | None = None  # the file's state at the last comparison
        self._salts = b""
        self._frames = 0
        self._known: dict[int, int] = {}  # hashes of pages of the file

    def are_foreign(self, main: int, shm: int) -> bool:
        """Whether the file has a page that SQLite did not write. `main`, `shm`: descriptors, which stay open."""
        for number in range(COMPARISONS):
            if number:
                threading.Event().wait(BETWEEN_S)
            if not self._is_foreign_now(main, shm):
                return False
        return True

    def _is_foreign_now(self, main: int, shm: int) -> bool:
        wal, key = _state(shm), _key(main)  # in this order: a checkpoint in between changes the key
        if wal is None:
            return False
        is_compared = key == self._key and 0 <= wal.frames - self._frames < COMPARE_AGAIN
        if key == self._key:  # a new -wal: note the file's pages
            self._salts = wal.salts
        try:
            with open(self._wal, "rb", buffering=0) as file:  # noqa: PTH123 - between two transactions
                is_foreign, known = not wal.is_in(file.fileno()), self._known
                if is_compared and not is_foreign:
                    return False
                if not is_foreign:
                    is_foreign, known = self._compare(main, file.fileno(), wal)
        except OSError:
            return False
        if _state(shm) != wal or _key(main) != key:
            return False  # a checkpoint ran meanwhile; the next check compares again
        # A later write may have the same time, so a recent file is compared again.
        is_recent = abs(SystemClock().now().timestamp() * 1e9 - key[0]) < RECENT_NS
        self._key = None if is_recent or is_foreign else key
        if not is_foreign:
            self._salts, self._frames, self._known = wal.salts, wal.frames, known
        return is_foreign

    def _compare(self, main: int, log: int, wal: _Wal) -> tuple[bool, dict[int, int]]:
        size, before = wal.page_size, self._known if self._salts == wal.salts else {}
        places = range(WAL_HEAD, WAL_HEAD + wal.frames * (FRAME_HEAD + size), FRAME_HEAD + size)
        # For each frame: its page, and the database's size in pages if it ends a transaction, else 0. Fewer than 8
        # bytes are read if the -wal was truncated meanwhile.
        read = takewhile(lambda head: len(head) == 8, (os.pread(log, 8, at) for at in places))  # noqa: PLR2004
        heads = [struct.unpack(">II", head) for head in read]
        frames: dict[int, list[int]] = {}
        for number, (page, _) in enumerate(heads, 1):
            frames.setdefault(page, []).append(number)
        # A checkpoint skips pages beyond the end of the database, which may have been shorter meanwhile (VACUUM).
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
    """The state; None while the -shm is empty."""
    head = os.pread(shm, SHM_HEAD, 0)
    if len(head) < SHM_HEAD or not head[12]:
        return None
    page_size, frames = struct.unpack_from("=HI", head, 14)
    copied = struct.unpack_from("=I", head, 96)[0]
    size = (page_size & 0xFE00) | ((page_size & 1) << 16)
    if not size or copied > frames:  # a new -wal is beginning
        return None
    return _Wal(head[32:40], size, copied, frames)
