"""Counts what the marketplace shows about the points that docs/interface.md leaves open.

The counts are added to `delivery_learned` once a minute. `orderbridge learned` shows them, and `orderbridge sandbox
--as` plays them. A value is a code, a number or a word of the marketplace, never a customer's data. An error's text
that docs/interface.md does not name is left out, because it may quote a name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from orderbridge import config
from orderbridge.errors import MarketplaceError, Unauthorized
from orderbridge.model import CONFIRMED, Action, Attempt, Document, Order, OutboxRow, Outcome
from orderbridge.rules.deliveries import is_cut
from orderbridge.rules.lifecycle import STATUS_NAMES, is_others_courier
from orderbridge.store.database import Database
from orderbridge.store.own_tables import learned

MAX_VALUES = 50  # of one point; further ones count as OTHER
MAX_LENGTH = 120  # characters of a value
OTHER = "other"
ORDERED = 3  # orders; a list with at least this many shows its order


class Point(StrEnum):
    """The open points. docs/interface.md names each."""

    STATUS_ID = "status_id"
    COURIER_TYPE = "courier_type"
    OPTION_TYPE = "option_type"
    OPTION_OPERATION = "option_operation"
    PAYMENT_METHOD = "payment_method"
    IDS = "ids"
    LIST_ORDER = "list_order"
    LIST_COVERS = "list_covers"
    LIST_LENGTH = "list_length"  # only where the list may be cut
    MENU_SHAPE = "menu_shape"
    REFUSAL = "refusal"
    COMPLETE_FROM_CONFIRMED = "complete_from_confirmed"
    PREPARING_TIME = "preparing_time"  # minutes that were refused as a field: another refusal concerns the order
    TOKEN_ENDED = "token_ended"  # noqa: S105 - before its time


class Learned:
    """The counts that are not written yet. They survive a reload."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Point, str]] = Counter()

    def saw(self, point: Point, value: object, times: int = 1) -> None:
        """Count a value. An empty one is not counted."""
        text = str("" if value is None else value).strip()[:MAX_LENGTH]
        if not text:
            return
        if (point, text) not in self._counts and sum(one == point for one, _ in self._counts) >= MAX_VALUES:
            text = OTHER
        self._counts[point, text] += times

    def listed(self, documents: Sequence[Document], list_limit: int | None) -> None:
        """Count what a list of orders shows."""
        for status_id, times in Counter(one.status_id for one in documents if one.reason is None).items():
            self.saw(Point.STATUS_ID, status_id, times)
        capitals = sum(one.service_key is not None for one in documents)
        for value, times in (("capitals", capitals), ("lower_case", len(documents) - capitals)):
            if times:
                self.saw(Point.IDS, value, times)
        if is_cut(documents, list_limit):
            self.saw(Point.LIST_LENGTH, len(documents))

    def received(self, orders: Sequence[Order]) -> None:
        """Count what new orders of one list show, in the list's order."""
        for facts in (order.facts for order in orders):
            self.saw(Point.COURIER_TYPE, facts.courier_type)
            self.saw(Point.PAYMENT_METHOD, facts.payment_method)
            for option in (option for item in facts.items for option in item.options):
                self.saw(Point.OPTION_TYPE, option.type)
                self.saw(Point.OPTION_OPERATION, option.operation)
        if len({order.facts.restaurant_id for order in orders}) > 1:
            self.saw(Point.LIST_COVERS, "all")
        times = [order.facts.ordered_at for order in orders]
        dates = [moment for moment in times if moment]
        if ORDERED <= len(set(dates)) == len(orders):
            ways = {"oldest_first": dates == sorted(dates), "newest_first": dates == sorted(dates, reverse=True)}
            self.saw(Point.LIST_ORDER, next((way for way, is_so in ways.items() if is_so), "shuffled"))

    def failed(
        self, path: str, error: MarketplaceError, body: Mapping[str, int | None] | None, is_replaced: bool
    ) -> None:
        """Count a failed answer. `path` is without its id.

        `is_replaced`: a newer login had obtained another token meanwhile.
        """
        if error.http_status is None:
            return
        self.saw(Point.REFUSAL, f"{path} {error.http_status} {error.code}")
        if isinstance(error, Unauthorized):
            self.saw(Point.TOKEN_ENDED, "by_a_new_login" if is_replaced else "before_its_time")
        if error.code == "missing_field" and body and (minutes := body.get("preparing_time")) is not None:
            self.saw(Point.PREPARING_TIME, minutes)

    def answered(self, row: OutboxRow, attempt: Attempt) -> None:
        """Count the answer to a row's first request if the row is a complete that follows no on_the_way."""
        if row.action is not Action.COMPLETE or row.service_status_id != CONFIRMED:
            return
        courier = "other_courier" if is_others_courier(row.courier_type) else "own_courier"
        if attempt.outcome == Outcome.OK:
            self.saw(Point.COMPLETE_FROM_CONFIRMED, f"{courier} ok")
        elif attempt.outcome == Outcome.REFUSED:
            self.saw(Point.COMPLETE_FROM_CONFIRMED, f"{courier} {attempt.http_status} {attempt.code}")

    async def store(self, database: Database, now: datetime) -> None:
        """Add the counts to the table."""
        if not self._counts:
            return
        counts, self._counts = self._counts, Counter()
        try:
            await database.run(lambda tx: _add(tx, counts, now))
        except BaseException:
            self._counts.update(counts)
            raise


def _add(connection: Connection, counts: Mapping[tuple[Point, str], int], now: datetime) -> None:
    of_point = select(func.count()).select_from(learned)
    for (point, value), times in sorted(counts.items()):  # sorted: replicas lock the rows in one order
        row = update(learned).where(learned.c.point == point, learned.c.value == value)
        if connection.execute(row.values(times=learned.c.times + times, last_utc=now)).rowcount:
            continue
        if connection.execute(of_point.where(learned.c.point == point)).scalar_one() <= MAX_VALUES:
            connection.execute(insert(learned).values(point=point, value=value, times=times, last_utc=now))


def rows(connection: Connection) -> list[dict[str, Any]]:
    """All counts: point, value, times and last_utc."""
    query = select(learned).order_by(learned.c.point, learned.c.value)
    return [dict(row) for row in connection.execute(query).mappings()]


def contradictions(connection: Connection, market: config.Marketplace) -> dict[str, str | None]:
    """For each key of the configuration: the value seen that contradicts it, or None."""
    found: dict[str, str | None] = {}
    if market.needs_payment_status_id is None and market.list_limit is None:  # the usual case reads nothing
        return found
    seen = {(row["point"], row["value"]) for row in rows(connection)}
    if (chosen := market.needs_payment_status_id) is not None:
        ids = {value for point, value in seen if point == Point.STATUS_ID} - {str(one) for one in STATUS_NAMES}
        found["needs_payment_status_id"] = None if str(chosen) in ids or not ids else min(ids)
    if market.list_limit is not None:
        lengths = [int(value) for point, value in seen if point == Point.LIST_LENGTH and value != OTHER]
        longest = max(lengths, default=0)
        found["list_limit"] = str(longest) if longest > market.list_limit else None
    return found
