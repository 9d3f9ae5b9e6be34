"""One account at work: its client, its token, and how it stands with the service."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import structlog
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.errors import LoginRefused, MarketplaceError, NotSent, RateLimited, Refused, Unauthorized
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.http import Wire
from orderbridge.marketplace.session import Session
from orderbridge.model import Token
from orderbridge.observe import logs
from orderbridge.rules import tokens
from orderbridge.store import accounts
from orderbridge.store.accounts import Vault
from orderbridge.store.database import Database

_log = structlog.get_logger(__name__)


class Line:
    """Whether requests of an account leave at all. Failures in a row wait longer; the first success ends it."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._failures = 0
        self._until = 0.0

    def failed(self) -> float:
        """A request never left. Returns the seconds to wait."""
        if self.wait() <= 0:  # the others of the same moment are no further failures
            self._failures += 1
            self._until = self._clock.monotonic() + tokens.line_wait(self._failures, self._random.random())
        return self.wait()

    def worked(self) -> bool:
        """A request was answered. True when that ends a failure."""
        recovered, self._failures, self._until = self._failures > 0, 0, 0.0
        return recovered

    def wait(self) -> float:
        """Seconds until the next try; 0 or less: now."""
        return self._until - self._clock.monotonic()


class Account:
    """What the jobs need of one configured account."""

    def __init__(
        self,
        settings: config.Account,
        *,
        wire: Wire,
        database: Database,
        clock: Clock,
        random: Random,
        zone: ZoneInfo,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.fingerprint = settings.fingerprint
        self.line = Line(clock, random)
        self.on_token: Callable[[Token], None] = lambda _: None
        self.restaurants_known = False
        self.is_looking = False  # a poll of it is under way, or the first one is about to be
        self._app_secret = settings.app_secret_key.get_secret_value()
        self._rest_secret = settings.rest_secret_key.get_secret_value()
        self._wire = wire
        self._database = database
        self._clock = clock
        self._zone = zone
        self._vault = Vault(self.fingerprint, self._app_secret, self._rest_secret)
        self._hidden: str | None = None  # the token that no log line may show
        self._refusals = 0
        self._refused_until = 0.0
        self.session = Session(self._log_in)
        self.client = Client(wire, self.session)
        logs.hide(self._app_secret)
        logs.hide(self._rest_secret)

    async def start(self) -> None:
        """Make the account known to the database and take up the token that was kept."""
        await self._database.run(lambda tx: accounts.register(tx, self.fingerprint, self.name))
        self.is_looking = True
        token = await self._database.read(self._vault.load)
        if token is not None and token.expires_utc > self._clock.now():
            logs.hide(token.access_token)
            self._hidden = token.access_token
            self.session = Session(self._log_in, token=token)
            self.client = Client(self._wire, self.session)

    def paused(self) -> float:
        """Seconds for which nothing of this account can leave; 0 or less: it can."""
        return max(self.line.wait(), self._refused_until - self._clock.monotonic() if self.is_refused() else 0.0)

    def pause_code(self) -> str:
        """The error_code for that."""
        return "login_refused" if self.is_refused() else "unreachable"

    def is_refused(self) -> bool:
        """Whether the service refuses us: there is no token, and none can be had yet."""
        return self.session.current is None and self._refused_until > self._clock.monotonic()

    def drop_expired_token(self) -> None:
        """A token that is known to be over would only cost a 401."""
        token = self.session.current
        if token is not None and token.expires_utc <= self._clock.now():
            self.session.forget()

    def retry_at(self) -> datetime:
        """When a request that could not leave is made again."""
        return self._clock.now() + timedelta(seconds=max(self.paused(), 0.0))

    def heard(self, error: MarketplaceError | None) -> None:
        """What a request of this account ended in: the line works, or it does not."""
        if isinstance(error, LoginRefused):
            return
        if isinstance(error, NotSent):
            self.line.failed()
            return
        if error is None or isinstance(error, Refused | RateLimited):
            self._refusals = 0  # the token works: a login alone does not show that
        elif isinstance(error, Unauthorized) and error.code == "unauthorized_again":
            self.refuse_token("unauthorized_again")
        if self.line.worked():
            _log.info("account.line_recovered", account=self.name)

    async def renew(self) -> None:
        """A fresh token, ahead of time; the old one serves until then. A failure is told by the log and tried later."""
        try:
            await self.session.renew()
        except MarketplaceError as error:
            _log.warning("login.renewal_failed", account=self.name, code=error.code)

    def renew_in(self) -> float | None:
        """Seconds until the token should be renewed; None without a token."""
        token = self.session.current
        if token is None:
            return None
        return (tokens.renew_at(token.issued_utc, token.expires_utc) - self._clock.now()).total_seconds()

    async def _log_in(self) -> Token:
        wait = self._refused_until - self._clock.monotonic()
        if wait > 0:
            raise LoginRefused("login_refused", until=self._clock.now() + timedelta(seconds=wait))
        try:
            grant = await login(self._wire, app_secret_key=self._app_secret, rest_secret_key=self._rest_secret)
        except (Unauthorized, Refused) as error:
            until = self._refuse(error.code)
            raise LoginRefused("login_refused", error.code, until=until, http_status=error.http_status) from error
        logs.hide(grant.access_token, instead_of=self._hidden)
        self._hidden = grant.access_token
        now = self._clock.now()
        token = Token(grant.access_token, now, tokens.expires(grant.expiration_date, now, self._zone))
        try:
            await self._database.run(lambda tx: self._vault.save(tx, token), urgent=True)
        except DBAPIError as error:  # it serves this run all the same
            _log.warning("login.token_not_kept", account=self.name, error=type(error.orig).__name__)
        self._refused_until = 0.0
        _log.info("login.done", account=self.name, expires=token.expires_utc.isoformat())
        self.on_token(token)
        return token

    def refuse_token(self, code: str) -> None:
        """The service refuses the token of a fresh login: that counts as a refused login."""
        self.session.forget()
        self._refuse(code)

    def _refuse(self, code: str) -> datetime:
        now = self._clock.monotonic()
        if self._refused_until > now:  # the others of the same moment are no further refusals
            return self._clock.now() + timedelta(seconds=self._refused_until - now)
        self._refusals += 1
        wait = tokens.refusal_wait(self._refusals)
        self._refused_until = now + wait
        _log.error("login.refused", account=self.name, code=code, refusals=self._refusals, wait_s=wait)
        return self._clock.now() + timedelta(seconds=wait)

    async def close(self) -> None:
        """End a login that is under way."""
        await asyncio.shield(self.session.close())
