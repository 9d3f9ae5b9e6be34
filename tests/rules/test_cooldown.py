"""Polls at each account's own pace, or in turn where a cooldown is shared.

A service is simulated with each scope: it answers 429 to a call inside the cooldown of its scope. The rules know only
its answers.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderbridge.model import CooldownScope
from orderbridge.rules.cooldown import MARGIN_S, TAKEN_OVER_S, Cooldowns, Ended, Member, first_wait, phases, together_s

COOLDOWN_S = 30.0


def members(*applications: str) -> list[Member]:
    return [Member(f"f{number}", f"shop {number}", app) for number, app in enumerate(applications)]


@dataclass
class Town:
    """Accounts that poll whenever they may, and a service that answers. `scope`: the key of an account's cooldown."""

    members: Sequence[Member]
    scope: Callable[[Member], str]
    restarts_on_429: bool = False
    latency: Callable[[], float] = lambda: 0.1
    strangers: dict[str, float] = field(default_factory=dict)  # account: how often another client polls with it
    fails: Callable[[str, float], bool] = lambda who, now: False
    now: float = 0.0
    answers: list[tuple[float, str, Ended]] = field(default_factory=list)
    configured: CooldownScope = CooldownScope.AUTO
    found: list[float] = field(default_factory=list)  # when 429s have shown that the scope is wrong

    def __post_init__(self) -> None:
        self.cooldowns = Cooldowns()
        self.cooldowns.configure(self.configured, COOLDOWN_S)
        self.cooldowns.add(self.members)
        self._since: dict[str, float] = {}
        waits = phases([False] * len(self.members), COOLDOWN_S, 50)
        self._due = {m.fingerprint: wait for m, wait in zip(self.members, waits, strict=True)}
        self._on_wire: dict[str, tuple[float, Ended]] = {}  # answered when, and how
        self._strangers = dict.fromkeys(self.strangers, 1.0)
        self._by = {m.fingerprint: m for m in self.members}
        self._ended: dict[str, float] = {}

    def run(self, until: float) -> None:
        while True:
            times = [*self._due.values(), *(at for at, _ in self._on_wire.values()), *self._strangers.values()]
            self.now = max(min(times), self.now)
            if self.now > until:
                return
            self._step()

    def _step(self) -> None:
        for who, (at, how) in list(self._on_wire.items()):
            if at <= self.now:
                del self._on_wire[who]
                self.answers.append((self.now, who, how))
                if self.cooldowns.ended(who, how, self.now):
                    self.found.append(self.now)
                self._ended[who] = self.now
                self._due[who] = self.now + max(self.cooldowns.wait(who, self.now), 0.05)
                return
        for who, at in self._strangers.items():
            if at <= self.now:
                self._ask(self._by[who])
                self._strangers[who] += self.strangers[who]
                return
        who = min(self._due, key=self._due.__getitem__)
        wait = self.cooldowns.wait(who, self.now)
        if wait > 0:
            self._due[who] = self.now + max(wait, 0.05)
            return
        assert self.now >= self._ended.get(who, -COOLDOWN_S) + COOLDOWN_S, "inside its own cooldown"
        self.cooldowns.sent(who, self.now)
        del self._due[who]
        how = Ended.FAILED if self.fails(who, self.now) else self._ask(self._by[who])
        self._on_wire[who] = self.now + self.latency(), how

    def _ask(self, member: Member) -> Ended:
        key = self.scope(member)
        since = self._since.get(key)
        too_soon = since is not None and self.now < since + COOLDOWN_S
        if not too_soon or self.restarts_on_429:
            self._since[key] = self.now
        return Ended.LIMITED if too_soon else Ended.OK

    def gaps(self, since: float, until: float) -> dict[str, float]:
        """The longest time of each account without an OK."""
        oks: dict[str, list[float]] = defaultdict(lambda: [since])
        for at, who, how in self.answers:
            if how == Ended.OK and since <= at <= until:
                oks[who].append(at)
        return {m.name: max(b - a for a, b in itertools.pairwise([*oks[m.fingerprint], until])) for m in self.members}

    def limited(self, since: float) -> int:
        return sum(how == Ended.LIMITED and at >= since for at, _, how in self.answers)


CREDENTIAL, APPLICATION = attrgetter("fingerprint"), attrgetter("application")
SCOPES: dict[str, Callable[[Member], str]] = {
    "credential": CREDENTIAL,
    "application": APPLICATION,
    "address": lambda _: "",
}
HOUR_S = 3600.0


def slots(count: int) -> float:
    """The time in which `count` accounts with one cooldown are polled once, and a tenth more."""
    return 1.1 * count * (COOLDOWN_S + MARGIN_S + 0.1)


def test_a_request_that_did_not_leave_uses_no_cooldown():
    cooldowns = Cooldowns()
    cooldowns.configure(CooldownScope.AUTO, COOLDOWN_S)
    cooldowns.add(members("x"))
    cooldowns.sent("f0", 100.0)
    cooldowns.unsent("f0")
    assert cooldowns.wait("f0", 100.0) <= 0


@pytest.mark.parametrize("restarts", [False, True], ids=["", "a 429 restarts it"])
@pytest.mark.parametrize("apps, scope, together", [
    ("xx", "application", 2), ("xxxxxyyyyy", "application", 5), ("abcde", "address", 5), ("xxxxxyyyyy", "address", 10),
])  # fmt: skip
def test_accounts_of_the_configured_scope_are_polled_in_turn_and_never_meet_429(apps, scope, together, restarts):
    town = Town(members(*apps), SCOPES[scope], restarts, configured=CooldownScope(scope))
    town.run(HOUR_S)
    assert town.limited(0.0) == 0 and town.found == [] and max(town.gaps(0.0, HOUR_S).values()) <= slots(together)
    assert {len(town.cooldowns.in_turn(m.fingerprint)) for m in town.members} == {together}


@pytest.mark.parametrize("restarts", [False, True], ids=["", "a 429 restarts it"])
@pytest.mark.parametrize("apps, scope", [
    ("xx", "application"), ("xxxxx", "application"), ("xxxyy", "application"), ("x" * 20, "address"),
])  # fmt: skip
def test_by_auto_two_accounts_that_meet_429_show_a_shared_cooldown_and_all_are_polled_in_turn(apps, scope, restarts):
    town = Town(members(*apps), SCOPES[scope], restarts)
    town.run(2 * HOUR_S)
    assert len(town.found) == 1 and town.found[0] <= 4 * COOLDOWN_S
    assert town.limited(town.found[0] + 0.01) == 0
    assert max(town.gaps(town.found[0] + COOLDOWN_S, 2 * HOUR_S).values()) <= slots(len(apps))
    assert town.cooldowns.is_scope_wrong


def test_more_than_twenty_accounts_stay_as_they_are_and_only_the_alarm_is_raised():
    town = Town(members(*"x" * 21), APPLICATION)
    town.run(HOUR_S)
    assert len(town.found) == 1
    assert town.cooldowns.is_scope_wrong
    assert {town.cooldowns.in_turn(m.fingerprint) for m in town.members} == {()}
    town.cooldowns.remove(["f0"])
    assert len(town.cooldowns.in_turn("f1")) == 20


@pytest.mark.parametrize("every_s", [20.0, 30.0, 45.0, 70.0])
@pytest.mark.parametrize("applications", ["x", "xxx", "xxxxx"])
def test_another_user_of_one_credential_delays_no_other_account(applications: str, every_s: float):
    town = Town(members(*applications), CREDENTIAL, strangers={"f0": every_s})
    town.run(HOUR_S)
    assert town.found == []
    others = {name: gap for name, gap in town.gaps(COOLDOWN_S, HOUR_S).items() if name != "shop 0"}
    assert max(others.values(), default=0.0) < COOLDOWN_S + 1


def test_one_of_a_group_that_is_not_polled_for_a_while_does_not_stop_the_others():
    town = Town(members(*"xxxxx"), APPLICATION, configured=CooldownScope.APPLICATION)
    town.run(400.0)
    del town._due["f2"]  # its login is refused
    town.run(2000.0)
    gaps = town.gaps(600.0, 2000.0)
    assert gaps.pop("shop 2") > 1000 and max(gaps.values()) <= slots(5)


def test_a_reload_keeps_cooldowns_and_what_auto_has_found():
    town = Town(members(*"xxx"), APPLICATION)
    town.run(300.0)
    before = [town.cooldowns.wait(m.fingerprint, 300.0) for m in town.members]
    assert town.cooldowns.add([Member("new", "new", "y"), *town.members]) == {"new"}
    assert [town.cooldowns.wait(m.fingerprint, 300.0) for m in town.members] == before
    assert {m.name for m in town.cooldowns.in_turn("f0")} == {"shop 0", "shop 1", "shop 2", "new"}
    town.cooldowns.keep([town.members[0].fingerprint])
    assert town.cooldowns.in_turn("f0") == ()


def test_a_scope_that_is_configured_in_a_reload_counts_from_then_on():
    town = Town(members(*"xxxy"), APPLICATION)
    town.run(300.0)
    assert town.cooldowns.is_scope_wrong
    town.cooldowns.configure(CooldownScope.APPLICATION, COOLDOWN_S)
    assert not town.cooldowns.is_scope_wrong
    assert {m.name for m in town.cooldowns.in_turn("f0")} == {"shop 0", "shop 1", "shop 2"}
    assert town.cooldowns.in_turn("f3") == ()
    alone = Town(members(*"xxx"), APPLICATION, configured=CooldownScope.CREDENTIAL)
    alone.run(HOUR_S)
    assert (alone.found, alone.cooldowns.is_scope_wrong, alone.cooldowns.in_turn("f0")) == ([], False, ())


@settings(max_examples=settings.default.max_examples * 3 // 5)
@given(
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=7), st.sampled_from(sorted(SCOPES)), st.booleans(),
    st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_no_poll_leaves_within_its_cooldown_and_every_account_is_polled(apps, scope, restarts, configured, seed):
    """Some answers are late, some fail. The town asserts the cooldown at each poll.

    If two of the accounts share an application, `auto` may take the second for one whose secrets a stranger uses.
    """
    chance = Random(seed)
    how = {"latency": lambda: chance.choice((0.1, 1.0, 18.0)), "fails": lambda who, now: chance.random() < 0.1}
    town = Town(
        members(*apps), SCOPES[scope], restarts, **how, configured=CooldownScope(scope if configured else "auto")
    )
    town.run(HOUR_S)
    polled = {who for at, who, _ in town.answers if at > HOUR_S - 14 * (COOLDOWN_S + 18.0)}
    if configured or scope != "application":
        assert polled == {m.fingerprint for m in town.members}
    if scope == "credential":
        assert town.found == []


Answer = Callable[[float, str], tuple[float, Ended]]  # when, and who; seconds until the answer, and what it is


def soon(random: Random) -> Answer:
    return lambda now, who: (random.uniform(0.01, 0.2), Ended.OK)


class Fleet:
    """Accounts of different applications that poll whenever they may. `kept`: the number that need no login."""

    def __init__(self, count: int, kept: int = 0) -> None:
        members = [Member(f"f{place}", f"n{place}", f"a{place}") for place in range(count)]
        self.cooldowns = Cooldowns()
        self.cooldowns.configure(CooldownScope.AUTO, COOLDOWN_S)
        self.cooldowns.add(members)
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
            self.cooldowns.sent(who, now)
            took, how = answer(now, who)
            self.cooldowns.ended(who, how, now + took)
            self._may[who] = now + took + COOLDOWN_S
            heappush(self._events, (now + took + self.cooldowns.wait(who, now + took), who))

    def fullest(self, since: float, until: float) -> float:
        """The largest number of polls in a second, divided by the mean."""
        inside = [math.floor(at + 1e-6) for at in self.polls if since <= at < until]
        return max(Counter(inside).values()) * (until - since) / len(inside)


@pytest.mark.parametrize("count", [1000, 10_000])
def test_a_cold_start_spreads_the_polls_at_the_login_rate(count: int) -> None:
    fleet = Fleet(count)
    assert max(Counter(math.floor(at) for at in fleet.first).values()) <= 50
    last = max(fleet.first)
    assert last <= fleet.cooldowns.round_s * math.ceil(count / 50 / fleet.cooldowns.round_s)
    fleet.run(last + 130, soon(Random(1)))
    assert fleet.fullest(last + 1, last + 129) <= 1.2


def test_accounts_without_a_token_make_those_with_one_no_later() -> None:
    fleet = Fleet(10_000, kept=9_000)
    assert max(fleet.first[:9_000]) < fleet.cooldowns.round_s + 0.5
    fleet.run(200, soon(Random(1)))
    assert fleet.fullest(100, 199) <= 1.2


@pytest.mark.parametrize("trouble", [
    lambda now, who: (8.0, Ended.OK), lambda now, who: (20.0, Ended.FAILED), lambda now, who: (0.02, Ended.LIMITED),
    lambda now, who: (8.0 if int(who[1:]) % 3 else 0.1, Ended.LIMITED if now % 2 else Ended.OK),
], ids=["answers that take 8 s", "no answers", "429 for all", "some of each"])  # fmt: skip
def test_delayed_polls_are_spread_again_within_two_rounds(trouble: Answer) -> None:
    fleet, well = Fleet(4000, kept=4000), soon(Random(2))
    fleet.run(50, well)
    fleet.run(53, trouble)
    fleet.run(180, well)
    assert fleet.fullest(53 + 2 * fleet.cooldowns.round_s, 179) <= 1.2


def test_added_accounts_do_not_move_the_polls_of_others() -> None:
    """With more accounts the moments are closer together. An account keeps its place, which counts as taken."""
    fleet = Fleet(1000, kept=1000)
    before = {who: fleet.cooldowns.wait(who, 0.0) for who in ("f0", "f500", "f999")}
    fleet.cooldowns.add([Member(f"g{place}", f"m{place}", f"b{place}") for place in range(9000)])
    waits = phases([False] * 9000, fleet.cooldowns.round_s, 50)
    fleet.first += [fleet.cooldowns.begin(f"g{place}", wait) for place, wait in enumerate(waits)]
    assert before == {who: fleet.cooldowns.wait(who, 0.0) for who in before}
    moments = Counter(fleet.first)
    assert max(moments.values()) <= max(10_000 / 241 * 1.15, moments[fleet.first[0]])
    assert all(at % 0.125 == 0 for at in moments)
    apart = {count: together_s(count, COOLDOWN_S) for count in (179, 180, 1920, 2000, 3800, 5000, 100_000)}
    assert apart == {179: 0.0, 180: 0.5, 1920: 0.5, 2000: 0.375, 3800: 0.25, 5000: 0.125, 100_000: 0.125}
    assert [Fleet(count).cooldowns.most_per_second for count in (1000, 3800, 10_000)] == [None, None, 389]


def test_an_account_that_another_process_polled_just_now_keeps_its_rhythm():
    waits = {None: 7.0, -31.0: 7.0, -1.0: 0.0, 12.0: 12.0 + TAKEN_OVER_S, 500.0: 80.0}
    assert {noted_s: first_wait(noted_s, 7.0, 30.0, 80.0) for noted_s in waits} == waits
