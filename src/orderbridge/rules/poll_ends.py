"""What the end of a poll says: of its account where it failed, of the time that was listened where it was a good one. Pure.

What it means for the cooldown, rules.cooldown and rules.shared_cooldown decide; what is asked for next, rules.list_request.
"""

from dataclasses import dataclass

from orderbridge.errors import KEPT_HERE, LoginRefused, MarketplaceError, NotSent, RateLimited
from orderbridge.message import Message
from orderbridge.model import AccountState
from orderbridge.rules.health import FINER, LOGIN_FAILED, STRANGERS, TOKEN_OVER
from orderbridge.rules.shared_cooldown import Ended

LOGIN_REFUSED = "login_refused"


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
