"""A VFS that reports SQLite's writes and flushes to the simulated disk (tests.sim.power).

It is a copy of the machine's own VFS, made with ctypes in the library that Python's sqlite3 uses: nothing is compiled.
Each open file has a copy of the original methods; those that write, truncate, flush and close report to the disk first.
"""

import _sqlite3
import contextlib
import ctypes
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.power import Disk, File

OK, FAILED = 0, 10  # SQLITE_OK, SQLITE_IOERR
JOURNAL, WAL = 0x00000800, 0x00080000  # of xOpen's flags
NAME = b"forgets"

_P, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_Open = ctypes.CFUNCTYPE(_INT, _P, _P, _P, _INT, _P)
_Delete = ctypes.CFUNCTYPE(_INT, _P, ctypes.c_char_p, _INT)
_Close = ctypes.CFUNCTYPE(_INT, _P)
_Write = ctypes.CFUNCTYPE(_INT, _P, _P, _INT, _LONG)
_Truncate = ctypes.CFUNCTYPE(_INT, _P, _LONG)
_Sync = ctypes.CFUNCTYPE(_INT, _P, _INT)


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = (
        ("version", _INT),
        ("file_size", _INT),
        ("longest_path", _INT),
        ("next", _P),
        ("name", ctypes.c_char_p),
        ("data", _P),
        ("open", _Open),
        ("delete", _Delete),
        ("others", _P * 14),
    )


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3."""

    _fields_ = (
        ("version", _INT),
        ("close", _Close),
        ("read", _P),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        ("others", _P * 13),
    )


def missing() -> str:
    """Why the VFS cannot be made on this machine; empty if it can."""
    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_libversion.restype = ctypes.c_char_p
        version = library.sqlite3_libversion().decode()
    except (AttributeError, OSError):
        return "SQLite is a part of this Python, which does not show its VFS"
    return "" if version == sqlite3.sqlite_version else f"Python has SQLite {sqlite3.sqlite_version}, not {version}"


class Vfs:
    """The VFS. It lives as long as the process: SQLite keeps pointers to it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_sqlite3.__file__)
        self._library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._true = self._library.sqlite3_vfs_find(None)
        self._disk: Disk | None = None
        self.open_files: dict[int, File] = {}  # by the address of SQLite's file
        self._names_too: dict[int, str] = {}  # by address: the path whose folder the first flush also flushes
        self._copies: dict[int, _Methods] = {}  # by the address of the original methods
        self._own = _Vfs.from_buffer_copy(self._true.contents)
        self._own.name, self._own.next = NAME, None
        self._own.open, self._own.delete = _Open(self._opened), _Delete(self._deleted)

    @contextlib.contextmanager
    def serving(self, disk: "Disk") -> Iterator[None]:
        """Let all that SQLite opens in the disk's folder be on that disk."""
        self._disk = disk
        self._library.sqlite3_vfs_register(ctypes.byref(self._own), 1)
        try:
            yield
        finally:
            self._library.sqlite3_vfs_register(self._true, 1)
            self._library.sqlite3_vfs_unregister(ctypes.byref(self._own))
            self._disk = None

    def _opened(self, _: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        result = int(self._true.contents.open(ctypes.addressof(self._true.contents), name, file, flags, out))
        path = ctypes.string_at(name).decode() if name else ""
        if result == OK and self._disk is not None and self._disk.has(path):
            self.open_files[file] = self._disk.file_at(path)
            if flags & (JOURNAL | WAL):
                self._names_too[file] = path
            methods = ctypes.c_void_p.from_address(file)  # a file begins with a pointer to its methods
            methods.value = ctypes.addressof(self._copy_of(int(methods.value or 0)))
        return result

    def _deleted(self, _: int, name: bytes, is_flushed: int) -> int:
        if self._disk is not None and self._disk.has(name.decode()):
            self._disk.removed(name.decode(), is_flushed=bool(is_flushed))
        return int(self._true.contents.delete(ctypes.addressof(self._true.contents), name, 0))

    def _copy_of(self, address: int) -> _Methods:
        if address not in self._copies:
            true = _Methods.from_address(address)
            copy = self._copies[address] = _Methods.from_buffer_copy(true)
            copy.close = _Close(partial(self._closed, true.close))
            copy.write = _Write(partial(self._written, true.write))
            copy.truncate = _Truncate(partial(self._truncated, true.truncate))
            copy.sync = _Sync(self._flushed)
        return self._copies[address]

    def _closed(self, true: Callable[..., int], file: int) -> int:
        self.open_files.pop(file, None)
        self._names_too.pop(file, None)
        return true(file)

    def _written(self, true: Callable[..., int], file: int, data: int, size: int, at: int) -> int:
        if self._disk is not None:
            if self._disk.fails("disk write"):
                return FAILED
            self.open_files[file].write(at, ctypes.string_at(data, size))
        return true(file, data, size, at)

    def _truncated(self, true: Callable[..., int], file: int, size: int) -> int:
        if self._disk is not None:
            self.open_files[file].cut(size)
        return true(file, size)

    def _flushed(self, file: int, _: int) -> int:
        """Flush to the simulated disk only."""
        if self._disk is not None:
            if self._disk.fails("disk sync"):
                return FAILED
            self.open_files[file].flush()
            if path := self._names_too.pop(file, ""):
                self._disk.flush_names(path.rpartition("/")[0])
        return OK


@cache
def vfs() -> Vfs:
    """The VFS of this process."""
    return Vfs()
