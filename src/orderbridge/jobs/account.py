"""One account with its session and token, and the roster of all accounts of this process.

The login request and the stored token are handled here; marketplace.session decides when a login may be made and what
a refusal means.
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
    """One configured account, with its session and its client."""

    def __init__(self, settings: config.Account, context: Context, wire: Wire) -> None:
        clock, random = context.clock, context.random
        self.context = context
        self.settings = settings
        self.name, self.fingerprint, self.application = settings.name, settings.fingerprint, settings.application
        self.on_token: Callable[[Token], None] = lambda _: None
        self.restaurants_known = False
        # The marketplace answered several times in a row that these secrets have no restaurant.
        self.reaches_none = False
        self.full_list = 0  # number of unacknowledgeable documents, if they fill the list
        self.menu_failures = 0  # in a row
        # Limits of `auto_accept_steps` that are reached: (restaurant or "", its name, the limit).
        self.overloads: tuple[tuple[str, str, int], ...] = ()
        self.poll_in_flight = False  # a poll is under way, or the first one is about to start
        self._app_secret = settings.app_secret_key.get_secret_value()
        self._rest_secret = settings.rest_secret_key.get_secret_value()
        self.wire = wire
        self._clock = clock
        self._vault = Vault(self.fingerprint, self._app_secret, self._rest_secret)
        self._hidden: str | None = None  # the token that is hidden from the log
        self._renewal_failed = False
        waits = Waits(
            refused=tokens.refusal_wait,
            failed=lambda failures, answered: tokens.login_wait(failures, random.random(), answered=answered),
            unsent=lambda failures: tokens.login_wait(failures, random.random(), answered=False),
            limited_s=context.settings.marketplace.cooldown_seconds,
        )
        count = partial(context.metrics.count, REQUESTS)
        self.session = Session(self._log_in, clock=clock, waits=waits, name=self.name, on_outcome=count)
        self.paused = self.session.paused  # seconds for which this account can send nothing
        database = context.database
        self.client = Client(
            wire,
            self.session,
            thread=database.in_thread,
            own_thread=database.in_own_thread,
            on_failed=context.kept.learned.failed,
        )
        hide(self._app_secret)
        hide(self._rest_secret)

    async def start(self) -> None:
        """Register the account in the database and restore its stored token."""
        await self.context.database.run(lambda tx: accounts.register(tx, [Entry(self.fingerprint, self.name)]))
        self.restore_token((await self.context.database.read(accounts.kept_tokens)).get(self.fingerprint))

    def restore_token(self, kept: Any) -> None:
        """Start the account, with the stored token if the row `kept` holds a valid one."""
        self.poll_in_flight = True
        token = self._vault.open(kept)
        if token is not None and token.expires_utc > self._clock.now():
            hide(token.access_token)
            self._hidden = token.access_token
            self.session.use(token)

    def retry_at(self) -> datetime:
        """When to repeat a request that could not be sent."""
        return self._clock.now() + timedelta(seconds=max(self.paused(), 0.0))

    def drop_expired_token(self) -> None:
        """Drop a token that has expired: using it would only cost a 401."""
        token = self.session.current
        if token is not None and token.expires_utc <= self._clock.now():
            self.session.forget()

    async def renew(self) -> None:
        """Renew the token ahead of time. A failure is logged once and tried again later; the old token stays in use."""
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
            self.context.metrics.count(LOGINS, error.outcome)
            raise
        self.context.metrics.count(LOGINS, Outcome.OK)
        hide(grant.access_token, instead_of=self._hidden)
        self._hidden = grant.access_token
        now = self._clock.now()
        token = Token(grant.access_token, now, tokens.expires(grant.expiration_date, now, self.context.zone))
        try:
            await self.context.database.run(lambda tx: self._vault.save(tx, token), urgent=True)
        except DBAPIError as error:  # this run can still use the token
            _log.warning("login.token_not_kept", account=self.name, error=type(error.orig).__name__)
        self._renewal_failed = False
        _log.info("login.done", account=self.name, expires=token.expires_utc.isoformat())
        self.on_token(token)
        return token

    async def close(self) -> None:
        """Wait for a login that is under way to end."""
        await asyncio.shield(self.session.close())


class Roster:
    """All accounts by name, and those that this process works for. Both dicts are shared and changed in place.

    A daemon works for all of them. A replica of a fleet works for some: it overrides the methods of the second half.
    """

    def __init__(self, known: Iterable[config.Account] = ()) -> None:
        # None: its settings cannot be read
        self.known: dict[str, config.Account | None] = {account.name: account for account in known}
        self.at_work: dict[str, Account] = {}
        self.version = 0  # grows with each change

    def changed(self) -> None:
        """Call this after a change: decisions that depend on the roster are then made again."""
        self.version += 1

    # ---- what a replica overrides ------------------------------------------------------------------------------------

    def owns(self, account: str | None) -> bool:  # noqa: ARG002
        """Whether this process handles the account's rows. None: rows without an account, and work for all accounts."""
        return True

    def fence(self, connection: Connection) -> None:
        """Called at the start of each writing transaction. Raises Fenced if another process may have our accounts."""

    def may_send(self) -> bool:
        """Whether a request may leave now."""
        return True

    def has_others(self) -> bool:
        """Whether other processes may send rows, too."""
        return False

    def is_current(self, connection: Connection) -> bool:  # noqa: ARG002
        """Whether `known` agrees with the database."""
        return True

    def clock(self, machine: Clock) -> Clock:
        """The clock that all processes on the database share."""
        return machine

    def check(self, database: Database) -> None:
        """Raise Unusable if this configuration cannot work with the database. Called in a thread."""

    def right_to_work(self, database: Database, held: RightToWork | None) -> RightToWork:
        """The lock that this daemon needs; `held` by the previous daemon is reused if it fits."""
        return held if isinstance(held, LeaderLock) and held.serves(database) else LeaderLock(database)

    async def begin(self, daemon: Any) -> None:
        """Start the accounts. All parts of the daemon exist by now."""
        await daemon.working.begin([account for account in self.known.values() if account is not None])

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Tasks that run until the daemon ends. One that ends earlier has failed, and stops the daemon."""
        return ()

    async def drain(self) -> None:
        """Release all accounts at the end, while `tasks` still run."""

    async def close(self) -> None:
        """Cancel everything that still runs."""

    async def share_problems(self, found: Sequence[Problem]) -> None:
        """Publish our problems to other replicas."""

    def problems_elsewhere(self, connection: Connection) -> Iterable[Problem]:  # noqa: ARG002
        """The problems that other replicas published."""
        return ()
