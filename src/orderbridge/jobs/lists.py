"""The lists that change rarely, read at the start and daily; restaurants' status every few minutes.

A list that lacks what was known, an empty one too, is not believed at once: what was known stays, and it is asked again.
"""

from collections import Counter
from collections.abc import Collection
from functools import partial

import structlog
from sqlalchemy.exc import IntegrityError

from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.net.http import PACED
from orderbridge.store import accounts, reference
from orderbridge.store.database import Database

COMMON_S = 12 * 3600.0  # each daily round asks once
AGAIN_S = 50.0  # at least, until a list that is not believed is asked again
BELIEVED_AFTER = 3  # answers in a row that lack what was known; asked again soon until then

_log = structlog.get_logger(__name__)


class Common:
    """Reasons, payment and shipping methods belong to no account: one of all asks for them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.due = float("-inf")  # when they are asked for again, by the monotonic clock
        self._shorter: Counter[str] = Counter()  # answers in a row that lacked what was known; "": of the common lists

    def is_whole(self, account: str) -> bool:
        """Whether the next answer is believed about what it lacks."""
        return self._shorter[account] >= BELIEVED_AFTER - 1

    def lacks(self, account: str, lacking: int) -> bool:
        """So many known entries were not in an answer. Returns whether to ask again soon."""
        self._shorter[account] = self._shorter[account] + 1 if lacking else 0
        if lacking and self._shorter[account] == 1:
            _log.warning("reference.shorter", account=account, lacking=lacking)
        return 0 < self._shorter[account] < BELIEVED_AFTER


async def read_lists(account: Account, database: Database, configured: Collection[str], common: Common) -> bool:
    """Restaurants, reasons, payment and shipping methods of one account. False: not all came; try again soon."""
    if account.paused() > 0:
        return False
    try:
        restaurants = await account.client.restaurants()
        take_in = partial(reference.take_in_restaurants, account=account.name, found=restaurants)
        lacking = await database.run(partial(take_in, whole=bool(restaurants) and common.is_whole(account.name)))
        again = common.lacks(account.name, lacking if restaurants else max(lacking, 1))
        account.restaurants_known = account.restaurants_known or bool(restaurants)
        account.reaches_none = not restaurants and not again
        adopted = await database.run(lambda tx: accounts.adopt_orphans(tx, configured))
        again = await _read_common(account, database, common) or again
    except MarketplaceError as error:
        log = _log.debug if error.code == PACED else _log.warning  # of thousands that start it would be thousands
        log("reference.failed", account=account.name, code=error.code)
        return False
    _log.info("reference.read", account=account.name, restaurants=len(restaurants), adopted_orders=adopted)
    return not again


async def _read_common(account: Account, database: Database, common: Common) -> bool:
    """Read the common lists, if they are due. Returns whether to ask again soon; where it fails, the next account asks."""
    before, now = common.due, common.clock.monotonic()
    if now < before:
        return False
    common.due = now + COMMON_S
    try:
        reasons = await account.client.cancel_reasons()
        variables = await account.client.variables()
        take_in = partial(reference.take_in_common, reasons=reasons, methods=variables, whole=common.is_whole(""))
        again = common.lacks("", await database.run(take_in))
    except IntegrityError:  # another daemon has written them at the same moment
        return False
    except BaseException:
        common.due = before
        raise
    if again:
        common.due = now + AGAIN_S
    return again


async def read_statuses(
    account: Account, database: Database, clock: Clock, *, only: Collection[str] | None = None
) -> int:
    """Open or closed, for each restaurant of the account, or for `only` these. Returns how many answered."""
    known = await database.read(lambda tx: reference.restaurants_of(tx, account.name))
    answered = 0
    for key, service_id in known.items():
        if account.paused() > 0 or (only is not None and key not in only):
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
