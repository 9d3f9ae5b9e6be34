"""Explores every reachable state, the nearest first, and shows the path to a wrong one."""

from collections import deque
from dataclasses import dataclass, field

from tests.model import properties
from tests.model.machine import Machine, State, first

STUCK = "from here on nothing ever settles"


@dataclass(slots=True)
class Found:
    """What an exploration saw. `wrong`: each kind of mistake with a shortest trace that makes it."""

    states: int = 0
    steps: int = 0
    settled: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def report(self) -> str:
        lines = []
        for words, trace in self.wrong.items():
            lines += [f"{words}:", *(f"  {number}. {step}" for number, step in enumerate(trace, start=1))]
        return "\n".join(lines)


class _Map:
    """The states by number, and how each was first reached."""

    def __init__(self, start: State) -> None:
        self.numbers = {start: 0}
        self._came: list[tuple[int, str]] = [(-1, "")]
        self._back: list[list[int]] = [[]]  # by number: the states before it

    def reach(self, state: State, before: int, step: str) -> tuple[int, bool]:
        """The number of a state, and whether it is new."""
        number = self.numbers.setdefault(state, len(self._came))
        if is_new := number == len(self._came):
            self._came.append((before, step))
            self._back.append([])
        self._back[number].append(before)
        return number, is_new

    def trace(self, number: int) -> list[str]:
        steps = []
        while number > 0:
            number, step = self._came[number]
            steps.append(step)
        return steps[::-1]

    def lost(self, ends: set[int]) -> list[int]:
        """The states from which none of the ends can be reached."""
        seen, waiting = set(ends), list(ends)
        while waiting:
            for before in self._back[waiting.pop()]:
                if before not in seen:
                    seen.add(before)
                    waiting.append(before)
        return [number for number in range(len(self._came)) if number not in seen]


def explore(machine: Machine, *, kinds: int = 1) -> Found:
    """Breadth first, so that the first trace of a kind is a shortest one. It ends after `kinds` kinds of mistakes.

    What comes after a mistake is not explored: it would only repeat the mistake.
    """
    found = Found()
    known = _Map(first(machine.scene))
    waiting = deque([(first(machine.scene), 0)])
    ends: set[int] = set()
    while waiting and len(found.wrong) < kinds:
        state, number = waiting.popleft()
        if properties.settled(machine, state):
            ends.add(number)
        for step, reached, wrong in machine.steps(state):
            found.steps += 1
            mistakes = [wrong] if wrong else properties.wrong(machine, reached)
            for words in mistakes:
                found.wrong.setdefault(words, [*known.trace(number), step])
            if mistakes:
                ends.add(number)  # what follows is not known, so it is not called stuck
                continue
            after = machine.tidied(reached)
            where, new = known.reach(after, number, step)
            if new:
                waiting.append((after, where))
    if not found.wrong and (lost := known.lost(ends)):
        found.wrong[STUCK] = known.trace(lost[0])
    found.states, found.settled = len(known.numbers), len(ends)
    return found
