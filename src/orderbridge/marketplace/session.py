"""The token of one account: when to obtain, renew and replace it, and how long requests must wait.

Token. All calls of an account share one token. The first call without a token starts a login in its own task; other
calls wait for the same login. It continues even if one of them is cancelled. The token is renewed before it expires,
and the old one is used until then.

Refusal. A 401 has three causes, which have the same error text (docs/interface.md, Authentication 4):

- The token has ended, for example by the login of another program. Log in and repeat the call (a poll: at its next
  slot).
- The call is refused, because this restaurant, food or order is not ours. It was also refused with the previous token,
  while the current token has served other calls or is new. Only this call waits; a login does not help.
- The account is refused: logins succeed, but no token works. Only a poll shows that, if its token replaced a refused
  one, has served no call, and is so new that no other login can have ended it. The account waits for one cooldown and
  logs in again.

The 401 of another call does not stop the polls. They use the token until there is a new one, or until a poll itself is
answered 401. Then the next call logs in; a poll does so at its slot, right before the request.

Backoff. The requests of an account wait

- after a request that certainly was not sent: 1 to 5 s, until one is answered;
- without a token, while no login is allowed: for growing minutes after refused credentials; for one cooldown after a
  refused token or a 429; for 1, 2, 4 s and then minutes after a 5xx. rules.tokens decides these times (`Waits`).

Failures at the same moment count as one. A refusal ends when a call succeeds, because a successful login does not prove
that its token works.
"""

import asyncio
import contextlib
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from orderbridge.clock import Clock
from orderbridge.errors import (
    HELD_BACK,
    KEPT_HERE,
    LoginRefused,
    MarketplaceError,
    Message,
    NotSent,
    RateLimited,
    Refused,
    Unauthorized,
)
from orderbridge.model import Outcome, Token

HELD_BACK_S = 2.0
MAX_REFUSED_CALLS = 1000  # that are remembered
MAX_EARLY_ENDS = 20  # that are remembered
EARLY_ENDS_S = 3600.0  # the time in which they are counted
EARLY = timedelta(hours=1)  # a token that was refused more than this before its expiry ended early
JUST_S = 5.0  # a token refused within this time after its login was not ended by another login

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to wait. The functions take the number of failures in a row, from 1 on."""

    refused: Callable[[int], float]  # a login with these credentials
    failed: Callable[[int, bool], float]  # a login otherwise; True: the service answered
    unsent: Callable[[int], float]  # a request that was not sent
    limited_s: float  # a login was answered 429


@dataclass(slots=True)
class Backoff:
    """The growing wait after requests that were not sent. The first answer ends it."""

    clock: Clock
    wait_s: Callable[[int], float]
    is_ours: bool = False  # we held the request back ourselves
    _failures: int = 0
    _until: float = 0.0

    def failed(self) -> None:
        """Note a request that was not sent."""
        if self.wait() <= 0:  # else it belongs to the same failure
            self._failures += 1
            self.is_ours = False
            self._until = self.clock.monotonic() + self.wait_s(self._failures)

    def held_back(self) -> None:
        """Note a request that we held back: not a failure, but the next one waits, too."""
        self.is_ours = self.is_ours or self.wait() <= 0
        self._until = max(self._until, self.clock.monotonic() + HELD_BACK_S)

    def worked(self) -> bool:
        """Note a request that was sent. Returns whether this ends a failure."""
        recovered, self._failures, self._until, self.is_ours = self._failures > 0, 0, 0.0, False
        return recovered

    def wait(self) -> float:
        """Seconds until the next try; 0 or less: now."""
        return self._until - self.clock.monotonic()


@dataclass(slots=True)
class _Held:
    """The current token and its use so far. `since`: when we got it (monotonic)."""

    token: Token
    since: float
    doubted: bool = False  # it replaced a refused token
    worked: int = 0  # calls that it served
    refused: bool = False  # a call other than a poll was refused: such calls log in first, polls still use it

    @property
    def is_doubted(self) -> bool:
        """Whether it replaced a refused token, and no call has succeeded with it yet."""
        return self.doubted and not self.worked


class Session:
    """Holds the current token, and decides when requests and logins may be sent. `obtain` logs in."""

    def __init__(
        self,
        obtain: Callable[[], Awaitable[Token]],
        *,
        clock: Clock,
        waits: Waits,
        name: str = "",
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """`on_outcome` is called with the outcome of each request."""
        self._on_outcome = on_outcome
        self._obtain = obtain
        self._clock = clock
        self._waits = waits
        self._log = _log.bind(account=name)
        self._held: _Held | None = None
        self._has_worked = False  # the marketplace has answered at this address
        self._login: asyncio.Task[Token] | None = None
        self._in_place = False  # the next token replaces a refused one
        # Calls whose last answer was 401, with their token if it had worked and was refused early.
        self._refused_calls: OrderedDict[str, Token | None] = OrderedDict()
        self._early_ends: deque[tuple[float, Token]] = deque(maxlen=MAX_EARLY_ENDS)  # times and tokens
        self._line = Backoff(clock, waits.unsent)
        self._refusals = 0
        self._failures = 0
        self._login_at = 0.0  # monotonic: no login before
        self._login_answered = False  # the wait follows an answered login
        self._credentials_refused = False  # the wait follows refused credentials

    # ---- the token ---------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Token | None:
        return None if self._held is None else self._held.token

    def use(self, token: Token) -> None:
        """Use a stored token."""
        self._held, self._has_worked = _Held(token, self._clock.monotonic()), True

    def forget(self) -> None:
        """Drop the current token; the next call logs in."""
        self._held = None

    async def token(self) -> Token:
        """A token that was not refused, by a login if needed. All callers get the errors of the login."""
        held = self._held
        return await self.renew() if held is None or held.refused else held.token

    async def token_for_poll(self) -> Token:
        """The token for a poll. One that another call found refused is used only if the login fails."""
        if self._held is not None and self._held.refused:
            with contextlib.suppress(MarketplaceError):
                await self.renew()
        return self.current or await self.renew()

    async def replace(self, refused: Token, call: str) -> Token:
        """Return a token to repeat a call other than a poll, after a 401 with the `refused` one.

        Raises Unauthorized if a repeat cannot help, and the errors of a login. `call` identifies the call.
        """
        held = self._held
        if held is None or held.token.access_token != refused.access_token:
            return await self.token()
        if (held.worked and call in self._refused_calls) or (held.is_doubted and self._is_new(held)):
            raise Unauthorized("not_permitted")
        self._remember(call, held)
        held.refused = self._in_place = True
        return await self.renew()

    def drop(self, refused: Token, call: str) -> None:
        """Drop the token after a poll's 401; the next call logs in. Raises LoginRefused if the account is refused."""
        held = self._held
        if held is None or held.token.access_token != refused.access_token:
            return
        self._remember(call, held)
        self._held, self._in_place = None, True
        if held.is_doubted and self._is_new(held):
            self._refuse("unauthorized_again", most_s=self._waits.limited_s)
            raise LoginRefused("login_refused")

    def _is_new(self, held: _Held) -> bool:
        return self._clock.monotonic() - held.since <= JUST_S

    def _remember(self, call: str, held: _Held) -> None:
        is_young = held.worked > 0 and held.token.expires_utc - self._clock.now() > EARLY
        self._refused_calls[call] = held.token if is_young else None
        if len(self._refused_calls) > MAX_REFUSED_CALLS:
            self._refused_calls.popitem(last=False)

    async def close(self) -> None:
        """Cancel a login that is under way."""
        if self._login is not None:
            self._login.cancel()
            await asyncio.wait([self._login])

    # ---- the login ---------------------------------------------------------------------------------------------------

    async def renew(self) -> Token:
        """A new token, by one login for all callers. The old one stays in use until then."""
        if (login := self._login) is None:
            self._login = login = asyncio.create_task(self._log_in())
            login.add_done_callback(self._ended)
        try:
            return await asyncio.shield(login)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if login.cancelled() and not (caller is not None and caller.cancelling()):
                raise NotSent("login_stopped") from None  # the login was ended, not this caller
            raise

    async def _log_in(self) -> Token:
        wait = self._login_at - self._clock.monotonic()
        if wait > 0 and self._credentials_refused:
            raise LoginRefused("login_refused")
        if max(wait, self._line.wait()) > 0:  # an action may have been claimed before the wait began
            raise NotSent("login_failed", Message("net.login_waits"))
        try:
            token = await self._obtain()
        except MarketplaceError as error:
            self.record_outcome(error)
            if isinstance(error, Unauthorized | Refused):
                self._refuse(error.code)
                raise LoginRefused("login_refused", error.code, http_status=error.http_status) from error
            self._put_off(error)
            raise
        self.record_outcome(None)
        self._failures, self._login_at = 0, 0.0
        self._held = _Held(token, self._clock.monotonic(), doubted=self._in_place)
        self._in_place = False
        return token

    def _ended(self, task: asyncio.Task[Token]) -> None:
        self._login = None
        if not task.cancelled():
            task.exception()  # retrieve it: asyncio would log it if all callers were cancelled

    def _put_off(self, error: MarketplaceError) -> None:
        """Set the wait after a login that failed, but not because of its credentials."""
        if isinstance(error, NotSent):
            return  # `_line` handles this wait
        if isinstance(error, RateLimited):
            wait = self._waits.limited_s
        else:
            self._failures += 1
            wait = self._waits.failed(self._failures, error.http_status is not None)
        self._login_answered = error.http_status is not None
        self._login_at = self._clock.monotonic() + wait
        self._credentials_refused = False

    def _refuse(self, code: str, most_s: float = math.inf) -> None:
        """Set the wait after refused credentials or, for at most `most_s`, after a refused new token."""
        now = self._clock.monotonic()
        if self._credentials_refused and self._login_at > now:  # it belongs to the same refusal
            return
        self._refusals += 1
        wait = min(self._waits.refused(self._refusals), most_s)
        self._login_at, self._credentials_refused = now + wait, True
        log = self._log.error if most_s == math.inf or self._refusals == 1 else self._log.debug
        log("login.refused", code=code, refusals=self._refusals, wait_s=wait, remedy=Message("line.login_refused"))

    # ---- outcomes and pauses -----------------------------------------------------------------------------------------

    def record_outcome(self, error: MarketplaceError | None, token: Token | None = None, call: str = "") -> None:
        """Note the outcome of a request that was made with `token`. `call`: as for `replace`."""
        if error is not None and error.reason in KEPT_HERE:
            self._line.held_back()
            return
        self._has_worked |= error is None
        if error is not None and self._has_worked:
            error.known_before()
        self._on_outcome(Outcome.OK if error is None else error.outcome)
        if isinstance(error, NotSent):
            self._line.failed()
            return
        if self._line.worked():
            self._log.info("account.line_recovered")
        if token is None or not (error is None or isinstance(error, Refused)):  # a 429 proves nothing about it
            return
        self._refusals = 0
        ended = self._refused_calls.pop(call, None)  # perhaps by another login
        if ended is not None and ended not in {token, *(known for _, known in self._early_ends)}:
            self._early_ends.append((self._clock.monotonic(), ended))
        if self._held is not None and self._held.token.access_token == token.access_token:
            self._held.worked += 1
            self._held.refused = False

    def early_ends(self) -> int:
        """The number of tokens that worked but were refused long before their expiry, within the last hour."""
        since = self._clock.monotonic() - EARLY_ENDS_S
        return sum(at >= since for at, _ in self._early_ends)

    def paused(self, *, polls: bool = False) -> float:
        """Seconds for which requests (or only `polls`) must wait; 0 or less: none."""
        login = self._login_at - self._clock.monotonic() if self._lacks_token(polls=polls) else 0.0
        return max(self._line.wait(), login)

    def _lacks_token(self, *, polls: bool) -> bool:
        return self._held is None or (self._held.refused and not polls)

    def pause_code(self) -> str:
        """The error_code of rows that wait for the pause to end."""
        if self.is_refused():
            return "login_refused"
        if self._line.wait() > 0:
            return HELD_BACK if self._line.is_ours else "unreachable"
        # The marketplace is reachable, but answers logins with an error.
        return "service_error" if self._login_answered and self.paused() > 0 else "unreachable"

    def is_refused(self, *, polls: bool = False) -> bool:
        """Whether requests wait because the credentials were refused."""
        waits = self._login_at > self._clock.monotonic()
        return self._lacks_token(polls=polls) and self._credentials_refused and waits
