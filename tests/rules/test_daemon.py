"""What is wrong with the daemon's own means: each from where on it is, and with what it is told."""

from datetime import UTC, datetime, timedelta

import pytest

from orderbridge.rules.daemon import (
    BUSY,
    FENCED,
    SLOW_WITHIN_S,
    DaemonFacts,
    has_lasted,
    problems,
    too_slow,
)
from orderbridge.rules.problems import OF_THE_DAEMON, Code, Problem, Severity

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_nothing_is_wrong_with_what_was_not_seen_yet():
    assert list(problems(DaemonFacts(), NOW)) == []


@pytest.mark.parametrize(
    "facts, code, words",
    [
        (DaemonFacts(trouble=Code.DATABASE_FULL), Code.DATABASE_FULL, {}),
        (DaemonFacts(slowest_s=11.4), Code.DATABASE_SLOW, {"seconds": "11"}),
        (DaemonFacts(offsets_s=(61.0, 62.0)), Code.CLOCK_WRONG, {"offset": "+62"}),
        (DaemonFacts(offsets_s=(61.0, -7200.0)), Code.CLOCK_WRONG, {"offset": "-7200"}),
        (DaemonFacts(died_young=(("moda", 3),)), Code.CREDENTIALS_SHARED, {"count": "3"}),
        (DaemonFacts(fenced=(NOW - FENCED + SECOND, 2)), Code.WRITES_FENCED, {"count": "2"}),
        (DaemonFacts(log_stuck_s=10.0), Code.LOG_NOT_READ, {}),
        (DaemonFacts(name_holder="PID 7"), Code.HEALTHCHECK_TAKEN, {"holder": "PID 7"}),
    ],
)
def test_each_fact_has_its_code_and_its_words(facts: DaemonFacts, code: Code, words: dict[str, str]):
    (one,) = problems(facts, NOW)
    assert (one.code, one.facts) == (code, words)
    assert one.code in OF_THE_DAEMON


@pytest.mark.parametrize(
    "facts",
    [
        DaemonFacts(offsets_s=(7200.0,)),
        DaemonFacts(offsets_s=(7200.0, 60.0)),
        DaemonFacts(offsets_s=(60.0, 7200.0)),
        DaemonFacts(died_young=(("moda", 2), ("kadikoy", 2))),
        DaemonFacts(fenced=(NOW - FENCED, 2)),
    ],
    ids=["one Date", "one Date before", "one Date after", "tokens of two accounts", "an hour ago"],
)
def test_what_is_no_problem(facts: DaemonFacts):
    assert list(problems(facts, NOW)) == []


def test_whose_it_is_how_many_and_since_when():
    lost = DaemonFacts(died_young=(("kadikoy", 2), ("moda", 4)), fenced=(NOW - SECOND, 2))
    shared, fenced = problems(lost, NOW)
    assert (shared.subject, shared.account, shared.count, shared.since) == ("moda", "moda", 4, None)
    assert (fenced.subject, fenced.account, fenced.count, fenced.since) == ("", None, 2, NOW - SECOND)


@pytest.mark.parametrize("back", [1, -1], ids=["later", "a clock that was set back"])
def test_a_till_may_hold_the_database_for_a_moment(back: int):
    held, full = (Problem(code, "", NOW, Severity.SEVERE) for code in (Code.DATABASE_BUSY, Code.DATABASE_FULL))
    assert [has_lasted(one, NOW + back * (BUSY - SECOND)) for one in (held, full)] == [False, True]
    assert has_lasted(held, NOW + back * BUSY)


@pytest.mark.parametrize(
    "slow, worst",
    [
        ([], None),
        ([(90.0, 2.5), (95.0, 3.0)], None),
        ([(90.0, 2.5), (95.0, 3.0), (99.0, 2.0)], 3.0),
        ([(90.0, 10.0)], 10.0),
        ([(90.0, 9.9)], None),
        ([(100.0 - SLOW_WITHIN_S, 60.0)], None),
    ],
)
def test_work_is_too_slow_when_it_was_so_several_times_or_once_very(
    slow: list[tuple[float, float]], worst: float | None
):
    assert too_slow(slow, 100.0) == worst
