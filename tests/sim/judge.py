"""The judges: each watches a simulation for a broken promise of README.md.

A judge is called when a request leaves or ends, a line is logged, a transaction is committed, the daemon crashes or
starts, at intervals (`tick`) and at the end (`finish`). The truth comes from the sandbox; the committed rows come
from a connection of its own.
"""

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.jobs.shop import COOLDOWN_S, TIMEOUT_S
from tests.sim.bounds import ACCEPT_VALID_MINUTES, LATE_S, VALID_MINUTES
from tests.sim.disk import BUSY_TIMEOUT_S
from tests.sim.reading import status_in

from orderbridge.rules.tokens import REFUSAL_WAITS
from orderbridge_sandbox.state import Account, Order

if TYPE_CHECKING:
    from tests.sim.line import Call
    from tests.sim.simulation import Sim

# The longest effect of a fault: the wait after the third refused login, and two polls that time out.
UNDISTURBED_S = REFUSAL_WAITS[2] + 2 * (COOLDOWN_S + TIMEOUT_S)
IN_TIME_S = LATE_S + 10.0  # three polls, with their answers
CLAIM_S = 2 * BUSY_TIMEOUT_S + 2.0  # from reading the outbox to sending, if a till locks the file in between

NOT_OURS = {"come_get", "platform_courier"}  # couriers that are not the restaurant's


class Judge:
    """One promise, or a part of one."""

    promise = ""
    sim: "Sim"

    def broken(self, text: str) -> None:
        self.sim.violated(self.promise, text)

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        return self.sim.read(sql, values)

    def wrote(self, what: str) -> bool:
        """Whether a statement with this text wrote since the last commit."""
        return any(what in sql for sql in self.sim.statements)

    def row(self, number: int | None) -> sqlite3.Row:
        """A committed row of the outbox."""
        (row,) = self.rows("SELECT * FROM delivery_actions WHERE id = ?", number)
        return row

    def order(self, key: str | None) -> sqlite3.Row | None:
        return next(iter(self.rows("SELECT * FROM delivery_orders WHERE payment_key = ?", key)), None)

    def before(self, call: "Call") -> "Call | None":
        """The account's last request of the same operation before this one."""
        earlier = reversed(self.sim.calls[: call.number - 1])
        return next((one for one in earlier if (one.operation, one.account) == (call.operation, call.account)), None)

    def tries(self, row: int | None) -> "list[Call]":
        """The requests of a row since it was retried by hand, if it was. LaneOrder finds them."""
        return self.sim.of_row[row or 0][self.sim.spent.get(row or 0, 0) :]

    def seconds_since(self, text: str) -> float:
        """Seconds since the time in a column, by the daemon's clock."""
        return (self.sim.clock.now() - time_of(text)).total_seconds()

    def is_unresolved(self, key: str) -> bool:
        """Whether a row of that order is on the wire or unresolved."""
        return bool(self.rows("SELECT 1 FROM delivery_actions WHERE payment_key = ? AND state = 'sending'", key))

    def jumped_since_written(self, row: int) -> bool:
        """Whether the clock was set since the till wrote a row."""
        return self.sim.jumped_since(self.sim.till.written.get(row, 0.0))

    def lost_an_answer(self, row: int | None) -> bool:
        """Whether a crash came before an answer was written, so that the daemon knows less than the judges."""
        lost = "SELECT 1 FROM delivery_action_attempts WHERE action_id = ? AND (error_code = 'stopped_while_sending'"
        is_refused = "outcome IS NULL" if self.sim.plan.refusing else "0"  # the database refused this, too
        return bool(self.rows(f"{lost} OR {is_refused})", row))


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def past_its_time(row: sqlite3.Row, now: datetime, *, waited: bool = False) -> float:
    """Seconds since a row expired; negative if it has not. `waited`: whether it had waited until it was sent."""
    if row["expires_utc"] is not None:  # it was retried by hand
        return (now - time_of(row["expires_utc"])).total_seconds()
    usual = ACCEPT_VALID_MINUTES if row["action"] == "accept" else VALID_MINUTES
    minutes = row["valid_minutes"] or usual
    if waited or row["state"] in {"pending", "expired"}:  # a closure that is sent later would end at once
        minutes = min(minutes, row["valid_until_minutes"] or minutes)
    return (now - time_of(row["created_utc"])).total_seconds() - minutes * 60


def changed_at(sim: "Sim", order: Order) -> float:
    return (order.history[-1].at - sim.clock.true()) / timedelta(seconds=1) + sim.now()


def status_shown(order: Order) -> int | None:
    """The status that a list shows, if it can be read."""
    return order.status_id if len(order.history) > 1 else status_in(order.document)


def one_menu(sim: "Sim", one: sqlite3.Row, other: sqlite3.Row) -> bool:
    """Whether the foods of two rows may be one food on a menu of the daemon's accounts."""
    return _is_one_place(one, other) or bool(_menus_with(sim, one) & _menus_with(sim, other))


def in_one_lane(sim: "Sim", sent: sqlite3.Row, by: str, other: sqlite3.Row) -> bool:
    """Whether another row of the food is in the lane of this account, because no other account reaches the food."""
    return _is_one_place(sent, other) or _menus_with(sim, other) == {by}


def _is_one_place(one: sqlite3.Row, other: sqlite3.Row) -> bool:
    return bool(one["restaurant_id"] == other["restaurant_id"] and one["account"] == other["account"])


def _menus_with(sim: "Sim", row: sqlite3.Row) -> set[str]:
    """The daemon's accounts that have the row's food on their menus."""
    working = sim.life.daemon.accounts if sim.life is not None and sim.life.daemon is not None else set()
    return {one.name for one in sim.world.scenery.accounts if one.name in working and is_on_menu(one, row)}


def is_on_menu(account: Account, row: sqlite3.Row) -> bool:
    if row["restaurant_id"] is None:
        return bool(row["account"] == account.name)
    return row["restaurant_id"] in account.restaurant_ids


def account_of(sim: "Sim", row: sqlite3.Row) -> str | None:
    order = sim.world.orders.get(row["payment_key"] or "")
    restaurant = order.restaurant_id if order else row["restaurant_id"]
    if restaurant is None and row["account"] in sim.plan.accounts:
        return str(row["account"])
    for account in sim.world.scenery.accounts:
        if restaurant in account.restaurant_ids:
            return account.name
    return None
