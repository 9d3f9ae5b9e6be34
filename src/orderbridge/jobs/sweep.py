"""What only time brings about: orders that end by silence, and customers' data that has been kept long enough."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from zoneinfo import ZoneInfo

import structlog

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.batch import write_batch
from orderbridge.store import orders, quarantine
from orderbridge.store.database import Database

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did."""

    ended: int
    blanked: int


async def sweep(database: Database, settings: config.Settings, clock: Clock) -> Swept:
    """One short transaction for each kind; what is left, or what somebody holds, waits for the next sweep."""
    now = clock.now()
    silence = timedelta(hours=settings.orders.silence_hours)
    zone = ZoneInfo(settings.marketplace.timezone)
    not_before = f"{(now - silence).astimezone(zone):%Y-%m-%d %H:%M:%S}"
    quiet = await database.read(lambda tx: orders.silent(tx, now, silence, not_before))
    end = partial(orders.end_silent, now=now, silence=silence, not_before=not_before)
    ended, refused = await write_batch(database, end, quiet)
    blanked = 0
    if settings.orders.retention_days:
        before = now - timedelta(days=settings.orders.retention_days)
        old = await database.read(lambda tx: orders.with_old_contents(tx, before))
        emptied, kept = await write_batch(database, partial(orders.blank_old, before=before), old)
        refused += kept
        blanked = len(emptied) + await database.run(lambda tx: quarantine.blank_old(tx, before, now))
    if ended or blanked or refused:
        _log.info("orders.swept", ended=len(ended), blanked=blanked, refused=len(refused))
    return Swept(len(ended), blanked)
