"""Decides when each account may poll, and which accounts share one cooldown.

The interface does not say whether a cooldown belongs to the credential, to the application (all accounts with one
app_secret_key) or to the calling address. The configuration does: `cooldown_scope`.

Rules of this file:

- An account's next poll is sent at least one cooldown after its last answer, or after its failure if it was sent.
- The first polls of many accounts are spread evenly over one round; the first is sent at once. Accounts without a token
  are spread over as many whole rounds as their logins take.
- With many accounts, later polls are sent together at fixed moments, at most half a second apart, so that their notes
  are written in groups. No poll is sent before its own cooldown is over.
- A moment has room for slightly more than its share of polls. If it is full, a poll takes the next free one. So the
  polls are spread evenly again two rounds after slow answers, 429s or an outage.
- Accounts that share a cooldown are polled in turn: one poll, one cooldown after the last answer to any of them.
- `auto` means by credential. If two accounts meet 429 twice in a row although each kept its own cooldown, this is wrong
  (with only two accounts, one is enough). An alarm then names the key, and up to 20 accounts are polled in turn until
  the next restart. With more accounts each would wait too long, so nothing changes.

Times are monotonic seconds and are passed as arguments.
"""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from orderbridge.model import CooldownScope

MARGIN_S = 0.05  # added to the cooldown, because clocks differ slightly
TICK_S = 0.125  # between moments with thousands of accounts
TOGETHER_S = 0.5  # between moments with hundreds of accounts; a whole number of ticks
AT_A_MOMENT = 32  # polls; with more, the last ones may delay those of the next moment
ROOM = 1.15  # the room of a moment, as a multiple of its share
EVEN = 1.17  # the rate limit of polls, as a multiple of the average; more than ROOM, so that a queue drains
TAKEN_OVER_S = 0.25  # possible difference of two machines' clocks
MIN_TOGETHER = 3  # accounts at one moment on average; with fewer, moments are not worth the wait
LIMITED_IN_A_ROW = 2  # 429s to one account
LIMITED_ACCOUNTS = 2
MAX_IN_TURN = 20  # accounts that `auto` polls in turn at most
STEP = 0.01  # in cooldowns: how much later the next account of a group may poll if the first does not
MAX_LETTERS = 255


class Ended(StrEnum):
    """How a sent poll ended."""

    OK = auto()
    LIMITED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """An account. `application` is equal for accounts with one app_secret_key."""

    fingerprint: str
    name: str
    application: str


def names_of(members: Sequence[Member]) -> str | None:
    """The accounts' names as far as they fit; None if there are none."""
    return ", ".join(member.name for member in members)[:MAX_LETTERS] or None


@dataclass(slots=True)
class Poll:
    """The state of one account's polls."""

    member: Member
    next: float = float("-inf")  # end of its own cooldown
    moment: int | None = None  # the moment in which it has a place
    sent_at: float | None = None  # when the poll in flight was sent
    limited: int = 0  # 429s since the last answer of another kind


@dataclass(slots=True)
class _Group:
    """Accounts that are polled in turn. `queue`: the longest waiting first. `ended`: the last answer to any of them."""

    queue: list[str]
    ended: float = float("-inf")


def phases(with_login: Sequence[bool], round_s: float, logins_per_second: float) -> list[float]:
    """Seconds from the start to the first poll of each account. `with_login`: whether it must log in first."""
    counts = Counter(with_login)
    rounds = {False: 1, True: max(math.ceil(counts[True] / logins_per_second / round_s), 1)}
    places = {False: itertools.count(), True: itertools.count()}
    return [round_s * rounds[one] * next(places[one]) / counts[one] for one in with_login]


def first_wait(noted_s: float | None, late_s: float, cooldown_s: float, longest_s: float) -> float:
    """Seconds until our first poll of an account that another process may have polled recently.

    `noted_s`: seconds until its next poll by that process's note. A recently polled account keeps this time; any other
    is polled in `late_s`. The result is at most `longest_s`: a later note is due to a clock change.
    """
    if noted_s is None or noted_s < -cooldown_s:
        return late_s
    return min(max(noted_s + TAKEN_OVER_S, 0.0), longest_s)


def together_s(count: int, cooldown_s: float) -> float:
    """Seconds between the moments for `count` accounts; 0: no moments."""
    if count * TOGETHER_S < MIN_TOGETHER * cooldown_s:
        return 0.0
    apart_s = min(AT_A_MOMENT * cooldown_s / count, TOGETHER_S)
    return max(int(apart_s / TICK_S), 1) * TICK_S


class Moments:
    """The moments at which polls are sent together, and their free places. A moment is a number of ticks."""

    def __init__(self) -> None:
        self.apart_s = 0.0  # 0: no moments
        self.round_s = 0.0  # from one poll of an account to the next
        self._room = 0
        self._taken: Counter[int] = Counter()  # places by moment

    def fit(self, accounts: int, cooldown_s: float, margin_s: float) -> None:
        """Adapt to the number of accounts."""
        self.apart_s = together_s(accounts, cooldown_s)
        self.round_s = cooldown_s + margin_s
        if self.apart_s:
            in_a_round = math.ceil(self.round_s / self.apart_s)
            self.round_s = in_a_round * self.apart_s
            self._room = max(math.ceil(accounts / in_a_round), int(accounts / in_a_round * ROOM))

    def take(self, due: float) -> int | None:
        """Take a place in the first free moment from `due` on; None if there are no moments."""
        if not self.apart_s:
            return None
        step = round(self.apart_s / TICK_S)
        moment = math.ceil(due / self.apart_s) * step
        while self._taken[moment] >= self._room:
            moment += step
        self._taken[moment] += 1
        return moment

    def give_back(self, moment: int | None) -> None:
        """Free a place."""
        if moment is not None and self._taken[moment] > 1:
            self._taken[moment] -= 1
        elif moment is not None:
            self._taken.pop(moment, None)


class Cooldowns:
    """The poll times of all accounts. Each poll calls `wait` until it is due, `sent`, and then `unsent` or `ended`."""

    def __init__(self) -> None:
        self.cooldown_s = 0.0  # from an answer to the next request
        self.is_scope_wrong = False  # 429s have shown that `cooldown_scope = "auto"` is wrong here
        self._scope = CooldownScope.AUTO
        self._moments = Moments()
        self._polls: dict[str, Poll] = {}
        self._groups: dict[str, _Group] = {}
        self._limited: set[str] = set()  # accounts with several 429s in a row
        self._held_until = float("-inf")

    # ---- the accounts ------------------------------------------------------------------------------------------------

    def configure(self, scope: CooldownScope, cooldown_s: float) -> None:
        """Set the scope and the length of the cooldown. While the scope stays `auto`, its finding is kept."""
        self.cooldown_s = cooldown_s + MARGIN_S
        if scope != self._scope:
            self._scope, self.is_scope_wrong = scope, False
            self._group_anew()

    def keep(self, fingerprints: Collection[str]) -> None:
        """Remove all other accounts."""
        self.remove([who for who in self._polls if who not in fingerprints])

    def add(self, members: Sequence[Member]) -> frozenset[str]:
        """Add accounts, which have no poll in flight. Returns the fingerprints of new ones."""
        new = frozenset(member.fingerprint for member in members if member.fingerprint not in self._polls)
        for member in members:
            poll = self._polls.setdefault(member.fingerprint, Poll(member))
            poll.member, poll.sent_at = member, None
        self._changed()
        return new

    def remove(self, fingerprints: Collection[str]) -> None:
        """Remove accounts."""
        for who in fingerprints:
            if (poll := self._polls.pop(who, None)) is not None:
                self._moments.give_back(poll.moment)
        self._changed()

    def _changed(self) -> None:
        self._moments.fit(len(self._polls), self.cooldown_s - MARGIN_S, MARGIN_S)
        self._limited &= self._polls.keys()
        self._group_anew()

    def _group_anew(self) -> None:
        """Form the groups again. Accounts keep their places in the queues."""
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
        """The key of the account's group; None: it has its own cooldown."""
        if self._scope == CooldownScope.APPLICATION:
            return f"application {self._polls[who].member.application}"
        in_turn = self.is_scope_wrong and len(self._polls) <= MAX_IN_TURN
        return "address" if in_turn or self._scope == CooldownScope.ADDRESS else None

    @property
    def round_s(self) -> float:
        """Seconds from one poll of an account to the next, with quick answers."""
        return self._moments.round_s

    @property
    def most_per_second(self) -> int | None:
        """The rate limit that spreads polls after an outage; None with too few accounts for one."""
        if self._moments.apart_s != TICK_S:
            return None
        return math.ceil(len(self._polls) / self._moments.round_s * EVEN)

    def in_turn(self, who: str) -> tuple[Member, ...]:
        """The accounts that share this one's cooldown, including itself; empty if it has its own."""
        group = self._groups.get(self._key(who) or "")
        if group is None or len(group.queue) == 1:
            return ()
        return tuple(self._polls[one].member for one in group.queue)

    # ---- their polls -------------------------------------------------------------------------------------------------

    def begin(self, who: str, at: float) -> float:
        """Set the first poll to `at` or the next free moment. Returns its time."""
        poll = self._polls[who]
        self._place(poll, at)
        return poll.next

    def hold(self, until: float) -> None:
        """Allow no poll before `until`, because an older copy does not know the last polls."""
        self._held_until = until

    def wait(self, who: str, now: float) -> float:
        """Seconds until the account may poll, or until it should ask again; 0 or less: now."""
        own = max(self._polls[who].next, self._held_until) - now
        group = self._groups.get(self._key(who) or "")
        if group is None:
            return own
        waiting = [other for other in group.queue if self._polls[other].sent_at is None or other == who]
        place = waiting.index(who)
        if len(waiting) < len(group.queue):  # one is in flight
            return max(own, self.cooldown_s * (1.0 if place else 3 * STEP))
        return max(own, group.ended + self.cooldown_s * (1.0 + STEP * place) - now)

    def sent(self, who: str, now: float) -> None:
        """Note that its poll is being sent. No other account of its group may poll now."""
        self._polls[who].sent_at = now

    def unsent(self, who: str) -> None:
        """Note that its poll was not sent after all. No cooldown is used up."""
        self._polls[who].sent_at = None

    def is_in_flight(self, who: str) -> bool:
        return who in self._polls and self._polls[who].sent_at is not None

    def ended(self, who: str, how: Ended, now: float) -> bool:
        """Note the end of a sent poll. Returns whether it shows that the scope is wrong."""
        poll = self._polls[who]
        poll.sent_at = None
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
        """Set the poll's next time to `due` or the next free moment."""
        self._moments.give_back(poll.moment)
        poll.moment = self._moments.take(due)
        poll.next = due if poll.moment is None else poll.moment * TICK_S
