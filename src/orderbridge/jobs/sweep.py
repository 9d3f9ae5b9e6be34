"""What only time brings about: orders that end by silence, customers' data and records that were kept long enough."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import structlog

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.store import inactivity, quarantine, retention
from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch
from orderbridge.store.schema import set_sequences_right

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did."""

    ended: int
    blanked: int
    deleted: int = 0  # orders, outbox rows and documents


async def today(
    database: Database, settings: config.Settings, clock: Clock, service_now: datetime | None = None
) -> datetime:
    """How late it is at least, for what is kept so long and no longer: our clock may have been set years ahead.

    `service_now`: by the service's own clock, as far as it was heard. Else the newest orders are asked.
    """
    now, zone = clock.now(), ZoneInfo(settings.marketplace.timezone)
    if service_now is not None:
        return min(now, service_now)
    return await database.read(lambda tx: retention.believed(tx, now, zone))


async def sweep(database: Database, settings: config.Settings, clock: Clock, late: datetime) -> Swept:
    """One short transaction for each kind; what is left, or what another session holds, waits for the next sweep.

    `late`: see `today`.
    """
    now = clock.now()
    if database.dialect.sequence:  # a till's INSERT meets one that was set back, too
        await database.run(set_sequences_right)
    ended, refused = await _end_silent(database, settings, now)
    blanked = 0
    if settings.orders.retention_days:
        before = late - timedelta(days=settings.orders.retention_days)
        old = await database.read(lambda tx: retention.with_old_contents(tx, before))
        emptied, kept = await write_batch(database, partial(retention.blank_old, before=before), old)
        refused += len(kept)
        blanked = len(emptied) + await database.run(lambda tx: quarantine.blank_old(tx, before, now))
    deleted, kept_rows = await _delete_old(database, settings, late) if settings.orders.records_days else (0, 0)
    refused += kept_rows
    if ended or blanked or deleted or refused:
        _log.info("orders.swept", ended=ended, blanked=blanked, deleted=deleted, refused=refused)
    return Swept(ended, blanked, deleted)


async def _delete_old(database: Database, settings: config.Settings, late: datetime) -> tuple[int, int]:
    """How many records were deleted, and of how many the database refused that. Disk use becomes flat by it."""
    before = late - timedelta(days=settings.orders.records_days)
    rows = await database.read(lambda tx: retention.old_actions(tx, before))
    gone, kept = await write_batch(database, partial(retention.delete_actions, before=before), rows)
    keys = await database.read(lambda tx: retention.old_orders(tx, before))
    over, kept_orders = await write_batch(database, partial(retention.delete_orders, before=before), keys)
    documents = await database.run(lambda tx: retention.delete_documents(tx, before))
    return len(gone) + len(over) + documents, len(kept) + len(kept_orders)


async def _end_silent(database: Database, settings: config.Settings, now: datetime) -> tuple[int, int]:
    """How many orders ended by silence, and of how many that was refused."""
    after = timedelta(hours=settings.orders.silence_hours)
    zone = ZoneInfo(settings.marketplace.timezone)
    fresh = await database.read(lambda tx: inactivity.to_count(tx, now, zone))
    _, refused = await write_batch(database, partial(inactivity.count_from_here, now=now, zone=zone), fresh)
    quiet = await database.read(lambda tx: inactivity.silent(tx, after, now, zone))
    end = partial(inactivity.end_silent, now=now, silence=after, zone=zone)
    ended, kept = await write_batch(database, end, quiet)
    return len(ended), len(refused) + len(kept)
