"""What is checked of a SQLite file from outside: whether it may be opened, is whole, has room, and who holds a lock on it."""

import errno
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, OperationalError

from orderbridge.errors import NoFile, StoreError, Unusable
from orderbridge.mounts import is_mounted_alone, network_kind
from orderbridge.store.dialects.face import Read, TroubleKind
from orderbridge.store.dialects.sqlite_file import BESIDE, OVERWRITTEN, SqliteFile, salts

LEAST_ROOM = 64 * 1024  # bytes: a transaction of a few orders
CHECKED_BYTES = 512 * 1024 * 1024  # about a second of reading
REFUSALS: Mapping[int, TroubleKind] = {errno.EROFS: TroubleKind.READ_ONLY, errno.ENOSPC: TroubleKind.FULL}
LOCKS = Path("/proc/locks")
# 1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF
LINE = re.compile(r"\d+: (FLOCK|POSIX|OFDLCK) +\w+ +(READ|WRITE) +(-?\d+) +(\w+:\w+:\d+) ")


def opened(engine: Engine, makes_file: bool) -> SqliteFile | None:
    """None in memory, and where the file cannot be opened: SQLite's own attempt tells what is wrong."""
    path = engine.url.database or ""
    if path in {"", ":memory:"} or path.startswith("file:"):
        return None
    if (kind := network_kind(path)) is not None:
        raise Unusable("database.network", path=path, kind=kind)
    refuse_two_names(path)
    refuse_orphaned_wal(path)
    refuse_overwritten(path)
    if Path(path).is_dir():
        raise Unusable("database.is_folder", path=path)
    folder = Path(os.path.realpath(path)).parent  # of what a link points to
    if not folder.is_dir():  # its disk may be mounted a moment later: trying again helps
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
    """Each name of a file has a -wal of its own: what is written through one is not seen through the other."""
    real = os.path.realpath(path)
    for one in (real, *(f"{real}{suffix}" for suffix in BESIDE)):
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if is_mounted_alone(one):
                raise Unusable("database.mounted_alone", path=one, folder=Path(real).parent)
            if Path(one).is_file() and Path(one).stat().st_nlink > 1:
                raise Unusable("database.hard_link", path=one)


def refuse_orphaned_wal(path: str) -> None:
    """Raise Unusable where the file is away and its -wal is not: SQLite would make a new file and delete the -wal.

    Until the first checkpoint all orders are in there, and later the newest ones.
    """
    wal = Path(os.path.realpath(path) + "-wal")
    if not Path(path).exists() and wal.exists() and wal.stat().st_size:
        raise Unusable("database.orphaned_wal", path=path)


def refuse_overwritten(path: str) -> None:
    """Raise Unusable where the -wal is of the file that was written over: SQLite would mix both into one."""
    real = os.path.realpath(path)
    marker = Path(real + OVERWRITTEN)
    with suppress(OSError):
        noted = marker.read_bytes()
        if not Path(real + "-wal").exists() or noted != salts(real):
            marker.unlink()
            return
        raise Unusable("database.file_overwritten", file=path)


def closed(engine: Engine) -> Path | None:
    """What is there and not for this user: the file, its folder or what is beside it. A read-only disk may come back."""
    path = Path(engine.url.database or "")
    if not path.parent.is_dir():
        return None
    beside = (Path(f"{path}{suffix}") for suffix in BESIDE)
    may = partial(os.access, mode=os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    denied = next((one for one in (path, path.parent, *beside) if one.exists() and not may(one)), None)
    return None if os.statvfs(path.parent).f_flag & os.ST_RDONLY else denied


def check_intact(engine: Engine, tables: Collection[str], read: Read) -> None:
    """Nothing is written. Large files are not read."""
    path = Path(engine.url.database or "")
    if not path.is_file() or path.stat().st_size > CHECKED_BYTES:
        return
    try:
        found = read(partial(_damage, frozenset(tables)))
    except OperationalError:  # it could not be checked: locked, or not readable
        raise
    except DatabaseError as error:
        found = str(error.orig)
    if found is not None:
        raise Unusable("database.damaged", path=path, found=found)


def _damage(tables: frozenset[str], connection: Connection) -> str | None:
    """The first thing that is wrong with these tables; the POS's own are the POS's."""
    there = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    # A row that slipped past a CHECK is a bad row and no damage: the outbox refuses it alone.
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
    if found.f_bavail * found.f_frsize < LEAST_ROOM:
        return TroubleKind.FULL
    try:  # a kernel that stopped writing after an error shows it nowhere else: a file without a name, gone at once
        os.close(os.open(here.parent, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC and found.f_files and not found.f_favail:
            return None  # no new file, but the files that are there are written to
        return REFUSALS.get(error.errno or 0)
    return None


# ---- who holds it: a technician who reads "locked" asks by whom -------------------------------------------------------


def daemon_of(path: str) -> str | None:
    """The process that has the right to work on this file: "1234 (orderbridge)"; None: there is none."""
    return next(iter(_holders(path, "FLOCK")), None)


def writers_of(path: str) -> list[str]:
    """Others that are in the middle of writing to it. In WAL mode SQLite's locks are on the -shm."""
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
    """Of a process outside of this container the kernel tells no number."""
    try:
        return f"{number} ({Path(f'/proc/{number}/comm').read_text().strip()})"
    except OSError:
        return str(number) if number > 0 else "?"
