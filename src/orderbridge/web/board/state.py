"""The whole state of the board, as the page takes it after each change: everything in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.model import Action
from orderbridge.rules import board as rules
from orderbridge.rules.problems import Problem, Severity
from orderbridge.store import board as store
from orderbridge.texts import problem_text

MINUTES = (10, 15, 20, 25, 30, 40, 50, 60)


def state(
    connection: Connection, settings: config.Settings, problems: Sequence[Problem], now: datetime, language: str
) -> dict[str, Any]:
    """Cards, problems, what sounds, and what the buttons need."""
    found = store.orders_shown(connection, now)
    keys = [row["payment_key"] for row in found]
    lines, rows = store.lines(connection, keys), store.rows_of(connection, keys)
    silenced = store.silenced_since(connection, now - 2 * store.STOP_SHOWN)
    cards = [
        one
        for row in found
        if (one := _card(row, lines, rows.get(row["payment_key"], []), silenced, settings.web.board, now)) is not None
    ]
    listed = [_problem(one, language, silenced) for one in problems]
    sounds = {name for card in cards for name in card["sounds"]}
    if any(one["sounds"] for one in listed):
        sounds.add(rules.Sound.LINE)
    return {
        "now": moment(now),
        "mode": settings.web.board,
        "timezone": settings.marketplace.timezone,
        "orders": cards,
        "problems": listed,
        "sounds": sorted(sounds),
        "reasons": store.reasons(connection),
        "minutes": MINUTES,
    }


def _card(
    row: Mapping[str, Any],
    lines: tuple[Mapping[str, list[Any]], Mapping[tuple[str, int], list[Any]]],
    asked: list[Any],
    silenced: Collection[str],
    mode: str,
    now: datetime,
) -> dict[str, Any] | None:
    order = rules.Seen(
        row["payment_key"],
        row["status_id"],
        row["status"],
        row["courier_type"],
        row["revision"],
        row["pos_revision"],
        row["ended_by"],
        row["amount_due"],
    )
    stop = rules.is_stopped(order, asked, silenced)
    if order.ended_by is not None and not stop:
        return None
    due = rules.due(order, asked)
    is_overdue = due is not None and now > due
    sounds = [
        *([rules.Sound.NEW] if rules.rings(order, asked, mode) else []),
        *([rules.Sound.CANCELLED] if stop and rules.sounds_stop(order) else []),
        *([rules.Sound.OVERDUE] if is_overdue and rules.overdue_of(order) not in silenced else []),
    ]
    return {
        "key": order.key,
        "number": row["order_number"],
        "account": row["account"],
        "restaurant": row["restaurant_name"],
        "status": row["status"],
        "received": moment(row["received_utc"]),
        "shipping": row["shipping_method"],
        "courier": row["courier_type"],
        "scheduled": row["scheduled_for"],
        "ordered": row["ordered_at"],
        "money": rules.money(order),
        "amount": amount(row["amount_due"]),
        "total": amount(row["total"]),
        "tip": amount(row["order_tip"]),
        "payment": row["payment_method"],
        "note": row["note"],
        "items": _items(order.key, lines),
        "problems": [code for code in (row["problem"] or "").split(",") if code],
        "revision": order.revision,
        "taken": order.pos_revision > 0,
        "stop": stop,
        "waits": rules.rings(order, asked, rules.BESIDE),
        "due": moment(due),
        "sounds": sounds,
        "actions": [{"action": one, "tries": rules.tries(asked, one)} for one in rules.offered(order, asked)],
        "row": shown_row(rules.newest(asked)),
    }


def _items(key: str, lines: tuple[Mapping[str, list[Any]], Mapping[tuple[str, int], list[Any]]]) -> list[Any]:
    of_orders, of_items = lines
    return [
        {
            "name": item.name,
            "quantity": item.quantity,
            "note": item.note,
            "options": [
                {"group": one.group_name, "operation": one.operation, "name": one.option_name}
                for one in of_items.get((key, item.line_no), ())
            ],
        }
        for item in of_orders.get(key, ())
    ]


def shown_row(row: Any) -> dict[str, Any] | None:
    """An outbox row as a card shows it."""
    if row is None:
        return None
    waits = row.state in rules.UNFINISHED
    return {
        "id": row.id,
        "action": row.action,
        "state": row.state,
        "waits": waits,
        "text": row.error_text,
        "by": row.created_by,
        "minutes": whole(row.preparing_time),
        "next": moment(row.next_attempt_utc),
        "back": waits and row.action == Action.ACCEPT and not row.withdraw and row.request_id.startswith("board:"),
    }


def problem_shown(one: Problem, language: str) -> dict[str, Any]:
    """An open problem with its sentences, and which link of the chain it breaks."""
    cause, remedy = problem_text(one.code, language, **one.facts)
    return {
        "code": one.code,
        "subject": one.subject,
        "severity": one.severity,
        "since": moment(one.since),
        "count": one.count,
        "cause": cause,
        "remedy": remedy,
        "link": rules.link_of(one.code),
    }


def _problem(one: Problem, language: str, silenced: Collection[str]) -> dict[str, Any]:
    shown, subject = problem_shown(one, language), problem_of(one)
    breaks = one.severity == Severity.SEVERE and shown["link"] not in {None, "pos"}
    return shown | {"silence": subject, "sounds": breaks and subject not in silenced}


def problem_of(one: Problem) -> str:
    """What is silenced of a problem: of its next time nothing."""
    since = "" if one.since is None else f"{one.since:%Y%m%dT%H%M%S}"
    return f"problem:{one.code}:{one.subject}:{since}"[:200]


def moment(value: datetime | None) -> str | None:
    """As a browser reads it."""
    return None if value is None else f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"


def amount(value: Decimal | None) -> str | None:
    """With two decimals."""
    return None if value is None else f"{value:.2f}"


def whole(value: Any) -> int | None:
    """A column that a POS writes, as the number that it is."""
    return None if value is None else int(value)
