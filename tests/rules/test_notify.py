"""The reports of a problem: its history, and a bounded number for one that flaps."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from orderbridge.rules.problems import (
    FLAP_LIMIT,
    FLAP_WINDOW_S,
    Code,
    EventKind,
    OpenProblems,
    Problem,
    Severity,
    alike,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = Problem(Code.UNREACHABLE, "kadikoy", NOON, Severity.WARNING)
SEVERE = replace(ONE, severity=Severity.SEVERE)
BEHIND = replace(ONE, behind=Code.DATABASE_FULL)


def told(*looks: tuple[float, list[Problem]], history: OpenProblems | None = None) -> list[tuple[float, str]]:
    history = history or OpenProblems()
    return [(at, event.kind) for at, found in looks for event in history.check(found, at)]


def flapping(until: int, every: int = 5, **change: Any) -> list[tuple[float, list[Problem]]]:
    """At one look it is there, at the next it is not."""
    return [(at, [] if at // every % 2 else [replace(ONE, **change)]) for at in range(0, until, every)]


def test_it_begins_gets_worse_and_ends():
    assert told((0, [ONE]), (5, [ONE]), (10, [SEVERE]), (15, [replace(SEVERE, level=2)]), (20, [ONE]), (25, [])) == [
        (0, "began"),
        (10, "escalated"),
        (15, "escalated"),
        (25, "ended"),
    ]


def test_of_one_that_flaps_two_messages_leave_in_ten_minutes():
    events = [
        (at, one) for history in [OpenProblems()] for at, found in flapping(7200) for one in history.check(found, at)
    ]
    times = [at for at, _ in events]
    assert [one.flapped for _, one in events][:3] == [0, 0, 59], "how often it came and was not reported"
    for begin in range(0, 7200, 5):
        assert sum(begin <= at < begin + FLAP_WINDOW_S for at in times) <= FLAP_LIMIT


def test_what_was_held_back_is_told_when_its_time_has_come_if_it_is_still_so():
    looks: list[tuple[float, list[Problem]]] = [(at, [ONE]) for at in range(10, 700, 5)]
    assert told((0, [ONE]), (5, []), *looks) == [(0, "began"), (5, "ended"), (600, "began")]


def test_one_that_is_over_after_all_is_told_so():
    looks: list[tuple[float, list[Problem]]] = [(at, []) for at in range(20, 1300, 5)]
    last = told((0, [ONE]), (5, []), (10, [SEVERE]), *looks)
    assert last == [(0, "began"), (5, "ended"), (10, "began"), (605, "ended")], "the severe one did not wait"


def test_what_stands_behind_another_neither_begins_nor_ends():
    assert told((0, [BEHIND]), (5, [ONE]), (10, [replace(BEHIND, severity=Severity.SEVERE)]), (15, [])) == [
        (5, "began"),
        (15, "ended"),
    ]


def test_nothing_is_kept_of_what_is_long_over():
    history = OpenProblems()
    for at in (0, 5, 620):
        history.check([ONE] if at == 0 else [], at)
    assert not history._histories


def test_what_the_command_has_heard_and_is_behind_another_problem_does_not_end():
    problems, moda = OpenProblems(), replace(ONE, subject="moda")
    problems.check([ONE], 0)
    problems.remember([ONE, moda], 0)
    assert problems.unheard({moda.key}, 60) == []
    (ended,) = problems.unheard((), 60)
    assert (ended.kind, ended.problem, ended.seconds) == ("ended", moda, 60)


def test_many_alike_are_one_message():
    many = [replace(ONE, subject=str(number)) for number in range(6)]
    events = OpenProblems().check([*many, replace(ONE, code=Code.QUARANTINED)], 0)
    assert [len(some) for some in alike(events)] == [6, 1]
    assert [len(some) for some in alike(events[1:])] == [1] * 6
    assert alike([]) == []
    assert {one.kind for some in alike(events) for one in some} == {EventKind.BEGAN}
