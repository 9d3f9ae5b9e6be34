"""Who holds a lock on a file, by the kernel's own list: a technician who is told "locked" asks by whom."""

import os
import re
from pathlib import Path

LOCKS = Path("/proc/locks")
# 1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF
LINE = re.compile(r"\d+: (FLOCK|POSIX|OFDLCK) +\w+ +(READ|WRITE) +(-?\d+) +(\w+:\w+:\d+) ")


def daemon_of(path: str) -> str | None:
    """The process that has the right to work on this file: "1234 (orderbridge)"; None: nobody."""
    return next(iter(_holders(path, "FLOCK")), None)


def writers_of(path: str) -> list[str]:
    """Others that are in the middle of writing to it. In WAL mode SQLite's locks are on the -shm."""
    return [*_holders(path, "POSIX"), *_holders(f"{path}-shm", "POSIX")]


def _holders(path: str, kind: str) -> list[str]:
    try:
        found = os.stat(os.path.realpath(path))  # noqa: PTH116 - the numbers, not a Path
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return []
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = [match for line in lines if (match := LINE.match(line))]
    numbers = [int(match[3]) for match in held if (match[1], match[2], match[4]) == (kind, "WRITE", place)]
    return [_named(number) for number in dict.fromkeys(numbers) if number != os.getpid()]


def _named(number: int) -> str:
    """Of a process outside of this container the kernel tells no number."""
    try:
        return f"{number} ({Path(f'/proc/{number}/comm').read_text().strip()})"
    except OSError:
        return str(number) if number > 0 else "?"
