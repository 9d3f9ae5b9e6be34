"""The journal's files: read back as written, whatever was interrupted, and blanked for good."""

import os
import stat
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from orderbridge.model import Document
from orderbridge.store import journal
from orderbridge.store.journal import Entry

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
KEYS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]


def document(key: str = KEYS[0], text: str | bytes = "Ayşe ğ😀", status_id: int | None = 1) -> Document:
    raw = text if isinstance(text, bytes) else f'{{"payment_key": "{key}", "note": "{text}"}}'.encode()
    return Document(raw=raw, digest=sha256(raw).hexdigest(), payment_key=key, status_id=status_id)


def keep(folder: Path, *documents: Document, now: datetime = NOW) -> None:
    journal.append(folder, [journal.line("kadikoy", one, now) for one in documents], now)


def read(folder: Path) -> list[Entry]:
    return [entry for entry in journal.entries(journal.files(folder)) if entry is not None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pos.db.documents"


@pytest.mark.parametrize("raw", [
    '{"note": "Ayşe \\"ğ\\" \\\\ 😀"}'.encode(), b'{\r\n\t"a": 1\n}',
    b'{"a": "\xff\xfe \xed\xa0\x80 \x00 \x1f \x7f"}', b'{"lone": "\\ud83d", "line": "\xe2\x80\xa8"}', b"",
], ids=["quotes", "line breaks", "no UTF-8", "surrogates", "nothing"])  # fmt: skip
def test_a_document_is_read_back_byte_for_byte(folder: Path, raw: bytes) -> None:
    keep(folder, document(text=raw), document(KEYS[1], status_id=None))
    first, second = read(folder)
    assert journal.document(first) == raw
    assert (first.payment_key, first.account, first.at, first.status_id) == (KEYS[0], "kadikoy", NOW, 1)
    assert (second.payment_key, second.status_id) == (KEYS[1], None)
    (file,) = journal.files(folder)
    file.write_bytes(file.read_bytes().replace(second.digest.encode(), first.digest.encode()))
    assert journal.document(read(folder)[1]) is None, "a line that was changed"


@pytest.mark.parametrize("left", [0.05, 0.5, 0.95, "zeros"])
def test_a_torn_line_is_skipped_and_ended_by_the_next_write(folder: Path, left: float | str) -> None:
    keep(folder, document(KEYS[0]))
    (file,) = journal.files(folder)
    line = journal.line("kadikoy", document(KEYS[1]), NOW)
    torn = b"\0" * 300 if isinstance(left, str) else line[: int(len(line) * left)]
    with file.open("ab") as out:
        out.write(torn)
    assert [entry.payment_key for entry in read(folder)] == [KEYS[0]]
    keep(folder, document(KEYS[2]))
    assert [entry.payment_key for entry in read(folder)] == [KEYS[0], KEYS[2]]
    assert [entry for entry in journal.entries([file]) if entry is None] == [None]


def test_each_day_has_a_file_and_after_the_clock_is_set_back_the_newest_is_used(folder: Path) -> None:
    keep(folder, document(KEYS[0]))
    (file,) = journal.files(folder)
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)
    keep(folder, document(KEYS[1]), now=NOW - timedelta(days=1))
    keep(folder, document(KEYS[2]), now=NOW + timedelta(days=1))
    assert [file.name for file in journal.files(folder)] == ["2026-11-22.jsonl", "2026-11-23.jsonl"]
    assert [entry.payment_key for entry in read(folder)] == KEYS
    for now in (NOW + timedelta(days=3650), NOW + timedelta(days=2)):  # one of the far future would never be old
        keep(folder, document(), now=now)
    assert [file.name for file in journal.files(folder)][2:] == ["2026-11-24.jsonl", "2036-11-19.jsonl"]


def test_nothing_is_written_to_anything_but_a_plain_file(folder: Path) -> None:
    folder.mkdir()
    place, elsewhere = folder / "2026-11-22.jsonl", folder / "elsewhere"
    elsewhere.write_text("mine")
    for make, remove in (
        (lambda: place.symlink_to(elsewhere), place.unlink),
        (lambda: os.mkfifo(place), place.unlink),
        (place.mkdir, place.rmdir),
    ):
        make()
        with pytest.raises(OSError):
            keep(folder, document())
        remove()
    assert elsewhere.read_text() == "mine"


def test_blanking_removes_these_orders_whole_and_no_others(folder: Path) -> None:
    keep(folder, document(KEYS[0]), document(KEYS[1]), document(KEYS[0], "again"))
    (file,) = journal.files(folder)
    torn = journal.line("kadikoy", document(KEYS[0], "torn secret"), NOW)[:-20]
    with file.open("ab") as out:
        out.write(torn)
    size, inode = file.stat().st_size, file.stat().st_ino
    assert journal.blank(folder, [KEYS[0]]) == 3
    assert (file.stat().st_size, file.stat().st_ino) == (size, inode), "who adds meanwhile is not disturbed"
    assert journal.blank(folder, [KEYS[0]]) == 0
    assert [file.read_bytes().count(word) for word in (b"secret", b"again", "Ayşe".encode())] == [0, 0, 1]
    keep(folder, document(KEYS[2]))
    blanked = [(KEYS[0], True), (KEYS[1], False), (KEYS[0], True), (KEYS[2], False)]
    assert [(entry.payment_key, entry.digest is None) for entry in read(folder)] == blanked
    assert journal.document(read(folder)[0]) is None


def test_only_files_of_the_journal_are_removed(folder: Path) -> None:
    assert (read(folder), journal.blank(folder, KEYS), journal.remove_old(folder, date(2030, 1, 1))) == ([], 0, 0)
    assert not folder.exists()
    keep(folder, document())
    for name in ("notes.txt", "2026-13-77.jsonl", "2026-11-22.jsonl.bak"):
        (folder / name).write_text("mine")
    assert (len(read(folder)), journal.remove_old(folder, date(2030, 1, 1)), len([*folder.iterdir()])) == (1, 1, 3)


def test_a_failed_write_leaves_no_partial_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, document(KEYS[0]))
    write = os.write
    tries: list[int] = []

    def half(descriptor: int, data: memoryview) -> int:
        tries.append(len(data))
        if len(tries) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:40])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            keep(folder, document(KEYS[1]))
    (file,) = journal.files(folder)
    assert (file.read_bytes().count(b"\n"), file.read_bytes()[-1:]) == (1, b"\n")
    keep(folder, document(KEYS[2]))
    assert [entry.payment_key for entry in read(folder)] == [KEYS[0], KEYS[2]]


def test_two_processes_do_not_mix_their_lines(folder: Path) -> None:
    large = "x" * 300_000
    children = []
    for number in range(2):
        if (child := os.fork()) == 0:
            for _ in range(20):
                keep(folder, document(KEYS[number], large), document(KEYS[number], large))
            os._exit(0)
        children.append(child)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    assert None not in list(journal.entries(journal.files(folder)))
    keys = [entry.payment_key for entry in read(folder)]
    assert (len(keys), keys[::2]) == (80, keys[1::2])
