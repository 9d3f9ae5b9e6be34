"""Decides which accounts share one cooldown, and which of them polls next.

The interface leaves open whether a cooldown belongs to the credential, to the application (all accounts with one
app_secret_key) or to the address that calls. The configuration says it: `cooldown_scope`.

Rules of this file:
- Accounts of one scope are polled in turn: one leaves a cooldown after the last answer to any of them.
- `auto` is by credential. Two accounts that meet 429 twice in a row, although each kept its own cooldown, show that this
  is wrong (of two accounts one is enough: the other always comes first). An alarm names the key, and up to 20 accounts
  are all polled in turn for the rest of the run. More would each wait for too long: they stay as they are.
- A restart forgets it.

Times are seconds of the monotonic clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from orderbridge.model import CooldownScope

LIMITED_IN_A_ROW = 2  # 429s to one account
LIMITED_ACCOUNTS = 2
MAX_IN_TURN = 20  # accounts that are polled in turn although nobody configured it
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
    moment: int | None = None  # that has a place for it (rules.cooldown)
    left: float | None = None  # one is on the wire since
    limited: int = 0  # 429s since the last answer of another kind


@dataclass(slots=True)
class _Group:
    """Accounts that are polled in turn. `queue`: the first has waited longest. `ended`: the last answer to any of them."""

    queue: list[str]
    ended: float = float("-inf")


class SharedCooldown:
    """The groups of accounts that are polled in turn."""

    def __init__(self) -> None:
        self.is_scope_wrong = False  # `auto` was, and an alarm says so
        self._scope = CooldownScope.AUTO
        self._cooldown_s = 0.0
        self._polls: Mapping[str, Poll] = {}
        self._groups: dict[str, _Group] = {}
        self._limited: set[str] = set()  # who has met 429 in a row

    def configure(self, scope: CooldownScope) -> None:
        """This is the scope from now on. What `auto` has found stays while it is `auto`."""
        if scope != self._scope:
            self._scope, self.is_scope_wrong = scope, False
            self.know(self._polls, self._cooldown_s)

    def know(self, polls: Mapping[str, Poll], cooldown_s: float) -> None:
        """These are the accounts from now on, by fingerprint. Each keeps its place in the queue."""
        self._polls, self._cooldown_s = polls, cooldown_s
        self._limited &= polls.keys()
        before, self._groups = self._groups, {}
        for key, group in before.items():
            if stays := [who for who in group.queue if who in polls and self._key(polls[who].member) == key]:
                self._groups[key] = _Group(stays, group.ended)
        queued = {who for group in self._groups.values() for who in group.queue}
        for who, poll in polls.items():
            own = self._key(poll.member)
            if who not in queued and own is not None:
                self._groups.setdefault(own, _Group([])).queue.append(who)

    def _key(self, member: Member) -> str | None:
        """The group of an account; None: its cooldown is its own."""
        if self._scope == CooldownScope.APPLICATION:
            return f"application {member.application}"
        in_turn = self.is_scope_wrong and len(self._polls) <= MAX_IN_TURN
        return "address" if in_turn or self._scope == CooldownScope.ADDRESS else None

    def _group(self, who: str) -> _Group | None:
        key = self._key(self._polls[who].member)
        return None if key is None else self._groups[key]

    def wait(self, who: str, now: float) -> float:
        """Seconds until its turn comes, or until it is worth asking again; 0 or less: now."""
        group = self._group(who)
        if group is None:
            return 0.0
        waiting = [other for other in group.queue if self._polls[other].left is None or other == who]
        place = waiting.index(who)
        if len(waiting) < len(group.queue):  # one is on the wire
            return self._cooldown_s * (1.0 if place else 3 * STEP)
        return group.ended + self._cooldown_s * (1.0 + STEP * place) - now

    def of(self, who: str) -> tuple[Member, ...]:
        """The accounts with which this one is polled in turn, itself among them; none: its cooldown is its own."""
        group = self._group(who)
        if group is None or len(group.queue) == 1:
            return ()
        return tuple(self._polls[one].member for one in group.queue)

    def ended(self, who: str, how: Ended, now: float) -> bool:
        """A poll was answered, or failed. Returns whether this shows that `auto` is wrong."""
        poll = self._polls[who]
        poll.limited = poll.limited + 1 if how == Ended.LIMITED else 0
        if poll.limited >= LIMITED_IN_A_ROW:
            self._limited.add(who)
        else:
            self._limited.discard(who)
        if (group := self._group(who)) is not None:
            group.ended = now
            group.queue.remove(who)
            group.queue.append(who)
        return how == Ended.LIMITED and self._finds_scope_wrong(now)

    def _finds_scope_wrong(self, now: float) -> bool:
        enough = min(LIMITED_ACCOUNTS, len(self._polls) - 1)
        if self._scope != CooldownScope.AUTO or self.is_scope_wrong or not 0 < enough <= len(self._limited):
            return False
        self.is_scope_wrong = True
        self.know(self._polls, self._cooldown_s)
        for group in self._groups.values():
            group.ended = now
            group.queue.sort(key=lambda who: -self._polls[who].limited)
        return True
