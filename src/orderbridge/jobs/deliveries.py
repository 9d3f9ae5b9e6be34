"""What delivered orders write: each method is a part of the caller's transaction, and decides nothing itself.

decide: rules.intake, rules.lifecycle
write: store.orders, store.actions, store.quarantine
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from orderbridge.document import Facts
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.marketplace.schema import differs
from orderbridge.model import AUTO_MARK, Action, Order, Stored
from orderbridge.rules import intake as rules
from orderbridge.rules import lifecycle
from orderbridge.rules.problems import Code
from orderbridge.store import actions, orders, quarantine
from orderbridge.store.rows import lock_orders
from orderbridge.store.starts import start_of

_log = structlog.get_logger(__name__)


class Deliveries:
    """The deliveries of one account."""

    def __init__(
        self, account: Account, context: Context, configured: Collection[str], known: DaemonProblems | None = None
    ) -> None:
        """`known`: where the service's clock is known, and a wrong time zone is told."""
        self._account, self._configured, self._known = account, configured, known
        self._clock, self._zone, self._statuses = context.clock, context.zone, context.verdicts.statuses
        self._durability = context.database.durability
        self._preparing_minutes = context.settings.orders.preparing_minutes
        late = context.settings.orders.late_minutes
        self._lateness = rules.Lateness(timedelta(minutes=late) if late else None, self._zone)
        self._log = _log.bind(account=account.name)

    def insert(self, connection: Connection, fresh: Sequence[Order], *, accepting: bool = True) -> Sequence[Order]:
        """Orders that were never seen, and the accepts that are to follow of themselves."""
        now = self._clock.now()
        fresh = self._judged(fresh, now)
        arrivals = [self._statuses.arrival(order) for order in fresh]
        starts = [self._start(order.facts) for order in fresh]
        orders.insert_new(connection, self._account.name, arrivals, now, starts)
        for order in fresh if accepting else ():
            minutes = self.accept_in(order)
            if minutes is not None:
                asked = {"action": Action.ACCEPT, "payment_key": order.payment_key, "preparing_time": minutes}
                actions.add_once(connection, f"{AUTO_MARK}{order.payment_key}", **asked, created_by="orderbridge")
        quarantine.resolve(connection, [order.payment_key for order in fresh], now)
        self._durability.ask(connection)
        return fresh

    def _judged(self, fresh: Sequence[Order], now: datetime) -> list[Order]:
        """The same orders, each late one with that among its problems; and what they say of the time zone is told."""
        service_now = self._known.service_now() if self._known is not None else None
        judged = [self._lateness.marked(order, service_now or now) for order in fresh]
        hours, name = self._lateness.hours_off, self._account.name
        if self._known is not None:
            if hours is None:
                self._known.end(Code.TIMEZONE_WRONG, name)
            else:
                self._known.begin(Code.TIMEZONE_WRONG, name, account=name, hours=f"{hours:+}", zone=self._zone)
        return judged

    def _start(self, facts: Facts) -> datetime | None:
        """When to begin with a scheduled order."""
        minutes = self._account.settings.auto_accept(facts.restaurant_id) or self._preparing_minutes
        return start_of(facts.scheduled_for, self._zone, minutes)

    def accept_in(self, order: Order) -> int | None:
        """The minutes with which an order is accepted without a person; None when a person is needed."""
        settings = self._account.settings
        accepts = rules.accepts_itself(order, scheduled_too=settings.auto_accept_scheduled)
        return settings.auto_accept(order.facts.restaurant_id) if accepts else None

    def update(
        self, held: Collection[str], codes: Mapping[str, str], connection: Connection, fresh: Sequence[Order]
    ) -> Sequence[Order]:
        """Orders that are stored, those that nobody holds. `held`: whose status counts. Returns what was written."""
        now = self._clock.now()
        known = self._ours(connection, fresh)
        fresh = [order for order in fresh if order.payment_key in known]
        before = orders.payloads(connection, [order.payment_key for order in fresh])
        for order in fresh:
            stored = known[order.payment_key]
            if stored.account != self._account.name:
                orders.adopt(connection, order.payment_key, self._account.name)
            change = lifecycle.merge(
                stored,
                order.status_id,
                differs=differs(order, before.get(order.payment_key), payment_codes=codes, zone=self._zone),
                status_counts=order.payment_key in held,
                problems=order.problems,
            )
            arrival = self._statuses.arrival(order)
            orders.update_delivered(connection, stored, arrival, change, now)
        quarantine.resolve(connection, [order.payment_key for order in fresh], now)
        self._durability.ask(connection)
        return fresh

    def update_least(self, held: Collection[str], connection: Connection, order: Order) -> None:
        """The status of an order whose new contents the database refuses."""
        for stored in self._ours(connection, [order]).values():
            change = lifecycle.merge_status(stored, order.status_id, status_counts=order.payment_key in held)
            if change is not None:
                orders.update_least(connection, stored, self._statuses.arrival(order), change, self._clock.now())

    def _ours(self, connection: Connection, fresh: Sequence[Order]) -> dict[str, Stored]:
        """What is stored of those that nobody holds, read once they are held for this transaction.

        A sweep, or another account, may have written since they were sorted.
        """
        free = lock_orders(connection, [order.payment_key for order in fresh])
        if len(free) < len(fresh):  # they wait, unacknowledged, for the next poll
            self._log.info("orders.held_by_a_till", orders=len(fresh) - len(free))
        stored = orders.stored(connection, free)
        name = self._account.name
        return {key: known for key, known in stored.items() if rules.may_take(known, name, self._configured)}
