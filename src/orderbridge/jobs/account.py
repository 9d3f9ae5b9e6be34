"""One account at work, and the roster: which accounts there are, and which of them this process works for.

How an account logs in, and what is kept of that, is here; when it may, and what a refusal means, is in
marketplace.session.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.hiding import hide
from orderbridge.jobs.context import Context
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.session import Session, Waits
from orderbridge.model import Outcome, Token
from orderbridge.net.http import Wire
from orderbridge.observe.metrics import LOGINS, REQUESTS
from orderbridge.rules import tokens
from orderbridge.rules.problems import Problem
from orderbridge.store import accounts
from orderbridge.store.accounts import Entry, Vault
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock, RightToWork

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


class Roster:
    """All accounts by name, and those that are at work here. Both are read by many, and changed in place.

    A daemon works for all of them. A replica of a fleet works for some: its package overrides the second half.
    """

    def __init__(self, known: Iterable[config.Account] = ()) -> None:
        # None: its settings cannot be read, but it is known who owns it
        self.known: dict[str, config.Account | None] = {account.name: account for account in known}
        self.at_work: dict[str, Account] = {}
        self.version = 0  # grows with each change

    def changed(self) -> None:
        """To be called after a change: what was decided by the roster is decided anew."""
        self.version += 1

    # ---- what a replica overrides ------------------------------------------------------------------------------------

    def owns(self, account: str | None) -> bool:  # noqa: ARG002
        """Whether the rows of an account are ours. None: rows without an account, and what is done once for all."""
        return True

    def fence(self, connection: Connection) -> None:
        """Begins each transaction that writes. Raises Fenced when another process may have our accounts."""

    def may_send(self) -> bool:
        """Whether a request may leave now."""
        return True

    def is_current(self, connection: Connection) -> bool:  # noqa: ARG002
        """Whether `known` is what the database has now."""
        return True

    def clock(self, machine: Clock) -> Clock:
        """The clock that all processes on the database share."""
        return machine

    def check(self, database: Database) -> None:
        """Raise Unusable where this configuration cannot work on the database. Called in a thread."""

    def right_to_work(self, database: Database, held: RightToWork | None) -> RightToWork:
        """What must be held to work. `held`: by the daemon before this one; it is kept where it serves."""
        return held if isinstance(held, LeaderLock) and held.serves(database) else LeaderLock(database)

    async def begin(self, daemon: Any) -> None:
        """Put accounts to work. `daemon`: its parts are all there."""
        await daemon.working.begin([account for account in self.known.values() if account is not None])

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What runs until the daemon ends. A task that ends by itself has failed, and ends the daemon."""
        return ()

    async def drain(self) -> None:
        """Hand everything over, at the end, beside `tasks`."""

    async def close(self) -> None:
        """Cancel what is left."""

    async def share_problems(self, found: Sequence[Problem]) -> None:
        """Make known to other replicas what is wrong here."""

    def problems_elsewhere(self, connection: Connection) -> Iterable[Problem]:  # noqa: ARG002
        """What other replicas have made known."""
        return ()
