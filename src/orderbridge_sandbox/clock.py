"""The one place in the sandbox that looks at the machine's clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Answers the present moment with a time zone; a test passes its own."""


def system_clock() -> datetime:
    """Return the machine's time."""
    return datetime.now(UTC)
