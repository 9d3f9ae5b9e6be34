"""What only time brings about: orders that end by silence, and customers' data that has been kept long enough."""

from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

import structlog

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.store import orders, quarantine
from orderbridge.store.database import Database

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did."""

    ended: int
    blanked: int


async def sweep(database: Database, settings: config.Settings, clock: Clock) -> Swept:
    """One short transaction for each kind; what is left waits for the next sweep."""
    now = clock.now()
    silence = timedelta(hours=settings.orders.silence_hours)
    zone = ZoneInfo(settings.marketplace.timezone)
    not_before = f"{(now - silence).astimezone(zone):%Y-%m-%d %H:%M:%S}"
    ended = await database.run(lambda tx: orders.end_silent(tx, now, silence, not_before))
    blanked = 0
    if settings.orders.retention_days:
        before = now - timedelta(days=settings.orders.retention_days)
        blanked = await database.run(lambda tx: orders.blank_old(tx, before))
        blanked += await database.run(lambda tx: quarantine.blank_old(tx, before, now))
    if ended or blanked:
        _log.info("orders.swept", ended=len(ended), blanked=blanked)
    return Swept(len(ended), blanked)
