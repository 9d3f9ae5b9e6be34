"""Small files that stand beside the tables and say what these cannot: how far they went, what was told of their loss."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

MODE = 0o600
LONGEST = 8_000_000  # bytes: thousands of problems


def read_document(path: Path) -> Any:
    """None where there is none that can be read: it is a help, and no reason not to work."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(LONGEST))
    except (OSError, ValueError):
        return None


def write_document(path: Path, document: object) -> None:
    """In one step: whoever reads it finds the last one or this one. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        os.write(descriptor, json.dumps(document, default=lambda moment: moment.isoformat()).encode())
        os.fsync(descriptor)
        if os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
    finally:
        os.close(descriptor)
    beside.replace(path)
