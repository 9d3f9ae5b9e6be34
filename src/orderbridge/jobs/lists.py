"""Reads the lists that change rarely, at the start and daily, and the restaurants' status every few minutes.

If an answer lacks known entries, or is empty, the entries are kept and the list is requested again.
"""

from collections import Counter
from collections.abc import Collection
from functools import partial

import structlog
from sqlalchemy.exc import IntegrityError

from orderbridge.actions import Subject
from orderbridge.errors import MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.net.http import PACED
from orderbridge.store import accounts, reference

COMMON_S = 12 * 3600.0  # each daily round asks once
AGAIN_S = 50.0  # until a shorter list is requested again
STATUSES_S = 300.0  # between two reads of the restaurants' status
BELIEVED_AFTER = 3  # answers in a row that lack known entries

_log = structlog.get_logger(__name__)


class Common:
    """The lists without an account (reasons, payment and shipping methods), which only one account reads."""

    def __init__(self) -> None:
        self.due = float("-inf")  # next request, by the monotonic clock
        self._shorter: Counter[str] = Counter()  # shorter answers in a row, by account; "": the common lists

    def is_whole(self, account: str) -> bool:
        """Whether the next answer is believed: known entries that it lacks are then removed."""
        return self._shorter[account] >= BELIEVED_AFTER - 1

    def lacks(self, account: str, lacking: int) -> bool:
        """Note how many known entries an answer lacked. Returns whether to request it again soon."""
        self._shorter[account] = self._shorter[account] + 1 if lacking else 0
        if lacking and self._shorter[account] == 1:
            _log.warning("reference.shorter", account=account, lacking=lacking)
        return 0 < self._shorter[account] < BELIEVED_AFTER


async def read_lists(account: Account, configured: Collection[str], common: Common) -> bool:
    """Read an account's restaurants, and the common lists if they are due. False: try again soon."""
    if account.paused() > 0:
        return False
    database = account.context.database
    try:
        restaurants = await account.client.restaurants()
        store = partial(reference.update_restaurants, account=account.name, found=restaurants)
        lacking = await database.run(partial(store, whole=bool(restaurants) and common.is_whole(account.name)))
        again = common.lacks(account.name, lacking if restaurants else max(lacking, 1))
        account.restaurants_known = account.restaurants_known or bool(restaurants)
        account.reaches_none = not restaurants and not again
        adopted = await database.run(lambda tx: accounts.adopt_orphans(tx, configured))
        again = await _read_common(account, common) or again
    except MarketplaceError as error:
        log = _log.debug if error.code == PACED else _log.warning  # may concern thousands of accounts at a start
        log("reference.failed", account=account.name, code=error.code)
        return False
    _log.info("reference.read", account=account.name, restaurants=len(restaurants), adopted_orders=adopted)
    return not again


async def _read_common(account: Account, common: Common) -> bool:
    """Read the common lists if they are due; after a failure the next account does. Returns whether to repeat soon."""
    before, now = common.due, account.context.clock.monotonic()
    if now < before:
        return False
    common.due = now + COMMON_S
    try:
        reasons = await account.client.cancel_reasons()
        variables = await account.client.variables()
        store = partial(reference.update_common, reasons=reasons, methods=variables, whole=common.is_whole(""))
        again = common.lacks("", await account.context.database.run(store))
    except IntegrityError:  # another daemon wrote them at the same moment
        return False
    except BaseException:
        common.due = before
        raise
    if again:
        common.due = now + AGAIN_S
    return again


async def read_statuses(account: Account, *, only: Collection[str] | None = None) -> float:
    """Read the status of the account's restaurants, or of `only` these. Returns the seconds until the next time.

    A restaurant whose outbox row is being sent is left out: the row itself asks for the status, and its answer counts.
    """
    database, now = account.context.database, account.context.clock.now
    known = await database.read(lambda tx: reference.restaurants_of(tx, account.name))
    for key, service_id in known.items():
        if account.paused() > 0 or (only is not None and key not in only):
            continue
        if (Subject.RESTAURANT, key) in account.context.lanes.taken():
            continue
        try:
            status = await account.client.restaurant_status(service_id)
        except MarketplaceError as error:
            _log.debug("reference.status_failed", account=account.name, restaurant_id=key, code=error.code)
            continue
        write = partial(reference.set_restaurant_status, account=account.name, key=key, status=status, now=now())
        await database.run(write)
    return STATUSES_S
