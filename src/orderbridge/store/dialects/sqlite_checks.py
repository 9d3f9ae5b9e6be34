"""Checks a SQLite file: whether it can be opened safely, is intact, has space, and who locks it."""

import errno
import json
import os
import re
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, OperationalError

from orderbridge.errors import NoFile, StoreError, Unusable
from orderbridge.mounts import is_mounted_alone, network_kind
from orderbridge.store.dialects.face import Read, TroubleKind
from orderbridge.store.dialects.sqlite_file import BESIDE, LAST_WORD, OVERWRITTEN, SqliteFile, is_ours, salts

MIN_ROOM = 64 * 1024  # bytes: a transaction of a few orders
CHECKED_BYTES = 512 * 1024 * 1024  # about a second of reading
REFUSALS: Mapping[int, TroubleKind] = {errno.EROFS: TroubleKind.READ_ONLY, errno.ENOSPC: TroubleKind.FULL}
READ_ERROR = re.compile(r"error code=(?!11\b)")  # in the result of a check: any but SQLITE_CORRUPT
LATER_WALS = 1000  # of the same file; the salts of another one are random
LOCKS = Path("/proc/locks")
# 1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF
LINE = re.compile(r"\d+: (FLOCK|POSIX|OFDLCK) +\w+ +(READ|WRITE) +(-?\d+) +(\w+:\w+:\d+) ")


def opened(engine: Engine, makes_file: bool) -> SqliteFile | None:
    """Open the file with all checks. None in memory, or if it cannot be opened: then SQLite reports the error."""
    path = engine.url.database or ""
    if path in {"", ":memory:"} or path.startswith("file:"):
        return None
    if (kind := network_kind(path)) is not None:
        raise Unusable("database.network", path=path, kind=kind)
    try:
        Path(path).exists()
    except PermissionError as error:
        raise StoreError("database.folder_closed", path=path, folder=Path(path).parent) from error
    refuse_two_names(path)
    refuse_orphaned_wal(path)
    refuse_overwritten(path)
    refuse_foreign_wal(path)
    if Path(path).is_dir():
        raise Unusable("database.is_folder", path=path)
    folder = Path(os.path.realpath(path)).parent  # of a link's target
    if not folder.is_dir():  # its disk may be mounted later, so a retry may help
        raise StoreError("database.no_folder", path=path, folder=folder)
    if not makes_file and not Path(path).exists():
        if not os.access(Path(path).parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StoreError("database.folder_closed", path=path, folder=Path(path).parent)
        raise NoFile("database.no_file", path=path)
    try:
        file = SqliteFile(path)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise StoreError("database.too_many_files", path=path) from error
        return None
    file.watch(engine)
    return file


def refuse_two_names(path: str) -> None:
    """Refuse a file with several names: each name has a separate -wal, and would not see the other's writes."""
    real = os.path.realpath(path)
    for one in (real, *(f"{real}{suffix}" for suffix in BESIDE)):
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if is_mounted_alone(one):
                raise Unusable("database.mounted_alone", path=one, folder=Path(real).parent)
            if Path(one).is_file() and Path(one).stat().st_nlink > 1:
                raise Unusable("database.hard_link", path=one)


def refuse_orphaned_wal(path: str) -> None:
    """Raise Unusable for a -wal without its file: SQLite would delete it, and the newest orders with it."""
    wal = Path(os.path.realpath(path) + "-wal")
    if not Path(path).exists() and wal.exists() and wal.stat().st_size:
        raise Unusable("database.orphaned_wal", path=path)


def refuse_overwritten(path: str) -> None:
    """Raise Unusable if the -wal belongs to a file that was overwritten: SQLite would mix both."""
    real = os.path.realpath(path)
    marker = Path(real + OVERWRITTEN)
    with suppress(OSError):
        noted = marker.read_bytes()
        if Path(real + "-wal").exists() and noted == salts(real):
            raise Unusable("database.file_overwritten", file=path)
        marker.unlink()


def refuse_foreign_wal(path: str) -> None:
    """Raise Unusable if the file is an older copy than its -wal, by the mark: SQLite would mix both.

    The mark has the generation that the file itself had when this -wal began. If the -wal began after the mark, the
    file has all that the mark knows.
    """
    real = os.path.realpath(path)
    if is_ours(real):
        return
    with suppress(OSError, ValueError, TypeError, KeyError, sqlite3.Error):
        mark = json.loads(Path(real + LAST_WORD).read_bytes())
        wal, noted = salts(real).hex(), mark["wal"]
        later = (int(wal[:8], 16) - int(noted[:8], 16)) % 2**32  # SQLite counts the first salt up by one
        if wal != noted and not 0 < later < LATER_WALS:
            return  # it belongs to another file
        with closing(sqlite3.connect(f"{Path(real).as_uri()}?mode=ro&immutable=1", uri=True)) as without_wal:
            query = "SELECT max(generation) FROM delivery_books WHERE id = ?"
            (generation,) = without_wal.execute(query, (mark["database"],)).fetchone()
        if (generation or 0) < mark["generation" if later else "in_file"]:
            raise Unusable("database.foreign_wal", path=path)


def closed(engine: Engine) -> Path | None:
    """The file, its folder or a file beside it that this user cannot access. A read-only disk does not count."""
    path = Path(engine.url.database or "")
    if not path.parent.is_dir():
        return None
    beside = (Path(f"{path}{suffix}") for suffix in BESIDE)
    may = partial(os.access, mode=os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    denied = next((one for one in (path, path.parent, *beside) if one.exists() and not may(one)), None)
    return None if os.statvfs(path.parent).f_flag & os.ST_RDONLY else denied


def check_intact(engine: Engine, tables: Collection[str], read: Read) -> None:
    """Raise Unusable if one of these tables is damaged, StoreError if one cannot be read. Skips large files."""
    path = Path(engine.url.database or "")
    if not path.is_file() or path.stat().st_size > CHECKED_BYTES:
        return
    for _ in range(2):  # read errors of the disk can look like damage, and may pass
        try:
            found = read(partial(_damage, frozenset(tables)))
        except OperationalError:  # locked or unreadable, so not checked
            raise
        except DatabaseError as error:
            found = str(error.orig)
        if found is None:
            return
        if READ_ERROR.search(found):
            raise StoreError("database.unreadable", path=path, found=found)
    raise Unusable("database.damaged", path=path, found=found)


def _damage(tables: frozenset[str], connection: Connection) -> str | None:
    """The first damage in these tables. Other tables belong to the POS."""
    there = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    # A row that violates a CHECK is not damage: the outbox refuses it.
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
    try:
        for table in sorted(there & tables):
            found = connection.exec_driver_sql(f"PRAGMA quick_check('{table}')").scalar()
            if found != "ok":
                return f"{table}: {' '.join(str(found).split())}"
    finally:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    return None


def disk(engine: Engine) -> TroubleKind | None:
    path = engine.url.database or ""
    if path in {"", ":memory:"} or path.startswith("file:"):
        return None
    here = Path(path)
    found = os.statvfs(here.parent)
    if found.f_flag & os.ST_RDONLY or not all(os.access(one, os.W_OK) for one in (here, here.parent)):
        return TroubleKind.READ_ONLY
    if found.f_bavail * found.f_frsize < MIN_ROOM:
        return TroubleKind.FULL
    try:  # an unnamed temporary file finds a disk that became read-only after an error
        os.close(os.open(here.parent, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC and found.f_files and not found.f_favail:
            return None  # out of inodes: existing files can still be written
        return REFUSALS.get(error.errno or 0)
    return None


# ---- lock holders ----------------------------------------------------------------------------------------------------


def daemon_of(path: str) -> str | None:
    """The daemon that holds this file, as "1234 (orderbridge)", or None."""
    return next(iter(_holders(path, "FLOCK")), None)


def writers_of(path: str) -> list[str]:
    """Other processes that are writing to it. In WAL mode SQLite's locks are on the -shm."""
    return [*_holders(path, "POSIX"), *_holders(f"{path}-shm", "POSIX")]


def _holders(path: str, kind: str) -> list[str]:
    try:
        found = os.stat(os.path.realpath(path))  # noqa: PTH116 - the numbers, not a Path
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return []
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = [match for line in lines if (match := LINE.match(line))]
    numbers = [int(match[3]) for match in held if (match[1], match[2], match[4]) == (kind, "WRITE", place)]
    return [_named(number) for number in dict.fromkeys(numbers) if number != os.getpid()]


def _named(number: int) -> str:
    """The process with its name; "?" for one outside of this container."""
    try:
        return f"{number} ({Path(f'/proc/{number}/comm').read_text().strip()})"
    except OSError:
        return str(number) if number > 0 else "?"
