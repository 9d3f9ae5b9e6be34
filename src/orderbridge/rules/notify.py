"""Which changes of a problem are reported: its beginning, that it gets worse, and its end.

Rules of this file:
- `announced` is what the log reported last, `seen` is what is so. A difference is reported at the next check, unless
  the problem flaps.
- Of a problem that comes and goes at most FLAP_LIMIT messages leave in ten minutes. What is held back is reported when
  its time has come, if it is still so. A problem that is worse than all that was reported in these ten minutes never waits.
- A problem behind another one neither begins nor gets worse, and if it was open it stays open.
- Times are of the monotonic clock: the wall clock may be set.
- The alarm command hears of the same changes; what it has not heard yet is the difference between what is open here and
  what it has heard (`unheard`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from orderbridge.rules.problems import Code, Problem, Severity

FLAP_WINDOW_S = 600.0
FLAP_LIMIT = 2  # beginnings and ends of one problem within that time
ALIKE_LIMIT = 5  # up to so many of one kind at one check are reported one by one; of more, so many are named

Key = tuple[Code, str]
Rank = tuple[bool, int]
NOT_OPEN: Rank = (False, 0)


class EventKind(StrEnum):
    """What has happened to a problem."""

    BEGAN = "began"
    ESCALATED = "escalated"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One message. `seconds`: at its end, for how long the problem was open. `flapped`: so often it came and went unreported."""

    kind: EventKind
    problem: Problem
    seconds: float = 0.0
    flapped: int = 0
    began: float = 0.0


@dataclass(slots=True)
class History:
    """What was reported of one problem."""

    problem: Problem
    began: float
    announced: Rank = NOT_OPEN
    seen: bool = False  # open at the last check
    returns: int = 0  # unreported ones
    flapped: int = 0  # `returns` at its last beginning
    messages: list[tuple[float, Rank]] = field(default_factory=list)  # beginnings and ends of the last ten minutes


@dataclass(slots=True)
class Heard:
    """What the alarm command has heard of one problem. `rank`: how bad it was then; NOT_OPEN: the command failed."""

    problem: Problem
    rank: Rank
    began: float


class OpenProblems:
    """What was reported of the problems, in the log and by the alarm command."""

    def __init__(self) -> None:
        self._histories: dict[Key, History] = {}
        self._heard: dict[Key, Heard] = {}

    def check(self, found: Iterable[Problem], monotonic: float) -> list[Event]:
        """What the log is to report now. `found`: all, also what is behind another problem."""
        seen = {one.key: one for one in found}
        began = [self._of_open(one, monotonic) for one in seen.values() if one.behind is None]
        over = [self._of_gone(key, monotonic) for key in [*self._histories] if key not in seen]
        return [event for event in (*began, *over) if event is not None]

    def open(self) -> dict[Key, Problem]:
        """What the log has reported and is not over."""
        return {key: one.problem for key, one in self._histories.items() if one.announced != NOT_OPEN}

    def remember(self, reported: Iterable[Problem], monotonic: float) -> None:
        """What the alarm command has heard from the daemon before this one."""
        self._heard |= {one.key: Heard(one, one.rank, monotonic) for one in reported}

    def heard(self) -> dict[Key, Rank]:
        """How bad each problem was when the command last heard of it; without those whose end it has heard."""
        return {key: one.rank for key, one in self._heard.items() if one.rank != NOT_OPEN}

    def unheard(self, kept: Collection[Key], now: float, *, severe_only: bool = False) -> list[Event]:
        """What the command does not know yet, one event for each problem. `kept`: behind another one, so it does not end."""
        events, opened = [], set()
        for key, one in self._histories.items():
            if one.announced == NOT_OPEN or (severe_only and one.problem.severity != Severity.SEVERE):
                continue
            opened.add(key)
            before = NOT_OPEN
            if key in self._heard:
                self._heard[key].problem, before = one.problem, self._heard[key].rank
            if one.problem.rank > before:
                kind, flapped = (EventKind.BEGAN, one.flapped) if before == NOT_OPEN else (EventKind.ESCALATED, 0)
                events.append(Event(kind, one.problem, flapped=flapped, began=one.began))
        over = (one for key, one in self._heard.items() if key not in opened and key not in kept)
        return [*events, *(Event(EventKind.ENDED, one.problem, seconds=now - one.began) for one in over)]

    def sent(self, events: Iterable[Event], *, failed: bool = False) -> None:
        """The command was run with these. If it failed it may have worked all the same: then it hears of the end, too."""
        for one in events:
            key, problem = one.problem.key, one.problem
            if failed:
                self._heard.setdefault(key, Heard(problem, NOT_OPEN, one.began))
            elif one.kind == EventKind.ENDED:
                self._heard.pop(key, None)
            else:
                self._heard[key] = Heard(problem, problem.rank, one.began)

    def _of_open(self, problem: Problem, now: float) -> Event | None:
        one = self._histories.setdefault(problem.key, History(problem, now))
        one.returns += one.announced == NOT_OPEN and not one.seen and bool(one.messages)
        one.problem, one.seen = problem, True
        rank = problem.rank
        _forget_old(one, now)
        if one.announced != NOT_OPEN:
            if rank <= one.announced:
                return None
            one.announced = rank
            return Event(EventKind.ESCALATED, problem)
        if len(one.messages) >= FLAP_LIMIT and rank <= max(announced for _, announced in one.messages):
            return None
        one.began, one.announced = now, rank
        one.messages.append((now, rank))
        one.flapped, one.returns = max(one.returns - 1, 0), 0
        return Event(EventKind.BEGAN, problem, flapped=one.flapped)

    def _of_gone(self, key: Key, now: float) -> Event | None:
        one = self._histories[key]
        one.seen = False
        _forget_old(one, now)
        if one.announced == NOT_OPEN:
            if not one.messages:  # calm for ten minutes
                del self._histories[key]
            return None
        if len(one.messages) >= FLAP_LIMIT:
            return None
        one.messages.append((now, one.announced))
        one.announced = NOT_OPEN
        return Event(EventKind.ENDED, one.problem, seconds=now - one.began)


def _forget_old(one: History, now: float) -> None:
    one.messages = [message for message in one.messages if message[0] > now - FLAP_WINDOW_S]


def alike(events: Iterable[Event], most: int = ALIKE_LIMIT) -> list[list[Event]]:
    """One list for each message: what many have in common is reported in one."""
    kinds: dict[tuple[EventKind, Code, bool], list[Event]] = {}
    for one in events:
        kinds.setdefault((one.kind, one.problem.code, one.problem.rank[0]), []).append(one)
    messages = []
    for some in kinds.values():
        messages += [some] if len(some) > most else [[one] for one in some]
    return messages
