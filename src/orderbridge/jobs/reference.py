"""The lists that change rarely, read at the start and daily; restaurants' status every few minutes."""

import contextlib
from functools import partial

import structlog
from sqlalchemy.exc import IntegrityError

from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.store import accounts, reference
from orderbridge.store.database import Database

_log = structlog.get_logger(__name__)


async def read_lists(account: Account, database: Database, configured: tuple[str, ...]) -> bool:
    """Restaurants, reasons, payment and shipping methods of one account. False: not all came; try again soon."""
    if account.paused() > 0:
        return False
    try:
        restaurants = await account.client.restaurants()
        await database.run(lambda tx: reference.replace_restaurants(tx, account.name, restaurants))
        account.restaurants_known = True
        adopted = await database.run(lambda tx: accounts.adopt_orphans(tx, configured))
        reasons = await account.client.cancel_reasons()
        variables = await account.client.variables()
    except MarketplaceError as error:
        account.heard(error)
        _log.warning("reference.failed", account=account.name, code=error.code)
        return False
    account.heard(None)
    # These belong to no account. Where another one writes them at the same moment, they are there already.
    with contextlib.suppress(IntegrityError):
        await database.run(lambda tx: reference.replace_cancel_reasons(tx, reasons))
    with contextlib.suppress(IntegrityError):
        await database.run(lambda tx: reference.replace_variables(tx, variables))
    _log.info("reference.read", account=account.name, restaurants=len(restaurants), adopted_orders=adopted)
    return True


async def read_statuses(account: Account, database: Database, clock: Clock) -> int:
    """Open or closed, for each restaurant of the account. Returns how many answered."""
    known = await database.read(reference.restaurant_accounts)
    answered = 0
    for key, reaching in known.items():
        if account.name not in reaching or account.paused() > 0:
            continue
        try:
            status = await account.client.restaurant_status(key)
        except MarketplaceError as error:
            account.heard(error)
            _log.debug("reference.status_failed", account=account.name, restaurant_id=key, code=error.code)
            continue
        answered += 1
        write = partial(reference.set_restaurant_status, account=account.name, key=key, status=status, now=clock.now())
        await database.run(write)
    return answered
