"""The trace: one line for each event. The same seed gives the same bytes: no real time, no address, no set."""

from collections import Counter
from collections.abc import Callable

BROKEN = "BROKEN"  # the kind of a violation's line


class Trace:
    """The lines of one simulation, and how often each kind of fault was injected."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self.faults: Counter[str] = Counter()
        self._is_broken = False
        self._now = now

    def note(self, kind: str, text: str = "", **facts: object) -> None:
        """One line: the simulated second, what it is, and its facts. After a violation only others are added."""
        if self._is_broken and kind != BROKEN:
            return
        self._is_broken |= kind == BROKEN
        parts = [f"{self._now():12.3f} {kind:<8}", *([text] if text else [])]
        parts += [f"{name}={value}" for name, value in facts.items() if value is not None]
        self.lines.append(" ".join(parts))

    def fault(self, name: str, **facts: object) -> None:
        self.faults[name] += 1
        self.note("fault", name, **facts)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
