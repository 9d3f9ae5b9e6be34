"""One account at work: its client, its session, and what the jobs need to know of it.

How it logs in, and what is kept of that, is here; when it may, and what a refusal means, is in marketplace.session.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.errors import MarketplaceError
from orderbridge.hiding import hide
from orderbridge.jobs.context import Context
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.session import Session, Waits
from orderbridge.model import Outcome, Token
from orderbridge.net.http import Wire
from orderbridge.observe.metrics import LOGINS, REQUESTS
from orderbridge.rules import tokens
from orderbridge.store import accounts
from orderbridge.store.accounts import Entry, Vault

_log = structlog.get_logger(__name__)


class Account:
    """What the jobs need of one configured account."""

    def __init__(self, settings: config.Account, context: Context, wire: Wire) -> None:
        clock, random = context.clock, context.random
        self._context = context
        self.settings = settings
        self.name, self.fingerprint, self.application = settings.name, settings.fingerprint, settings.application
        self.on_token: Callable[[Token], None] = lambda _: None
        self.restaurants_known = False
        # The service has answered several times in a row that these secrets have no restaurant.
        self.reaches_none = False
        self.full_list = 0  # documents that cannot be acknowledged, when they fill its list
        self.poll_in_flight = False  # a poll of it is under way, or the first one is about to be
        self._app_secret = settings.app_secret_key.get_secret_value()
        self._rest_secret = settings.rest_secret_key.get_secret_value()
        self.wire = wire
        self._clock = clock
        self._vault = Vault(self.fingerprint, self._app_secret, self._rest_secret)
        self._hidden: str | None = None  # the token that no log line may show
        self._renewal_failed = False
        waits = Waits(
            refused=tokens.refusal_wait,
            failed=lambda failures, answered: tokens.login_wait(failures, random.random(), answered=answered),
            unsent=lambda failures: tokens.line_wait(failures, random.random()),
            limited_s=context.settings.marketplace.cooldown_seconds,
        )
        count = partial(context.metrics.count, REQUESTS)
        self.session = Session(self._log_in, clock=clock, waits=waits, name=self.name, on_outcome=count)
        self.paused = self.session.paused  # for how long nothing of this account can leave
        self.client = Client(wire, self.session, apart=context.database.apart)
        hide(self._app_secret)
        hide(self._rest_secret)

    async def start(self) -> None:
        """Make the account known to the database and take up the token that was kept."""
        await self._context.database.run(lambda tx: accounts.register(tx, [Entry(self.fingerprint, self.name)]))
        self.take_up((await self._context.database.read(accounts.kept_tokens)).get(self.fingerprint))

    def take_up(self, kept: Any) -> None:
        """From now on it is at work, with the token that was kept; `kept`: its row, None: there is none."""
        self.poll_in_flight = True
        token = self._vault.open(kept)
        if token is not None and token.expires_utc > self._clock.now():
            hide(token.access_token)
            self._hidden = token.access_token
            self.session.take_up(token)

    def retry_at(self) -> datetime:
        """When a request that could not leave is made again."""
        return self._clock.now() + timedelta(seconds=max(self.paused(), 0.0))

    def drop_expired_token(self) -> None:
        """A token that is known to be over would only cost a 401."""
        token = self.session.current
        if token is not None and token.expires_utc <= self._clock.now():
            self.session.forget()

    async def renew(self) -> None:
        """A fresh token, ahead of time; the old one serves until then. A failure is logged once and tried later."""
        try:
            await self.session.renew()
        except MarketplaceError as error:
            log = _log.debug if self._renewal_failed else _log.warning
            log("login.renewal_failed", account=self.name, code=error.code)
            self._renewal_failed = True

    def renew_in(self) -> float | None:
        """Seconds until the token should be renewed; None without a token."""
        token = self.session.current
        if token is None:
            return None
        return (tokens.renew_at(token.issued_utc, token.expires_utc) - self._clock.now()).total_seconds()

    async def _log_in(self) -> Token:
        try:
            grant = await login(self.wire, app_secret_key=self._app_secret, rest_secret_key=self._rest_secret)
        except MarketplaceError as error:
            self._context.metrics.count(LOGINS, error.outcome)
            raise
        self._context.metrics.count(LOGINS, Outcome.OK)
        hide(grant.access_token, instead_of=self._hidden)
        self._hidden = grant.access_token
        now = self._clock.now()
        token = Token(grant.access_token, now, tokens.expires(grant.expiration_date, now, self._context.zone))
        try:
            await self._context.tokens.add((self._vault, token))
        except DBAPIError as error:  # it serves this run all the same
            _log.warning("login.token_not_kept", account=self.name, error=type(error.orig).__name__)
        self._renewal_failed = False
        _log.info("login.done", account=self.name, expires=token.expires_utc.isoformat())
        self.on_token(token)
        return token

    async def close(self) -> None:
        """End a login that is under way."""
        await asyncio.shield(self.session.close())
