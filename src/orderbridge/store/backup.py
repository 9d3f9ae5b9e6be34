"""Copies the SQLite file while it is in use, and restores such a copy.

Rules of this file:

- SQLite's online backup runs in one step, which reads a snapshot and blocks no writer. In several steps it would
  restart after each commit of another program, and never end beside a busy daemon.
- The copy is written under a temporary name, checked and flushed before it gets its name. No file is overwritten. If
  the program is killed, a `.partial` remains, which the next backup to that name removes.
- A restore moves the former files into a folder beside them, and deletes nothing.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from stat import S_IMODE
from urllib.parse import quote

from orderbridge.errors import StoreError
from orderbridge.mounts import give_to_owner_of, sync_folder
from orderbridge.store.dialects.sqlite_checks import READ_ERROR
from orderbridge.store.dialects.sqlite_file import BESIDE, is_open

MODE = 0o600
GROUP = 0o060  # read and write, as for the folder
WAIT_S = 30.0  # for a lock; only an exclusive lock blocks a reader


def copy(source: Path, target: Path) -> int:
    """Copy the file. Returns the size in bytes. Raises StoreError, and then there is no new file."""
    if os.path.lexists(target):
        raise StoreError("backup.exists", file=target)
    return _copy(source.absolute().as_uri(), target, "backup.damaged", source)


def restore(source: Path, target: Path) -> Path | None:
    """Replace a file that no program has open by a copy. Returns the folder with the former files, if any.

    Raises StoreError, and then the former files are in their places.
    """
    moved: list[Path] = []
    folder = target.with_name(f"{target.name}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")

    def make_way(descriptor: int) -> None:
        _give_owner(descriptor, target)
        former = [one for suffix in ("", *BESIDE) if (one := Path(f"{target}{suffix}")).exists()]
        if former:
            folder.mkdir(mode=0o700)
            give_to_owner_of(target.parent, folder)
        for one in former:  # the file first: a daemon does not start with a -wal alone
            one.rename(folder / one.name)
            moved.append(one)

    with _alone(target):
        try:
            _copy(_address(source), target, "restore.no_backup", source, make_way)
        except BaseException:
            for one in moved:
                (folder / one.name).rename(one)
            with suppress(OSError):
                folder.rmdir()
            raise
    return folder if moved else None


def revision(source: Path) -> str:
    """The schema revision of a copy. Raises StoreError if it is not one of our databases."""
    try:
        with closing(sqlite3.connect(_address(source), uri=True)) as copied:
            (found,) = copied.execute("SELECT version_num FROM delivery_schema_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise StoreError("restore.no_backup", file=source, error=error) from None
    return str(found)


def _address(source: Path) -> str:
    """The copy's SQLite address: read-only and immutable, unless its newest rows are in a -wal."""
    address = source.absolute().as_uri()
    return address if Path(f"{source}-wal").exists() else f"{address}?mode=ro&immutable=1"


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Ensure that no daemon works on the file and no POS has it open. Raises StoreError."""
    with ExitStack() as stack:
        try:
            if target.exists():
                fcntl.flock(stack.enter_context(target.open("rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_open(str(target)):
                raise StoreError("restore.is_open", file=target)
        except BlockingIOError:
            raise StoreError("restore.daemon", file=target) from None
        except OSError as error:
            raise StoreError("backup.not_written", file=target, error=error.strerror) from None
        yield


def _give_owner(descriptor: int, target: Path) -> None:
    """Set the owner and mode of the former file, or of the folder if there was none or root owned it."""
    folder = target.parent.stat()
    former = target.stat() if target.exists() else None
    if former is None or former.st_uid == 0 != folder.st_uid:
        owner, mode = folder, MODE | S_IMODE(folder.st_mode) & GROUP
    else:
        owner, mode = former, S_IMODE(former.st_mode)
    if os.geteuid() == 0 or former is not None:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    os.fchmod(descriptor, mode)


def _copy(
    source: str, target: Path, damaged: str, named: Path, make_way: Callable[[int], None] = lambda _: None
) -> int:
    """Copy a database to a new file. Returns its size.

    `source`: the SQLite address of the file `named`; `damaged`: the error code for a damaged file. `make_way` is called
    when the copy is complete, before it gets its name.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        with _ours(partial) as descriptor:
            _fill(source, partial)
            if (damage := _damage(partial)) is not None:
                key, about = ("backup.not_written", target) if READ_ERROR.search(damage) else (damaged, named)
                raise StoreError(key, file=about, error=damage)
            make_way(descriptor)
            os.fsync(descriptor)
            _give_name(partial, target)
            return os.fstat(descriptor).st_size
    except FileExistsError:
        raise StoreError("backup.exists", file=target) from None
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError("backup.not_written", file=target, error=reason) from None


@contextmanager
def _ours(partial: Path) -> Iterator[int]:
    """An empty, locked file of this name, which is removed at the end. Yields its descriptor."""
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
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, partial):  # else another backup has just renamed it
            return
    raise StoreError("backup.under_way", file=partial)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _fill(source: str, partial: Path) -> None:
    with closing(sqlite3.connect(source, timeout=WAIT_S, uri=True)) as there, closing(sqlite3.connect(partial)) as here:
        here.execute("PRAGMA journal_mode = OFF")  # not needed for a temporary file
        here.execute("PRAGMA synchronous = OFF")
        there.backup(here, pages=-1)


def _damage(partial: Path) -> str | None:
    """The damage that SQLite finds in the copy, and so in the file; None if it is intact."""
    address = f"file:{quote(str(partial.absolute()))}?mode=ro&immutable=1"  # without a -wal and a -shm beside it
    with closing(sqlite3.connect(address, uri=True)) as copied:
        copied.execute("PRAGMA ignore_check_constraints = ON")  # a row that violates a CHECK is not damage
        (found,) = copied.execute("PRAGMA integrity_check(1)").fetchone()
    return None if found == "ok" else " ".join(str(found).split())


def _give_name(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # never overwrites a file
    except FileExistsError:
        raise
    except OSError:  # a file system without links, as on a USB stick
        if os.path.lexists(target):
            raise FileExistsError from None
        partial.rename(target)
    sync_folder(target.parent)
