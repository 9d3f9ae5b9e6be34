"""Reads the whole state of the board, and its menu, from the tables. The page loads them after each change."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, cast
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.actions import CLOSED, INACTIVE, OPEN, Subject
from orderbridge.clock import local_moment
from orderbridge.model import BOARD_MARK, LATE, UNFINISHED, Action, ActionState, codes_of
from orderbridge.rules.problems import Problem, Severity
from orderbridge.store.foods import on_sale
from orderbridge.texts import SAME, VERDICTS, problem_text, text
from orderbridge_board import cards, queries

MINUTES = (10, 15, 20, 25, 30, 40, 50, 60)
USUAL = 25  # minutes of preparation that are offered while there are few accepts
_SEEN = [one.name for one in fields(cards.Seen) if one.name not in {"key", "scheduled"}]  # columns of the same name
_SAME = {  # fields of a card that show a column unchanged
    "number": "order_number",
    "account": "account",
    "restaurant": "restaurant_name",
    "status": "status",
    "shipping": "shipping_method",
    "courier": "courier_type",
    "scheduled": "scheduled_for",
    "ordered": "ordered_at",
    "payment": "payment_method",
    "note": "note",
}


@dataclass(frozen=True, slots=True)
class _Moment:
    """Values that all cards of one state share."""

    mode: str
    now: datetime
    zone: ZoneInfo
    silenced: Mapping[str, datetime]
    language: str


def state(
    connection: Connection, settings: config.Settings, problems: Sequence[Problem], now: datetime, language: str
) -> dict[str, Any]:
    """The cards, problems and sounds, and the values that the buttons need."""
    found = queries.orders_shown(connection, now)
    keys = [row["payment_key"] for row in found]
    lines, rows = queries.lines(connection, keys), queries.rows_of(connection, keys)
    zone = ZoneInfo(settings.marketplace.timezone)
    at = _Moment(settings.web.board, now, zone, queries.silenced_at(connection, now), language)
    made = (_card(row, lines.get(row["payment_key"], ()), rows.get(row["payment_key"], ()), at) for row in found)
    shown = [one for one in made if one is not None]
    listed = [_problem(one, language, at.silenced) for one in problems]
    shops = queries.shops(connection)
    sounds = {name for card in shown for name in card["sounds"]}
    if any(one["sounds"] for one in listed):
        sounds.add(cards.Sound.LINE)
    return {
        "now": moment(now),
        "mode": at.mode,
        "timezone": settings.marketplace.timezone,
        "orders": shown,
        "problems": listed,
        "sounds": sorted(sounds),
        "reasons": queries.reasons(connection),
        "closed": named(shops, zone, CLOSED),
        "open": named(shops, zone, OPEN),
        "minutes": MINUTES,
        "usual": queries.usual_minutes(connection) or USUAL,
    }


def named(shops: Sequence[Mapping[str, Any]], zone: ZoneInfo, status: str) -> list[str]:
    """Names of the restaurants with this status, with the time and the cause of the change if they are known."""
    found = [shop for shop in shops if shop["status"] == status]
    return [" ".join([shop["name"] or shop["id"], *_since_and_by(shop, zone)]) for shop in found]


def _since_and_by(shop: Mapping[str, Any], zone: ZoneInfo) -> list[str]:
    since = shop["status_since_utc"]
    return [] if since is None else [f"({since.astimezone(zone):%d.%m. %H:%M}, {shop['status_by'] or '?'})"]


def _card(row: Mapping[str, Any], lines: Sequence[Any], asked: Sequence[Any], at: _Moment) -> dict[str, Any] | None:
    order = _seen(row, at.zone)
    stop, away = cards.is_stopped(order, asked, at.silenced), cards.handed_at(order, asked, at.silenced)
    if (order.ended_by is not None and not stop) or (away is not None and away <= at.now):
        return None
    problems, ordered = codes_of(row["problem"]), local_moment(row["ordered_at"], at.zone)
    is_late = ordered is not None and LATE in problems
    return {name: row[column] for name, column in _SAME.items()} | {
        "key": order.key,
        "lane": cards.lane(order, asked, at.mode),
        "received": moment(ordered if is_late else cards.waits_since(row["received_utc"], ordered)),
        "money": cards.money(order),
        "amount": amount(row["amount_due"]),
        "total": amount(row["total"]),
        "tip": amount(row["order_tip"]),
        "items": [_item(item, options) for item, options in lines],
        "problems": problems,
        "revision": order.revision,
        "taken": order.pos_revision > 0,
        "changed": cards.is_changed(order, at.mode),
        "stop": stop,
        "answer": cards.answer(order, asked, at.mode),
        "due": moment(cards.due(order, asked)),
        "start": moment(order.start_utc),
        "sounds": cards.sounds(order, asked, at.mode, at.now, at.silenced),
        "actions": [{"action": one, "tries": cards.tries(asked, one)} for one in cards.offered(order, asked)],
        "row": shown_row(cards.newest(asked), at.language),
        "handed": cards.silence_of("handed", order.key) if cards.may_be_handed(order, asked) else None,
        "handed_next": cards.is_handed_next(order) or cards.is_completion_refused(asked),
        "away": moment(away),
    }


def _seen(row: Mapping[str, Any], zone: ZoneInfo) -> cards.Seen:
    return cards.Seen(
        key=row["payment_key"],
        scheduled=local_moment(row["scheduled_for"], zone),
        **{name: row[name] for name in _SEEN},
    )


def _item(item: Any, options: Sequence[Any]) -> dict[str, Any]:
    return {
        "name": item.name,
        "quantity": None if item.quantity is None else f"{item.quantity.normalize():f}",
        "note": item.note,
        "options": [{"group": one.group_name, "operation": one.operation, "name": one.option_name} for one in options],
    }


def shown_row(row: Any, language: str) -> dict[str, Any] | None:
    """The fields of an outbox row that a card shows, in the language of the page."""
    if row is None:
        return None
    waits = row.state in UNFINISHED
    return {
        "id": row.id,
        "action": row.action,
        "state": row.state,
        "waits": waits,
        "text": verdict(row, language),
        "by": row.created_by,
        "minutes": None if row.preparing_time is None else int(row.preparing_time),  # a POS may have written any type
        "next": moment(row.next_attempt_utc),
        "withdrawn": bool(row.withdraw),
        "held": moment(cards.held_until(row)),
        "back": row.action in {Action.ACCEPT, *cards.HELD}
        and cards.may_be_taken_back(row)
        and not row.withdraw
        and row.request_id.startswith(BOARD_MARK),
    }


def recall(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """Orders that ended in the last hour, and orders removed from the board, the newest first."""
    away = cards.put_away(queries.silenced_at(connection, now))
    found = queries.orders_finished(connection, list(away), now)
    lines = queries.lines(connection, [row["payment_key"] for row in found])
    rows = [(row["ended_utc"] or away[row["payment_key"]], row) for row in found]
    return [
        {
            "key": row["payment_key"],
            "number": row["order_number"],
            "at": moment(at),
            "how": row["ended_by"] or "handed",
            "subject": None if row["ended_by"] else cards.silence_of("handed", row["payment_key"]),
            "items": [_item(item, options) for item, options in lines.get(row["payment_key"], ())],
            "note": row["note"],
            "total": amount(row["total"]),
        }
        for at, row in sorted(rows, key=lambda one: one[0], reverse=True)
    ]


def verdict(row: Any, language: str) -> str | None:
    """The sentence of a row's result. If there is none by code, the row's own text, in the configured language."""
    code = SAME.get(row.error_code, row.error_code)
    if code not in VERDICTS or "{" in VERDICTS[code][language]:
        return cast(str | None, row.error_text)
    return text(row.error_code, language, state=ActionState(row.state))


def problem_shown(one: Problem, language: str) -> dict[str, Any]:
    """An open problem with its sentences, and the link of the chain that it breaks."""
    cause, remedy = problem_text(one.code, language, **one.facts)
    return {
        "code": one.code,
        "subject": one.subject,
        "severity": one.severity,
        "since": moment(one.since),
        "count": one.count,
        "cause": cause,
        "remedy": remedy,
        "link": cards.link_of(one),
    }


def _problem(one: Problem, language: str, silenced: Collection[str]) -> dict[str, Any]:
    shown, subject = problem_shown(one, language), problem_of(one)
    breaks = one.severity == Severity.SEVERE and shown["link"] not in {None, "pos"}
    return shown | {"silence": subject, "sounds": breaks and subject not in silenced}


def problem_of(one: Problem) -> str:
    """The subject to silence for a problem. It does not silence a later occurrence."""
    since = "" if one.since is None else f"{one.since:%Y%m%dT%H%M%S}"
    return f"problem:{one.code}:{one.subject}:{since}"[:200]


def moment(value: datetime | None) -> str | None:
    """The time in the format that a browser reads."""
    return None if value is None else f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"


def amount(value: Decimal | None) -> str | None:
    """The amount with two decimals."""
    return None if value is None else f"{value:.2f}"


# ---- sold out, open and closed ---------------------------------------------------------------------------------------


def menu(connection: Connection, now: datetime, language: str, zone: ZoneInfo) -> dict[str, Any]:
    """The foods and the restaurants. `tries`, the id of the newest finished row, makes the next tap a new request.

    Without a row of the last days, `tries` is the day as a negative number, which is no id, since older rows may exist.
    """
    toggles, today = queries.newest_toggles(connection, now), now.toordinal()
    of_food, of_shop = defaultdict(list), defaultdict(list)
    for row in toggles[Subject.FOOD]:
        of_food[row.food_id].append(row)
    for row in toggles[Subject.RESTAURANT]:
        of_shop[row.restaurant_id].append(row)
    foods = []
    for food in on_sale(connection, now):
        mine = [row for row in of_food[food["food_id"]] if row.account in {None, food["account"]}]
        shown = {name: food[name] for name in ("food_id", "name", "account", "category")}
        switch = _switch(mine, today, language, off=Action.DEACTIVATE_FOOD)
        switch["until"] = _until(mine, now, zone)
        is_off = switch["off"] if food["status"] is None else food["status"] == INACTIVE
        foods.append(shown | switch | {"off": is_off})
    shops = []
    for shop in queries.shops(connection):
        shown = {name: shop[name] for name in ("id", "name", "account", "status")}
        switch = _switch(of_shop[shop["id"]], today, language, off=Action.CLOSE_RESTAURANT)
        shops.append(shown | switch | {"until": _until(of_shop[shop["id"]], now, zone)})
    return {"foods": foods, "restaurants": shops}


def _until(rows: list[Any], now: datetime, zone: ZoneInfo) -> str | None:
    """When the newest closure ends by itself, in the time of the restaurant."""
    done = [row for row in rows if row.state == ActionState.DONE]
    if not done or done[-1].until_utc is None or done[-1].withdraw:
        return None
    until = done[-1].until_utc.astimezone(zone)
    return f"{until:%H:%M}" if until.date() == now.astimezone(zone).date() else f"{until:%d.%m. %H:%M}"


def _switch(rows: list[Any], today: int, language: str, *, off: Action) -> dict[str, Any]:
    """Whether it was switched off here, its newest row, and `tries` for the next tap."""
    done = [row for row in rows if row.state == ActionState.DONE]
    return {
        "off": bool(done) and done[-1].action == off,
        "tries": max((row.id for row in rows if row.state not in UNFINISHED), default=-today),
        "row": shown_row(cards.newest(rows), language),
    }
