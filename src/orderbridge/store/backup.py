"""A copy of the SQLite file while the daemon and the POS work on it.

Rules of this file:
- One step of SQLite's online backup: it reads one moment of the file and holds up nobody who writes. In many steps it
  would begin anew after each commit of somebody else, and beside a busy daemon never end.
- The copy grows under another name, is looked at as a whole, is on disk, and only then gets its name; nothing that is
  there is ever overwritten. Who is killed in between leaves a `.partial` that the next backup to that name clears away.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from orderbridge.errors import StoreError
from orderbridge.texts import say

MODE = 0o600
WAIT_S = 30.0  # for a lock: only a till that holds the file exclusively can keep a reader out


def copy(source: Path, target: Path) -> int:
    """Copy the file. Returns the size in bytes. Raises StoreError with the remedy; then nothing has that name."""
    if os.path.lexists(target):
        raise StoreError(say("backup.exists", file=target))
    partial = target.with_name(f"{target.name}.partial")
    try:
        with _ours(partial) as descriptor:
            _fill(source, partial)
            if (damage := _damage(partial)) is not None:
                raise StoreError(say("backup.damaged", file=source, error=damage))
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
            _give_name(partial, target)
            return size
    except FileExistsError:
        raise StoreError(say("backup.exists", file=target)) from None
    except OSError as error:
        raise StoreError(say("backup.not_written", file=target, error=error.strerror)) from None
    except sqlite3.Error as error:
        raise StoreError(say("backup.not_written", file=target, error=error)) from None


@contextmanager
def _ours(partial: Path) -> Iterator[int]:
    """A descriptor of an empty file of that name that nobody else writes; its name is gone at the end."""
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        _lock(descriptor, partial)
        try:
            os.fchmod(descriptor, MODE)
            os.ftruncate(descriptor, 0)
            yield descriptor
        finally:
            with suppress(OSError):
                if _is_at(descriptor, partial):
                    partial.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, partial: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = _is_at(descriptor, partial)  # else another backup has just given it its name
    except BlockingIOError:
        is_ours = False
    if not is_ours:
        raise StoreError(say("backup.under_way", file=partial))


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _fill(source: Path, partial: Path) -> None:
    with (
        closing(sqlite3.connect(source, timeout=WAIT_S)) as there,
        closing(sqlite3.connect(partial)) as here,
    ):
        here.execute("PRAGMA journal_mode = OFF")  # until it has its name nobody needs it
        here.execute("PRAGMA synchronous = OFF")
        there.backup(here, pages=-1)


def _damage(partial: Path) -> str | None:
    """What SQLite finds wrong with the copy, which is what is wrong with the file; None: it is whole."""
    address = f"file:{quote(str(partial.absolute()))}?mode=ro&immutable=1"  # without a -wal and a -shm beside it
    with closing(sqlite3.connect(address, uri=True)) as copied:
        copied.execute("PRAGMA ignore_check_constraints = ON")  # a row that slipped past a CHECK is no damage
        (found,) = copied.execute("PRAGMA integrity_check(1)").fetchone()
    return None if found == "ok" else " ".join(str(found).split())


def _give_name(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # which overwrites nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without links, as on a USB stick
        if os.path.lexists(target):
            raise FileExistsError from None
        partial.rename(target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
