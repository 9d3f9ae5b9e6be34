"""A disk that loses unflushed writes when power fails, in whole sectors and in any order.

Files are written to the machine's own disk. Beside it, this module keeps what would be left: of each file the flushed
contents and the writes since; of each folder the flushed names and the changes since. When power returns, the files are
replaced by what is left.
"""

import contextlib
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from tests.sim.vfs import vfs

SECTOR = 512
SHARES = (0.0, 0.5, 0.9, 1.0)  # shares of the unflushed sectors that survive
NAMES = 8  # unflushed changes of one name: file systems flush names every few seconds
# Functions of `os`, and the method of the disk that follows each.
HOOKS = {name: name for name in ("open", "close", "write", "pwrite", "ftruncate", "fsync", "rename", "link", "mkdir")}
HOOKS |= {"fdatasync": "fsync", "replace": "rename", "unlink": "unlink", "rmdir": "unlink"}
SHM = "-shm"  # memory, which is never flushed


class File:
    """A file's flushed contents, and the writes and truncations since."""

    def __init__(self, flushed: bytes = b"") -> None:
        self._flushed = bytearray(flushed)
        self._since: list[tuple[int, bytes | None]] = []

    def write(self, at: int, data: bytes) -> None:
        self._since.append((at, data))

    def cut(self, size: int) -> None:
        self._since.append((size, None))

    def flush(self) -> None:
        for at, data in self._since:
            _apply(self._flushed, at, data)
        self._since.clear()

    def left(self, chance: Random) -> bytes:
        left, share = bytearray(self._flushed), chance.choice(SHARES)
        for at, data in self._since:
            for begin, part in [(at, None)] if data is None else _sectors(at, data):
                if chance.random() < share:
                    _apply(left, begin, part)
        return bytes(left)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : None if data is None else at + len(data)] = data or b""


def _sectors(at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    end = 0
    while end < len(data):
        begin, end = end, end + SECTOR - (at + end) % SECTOR
        yield at + begin, data[begin:end]


class Disk:
    def __init__(self, folder: Path, chance: Random) -> None:
        self._folder = folder
        self._chance = chance
        self._now: dict[str, File | None] = {}  # as programs see them; None: a folder
        self._flushed: dict[str, File | None] = {}
        self._since: dict[str, deque[tuple[bool, File | None]]] = {}  # whether it existed, and as what
        self._descriptors: dict[int, File | str] = {}  # a folder's path
        self._left: dict[str, bytes | None] = {}
        self.is_dark = False  # power has failed: later writes are lost
        self.fails: Callable[[str], bool] = lambda _: False  # called before each write and flush of SQLite

    def has(self, path: str) -> bool:
        return path.startswith(f"{self._folder}/")

    def file_at(self, path: str) -> File:
        file = self._now.get(path)
        if file is None:
            file = File()
            self._put(path, file)
        return file

    def removed(self, path: str, *, is_flushed: bool = False) -> None:
        if path in self._now:
            del self._now[path]
            self._note(path)
        if is_flushed:
            self.flush_names(path.rpartition("/")[0])

    def flush_names(self, folder: str) -> None:
        for path in [path for path in self._since if path.rpartition("/")[0] == folder]:
            self._settle(path, *self._since.pop(path)[-1])

    def _put(self, path: str, file: File | None) -> None:
        self._now[path] = file
        self._note(path)

    def _note(self, path: str) -> None:
        states = self._since.setdefault(path, deque())
        states.append((path in self._now, self._now.get(path)))
        if len(states) > NAMES:
            self._settle(path, *states.popleft())

    def _settle(self, path: str, is_there: bool, file: File | None) -> None:
        self._flushed.pop(path, None)
        if is_there:
            self._flushed[path] = file

    def cut(self) -> None:
        self.is_dark, self._left = True, {}
        for path in sorted({*self._flushed, *self._since}):
            states = [(path in self._flushed, self._flushed.get(path)), *self._since.get(path, ())]
            is_there, file = self._chance.choice(states)
            if is_there and path.rpartition("/")[0] in {*self._left, str(self._folder)}:
                self._left[path] = None if file is None else file.left(self._chance)

    def put_back(self) -> None:
        """Power is back. No file is open."""
        assert not vfs().open_files, "a file is open during a power loss"
        for path in sorted(self._folder.iterdir()):
            if path.name.endswith(SHM) and self._chance.random() < 0.5:
                path.write_bytes(self._chance.randbytes(path.stat().st_size))
            elif path.is_dir():
                shutil.rmtree(path)
            elif str(path) not in self._left:
                path.unlink()
        for name, content in self._left.items():
            if content is None:
                Path(name).mkdir()
            else:
                Path(name).write_bytes(content)
        self._since.clear()
        self._now = {path: None if content is None else File(content) for path, content in self._left.items()}
        self._flushed = dict(self._now)
        self.is_dark = False

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Let all writes in the folder, by SQLite or `os`, go to this disk."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(vfs().serving(self))
            for name in HOOKS:
                true, tell = getattr(os, name), getattr(self, f"_after_{HOOKS[name]}")
                stack.enter_context(patch.object(os, name, partial(_then, true, tell)))
            yield

    def _after_open(self, descriptor: int, path: Any, flags: int, *_: Any) -> None:
        name = str(path)
        if not self.has(f"{name}/"):
            return
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._descriptors[descriptor] = name
        elif flags & (os.O_WRONLY | os.O_RDWR):
            self._descriptors[descriptor] = self.file_at(name)

    def _after_close(self, _: None, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)

    def _after_write(self, size: int, descriptor: int, data: Any) -> None:
        self._after_pwrite(size, descriptor, data, os.lseek(descriptor, 0, os.SEEK_CUR) - size)

    def _after_pwrite(self, size: int, descriptor: int, data: Any, at: int) -> None:
        file = self._descriptors.get(descriptor)
        if isinstance(file, File):
            file.write(at, bytes(data[:size]))

    def _after_ftruncate(self, _: None, descriptor: int, size: int) -> None:
        file = self._descriptors.get(descriptor)
        if isinstance(file, File):
            file.cut(size)

    def _after_fsync(self, _: None, descriptor: int) -> None:
        file = self._descriptors.get(descriptor)
        if isinstance(file, File):
            file.flush()
        elif file is not None:
            self.flush_names(file)

    def _after_rename(self, _: None, path: Any, target: Any) -> None:
        self._after_link(None, path, target)
        self.removed(str(path))

    def _after_link(self, _: None, path: Any, target: Any) -> None:
        if self.has(str(path)):
            self._put(str(target), self._now[str(path)])

    def _after_unlink(self, _: None, path: Any, *__: Any) -> None:
        self.removed(str(path))

    def _after_mkdir(self, _: None, path: Any, *__: Any) -> None:
        if self.has(str(path)):
            self._put(str(path), None)


def _then(true: Callable[..., Any], tell: Callable[..., None], *of: Any, **how: Any) -> Any:
    result = true(*of, **how)
    tell(result, *of)
    return result
