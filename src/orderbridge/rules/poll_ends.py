"""Decides what follows from the end of a poll: the account's state, the seconds of listening, and the next request.

rules.cooldown decides what it means for the cooldown.

The next poll requests the whole list or, if that fails, one status after another. A list that is too large or too slow
would always fail: its orders are not acknowledged, so it does not shrink. By status, its orders arrive in parts, and
are acknowledged. If such a part lacks an order, that proves nothing. If a list is full of documents that cannot be
acknowledged, others may be hidden; so after each such list, one status is requested alone.
"""

from dataclasses import dataclass

from orderbridge.errors import (
    KEPT_HERE,
    LoginRefused,
    MarketplaceError,
    Message,
    NotSent,
    RateLimited,
    ServiceFailed,
    UnknownOutcome,
)
from orderbridge.model import CANCELED, AccountState
from orderbridge.rules.cooldown import Ended
from orderbridge.rules.health import FINER, FOREIGN_ANSWERS, LOGIN_FAILED, TOKEN_OVER
from orderbridge.rules.lifecycle import Statuses

TOO_LARGE = "body_too_large"
TOO_SLOW = "timeout"
LOGIN_REFUSED = "login_refused"


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What the next polls request. `left`: the statuses to request one by one; empty: the whole list.

    `rounds`: rounds of statuses since the last whole list. `behind`: statuses requested since the list is full.
    """

    left: tuple[int, ...] = ()
    rounds: int = 0
    behind: int = 0

    @property
    def status_id(self) -> int | None:
        """The status to request next; None: the whole list."""
        return self.left[0] if self.left else None

    def answered(self) -> "ListRequest":
        """After a stored list: the next status, or the whole list."""
        return ListRequest(self.left[1:], self.rounds, self.behind) if self.left else ListRequest()

    def full(self, statuses: Statuses) -> "ListRequest":
        """After a list that is full of unacknowledgeable documents: one status, then the whole list again."""
        return ListRequest((statuses.active[self.behind % len(statuses.active)],), 0, self.behind + 1)

    def failed(self, error: MarketplaceError, statuses: Statuses) -> "ListRequest":
        """After a failed request. A status that fails does not delay the others."""
        if self.left:
            passes = isinstance(error, UnknownOutcome | ServiceFailed)
            return ListRequest(self.left[1:], self.rounds, self.behind) if passes else self
        if not arrived_in_part(error):
            return self
        # From the second round on also cancelled orders, which may fill the list, too.
        wanted = statuses.active if self.rounds == 0 else (*statuses.active, CANCELED)
        return ListRequest(wanted, self.rounds + 1)


def arrived_in_part(error: MarketplaceError) -> bool:
    """Whether an answer had begun but was too large or too slow."""
    return error.code == TOO_LARGE or (error.code == TOO_SLOW and error.began)


@dataclass(frozen=True, slots=True)
class Failure:
    """The result of a failed poll. `ended`: how its slot was used up; None: it was not, because no request was sent.

    `is_news`: False if it says nothing new about the account. `text` is for the account's row; `logged` is for the log,
    without the answer's text, which may hold a customer's name.
    """

    state: AccountState
    text: str | Message
    logged: str | Message
    ended: Ended | None
    is_news: bool = True


def failure_of(error: MarketplaceError, *, is_token_over: bool = False) -> Failure:
    """Decide about a failed poll. `is_token_over`: this is the first 401 since the last good poll."""
    code = error.reason if error.reason.startswith(FINER) else error.code
    if is_token_over:
        code = TOKEN_OVER
    text = Message("net.of_code", code=code, detail=error.detail) if error.detail else code
    is_login = error.code == LOGIN_FAILED  # its detail is our own text
    logged = text if error.http_status is None or is_login else f"{error.code}: HTTP {error.http_status}"
    if isinstance(error, NotSent):
        is_answered = error.http_status is not None and not error.reason.startswith(FOREIGN_ANSWERS)
        state = AccountState.FAILING if is_answered else AccountState.UNREACHABLE
        state = AccountState.LOGIN_REFUSED if isinstance(error, LoginRefused) else state
        # No news if we held the request back ourselves, or if no login is due yet.
        return Failure(state, text, logged, None, is_news=error.reason not in KEPT_HERE | {LOGIN_FAILED})
    if error.code == LOGIN_REFUSED:  # a 401 right after a login
        return Failure(AccountState.LOGIN_REFUSED, text, logged, Ended.FAILED)
    if isinstance(error, RateLimited):
        return Failure(AccountState.FAILING, text, logged, Ended.LIMITED)
    return Failure(AccountState.FAILING, text, logged, Ended.FAILED)


def longest_listening(in_turn: int, *, cooldown_s: float, timeout_s: float) -> int:
    """The longest time between two good polls that counts as listening. `in_turn`: the size of the account's group.

    One cooldown and two timeouts for each account of the group.
    """
    return int(max(in_turn, 1) * (cooldown_s + 2 * timeout_s))


def listened(until: float | None, answered: float, longest: int) -> tuple[float, int]:
    """The time up to which seconds are counted, and the whole seconds since `until`, its last value."""
    seconds = 0 if until is None else int(answered - until)
    if until is None or seconds > longest:
        return answered, min(seconds, longest)
    return until + seconds, seconds  # the fraction counts next time
