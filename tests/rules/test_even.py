"""Thousands of accounts: how evenly their polls are spread after a start, and after an accumulation."""

import math
from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random

import pytest

from orderbridge.model import CooldownScope
from orderbridge.rules.cooldown import Cooldowns, Ended, Member, phases, together_s

COOLDOWN_S = 30.0
Answer = Callable[[float, str], tuple[float, Ended]]  # when, and who; seconds until the answer, and what it is


def soon(random: Random) -> Answer:
    return lambda now, who: (random.uniform(0.01, 0.2), Ended.OK)


class Fleet:
    """Accounts of different applications that poll whenever they may. `kept`: the number that need no login."""

    def __init__(self, count: int, kept: int = 0) -> None:
        members = [Member(f"f{place}", f"n{place}", f"a{place}") for place in range(count)]
        self.cooldowns = Cooldowns()
        self.cooldowns.configure(CooldownScope.AUTO, COOLDOWN_S)
        self.cooldowns.come(members)
        waits = phases([place >= kept for place in range(count)], self.cooldowns.round_s, 50)
        self.first = [self.cooldowns.begin(one.fingerprint, wait) for one, wait in zip(members, waits, strict=True)]
        self._events = [(at, one.fingerprint) for one, at in zip(members, self.first, strict=True)]
        heapify(self._events)
        self.polls: list[float] = []
        self._may = dict.fromkeys((one.fingerprint for one in members), -math.inf)

    def run(self, until: float, answer: Answer) -> None:
        while self._events[0][0] < until:
            now, who = heappop(self._events)
            if (wait := self.cooldowns.wait(who, now)) > 1e-9:
                heappush(self._events, (now + wait, who))
                continue
            assert now >= self._may[who], "early"
            self.polls.append(now)
            self.cooldowns.leaves(who, now)
            took, how = answer(now, who)
            self.cooldowns.ended(who, how, now + took)
            self._may[who] = now + took + COOLDOWN_S
            heappush(self._events, (now + took + self.cooldowns.wait(who, now + took), who))

    def fullest(self, since: float, until: float) -> float:
        """The most polls in a second, over the mean. A second holds whole moments, float noise aside."""
        inside = [math.floor(at + 1e-6) for at in self.polls if since <= at < until]
        return max(Counter(inside).values()) * (until - since) / len(inside)


@pytest.mark.parametrize("count", [1000, 10_000])
def test_a_cold_start_lays_even_layers_as_fast_as_its_logins_may_go(count: int) -> None:
    fleet = Fleet(count)
    logins = Counter(math.floor(at) for at in fleet.first)
    assert max(logins.values()) <= 50
    last = max(fleet.first)
    assert last <= fleet.cooldowns.round_s * math.ceil(count / 50 / fleet.cooldowns.round_s)
    fleet.run(last + 130, soon(Random(1)))
    assert fleet.fullest(last + 1, last + 129) <= 1.2


def test_accounts_without_a_token_make_those_with_one_no_later() -> None:
    fleet = Fleet(10_000, kept=9_000)
    assert max(fleet.first[:9_000]) < fleet.cooldowns.round_s + 0.5
    fleet.run(200, soon(Random(1)))
    assert fleet.fullest(100, 199) <= 1.2


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda now, who: (8.0, Ended.OK), id="answers that take 8 s"),
        pytest.param(lambda now, who: (20.0, Ended.FAILED), id="no answers"),
        pytest.param(lambda now, who: (0.02, Ended.LIMITED), id="429 for everybody"),
        pytest.param(
            lambda now, who: (8.0 if hash(who) % 3 else 0.1, Ended.LIMITED if now % 2 else Ended.OK), id="some of all"
        ),
    ],
)
def test_what_has_heaped_up_is_level_again_two_rounds_later(trouble: Answer) -> None:
    fleet, well = Fleet(4000, kept=4000), soon(Random(2))
    fleet.run(50, well)
    fleet.run(53, trouble)
    fleet.run(180, well)
    assert fleet.fullest(53 + 2 * fleet.cooldowns.round_s, 179) <= 1.2


def test_who_leaves_gives_its_place_back() -> None:
    fleet = Fleet(1000, kept=1000)
    for _ in range(50):
        fleet.cooldowns.leave(["f0"])
        fleet.cooldowns.come([Member("f0", "n0", "a0")])
        fleet.cooldowns.begin("f0", 10.0)
    assert fleet.cooldowns.wait("f0", 0.0) == pytest.approx(10.0)


def test_the_more_accounts_the_fewer_go_at_one_moment_until_a_moment_is_a_tick() -> None:
    apart = {count: together_s(count, COOLDOWN_S) for count in (179, 180, 1920, 2000, 3800, 5000, 100_000)}
    assert apart == {179: 0.0, 180: 0.5, 1920: 0.5, 2000: 0.375, 3800: 0.25, 5000: 0.125, 100_000: 0.125}


def test_accounts_that_come_leave_the_moments_of_the_others_as_they_are() -> None:
    """With more accounts moments are closer together: who has a place keeps it, and it counts."""
    fleet = Fleet(1000, kept=1000)
    before = {who: fleet.cooldowns.wait(who, 0.0) for who in ("f0", "f500", "f999")}
    fleet.cooldowns.come([Member(f"g{place}", f"m{place}", f"b{place}") for place in range(9000)])
    waits = phases([False] * 9000, fleet.cooldowns.round_s, 50)
    fleet.first += [fleet.cooldowns.begin(f"g{place}", wait) for place, wait in enumerate(waits)]
    assert before == {who: fleet.cooldowns.wait(who, 0.0) for who in before}
    moments = Counter(fleet.first)
    assert max(moments.values()) <= max(10_000 / 241 * 1.15, moments[fleet.first[0]])
    assert all(at % 0.125 == 0 for at in moments)


@pytest.mark.parametrize("count, most", [(1000, None), (3800, None), (10_000, 389)])
def test_a_second_of_thousands_of_accounts_has_a_little_more_room_than_a_share(count: int, most: int | None) -> None:
    assert Fleet(count, kept=count).cooldowns.most_per_second == most
