"""When an account's get-current may leave.

Rules of this file:
- Own: an account's next poll leaves one cooldown after its last answer, or failure after sending. Always.
- Phases: the first polls of many accounts are spread over one cooldown; the first of them leaves at once.
- Together: many accounts' later polls leave at whole moments, half a second apart, so that what is noted of them can be
  noted in groups. None leaves before its own time.
- In turn: accounts that share one cooldown wait for each other, too (rules.turns).

Times are seconds of the monotonic clock. Nothing here asks for them, and nothing here waits.
"""

import math
from collections.abc import Sequence

from orderbridge.rules.turns import Change, Ended, Member, Poll, Turns

MARGIN_S = 0.05  # two clocks never run alike
TOGETHER_S = 0.5  # between the moments at which many accounts' polls leave
FEWEST_TOGETHER = 3  # accounts at one such moment, on average: with fewer it would only cost time


def phase(place: int, count: int, cooldown_s: float) -> float:
    """Seconds after a start at which the first poll of one of `count` accounts leaves. `place` counts from 0."""
    return cooldown_s * place / count


def together_s(count: int, cooldown_s: float) -> float:
    """Seconds between the moments at which the polls of `count` accounts leave; 0: each leaves at its own."""
    return TOGETHER_S if count * TOGETHER_S >= FEWEST_TOGETHER * cooldown_s else 0.0


class Cooldowns:
    """The times of all accounts' polls. One that asks and may go says `leaves`, then `unsent` or `ended`."""

    def __init__(self) -> None:
        self.cooldown_s = 0.0  # from an answer to the next request
        self._together_s = 0.0
        self._polls: dict[str, Poll] = {}
        self._turns = Turns()

    def take(self, members: Sequence[Member], cooldown_s: float) -> frozenset[str]:
        """These are the accounts from now on. What is known of them stays. Returns the fingerprints of new ones."""
        self.cooldown_s = cooldown_s + MARGIN_S
        self._together_s = together_s(len(members), cooldown_s)
        known, self._polls = self._polls, {}
        for member in members:
            poll = self._polls[member.fingerprint] = known.get(member.fingerprint) or Poll(member)
            poll.member, poll.left = member, None
        self._turns.take(self._polls, self.cooldown_s)
        return frozenset(self._polls.keys() - known.keys())

    def wait(self, who: str, now: float) -> float:
        """Seconds until this account's poll may leave, or until it is worth asking again; 0 or less: now."""
        return max(self._polls[who].next - now, self._turns.wait(who, now))

    def is_on_trial(self, who: str) -> bool:
        """Whether the poll that left last left inside the cooldown of its group: a 429 to it is no failure."""
        return self._turns.is_on_trial(who)

    def in_turn(self, who: str) -> tuple[Member, ...]:
        """The accounts with which this one is polled in turn, itself among them; none: it has its own cooldown."""
        return self._turns.of(who)

    def leaves(self, who: str, now: float) -> None:
        """Its poll leaves; from here on nobody else of its group may."""
        self._polls[who].left = now
        self._turns.leaves(who, now)

    def unsent(self, who: str) -> None:
        """It certainly did not leave: no cooldown is used up."""
        self._polls[who].left = None

    def is_on_the_wire(self, who: str) -> bool:
        return self._polls[who].left is not None

    def ended(self, who: str, how: Ended, now: float) -> list[Change]:
        """It was answered, or failed after sending."""
        poll = self._polls[who]
        left = now if poll.left is None else poll.left
        poll.left, poll.next = None, self._moment(now + self.cooldown_s)
        return self._turns.ended(who, how, left, now)

    def _moment(self, due: float) -> float:
        """When a poll that may leave at `due` does."""
        return math.ceil(due / self._together_s) * self._together_s if self._together_s else due
