"""The lists that change rarely, read at the start and daily; restaurants' status every few minutes."""

import contextlib
from collections.abc import Collection, Iterator
from functools import partial

import structlog
from sqlalchemy.exc import IntegrityError

from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.net.pace import PACED
from orderbridge.store import accounts, reference
from orderbridge.store.database import Database

COMMON_S = 12 * 3600.0  # each daily round asks once

_log = structlog.get_logger(__name__)


class Common:
    """Reasons, payment and shipping methods belong to no account: one of all asks for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: float | None = None  # by the monotonic clock

    @contextlib.contextmanager
    def asking(self) -> Iterator[bool]:
        """Whether to ask now. An error on the way: the next one asks."""
        before, now = self._asked, self._clock.monotonic()
        if before is not None and now < before + COMMON_S:
            yield False
            return
        self._asked = now
        try:
            yield True
        except BaseException:
            self._asked = before
            raise


async def read_lists(account: Account, database: Database, configured: Collection[str], common: Common) -> bool:
    """Restaurants, reasons, payment and shipping methods of one account. False: not all came; try again soon."""
    if account.paused() > 0:
        return False
    try:
        restaurants = await account.client.restaurants()
        await database.run(lambda tx: reference.replace_restaurants(tx, account.name, restaurants))
        account.restaurants_known = True
        adopted = await database.run(lambda tx: accounts.adopt_orphans(tx, configured))
        with common.asking() as wanted:
            if wanted:
                await _read_common(account, database)
    except MarketplaceError as error:
        told = _log.debug if error.code == PACED else _log.warning  # of thousands that start it would be thousands
        told("reference.failed", account=account.name, code=error.code)
        return False
    _log.info("reference.read", account=account.name, restaurants=len(restaurants), adopted_orders=adopted)
    return True


async def _read_common(account: Account, database: Database) -> None:
    reasons = await account.client.cancel_reasons()
    variables = await account.client.variables()
    # Where another daemon writes them at the same moment, they are there already.
    with contextlib.suppress(IntegrityError):
        await database.run(lambda tx: reference.replace_cancel_reasons(tx, reasons))
    with contextlib.suppress(IntegrityError):
        await database.run(lambda tx: reference.replace_variables(tx, variables))


async def read_statuses(account: Account, database: Database, clock: Clock, *, only: str | None = None) -> int:
    """Open or closed, for each restaurant of the account, or `only` for one. Returns how many answered."""
    known = await database.read(lambda tx: reference.restaurants_of(tx, account.name))
    answered = 0
    for key, service_id in known.items():
        if account.paused() > 0 or only not in {None, key}:
            continue
        try:
            status = await account.client.restaurant_status(service_id)
        except MarketplaceError as error:
            _log.debug("reference.status_failed", account=account.name, restaurant_id=key, code=error.code)
            continue
        answered += 1
        write = partial(reference.set_restaurant_status, account=account.name, key=key, status=status, now=clock.now())
        await database.run(write)
    return answered
