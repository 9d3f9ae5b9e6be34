"""All switches together: the open points of docs/interface.md, and what a tester wants to provoke."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from . import rules
from .faults import EVERY_OPERATION
from .open_points import (
    Check,
    Completable,
    CooldownScope,
    Coverage,
    Disallowed,
    Life,
    Limits,
    ListOrder,
    Lists,
    MenuShape,
    Operations,
    RetryAfter,
    TokenMessage,
)
from .provocations import Connections, Courier, Language, Line, Pace, Trouble, Where
from .switches import BadOption, Switch, switches_of, unknown

__all__ = [
    "SWITCHES",
    "BadOption",
    "Check",
    "Completable",
    "CooldownScope",
    "Courier",
    "Coverage",
    "Disallowed",
    "Language",
    "Life",
    "Line",
    "ListOrder",
    "MenuShape",
    "Options",
    "RetryAfter",
    "TokenMessage",
    "Where",
]

GROUPS: Final = (Pace, Limits, Lists, Operations, Trouble, Connections)
"""In the order of docs/sandbox.md."""
MOST: Final = 1_000_000_000
"""No number is larger: as seconds these are 31 years, with which a clock can still reckon."""
_BELOW_0: Final = frozenset({"clock_offset_seconds"})


@dataclass(frozen=True, kw_only=True)
class Options(Pace, Limits, Lists, Operations, Trouble, Connections):
    """The switches. Times are seconds."""

    def __post_init__(self) -> None:
        """Refuse what the world could not play."""
        for name, value in asdict(self).items():
            if isinstance(value, int | float):
                _check_number(name, value)
        if self.needs_payment_status_id in rules.STATUS_TEXTS:
            raise BadOption(f"needs_payment_status_id: {self.needs_payment_status_id} is the id of another status")
        if sorted(self.error_order.split()) != sorted(Check):
            raise BadOption(f"error_order: {self.error_order!r} is not these six words: {', '.join(Check)}")
        if self.trouble_operation not in (EVERY_OPERATION, *rules.Operation):
            raise BadOption(unknown("operation", [self.trouble_operation], [EVERY_OPERATION, *rules.Operation]))
        for name in ("timezone", "expiration_timezone"):
            try:
                ZoneInfo(getattr(self, name))
            except (ZoneInfoNotFoundError, ValueError) as error:
                raise BadOption(f"{name}: {getattr(self, name)!r} is no time zone") from error

    def changed(self, changes: Mapping[str, Any]) -> "Options":
        """Return a copy with the changes, which may come from JSON."""
        missing = [name for name in changes if name not in SWITCHES]
        if missing:
            raise BadOption(unknown("option", missing, list(SWITCHES)))
        values: dict[str, Any] = {name: SWITCHES[name].of(value) for name, value in changes.items()}
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return {name: getattr(self, name) for name in SWITCHES}


def _check_number(name: str, value: float) -> None:
    if not math.isfinite(value) or (value < 0 and name not in _BELOW_0):
        raise BadOption(f"{name}: {value} is not a number from 0 on")
    if abs(value) > MOST:
        raise BadOption(f"{name}: {value} is more than {MOST:,}")
    if name.endswith("_status") and not 200 <= value <= 599:  # noqa: PLR2004 - what a final answer can have
        raise BadOption(f"{name}: {value} is not between 200 and 599")
    if name.endswith("_percent") and value > 100:  # noqa: PLR2004
        raise BadOption(f"{name}: {value} is not between 0 and 100")


SWITCHES: Final[Mapping[str, Switch]] = {name: line for group in GROUPS for name, line in switches_of(group).items()}
"""Every switch by its name."""


def settings_from(texts: Iterable[str]) -> dict[str, Any]:
    """Return what `--set NAME=VALUE` asks for; raises BadOption."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption(f"--set {text}: write NAME=VALUE")
        if name not in SWITCHES:
            raise BadOption(unknown("option", [name], list(SWITCHES)))
        settings[name] = SWITCHES[name].parsed(value)
    return settings
