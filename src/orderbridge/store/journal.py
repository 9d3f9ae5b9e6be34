"""The journal: a file for each day beside the database, with one line for each acknowledged document.

It can bring an older copy of the database up to date. A line is JSON: the order, its account, the time, the status, the
digest of the document, and last the document's text (with invalid UTF-8 bytes as received).

Rules of this file:

- Lines are only appended, under a lock, and are on disk when `append` returns. A line torn by a crash is ended by the
  next one, and skipped by readers.
- Files sorted by name, and lines within them, are in the order of writing. If the clock was set back, the newest file
  is continued. (A file dated days ahead is a mistake of the clock, and ignored.)
- Customers' data is overwritten in place, so that no copy remains and no writer is disturbed.
"""

import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from orderbridge.model import Document
from orderbridge.mounts import give_to_owner_of, sync_folder
from orderbridge.store.ddl import time_text

FOLDER_MODE, FILE_MODE = 0o700, 0o600  # customers' data
AHEAD = timedelta(days=2)  # files dated further ahead of the clock are not continued
_NAME = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\.jsonl", re.ASCII)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_HEAD = re.compile(
    rb'\{"payment_key":"([0-9a-f-]{36})","account":"([a-z0-9_.-]{1,64})","at":"([0-9 :.-]{23})",'
    rb'"status_id":(-?\d{1,10}|null),("digest":(?:"([0-9a-f]{64})"|null),"document":)'
)
_BLANK = b'"digest":null,"document":null'


@dataclass(frozen=True, slots=True)
class Entry:
    """One line without its document. `digest` is None if it was blanked."""

    file: Path
    begin: int
    length: int
    payment_key: str
    account: str
    at: datetime
    status_id: int | None
    digest: str | None


def line(account: str, document: Document, at: datetime) -> bytes:
    """The line for an order's document."""
    status = "null" if document.status_id is None else document.status_id
    head = (
        f'{{"payment_key":"{document.payment_key}","account":"{account}","at":"{time_text(at)}","status_id":{status},'
        f'"digest":"{document.digest}","document":"'
    )
    return b"".join((head.encode(), _escaped(document.raw), b'"}\n'))


def _escaped(raw: bytes) -> bytes:
    """Escape a document for JSON as bytes, because it can be 31 MB. Non-ASCII bytes are unchanged."""
    plain = raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return _CONTROL.sub(lambda found: b"\\u%04x" % found[0][0], plain)


# ---- writing ---------------------------------------------------------------------------------------------------------


def append(folder: Path, lines: Sequence[bytes], now: datetime) -> None:
    """Append lines durably. Raises OSError, and then none of them is in the file."""
    _make(folder)
    today, most = _name(now.astimezone(UTC).date()), _name(now.astimezone(UTC).date() + AHEAD)
    path = folder / max([today, *(file.name for file in files(folder) if file.name <= most)])
    is_new = not path.exists()
    with _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        try:
            _write_all(descriptor, b"".join([*([b"\n"] if torn else []), *lines]))
            os.fdatasync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    if is_new:
        sync_folder(folder)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        return
    give_to_owner_of(folder.parent, folder)
    sync_folder(folder.parent)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[int]:
    """Lock a plain file. Yields its descriptor."""
    is_new = not path.exists()
    descriptor = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileExistsError(errno.EEXIST, "special file", str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_new:
            give_to_owner_of(path.parent, path)
        yield descriptor
    finally:
        os.close(descriptor)


# ---- reading ---------------------------------------------------------------------------------------------------------


def files(folder: Path, since: date | None = None) -> list[Path]:
    """The journal's files from that day on, oldest first; empty without a folder."""
    try:
        named = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        found = [path for path in named if since is None or path.name >= _name(since)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: path.name)


def _name(day: date) -> str:
    return f"{day}.jsonl"


def entries(paths: Iterable[Path]) -> Iterator[Entry | None]:
    """The lines of these files in order; None for a torn or foreign one. Raises OSError."""
    for path in paths:
        with path.open("rb") as file:
            begin = 0
            for raw in file:
                if raw.strip():
                    yield _entry(path, begin, raw)
                begin += len(raw)


def _entry(path: Path, begin: int, raw: bytes) -> Entry | None:
    head = _HEAD.match(raw)
    if head is None or not raw.endswith((b'"}\n', b"}\n")):
        return None
    key, account, moment, status, _, digest = head.groups()
    try:
        at = datetime.fromisoformat(moment.decode()).replace(tzinfo=UTC)
    except ValueError:
        return None
    status_id = None if status == b"null" else int(status)
    return Entry(
        path, begin, len(raw), key.decode(), account.decode(), at, status_id, digest.decode() if digest else None
    )


def document(entry: Entry) -> bytes | None:
    """The document's bytes; None if they were blanked or damaged. Raises OSError."""
    with entry.file.open("rb") as file:
        file.seek(entry.begin)
        raw = file.read(entry.length)
    try:
        text = json.loads(raw.decode("utf-8", "surrogateescape"))["document"]
    except (ValueError, KeyError):
        return None
    if not isinstance(text, str):
        return None
    found = text.encode("utf-8", "surrogateescape")
    return found if sha256(found).hexdigest() == entry.digest else None


# ---- forgetting ------------------------------------------------------------------------------------------------------


def blank(folder: Path, keys: Collection[str]) -> int:
    """Overwrite the documents of these orders, including torn ones. Returns the number of lines. Raises OSError."""
    wanted = {key.encode() for key in keys}
    blanked = 0
    for path in files(folder) if wanted else ():
        with _locked(path, os.O_RDWR) as descriptor, path.open("rb") as file:
            begin = 0
            for raw in file:
                head = _HEAD.match(raw)
                if head is not None and head[1] in wanted:
                    blanked += _overwrite(descriptor, raw.rstrip(b"\n"), begin, head.start(5))
                begin += len(raw)
            os.fdatasync(descriptor)
    return blanked


def _overwrite(descriptor: int, line: bytes, begin: int, place: int) -> bool:
    """Blank a line's document. Returns whether it was not blank before."""
    end = b"}" if line.endswith(b"}") else b" "
    wanted = _BLANK.ljust(len(line) - place - 1) + end
    if line[place:] == wanted:
        return False
    os.pwrite(descriptor, wanted, begin + place)
    return True


def remove_old(folder: Path, before: date) -> int:
    """Delete the files of earlier days. Returns how many. Raises OSError."""
    old = [path for path in files(folder) if path.name < _name(before)]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
