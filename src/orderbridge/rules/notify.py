"""What is told of problems, and when: the beginning of each, that it gets worse, and its end.

Rules of this file:
- Told is what somebody was told, seen is what is so. What differs is told at the next look, unless it flaps.
- Of a problem that comes and goes no more than two messages leave in ten minutes. What is held back is told when its
  time has come, if it is still so. One that has become worse than all that was told in these ten minutes never waits.
- What stands behind another problem neither begins nor gets worse, and what was open stays open.
- By the monotonic clock: the other one may have been set.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orderbridge.rules.problems import Code, Problem

WITHIN_S = 600.0
MOST = 2  # messages of one problem within that time, its getting worse left out

Key = tuple[Code, str]
Rank = tuple[bool, int]
NOT_OPEN: Rank = (False, 0)
MOST_ALIKE = 5  # of one kind at the same look: that many are told one by one, and named


class EventKind(StrEnum):
    """What has happened to a problem."""

    BEGAN = "began"
    ESCALATED = "escalated"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One message. `seconds`: at its end, for how long the problem was open. `flapped`: so often it came and went untold."""

    kind: EventKind
    problem: Problem
    seconds: float = 0.0
    flapped: int = 0


@dataclass(slots=True)
class _Story:
    """What was told of one problem."""

    problem: Problem
    began: float
    told: Rank = NOT_OPEN
    seen: bool = False  # open at the last look
    flapped: int = 0
    messages: list[tuple[float, Rank]] = field(default_factory=list)  # beginnings and ends of the last ten minutes


class Edges:
    """Compares each look with what was told before. `most`: see the head of this file."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._stories: dict[Key, _Story] = {}

    def remember(self, problem: Problem, monotonic: float) -> None:
        """One that was told before this program began."""
        self._stories[problem.key] = _Story(problem, monotonic, told=problem.rank, seen=True)

    def see(self, found: Iterable[Problem], monotonic: float) -> list[Event]:
        """What is to be told now. `found`: all, also what stands behind another problem."""
        seen = {one.key: one for one in found}
        began = [self._of_open(one, monotonic) for one in seen.values() if one.behind is None]
        over = [self._of_gone(key, monotonic) for key in [*self._stories] if key not in seen]
        return [event for event in (*began, *over) if event is not None]

    def open(self) -> Sequence[Problem]:
        """What was told and is not over."""
        return [story.problem for story in self._stories.values() if story.told != NOT_OPEN]

    def told(self) -> dict[Key, Rank]:
        """How bad each of them was when it was last told."""
        return {key: story.told for key, story in self._stories.items() if story.told != NOT_OPEN}

    def _of_open(self, problem: Problem, now: float) -> Event | None:
        story = self._stories.setdefault(problem.key, _Story(problem, now))
        story.flapped += story.told == NOT_OPEN and not story.seen and bool(story.messages)
        story.problem, story.seen = problem, True
        rank = problem.rank
        _forget_old(story, now)
        if story.told != NOT_OPEN:
            if rank <= story.told:
                return None
            story.told = rank
            return Event(EventKind.ESCALATED, story.problem)
        if len(story.messages) >= self._most and rank <= max(told for _, told in story.messages):
            return None
        story.began, story.told = now, rank
        story.messages.append((now, rank))
        flapped, story.flapped = max(story.flapped - 1, 0), 0
        return Event(EventKind.BEGAN, story.problem, flapped=flapped)

    def _of_gone(self, key: Key, now: float) -> Event | None:
        story = self._stories[key]
        story.seen = False
        _forget_old(story, now)
        if story.told == NOT_OPEN:
            if not story.messages:  # calm for ten minutes
                del self._stories[key]
            return None
        if len(story.messages) >= self._most:
            return None
        story.messages.append((now, story.told))
        story.told = NOT_OPEN
        return Event(EventKind.ENDED, story.problem, seconds=now - story.began)


def _forget_old(story: _Story, now: float) -> None:
    story.messages = [one for one in story.messages if one[0] > now - WITHIN_S]


def alike(events: Iterable[Event], most: int = MOST_ALIKE) -> list[list[Event]]:
    """One list for each message: what many have in common is told in one."""
    kinds: dict[tuple[EventKind, Code, bool], list[Event]] = {}
    for one in events:
        kinds.setdefault((one.kind, one.problem.code, one.problem.rank[0]), []).append(one)
    messages = []
    for some in kinds.values():
        messages += [some] if len(some) > most else [[one] for one in some]
    return messages
