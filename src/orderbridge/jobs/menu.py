"""Reads an account's menu at the start and then every 30 minutes, or later while that fails.

The time of the next request is noted in the database before a request leaves, so that neither a restart nor another
replica asks earlier. A failure concerns the menu alone: it is logged once, and `status` shows it.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy.exc import IntegrityError

from orderbridge.errors import MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.jobs.learned import Point
from orderbridge.model import Menu, Outcome
from orderbridge.rules.deliveries import USUAL_PAGES
from orderbridge.store import foods
from orderbridge.store.accounts import note_poll

EVERY = timedelta(minutes=30)  # docs/interface.md, Limits
LONGEST = timedelta(hours=6)  # after failures
AGAIN_S = 60.0  # after a request that never left
CHUNK = 200  # foods in one transaction, which a till on SQLite waits for
MAX_LOGGED = 20  # changed foods that are logged by themselves

_log = structlog.get_logger(__name__)


async def read_menu(account: Account) -> float:
    """Read the menu if it is due. Returns the seconds until the next try."""
    if account.paused() > 0:
        return AGAIN_S
    database, began = account.context.database, account.context.clock.now()
    wait = await database.run(
        lambda tx: foods.reserve(tx, account.fingerprint, now=began, until=began + EVERY, longest=LONGEST)
    )
    if wait > 0:
        return wait
    try:
        menu = await account.client.menu()
    except MarketplaceError as error:
        return await _failed(account, error, began)
    account.menu_failures = 0
    account.context.kept.learned.saw(Point.MENU_SHAPE, menu.shape)
    changes = await _store(account, menu, began)
    await database.run(lambda tx: note_poll(tx, account.fingerprint, menu_read_utc=began, menu_error=None))
    _log_changes(account, menu, changes)
    return EVERY.total_seconds()


async def _failed(account: Account, error: MarketplaceError, began: datetime) -> float:
    """Note a failure. The wait doubles with each; a request that never left costs none of the limit."""
    log = _log.debug if account.menu_failures else _log.warning
    log("menu.failed", account=account.name, code=error.code)
    if error.outcome == Outcome.NOT_SENT:
        wait = timedelta(seconds=AGAIN_S)
    else:
        wait = min(EVERY * 2**account.menu_failures, LONGEST)
    account.menu_failures = min(account.menu_failures + 1, 10)
    values = {"menu_next_utc": began + wait, "menu_error": error.code}
    await account.context.database.run(lambda tx: note_poll(tx, account.fingerprint, **values))
    return wait.total_seconds()


async def _store(account: Account, menu: Menu, began: datetime) -> list[tuple[str, int]]:
    """Store the menu in short transactions. Only a whole menu shows which foods are gone."""
    database, clock = account.context.database, account.context.clock
    changes = []
    for start in range(0, len(menu.foods), CHUNK):
        some = menu.foods[start : start + CHUNK]
        store = partial(foods.update_menu, account=account.name, listed=some, began=began, now=clock.now())
        try:
            changes += await database.run(store)
        except IntegrityError:  # an order has just brought one of these foods
            changes += await database.run(store)
    if menu.is_whole and len(menu.foods) not in USUAL_PAGES:
        changes += await database.run(lambda tx: foods.mark_gone(tx, account.name, began=began, now=clock.now()))
    return changes


def _log_changes(account: Account, menu: Menu, changes: Sequence[tuple[str, int]]) -> None:
    counts = Counter(change for change, _ in changes)
    _log.info("menu.read", account=account.name, foods=len(menu.foods), whole=menu.is_whole, **counts)
    for change, food_id in [one for one in changes if one[0] != foods.NEW][:MAX_LOGGED]:
        _log.info(f"food.{change}", account=account.name, food_id=food_id)
