"""What the end of a poll says: of its account where it failed, of the seconds of listening, of what is asked for next.

What it means for the cooldown, rules.cooldown decides.

The next get-current asks for the whole list, or for one status after the other while the whole does not come in. A list
that is too large, or too slow once it has begun, would be asked for in vain for ever: what it holds is never
acknowledged, so it never shrinks. Asked for by status, its orders come in part by part and stay away from then on. What
such a part lacks proves nothing. A list that is full of documents that cannot be acknowledged hides what stands behind
them: after each such list one status is asked for alone.
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
from orderbridge.rules.health import FINER, LOGIN_FAILED, STRANGERS, TOKEN_OVER
from orderbridge.rules.lifecycle import Statuses

TOO_LARGE = "body_too_large"
TOO_SLOW = "timeout"
LOGIN_REFUSED = "login_refused"


@dataclass(frozen=True, slots=True)
class ListRequest:
    """`left`: statuses still to be asked for one by one; none: the whole list. `rounds`: begun since it came in.

    `behind`: statuses asked for since the whole list is full.
    """

    left: tuple[int, ...] = ()
    rounds: int = 0
    behind: int = 0

    @property
    def status_id(self) -> int | None:
        """What to ask for next; None: the whole list."""
        return self.left[0] if self.left else None

    def answered(self) -> "ListRequest":
        """After a list that was taken in: the next status, after the last one the whole. A whole list ends it."""
        return ListRequest(self.left[1:], self.rounds, self.behind) if self.left else ListRequest()

    def full(self, statuses: Statuses) -> "ListRequest":
        """After a whole list that is full of what cannot be acknowledged: one status, then the whole list again."""
        return ListRequest((statuses.active[self.behind % len(statuses.active)],), 0, self.behind + 1)

    def failed(self, error: MarketplaceError, statuses: Statuses) -> "ListRequest":
        """After a request that ended in an error. A status that does not come in does not keep the others waiting."""
        if self.left:
            passes = isinstance(error, UnknownOutcome | ServiceFailed)
            return ListRequest(self.left[1:], self.rounds, self.behind) if passes else self
        if not came_in_part(error):
            return self
        # Cancelled orders are not active; they may be what fills the list all the same.
        wanted = statuses.active if self.rounds == 0 else (*statuses.active, CANCELED)
        return ListRequest(wanted, self.rounds + 1)


def came_in_part(error: MarketplaceError) -> bool:
    """Whether an answer was there, and more than could be read."""
    return error.code == TOO_LARGE or (error.code == TOO_SLOW and error.began)


@dataclass(frozen=True, slots=True)
class Failure:
    """Of a failed poll. `ended`: how its slot was used up; None: it was not, the request certainly never left.

    `is_news`: False where it says nothing new of the account. `text` is for the account's row; `logged` for the log: an
    answer's own words may hold a customer's name.
    """

    state: AccountState
    text: str | Message
    logged: str | Message
    ended: Ended | None
    is_news: bool = True


def failure_of(error: MarketplaceError, *, is_token_over: bool = False) -> Failure:
    """`is_token_over`: it is the first 401 since the last good poll; before the next one comes a login."""
    code = error.reason if error.reason.startswith(FINER) else error.code
    if is_token_over:
        code = TOKEN_OVER
    text = Message("net.of_code", code=code, detail=error.detail) if error.detail else code
    is_login = error.code == LOGIN_FAILED  # whose detail is our own words
    logged = text if error.http_status is None or is_login else f"{error.code}: HTTP {error.http_status}"
    if isinstance(error, NotSent):
        is_answered = error.http_status is not None and not error.reason.startswith(STRANGERS)
        state = AccountState.FAILING if is_answered else AccountState.UNREACHABLE
        state = AccountState.LOGIN_REFUSED if isinstance(error, LoginRefused) else state
        # The database's trouble, our own end, or a login that is not due yet: the account is as it was.
        return Failure(state, text, logged, None, is_news=error.reason not in KEPT_HERE | {LOGIN_FAILED})
    if error.code == LOGIN_REFUSED:  # a 401, and the login after it, or its token, is refused
        return Failure(AccountState.LOGIN_REFUSED, text, logged, Ended.FAILED)
    if isinstance(error, RateLimited):
        return Failure(AccountState.FAILING, text, logged, Ended.LIMITED)
    return Failure(AccountState.FAILING, text, logged, Ended.FAILED)


def longest_listening(in_turn: int, *, cooldown_s: float, timeout_s: float) -> int:
    """Seconds that lie between two good polls at most. `in_turn`: accounts that are polled in turn with this one.

    A cooldown and two timeouts for each of them; what is longer was no listening.
    """
    return int(max(in_turn, 1) * (cooldown_s + 2 * timeout_s))


def listened(until: float | None, answered: float, longest: int) -> tuple[float, int]:
    """Until when it is listened, and how many whole seconds more. `until`: the same after the good poll before this one."""
    seconds = 0 if until is None else int(answered - until)
    if until is None or seconds > longest:
        return answered, min(seconds, longest)
    return until + seconds, seconds  # what is less than a second counts the next time
