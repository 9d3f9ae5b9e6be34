"""When an account's get-current may leave, and which accounts share one cooldown.

The interface leaves open whether a cooldown belongs to the credential, to the application (all accounts with one
app_secret_key) or to the address that calls. The configuration says it: `cooldown_scope`.

Rules of this file:
- Own: an account's next poll leaves one cooldown after its last answer, or failure after sending. Always.
- Phases: the first polls of many accounts are spread over one round; the first of them leaves at once. Accounts that
  have to log in first are spread over as many whole rounds as their logins take: each round lays one even layer.
- Together: many accounts' later polls leave at whole moments, half a second apart at most, so that what is noted of them
  can be noted in groups. None leaves before its own time.
- Evenly: a moment has room for little more than its share. Who finds none goes at the next one that has: what slow
  answers, 429s or a dead line have heaped up is level again two rounds later.
- In turn: of accounts that share one cooldown one leaves a cooldown after the last answer to any of them.
- `auto` is by credential. Two accounts that meet 429 twice in a row, although each kept its own cooldown, show that this
  is wrong (of two accounts one is enough: the other always comes first). An alarm names the key, and up to 20 accounts
  are all polled in turn for the rest of the run. More would each wait for too long: they stay as they are. A restart
  forgets it.

Times are seconds of the monotonic clock. Nothing here asks for them, and nothing here waits.
"""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from orderbridge.model import CooldownScope

MARGIN_S = 0.05  # two clocks never run alike
TICK_S = 0.125  # between the moments at which thousands of accounts' polls leave
TOGETHER_S = 0.5  # and those of hundreds: a whole number of ticks
AT_A_MOMENT = 32  # polls: with more, the last of a moment may miss the next one for it
ROOM = 1.15  # of a moment, in shares of it
EVEN = 1.17  # of a second, in shares of it: a little more than the room, or a line would never end
TAKEN_OVER_S = 0.25  # by which two machines' clocks may differ, as far as we know them
FEWEST_TOGETHER = 3  # accounts at one such moment, on average: with fewer it would only cost time
LIMITED_IN_A_ROW = 2  # 429s to one account
LIMITED_ACCOUNTS = 2
MAX_IN_TURN = 20  # accounts that are polled in turn although it is not configured
STEP = 0.01  # of a cooldown: so much later the next account leaves when the one before it does not
MAX_LETTERS = 255


class Ended(StrEnum):
    """How a poll ended that was sent."""

    OK = auto()
    LIMITED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """An account to be polled. `application`: the same for accounts with one app_secret_key."""

    fingerprint: str
    name: str
    application: str


def names_of(members: Sequence[Member]) -> str | None:
    """For people: these accounts, as many as fit; None: there are none."""
    return ", ".join(member.name for member in members)[:MAX_LETTERS] or None


@dataclass(slots=True)
class Poll:
    """What is known of one account's polls."""

    member: Member
    next: float = float("-inf")  # its own cooldown is over
    moment: int | None = None  # that has a place for it
    left: float | None = None  # one is on the wire since
    limited: int = 0  # 429s since the last answer of another kind


@dataclass(slots=True)
class _Group:
    """Accounts that are polled in turn. `queue`: the first has waited longest. `ended`: the last answer to any of them."""

    queue: list[str]
    ended: float = float("-inf")


def phases(with_login: Sequence[bool], round_s: float, logins_per_second: float) -> list[float]:
    """Seconds after a start at which the first poll of each account leaves. `with_login`: it has to log in before."""
    counts = Counter(with_login)
    rounds = {False: 1, True: max(math.ceil(counts[True] / logins_per_second / round_s), 1)}
    places = {False: itertools.count(), True: itertools.count()}
    return [round_s * rounds[one] * next(places[one]) / counts[one] for one in with_login]


def first_wait(noted_s: float | None, late_s: float, cooldown_s: float, longest_s: float) -> float:
    """Seconds until the first poll here of an account that another process may have polled a moment ago.

    `noted_s`: seconds until its next poll may leave, by that one's note. Where it was polled lately it goes on in its own
    rhythm, else its turn is in `late_s`. No more than `longest_s`: one further away comes from a clock that was set.
    """
    if noted_s is None or noted_s < -cooldown_s:
        return late_s
    return min(max(noted_s + TAKEN_OVER_S, 0.0), longest_s)


def together_s(count: int, cooldown_s: float) -> float:
    """Seconds between the moments at which the polls of `count` accounts leave; 0: each leaves at its own."""
    if count * TOGETHER_S < FEWEST_TOGETHER * cooldown_s:
        return 0.0
    apart_s = min(AT_A_MOMENT * cooldown_s / count, TOGETHER_S)
    return max(int(apart_s / TICK_S), 1) * TICK_S


class Moments:
    """When polls leave that go together, and how many of them at each of these moments. Moments are counted in ticks."""

    def __init__(self) -> None:
        self.apart_s = 0.0  # 0: each leaves at its own time
        self.round_s = 0.0  # from one poll of an account to its next one
        self._room = 0
        self._taken: Counter[int] = Counter()  # by moment

    def fit(self, accounts: int, cooldown_s: float, margin_s: float) -> None:
        """So many accounts there are from now on."""
        self.apart_s = together_s(accounts, cooldown_s)
        self.round_s = cooldown_s + margin_s
        if self.apart_s:
            in_a_round = math.ceil(self.round_s / self.apart_s)
            self.round_s = in_a_round * self.apart_s
            self._room = max(math.ceil(accounts / in_a_round), int(accounts / in_a_round * ROOM))

    def take(self, due: float) -> int | None:
        """The first moment from `due` on that has room, and a place in it; None: there are no moments."""
        if not self.apart_s:
            return None
        step = round(self.apart_s / TICK_S)
        moment = math.ceil(due / self.apart_s) * step
        while self._taken[moment] >= self._room:
            moment += step
        self._taken[moment] += 1
        return moment

    def give_back(self, moment: int | None) -> None:
        """That place is free again."""
        if moment is not None and self._taken[moment] > 1:
            self._taken[moment] -= 1
        elif moment is not None:
            self._taken.pop(moment, None)


class Cooldowns:
    """The times of all accounts' polls. One that asks and may go says `leaves`, then `unsent` or `ended`."""

    def __init__(self) -> None:
        self.cooldown_s = 0.0  # from an answer to the next request
        self.is_scope_wrong = False  # 429s have shown that `cooldown_scope = "auto"` is wrong here
        self._scope = CooldownScope.AUTO
        self._moments = Moments()
        self._polls: dict[str, Poll] = {}
        self._groups: dict[str, _Group] = {}
        self._limited: set[str] = set()  # who has met 429 in a row
        self._held_until = float("-inf")

    # ---- the accounts ------------------------------------------------------------------------------------------------

    def configure(self, scope: CooldownScope, cooldown_s: float) -> None:
        """Whose cooldown it is, and how long, from now on. What `auto` has found stays while it is `auto`."""
        self.cooldown_s = cooldown_s + MARGIN_S
        if scope != self._scope:
            self._scope, self.is_scope_wrong = scope, False
            self._group_anew()

    def keep(self, fingerprints: Collection[str]) -> None:
        """All others are none of ours any more."""
        self.leave([who for who in self._polls if who not in fingerprints])

    def come(self, members: Sequence[Member]) -> frozenset[str]:
        """These are accounts, too, from now on; no poll of theirs is on the wire. Returns the fingerprints of new ones."""
        new = frozenset(member.fingerprint for member in members if member.fingerprint not in self._polls)
        for member in members:
            poll = self._polls.setdefault(member.fingerprint, Poll(member))
            poll.member, poll.left = member, None
        self._changed()
        return new

    def leave(self, fingerprints: Collection[str]) -> None:
        """These are none of ours any more."""
        for who in fingerprints:
            if (poll := self._polls.pop(who, None)) is not None:
                self._moments.give_back(poll.moment)
        self._changed()

    def _changed(self) -> None:
        self._moments.fit(len(self._polls), self.cooldown_s - MARGIN_S, MARGIN_S)
        self._limited &= self._polls.keys()
        self._group_anew()

    def _group_anew(self) -> None:
        """Each account keeps its place in the queue of its group."""
        before, self._groups = self._groups, {}
        for key, group in before.items():
            if stays := [who for who in group.queue if who in self._polls and self._key(who) == key]:
                self._groups[key] = _Group(stays, group.ended)
        queued = {who for group in self._groups.values() for who in group.queue}
        for who in self._polls:
            key_or_none = self._key(who)
            if who not in queued and key_or_none is not None:
                self._groups.setdefault(key_or_none, _Group([])).queue.append(who)

    def _key(self, who: str) -> str | None:
        """The group of an account; None: its cooldown is its own."""
        if self._scope == CooldownScope.APPLICATION:
            return f"application {self._polls[who].member.application}"
        in_turn = self.is_scope_wrong and len(self._polls) <= MAX_IN_TURN
        return "address" if in_turn or self._scope == CooldownScope.ADDRESS else None

    @property
    def round_s(self) -> float:
        """From one poll of an account to its next one, where answers come soon."""
        return self._moments.round_s

    @property
    def most_per_second(self) -> int | None:
        """So many polls may leave in any second, lest they heap up after a moment in which none could; None: any number.

        Where a moment is a tick; else its polls are too few to be counted so.
        """
        if self._moments.apart_s != TICK_S:
            return None
        return math.ceil(len(self._polls) / self._moments.round_s * EVEN)

    def in_turn(self, who: str) -> tuple[Member, ...]:
        """The accounts with which this one is polled in turn, itself among them; none: it has its own cooldown."""
        group = self._groups.get(self._key(who) or "")
        if group is None or len(group.queue) == 1:
            return ()
        return tuple(self._polls[one].member for one in group.queue)

    # ---- their polls -------------------------------------------------------------------------------------------------

    def begin(self, who: str, at: float) -> float:
        """Its first poll leaves at `at`, or at the next moment with room. Returns when."""
        poll = self._polls[who]
        self._place(poll, at)
        return poll.next

    def hold(self, until: float) -> None:
        """No poll leaves before: the tables are an older copy, which does not know when the last ones left."""
        self._held_until = until

    def wait(self, who: str, now: float) -> float:
        """Seconds until this account's poll may leave, or until it is worth asking again; 0 or less: now."""
        own = max(self._polls[who].next, self._held_until) - now
        group = self._groups.get(self._key(who) or "")
        if group is None:
            return own
        waiting = [other for other in group.queue if self._polls[other].left is None or other == who]
        place = waiting.index(who)
        if len(waiting) < len(group.queue):  # one is on the wire
            return max(own, self.cooldown_s * (1.0 if place else 3 * STEP))
        return max(own, group.ended + self.cooldown_s * (1.0 + STEP * place) - now)

    def leaves(self, who: str, now: float) -> None:
        """Its poll leaves; from here on no other of its group may."""
        self._polls[who].left = now

    def unsent(self, who: str) -> None:
        """It certainly did not leave: no cooldown is used up."""
        self._polls[who].left = None

    def is_on_the_wire(self, who: str) -> bool:
        return who in self._polls and self._polls[who].left is not None

    def ended(self, who: str, how: Ended, now: float) -> bool:
        """It was answered, or failed after sending. Returns whether this shows that the scope is wrong."""
        poll = self._polls[who]
        poll.left = None
        self._place(poll, now + self.cooldown_s)
        poll.limited = poll.limited + 1 if how == Ended.LIMITED else 0
        if poll.limited >= LIMITED_IN_A_ROW:
            self._limited.add(who)
        else:
            self._limited.discard(who)
        if (group := self._groups.get(self._key(who) or "")) is not None:
            group.ended = now
            group.queue.remove(who)
            group.queue.append(who)
        return how == Ended.LIMITED and self._finds_scope_wrong(now)

    def _finds_scope_wrong(self, now: float) -> bool:
        enough = min(LIMITED_ACCOUNTS, len(self._polls) - 1)
        if self._scope != CooldownScope.AUTO or self.is_scope_wrong or not 0 < enough <= len(self._limited):
            return False
        self.is_scope_wrong = True
        self._group_anew()
        for group in self._groups.values():
            group.ended = now
            group.queue.sort(key=lambda who: -self._polls[who].limited)
        return True

    def _place(self, poll: Poll, due: float) -> None:
        """When a poll that may leave at `due` does."""
        self._moments.give_back(poll.moment)
        poll.moment = self._moments.take(due)
        poll.next = due if poll.moment is None else poll.moment * TICK_S
