"""A copy of the SQLite file while the daemon and the POS work on it, and such a copy put in its place again.

Rules of this file:
- One step of SQLite's online backup: it reads one moment of the file and holds up no writer. In many steps it would
  begin anew after each commit of another program, and beside a busy daemon never end.
- The copy grows under another name, is checked as a whole, is on disk, and only then gets its name; nothing that is
  there is ever overwritten. Who is killed in between leaves a `.partial` that the next backup to that name clears away.
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
from orderbridge.store.dialects.sqlite_file import BESIDE, is_open

MODE = 0o600
GROUP = 0o060  # reads and writes, as in the folder
WAIT_S = 30.0  # for a lock: only a till that holds the file exclusively can keep a reader out


def copy(source: Path, target: Path) -> int:
    """Copy the file. Returns the size in bytes. Raises StoreError with the remedy; then nothing has that name."""
    if os.path.lexists(target):
        raise StoreError("backup.exists", file=target)
    return _copy(source.absolute().as_uri(), target, "backup.damaged", source)


def restore(source: Path, target: Path) -> Path | None:
    """Put a copy in the place of a file that no program has open. Returns the folder with the former files, if there were any.

    Raises StoreError with the remedy; then the former files are where they were.
    """
    moved: list[Path] = []
    folder = target.with_name(f"{target.name}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")

    def make_way(descriptor: int) -> None:
        _give_owner(descriptor, target)
        former = [one for suffix in ("", *BESIDE) if (one := Path(f"{target}{suffix}")).exists()]
        if former:
            folder.mkdir(mode=0o700)
            give_to_owner_of(target.parent, folder)
        for one in former:  # the file first: without it and with its -wal no daemon starts
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
    """The schema of a copy. Raises StoreError where it is no database of ours."""
    try:
        with closing(sqlite3.connect(_address(source), uri=True)) as copied:
            (found,) = copied.execute("SELECT version_num FROM delivery_schema_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise StoreError("restore.no_backup", file=source, error=error) from None
    return str(found)


def _address(source: Path) -> str:
    """With a -wal beside it the newest rows are in there; else it is only read, as from a disk that is read-only."""
    address = source.absolute().as_uri()
    return address if Path(f"{source}-wal").exists() else f"{address}?mode=ro&immutable=1"


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """No daemon works on it and no POS has it open."""
    with ExitStack() as stack:
        try:
            if target.exists():
                fcntl.flock(stack.enter_context(target.open("rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError("restore.daemon", file=target) from None
        except OSError as error:
            raise StoreError("backup.not_written", file=target, error=error.strerror) from None
        if is_open(str(target)):
            raise StoreError("restore.is_open", file=target)
        yield


def _give_owner(descriptor: int, target: Path) -> None:
    """Owner and mode of the former file; of the folder, where there was none or root has put it there."""
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
    """`source`: SQLite's address of the file `named`; `damaged`: the code where it is. `make_way`: called once the copy is whole and on disk, before it gets its name."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        with _ours(partial) as descriptor:
            _fill(source, partial)
            if (damage := _damage(partial)) is not None:
                raise StoreError(damaged, file=named, error=damage)
            make_way(descriptor)
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
            _give_name(partial, target)
            return size
    except FileExistsError:
        raise StoreError("backup.exists", file=target) from None
    except OSError as error:
        raise StoreError("backup.not_written", file=target, error=error.strerror) from None
    except sqlite3.Error as error:
        raise StoreError("backup.not_written", file=target, error=error) from None


@contextmanager
def _ours(partial: Path) -> Iterator[int]:
    """A descriptor of an empty file of that name that no other program writes; its name is gone at the end."""
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
        raise StoreError("backup.under_way", file=partial)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _fill(source: str, partial: Path) -> None:
    with closing(sqlite3.connect(source, timeout=WAIT_S, uri=True)) as there, closing(sqlite3.connect(partial)) as here:
        here.execute("PRAGMA journal_mode = OFF")  # not needed until it has its name
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
    sync_folder(target.parent)
