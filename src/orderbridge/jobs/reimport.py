"""Writes documents that no poll has just delivered, each order in a transaction of its own.

decide: rules.reimport, rules.lifecycle
write: store.orders, as a delivery does

It works beside a running daemon: whoever stores an order first has it.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.marketplace.schema import differs
from orderbridge.model import REPLAYED, Arrival, EndedBy, Order, Stored
from orderbridge.rules import lifecycle
from orderbridge.rules.health import is_due
from orderbridge.rules.intake import Lateness
from orderbridge.rules.reimport import TAKEN_IN, UNFINISHED, WRITTEN, Beside, Fate, Newest, fate_of
from orderbridge.rules.statuses import Statuses
from orderbridge.store import orders, quarantine, reference
from orderbridge.store.database import Database
from orderbridge.store.failures import is_refusal
from orderbridge.store.rows import lock_orders_naming_held

TRIES = 2  # the daemon may have stored the order just then


class Reimport:
    """Of one run of a command. `now`: of its beginning."""

    def __init__(self, database: Database, settings: config.Settings, now: datetime) -> None:
        self.database = database
        self.now = now
        self.statuses = Statuses(settings.marketplace.needs_payment_status_id)
        self.codes = database.read_now(reference.payment_codes)
        self._silence = timedelta(hours=settings.orders.silence_hours)
        self.zone = ZoneInfo(settings.marketplace.timezone)
        minutes = settings.orders.late_minutes
        self._late = timedelta(minutes=minutes) if minutes else None

    def is_due(self, order: Order) -> bool:
        return is_due(order.facts.scheduled_for, self.now, self.zone)

    def store(self, order: Order, account: str, document: Newest) -> Fate:
        """Raises what the database raises when it is not the order's fault."""
        for _ in range(TRIES):
            try:
                return self.database.write_now(lambda tx: self._write(tx, order, account, document))
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
        return Fate.REFUSED

    def _write(self, connection: Connection, order: Order, account: str, document: Newest) -> Fate:
        key = order.payment_key
        beside = _beside(connection, key, document.last)
        fate = fate_of(document, beside, statuses=self.statuses, now=self.now, silence=self._silence)
        if fate == Fate.TAKEN_IN:  # judged alone: that several are as old says nothing about the time zone here
            order = Lateness(self._late, self.zone).marked(order, self.now)
        arrival = self.statuses.arrival(order)
        if fate == Fate.UPDATED and beside.stored is not None:
            self._update(connection, beside.stored, arrival)
        elif fate in TAKEN_IN:
            if fate == Fate.TAKEN_IN_ENDED and arrival.ended_by is None:
                arrival = Arrival(order, arrival.status, EndedBy.SILENCE)
            # As it was then: the order was received when its first document came.
            orders.insert_new(connection, account, [arrival], min(document.first, self.now))
        if fate in WRITTEN:
            orders.append_events(connection, self.now, [(key, REPLAYED, order.status_id, arrival.status, None)])
        if fate not in UNFINISHED:
            quarantine.resolve(connection, [key], self.now, until=document.last)
        return fate

    def _update(self, connection: Connection, stored: Stored, arrival: Arrival) -> None:
        order = arrival.order
        before = orders.payloads(connection, [order.payment_key])[order.payment_key]
        news = differs(order, before, payment_codes=self.codes, zone=self.zone)
        change = lifecycle.merge(stored, order.status_id, differs=news, status_counts=True, problems=order.problems)
        orders.update_delivered(connection, stored, arrival, change, self.now)


def _beside(connection: Connection, key: str, at: datetime) -> Beside:
    """The stored order, held for this transaction. `at`: the document's time."""
    if lock_orders_naming_held(connection, [key]):
        return Beside(is_held=True)
    stored = orders.stored(connection, [key]).get(key)
    if stored is None:
        return Beside()
    return Beside(
        stored=stored,
        has_news=orders.has_news_since(connection, key, at),
        is_unresolved=key in orders.with_unresolved_rows(connection, [key]),
    )
