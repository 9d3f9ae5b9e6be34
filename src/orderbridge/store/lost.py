"""What had been told when the SQLite file was lost: the tables are what is gone, so a small file remembers it.

It is there from the loss until its end was told. Where systemd gives a state directory it stands in there, since a disk
that went away takes along what stands beside the file.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from orderbridge.store.beside import read_document, write_document
from orderbridge.store.dialects.sqlite_file import SqliteFile

Row = dict[str, Any]  # as of delivery_problems


class Loss:
    """Of one database; a server's is never lost so."""

    def __init__(self, file: SqliteFile | None) -> None:
        self._database = "" if file is None else file.path
        state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        beside = Path(f"{self._database}.lost")
        self._path = Path(state, beside.name) if state else beside

    def read(self) -> list[Row] | None:
        """What had been told; None: the file was not lost, or that is over."""
        if not self._database:
            return None
        said = read_document(self._path)
        try:
            return [_row(one) for one in said["told"]] if said["database"] == self._database else None
        except (ValueError, TypeError, KeyError):
            return None

    def write(self, told: Sequence[Row]) -> None:
        """Raises OSError."""
        write_document(self._path, {"database": self._database, "told": told})

    def end(self) -> None:
        """Its end was told. Raises OSError."""
        self._path.unlink(missing_ok=True)


def _row(said: Row) -> Row:
    since = said["since_utc"]
    return {**said, "since_utc": since and datetime.fromisoformat(since)}
