"""Whose cooldown it is: polls at the own pace, in turn where a cooldown is shared, and back again where it is not.

A service is played with each scope: it answers 429 to a call inside the cooldown of its scope. What the rules know of it
is only what it answers.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderbridge.rules.cooldown import MARGIN_S, TOGETHER_S, Cooldowns, phases
from orderbridge.rules.turns import Change, Ended, Member

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
    strangers: dict[str, float] = field(default_factory=dict)  # account: how often somebody else polls with it
    fails: Callable[[str, float], bool] = lambda who, now: False
    limits: Callable[[float], bool] = lambda now: False  # the service refuses everybody
    now: float = 0.0
    answers: list[tuple[float, str, Ended]] = field(default_factory=list)
    changes: list[tuple[float, Change]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cooldowns = Cooldowns()
        self.cooldowns.know(self.members, COOLDOWN_S)
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
                self.changes += [(self.now, change) for change in self.cooldowns.ended(who, how, self.now)]
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
        self.cooldowns.leaves(who, self.now)
        del self._due[who]
        how = Ended.FAILED if self.fails(who, self.now) else self._ask(self._by[who])
        self._on_wire[who] = self.now + self.latency(), how

    def _ask(self, member: Member) -> Ended:
        key = self.scope(member)
        since = self._since.get(key)
        too_soon = since is not None and self.now < since + COOLDOWN_S
        if not too_soon or self.restarts_on_429:
            self._since[key] = self.now
        return Ended.LIMITED if too_soon or self.limits(self.now) else Ended.OK

    def gaps(self, since: float, until: float) -> dict[str, float]:
        """The longest time of each account without an OK."""
        oks: dict[str, list[float]] = defaultdict(lambda: [since])
        for at, who, how in self.answers:
            if how == Ended.OK and since <= at <= until:
                oks[who].append(at)
        return {m.name: max(b - a for a, b in itertools.pairwise([*oks[m.fingerprint], until])) for m in self.members}

    def limited(self, since: float) -> int:
        return sum(how == Ended.LIMITED and at >= since for at, _, how in self.answers)


CREDENTIAL = lambda member: member.fingerprint  # noqa: E731
APPLICATION = lambda member: member.application  # noqa: E731
ADDRESS = lambda member: ""  # noqa: E731

SCOPES = {"credential": CREDENTIAL, "application": APPLICATION, "address": ADDRESS}
LEARNED_S = 8 * COOLDOWN_S
HOUR_S = 3600.0


def slots(count: int) -> float:
    """The time in which `count` accounts with one cooldown are polled once, and a tenth more."""
    return 1.1 * count * (COOLDOWN_S + MARGIN_S + 0.1)


# ---- the own cooldown ------------------------------------------------------------------------------------------------


def test_one_account_polls_at_once_and_then_a_cooldown_after_each_answer():
    cooldowns = Cooldowns()
    cooldowns.know(members("x"), COOLDOWN_S)
    assert cooldowns.wait("f0", 100.0) <= 0
    cooldowns.leaves("f0", 100.0)
    cooldowns.ended("f0", Ended.OK, 107.0)
    assert cooldowns.wait("f0", 107.0) == pytest.approx(COOLDOWN_S + MARGIN_S)


def test_what_certainly_did_not_leave_uses_no_cooldown_up():
    cooldowns = Cooldowns()
    cooldowns.know(members("x"), COOLDOWN_S)
    cooldowns.leaves("f0", 100.0)
    cooldowns.unsent("f0")
    assert cooldowns.wait("f0", 100.0) <= 0


def test_the_first_polls_of_many_are_spread_over_one_cooldown():
    waits = phases([False] * 1000, COOLDOWN_S, 50)
    assert waits[0] == 0.0
    assert max(waits) < COOLDOWN_S
    assert max(b - a for a, b in itertools.pairwise(waits)) == pytest.approx(COOLDOWN_S / 1000)


def test_a_reload_forgets_no_cooldown_and_no_group():
    town = Town(members(*"xxx"), APPLICATION)
    town.run(300.0)
    before = [town.cooldowns.wait(m.fingerprint, 300.0) for m in town.members]
    added = Member("new", "new", "y")
    assert town.cooldowns.know([added, *town.members], COOLDOWN_S) == {"new"}
    assert [town.cooldowns.wait(m.fingerprint, 300.0) for m in town.members] == before
    assert {m.name for m in town.cooldowns.in_turn("f0")} == {"shop 0", "shop 1", "shop 2"}
    town.cooldowns.know(town.members[:1], COOLDOWN_S)
    assert town.cooldowns.in_turn("f0") == ()


# ---- a cooldown that is shared ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True], ids=["", "a 429 restarts it"])
@pytest.mark.parametrize(
    "applications, scope, together",
    [
        pytest.param("xxxxx", "application", 5, id="five of one application"),
        pytest.param("xx", "application", 2, id="two of one application"),
        pytest.param("xxxxxyyyyy", "application", 5, id="two applications, each with its own"),
        pytest.param("abcde", "address", 5, id="five applications at one address"),
        pytest.param("xxyyz", "address", 5, id="three applications at one address"),
        pytest.param("xxxxxyyyyy", "address", 10, id="ten accounts at one address"),
    ],
)
def test_who_shares_a_cooldown_is_polled_in_turn_and_nobody_starves(
    applications: str, scope: str, together: int, restarts: bool
):
    town = Town(members(*applications), SCOPES[scope], restarts)
    town.run(HOUR_S)
    assert max(town.gaps(LEARNED_S, HOUR_S).values()) <= slots(together)
    assert town.limited(LEARNED_S) <= 7 * len(applications) // together  # only those on trial, ever fewer
    assert {len(town.cooldowns.in_turn(m.fingerprint)) for m in town.members} == {together}


def test_five_of_one_application_are_each_polled_within_five_cooldowns_from_the_start_on():
    town = Town(members(*"xxxxx"), APPLICATION)
    town.run(HOUR_S)
    assert max(town.gaps(0.0, HOUR_S).values()) <= slots(5)


@pytest.mark.parametrize("applications", ["x", "xx", "xxxxx", "abcde", "x" * 60])
def test_accounts_with_a_cooldown_each_are_polled_at_their_own_pace(applications: str):
    town = Town(members(*applications), CREDENTIAL)
    town.run(HOUR_S)
    assert (town.changes, town.limited(0.0)) == ([], 0)
    assert max(town.gaps(COOLDOWN_S, HOUR_S).values()) < COOLDOWN_S + 1


def test_two_that_poll_at_the_same_moment_are_found_to_share_a_cooldown():
    town = Town(members(*"xx"), APPLICATION)
    town._due = dict.fromkeys(town._due, 0.0)
    town.run(HOUR_S)
    assert max(town.gaps(LEARNED_S, HOUR_S).values()) <= slots(2)


def test_one_of_a_group_that_is_not_polled_for_a_while_does_not_stop_the_others():
    town = Town(members(*"xxxxx"), APPLICATION)
    town.run(400.0)
    del town._due["f2"]  # its login is refused
    town.run(2000.0)
    gaps = town.gaps(600.0, 2000.0)
    assert gaps.pop("shop 2") > 1000
    assert max(gaps.values()) <= slots(5)


def test_a_poll_on_trial_leaves_soon_or_not_at_all():
    """Where a 429 restarts the cooldown, a late one would cost the group all that it has waited."""
    town = Town(members(*"xx"), APPLICATION)
    town.run(5.0 * COOLDOWN_S)
    ok = next(at for at, _, how in reversed(town.answers) if how == Ended.OK)
    cooldowns = town.cooldowns
    for who in ("f0", "f1"):
        for late in (0.3, 0.5, 0.99):
            assert cooldowns.wait(who, ok + late * COOLDOWN_S) > 0


# ---- a group that is wrong -------------------------------------------------------------------------------------------


def in_groups(town: Town, until: float) -> float:
    """The seconds that accounts spent in groups, as a part of all."""
    spent, since = 0.0, None
    for at, change in [*town.changes, (until, Change(grouped=False, members=()))]:
        if since is not None:
            spent += at - since
        since = at if change.grouped else None
    return spent / until


@pytest.mark.parametrize("restarts", [False, True], ids=["", "a 429 restarts it"])
@pytest.mark.parametrize("every_s", [20.0, 30.0, 45.0, 70.0])
@pytest.mark.parametrize("applications", ["xx", "xxxxx"])
def test_a_stranger_who_uses_one_credential_slows_nobody_else_for_long(
    applications: str, every_s: float, restarts: bool
):
    town = Town(members(*applications), CREDENTIAL, restarts, strangers={"f0": every_s})
    town.run(4 * HOUR_S)
    others = {name: gap for name, gap in town.gaps(0.0, 4 * HOUR_S).items() if name != "shop 0"}
    assert max(others.values()) < 3.5 * COOLDOWN_S
    assert in_groups(town, 4 * HOUR_S) < 0.05


def test_a_service_that_refused_everybody_for_a_while_leaves_no_group_behind():
    town = Town(members(*"x" * 50), CREDENTIAL, limits=lambda now: 600 <= now <= 900)
    town.run(HOUR_S)
    assert max(town.gaps(900 + 4 * COOLDOWN_S, HOUR_S).values()) < COOLDOWN_S + 1
    assert {town.cooldowns.in_turn(m.fingerprint) for m in town.members} == {()}


def test_accounts_that_get_a_cooldown_each_again_are_found_out_by_a_trial():
    town = Town(members(*"xxx"), APPLICATION)
    town.run(600.0)
    town.scope = CREDENTIAL
    town.run(600.0 + HOUR_S)
    assert town.cooldowns.in_turn("f0") == ()
    assert town.answers[-1][0] - town.changes[-1][0] > HOUR_S / 4


def test_a_stranger_beside_a_group_that_is_right_does_not_break_it():
    town = Town(members(*"xxxxx"), APPLICATION, strangers={"f0": 70.0})
    town.run(HOUR_S)
    assert len(town.changes) == 1
    assert max(town.gaps(LEARNED_S, HOUR_S).values()) <= 2 * slots(5)


# ---- properties ------------------------------------------------------------------------------------------------------


@settings(max_examples=settings.default.max_examples * 3 // 5)
@given(
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=7),
    st.sampled_from(sorted(SCOPES)),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_no_poll_ever_leaves_inside_its_own_cooldown_and_everybody_is_polled(
    applications: list[str], scope: str, restarts: bool, seed: int
):
    """Answers late and failed ones among them (the town asserts the cooldown at each poll)."""
    chance = Random(seed)
    town = Town(
        members(*applications),
        SCOPES[scope],
        restarts,
        latency=lambda: chance.choice((0.1, 1.0, 18.0)),
        fails=lambda who, now: chance.random() < 0.1,
    )
    town.run(HOUR_S)
    polled = {who for at, who, _ in town.answers if at > HOUR_S - 14 * (COOLDOWN_S + 18.0)}
    assert polled == {m.fingerprint for m in town.members}
    if scope == "credential":
        assert town.changes == []


# ---- many accounts leave together ------------------------------------------------------------------------------------


def many(count: int) -> tuple[Cooldowns, list[Member]]:
    members = [Member(f"f{place}", f"n{place}", f"a{place}") for place in range(count)]
    cooldowns = Cooldowns()
    cooldowns.know(members, 30.0)
    return cooldowns, members


def test_polls_of_many_accounts_leave_at_the_same_moments_and_none_before_its_own() -> None:
    cooldowns, members = many(300)
    ends = {member.fingerprint: 1000.0 + place * 0.1 for place, member in enumerate(members)}
    due = set()
    for who, end in ends.items():
        cooldowns.leaves(who, end)
        cooldowns.ended(who, Ended.OK, end)
        wait = cooldowns.wait(who, end)
        assert cooldowns.cooldown_s <= wait < cooldowns.cooldown_s + TOGETHER_S
        due.add(round(end + wait, 6))
    assert len(due) == 300 * 0.1 / TOGETHER_S
    assert all(moment % TOGETHER_S == 0 for moment in due)


@pytest.mark.parametrize("count", [1, 5, 179])
def test_a_poll_of_few_accounts_leaves_at_its_own_time(count: int) -> None:
    cooldowns, members = many(count)
    who = members[0].fingerprint
    cooldowns.leaves(who, 1000.0)
    cooldowns.ended(who, Ended.OK, 1000.123)
    assert cooldowns.wait(who, 1000.123) == pytest.approx(cooldowns.cooldown_s)
