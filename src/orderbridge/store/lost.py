"""What had been told when the SQLite file was lost, or the database took nothing: so a small file remembers it.

It is there until the end was told. Where systemd gives a state directory it stands in there, since a disk that went away
takes along what stands beside the file; of a server it stands nowhere else.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from orderbridge.store.database import Database
from orderbridge.store.sidecar import read_document, write_document

Row = dict[str, Any]  # as of delivery_problems


class Loss:
    """Of one database."""

    def __init__(self, database: Database) -> None:
        file, url = database.file, database.engine.url
        self._database = url.render_as_string() if file is None else file.path  # without its password
        state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        beside = None if file is None else Path(f"{file.path}.lost")
        name = "server.lost" if beside is None else beside.name
        self._path = Path(state, name) if state else beside

    def read(self) -> list[Row] | None:
        """What had been told; None: nothing was lost, or that is over."""
        if self._path is None:
            return None
        said = read_document(self._path)
        try:
            return [_row(one) for one in said["told"]] if said["database"] == self._database else None
        except (ValueError, TypeError, KeyError):
            return None

    def write(self, told: Sequence[Row]) -> None:
        """Raises OSError."""
        if self._path is not None:
            write_document(self._path, {"database": self._database, "told": told})

    def end(self) -> None:
        """Its end was told. Raises OSError."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _row(said: Row) -> Row:
    since = said["since_utc"]
    return {**said, "since_utc": since and datetime.fromisoformat(since)}
