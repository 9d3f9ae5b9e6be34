"""Whose cooldown it is, when it is not each account's own: accounts that share one are polled in turn.

The interface leaves open whether a cooldown belongs to the credential, to the application (all accounts with one
app_secret_key) or to the address that calls.

Rules of this file:
- A 429 although an account kept its own cooldown means that somebody else used it up: another account of ours, or a
  stranger with the same credential. Another account of ours can only be the cause if it polled inside the cooldown, and
  if nothing has shown lately that the accounts of that scope are independent: two OKs inside one cooldown.
- Two such 429s in a row, and the accounts of the scope that polled lately become a group: polled in turn, with one
  cooldown for all of them. Any other that meets a 429 beside them joins.
- A group may be wrong (a stranger uses one credential, or the service refused everybody for a while). So, after its
  first OK, then after 2, 4, 8 … more, the next account in turn is polled at once, on trial. OK: the group dissolves. 429:
  it was right; a trial that follows an answer so closely costs the group nothing but that request.
- One that meets 429 twice in its own turns may not belong to them: then the next one is polled at once, on trial. OK: what
  stopped the one did not stop the other, so it leaves, for an hour of cooldowns. A group that meets nothing but 429 may
  be a part of a wider one.
- Nothing is kept over a restart: what is shared shows again within two cooldowns, at the cost of some 429s.

Times are seconds of the monotonic clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto

STRIKES = 2  # 429s in a row that make a group
KNOWN_FREE = 4.0  # cooldowns for which two OKs inside one show that a scope shares none
LATELY = 3.0  # cooldowns: who polled in them belongs to the group that is made
ALONE = 120.0  # cooldowns for which one that has left a group is in none
MOST_BETWEEN_TRIALS = 128  # OKs
MOST_LETTERS = 255
SOON = 0.2  # of a cooldown: a poll on trial that left later would cost the group its cooldown, where a 429 restarts it
STEP = 0.01  # of a cooldown: so much later goes the next in turn when the one before does not come
WELL_INSIDE = 0.9  # of a cooldown: two OKs that are certainly closer than the service's own cooldown
ADDRESS = "address"  # the scope of all accounts


class Ended(StrEnum):
    """What a poll ended in, after it was sent."""

    OK = auto()
    LIMITED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """An account to be polled. `application`: the same for accounts with one app_secret_key."""

    fingerprint: str
    name: str
    application: str

    @property
    def scopes(self) -> tuple[str, str]:
        """Whose the cooldown may be, besides its own: the narrower first."""
        return f"application {self.application}", ADDRESS


@dataclass(frozen=True, slots=True)
class Change:
    """What an answer has shown: these accounts are polled in turn from now on, or no longer."""

    grouped: bool
    members: tuple[Member, ...]
    by_address: bool = False
    is_new: bool = False  # a group that was not there before; else one has joined or left it


def names_of(members: Sequence[Member]) -> str | None:
    """For people: these accounts, as many as fit; None: there are none."""
    return ", ".join(member.name for member in members)[:MOST_LETTERS] or None


@dataclass(slots=True)
class Poll:
    """What is known of one account's polls."""

    member: Member
    next: float = float("-inf")  # its own cooldown is over
    moment: int | None = None  # that has a place for it (rules.cooldown)
    left: float | None = None  # one is on the wire since
    ended: float = float("-inf")  # the last answer that says something: OK or 429
    ok: float = float("-inf")
    strikes: int = 0
    alone_until: float = float("-inf")


@dataclass(slots=True)
class _Group:
    """Accounts that are polled in turn. `queue`: who has waited longest is the first."""

    queue: list[str]
    ended: float
    missed: int = 0  # 429s in a row, whoever met them
    until_trial: int = 1  # OKs
    between_trials: int = 1
    trial: bool = False  # the next one may leave inside the cooldown
    trying: str = ""  # whose poll on trial is on the wire, or was the last
    doubted: str = ""  # who leaves when the trial goes well
    trial_since: float = 0.0


@dataclass(slots=True)
class _Scope:
    """What is known of all accounts of one scope."""

    free: float = float("-inf")  # when two OKs inside one cooldown were seen last
    oks: list[tuple[str, float, float]] = field(default_factory=list)  # the latest two: whose, left, ended


class Turns:
    """Which accounts are polled in turn, and whose turn it is."""

    def __init__(self) -> None:
        self._cooldown_s = 0.0
        self._polls: Mapping[str, Poll] = {}
        self._scopes: dict[str, _Scope] = {}
        self._groups: dict[str, _Group] = {}  # by scope

    def know(self, polls: Mapping[str, Poll], cooldown_s: float) -> None:
        """These are the accounts from now on, by fingerprint; who has left is in no group any more."""
        self._polls, self._cooldown_s = polls, cooldown_s
        for scope, group in list(self._groups.items()):
            group.queue = [who for who in group.queue if who in polls]
            if len(group.queue) < 2:  # noqa: PLR2004 - one alone is no group
                del self._groups[scope]

    # ---- asking ------------------------------------------------------------------------------------------------------

    def wait(self, who: str, now: float) -> float:
        """Seconds until its turn comes, or until it is worth asking again; 0 or less: now, or it is in no group."""
        scope = self._scope_of_group(who)
        return 0.0 if scope is None else self._turn(self._groups[scope], who, now)

    def _turn(self, group: _Group, who: str, now: float) -> float:
        waiting = [other for other in group.queue if self._polls[other].left is None or other == who]
        place = waiting.index(who)
        if len(waiting) < len(group.queue):  # one is on the wire
            return self._cooldown_s * (1.0 if place else 3 * STEP)
        if group.trial and place == 0 and now < group.ended + SOON * self._cooldown_s:
            return 0.0
        return group.ended + self._cooldown_s * (1.0 + STEP * place) - now

    def is_on_trial(self, who: str) -> bool:
        """Whether the poll that left last left inside the cooldown of its group: a 429 to it is no failure."""
        scope = self._scope_of_group(who)
        return scope is not None and self._groups[scope].trying == who

    def of(self, who: str) -> tuple[Member, ...]:
        """The accounts with which this one is polled in turn, itself among them; none: it has its own cooldown."""
        scope = self._scope_of_group(who)
        return () if scope is None else self._members(self._groups[scope].queue)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def leaves(self, who: str, now: float) -> None:
        """Its poll leaves."""
        scope = self._scope_of_group(who)
        if scope is not None:
            group = self._groups[scope]
            group.trying = who if group.trial and now < group.ended + SOON * self._cooldown_s else ""
            group.trial, group.trial_since = False, group.ended

    def ended(self, who: str, how: Ended, left: float, now: float) -> list[Change]:
        """A poll that left at `left` was answered, or failed."""
        poll, scope = self._polls[who], self._scope_of_group(who)
        if scope is not None:
            self._take_turn(self._groups[scope], who, how, now)
        if how == Ended.OK:
            poll.ended = poll.ok = now
            poll.strikes = 0
            return [*self._note_ok(who, left, now), *self._end_doubt(who, now)]
        if how == Ended.LIMITED:
            poll.ended = now
            return self._strike(poll, scope, left, now)
        return []

    def _take_turn(self, group: _Group, who: str, how: Ended, now: float) -> None:
        group.ended = now
        if group.trying == who and how == Ended.LIMITED:
            group.doubted = ""
            return  # the trial has failed; its turn comes when the cooldown is over
        group.queue.remove(who)
        group.queue.append(who)
        if how != Ended.OK:
            return
        group.missed = 0
        group.until_trial -= 1
        if group.until_trial <= 0:
            group.trial, group.doubted = True, ""
            group.between_trials = min(group.between_trials * 2, MOST_BETWEEN_TRIALS)
            group.until_trial = group.between_trials

    # ---- what an OK shows --------------------------------------------------------------------------------------------

    def _note_ok(self, who: str, left: float, now: float) -> list[Change]:
        """Two OKs inside one cooldown: their accounts share none, and nobody in a scope of both does."""
        changes: list[Change] = []
        for name in self._polls[who].member.scopes:
            scope = self._scopes.setdefault(name, _Scope())
            others = [ok for ok in scope.oks if ok[0] != who]
            if others and now - others[0][1] < WELL_INSIDE * self._cooldown_s:
                scope.free = now
                changes += self._dissolve(name, now)
            scope.oks = [(who, left, now), *others[:1]]
        return changes

    def _end_doubt(self, who: str, now: float) -> list[Change]:
        """An OK straight after another's 429: what stopped that one is not the cooldown of this one."""
        scope = self._scope_of_group(who)
        if scope is None:
            return []
        group = self._groups[scope]
        doubted, group.doubted = group.doubted, ""
        if group.trying != who or not doubted or now > group.trial_since + WELL_INSIDE * self._cooldown_s / 2:
            return []
        return self._leave(scope, self._polls[doubted], now)

    def _dissolve(self, scope: str, now: float) -> list[Change]:
        group = self._groups.pop(scope, None)
        if group is None:
            return []
        for place, who in enumerate(group.queue):  # not all of them at once
            poll = self._polls[who]
            poll.next = max(poll.next, now + self._cooldown_s * place / len(group.queue))
            poll.strikes = 0
        return [Change(grouped=False, members=self._members(group.queue), by_address=scope == ADDRESS)]

    # ---- what a 429 shows --------------------------------------------------------------------------------------------

    def _strike(self, poll: Poll, in_scope: str | None, left: float, now: float) -> list[Change]:
        who = poll.member.fingerprint
        if in_scope is not None:
            return self._strike_in_turn(self._groups[in_scope], in_scope, poll, left, now)
        scope = self._suspect(poll, left, poll.member.scopes)
        if scope is None or now < poll.alone_until:
            poll.strikes = 0
            return []
        poll.strikes += 1
        if scope in self._groups:
            return self._join(scope, [who])
        return self._form(scope, now) if poll.strikes >= STRIKES else []

    def _suspect(self, poll: Poll, left: float, scopes: Iterable[str]) -> str | None:
        """The narrowest scope that can be the cause of a 429 to a poll that left at `left`."""
        since = left - self._cooldown_s
        for name in scopes:
            known = self._scopes.get(name)
            if known is not None and known.free > left - KNOWN_FREE * self._cooldown_s:
                continue
            others = (other for other in self._of(name) if other is not poll)
            if any(other.ended > since or other.left is not None for other in others):
                return name
        return None

    def _strike_in_turn(self, group: _Group, scope: str, poll: Poll, left: float, now: float) -> list[Change]:
        who = poll.member.fingerprint
        if group.trying == who:
            group.trying = ""
            return []
        poll.strikes += 1
        group.missed += 1
        beside = [
            other.member.fingerprint
            for other in self._of(scope)
            if other.ok > left - self._cooldown_s and other.member.fingerprint not in group.queue
        ]
        if beside:
            return self._join(scope, beside)
        if poll.strikes >= STRIKES:
            group.trial, group.doubted = True, who
            poll.strikes = 0
        wider = [name for name in poll.member.scopes if name == ADDRESS and name != scope]
        if group.missed >= STRIKES and (found := self._suspect(poll, left, wider)) is not None:
            inside = set(group.queue)
            if any(o.ended > left - self._cooldown_s for o in self._of(found) if o.member.fingerprint not in inside):
                return self._form(found, now)
        return []

    def _form(self, scope: str, now: float) -> list[Change]:
        """Who polled lately is polled in turn from now on; who never came through first."""
        lately = [p for p in self._of(scope) if p.ended > now - LATELY * self._cooldown_s and p.alone_until <= now]
        if len(lately) < 2:  # noqa: PLR2004 - one alone is no group
            return []
        lately.sort(key=lambda poll: poll.ok)
        if scope == ADDRESS:
            for narrower in [name for name in self._groups if name != ADDRESS]:
                del self._groups[narrower]
        for poll in lately:
            poll.strikes = 0
        self._groups[scope] = _Group([poll.member.fingerprint for poll in lately], max(p.ended for p in lately))
        return [self._grouped(scope, is_new=True)]

    def _join(self, scope: str, who: Sequence[str]) -> list[Change]:
        group = self._groups[scope]
        group.queue += who
        group.ended = max(group.ended, *(self._polls[one].ended for one in who))
        for one in who:
            self._polls[one].strikes = 0
        return [self._grouped(scope)]

    def _leave(self, scope: str, poll: Poll, now: float) -> list[Change]:
        """It meets 429 while the others do well: a stranger uses its credential."""
        poll.alone_until = now + ALONE * self._cooldown_s
        poll.strikes = 0
        group = self._groups[scope]
        if len(group.queue) <= 2:  # noqa: PLR2004 - the other one alone is no group
            return self._dissolve(scope, now)
        group.queue.remove(poll.member.fingerprint)
        return [Change(grouped=False, members=(poll.member,), by_address=scope == ADDRESS), self._grouped(scope)]

    # ---- details -----------------------------------------------------------------------------------------------------

    def _grouped(self, scope: str, *, is_new: bool = False) -> Change:
        members = self._members(self._groups[scope].queue)
        return Change(grouped=True, members=members, by_address=scope == ADDRESS, is_new=is_new)

    def _scope_of_group(self, who: str) -> str | None:
        for name in reversed(self._polls[who].member.scopes):  # the wider one holds also what the narrower held
            if name in self._groups and who in self._groups[name].queue:
                return name
        return None

    def _of(self, scope: str) -> Iterator[Poll]:
        """One after another: of ten thousand accounts the first few have mostly said enough."""
        return (poll for poll in self._polls.values() if scope in poll.member.scopes)

    def _members(self, queue: Iterable[str]) -> tuple[Member, ...]:
        return tuple(self._polls[who].member for who in queue)
