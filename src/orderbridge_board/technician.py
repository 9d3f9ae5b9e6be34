"""The data of the technician's page: the state of each part, a chart of the last day, and today's figures."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.actions import CLOSED
from orderbridge.rules import business_day as rules
from orderbridge.rules.problems import Problem
from orderbridge.store import accounts, overview
from orderbridge_board import devices
from orderbridge_board.queries import numbers_of, shops
from orderbridge_board.snapshot import amount, moment, named, problem_shown
from orderbridge_board.watch import polls_since, slot_of

STRIP = timedelta(hours=24)
CUT = time(4)
MOST_ACCOUNTS = 200  # if there are more, only those with a problem are shown


def technician(
    connection: Connection,
    settings: config.Settings,
    problems: Sequence[Problem],
    audible: Collection[str],
    now: datetime,
    language: str,
) -> dict[str, Any]:
    """All data of the page. `audible`: the names of the tablets that can be heard."""
    names = {account.fingerprint: account.name for account in settings.accounts}
    first = {one.account or one.subject for one in problems}
    rows = sorted(accounts.overview(connection, list(names)), key=lambda row: (row["name"] not in first, row["name"]))
    outbox = overview.outbox(connection, now)
    zone = ZoneInfo(settings.marketplace.timezone)
    begin, end = rules.bounds(rules.present(now, zone, CUT), zone, CUT)
    numbers = numbers_of(connection, [one.subject for one in problems])
    received = overview.received(connection, min(begin, now - STRIP), end)
    return {
        "now": moment(now),
        "timezone": settings.marketplace.timezone,
        "mode": settings.web.board,
        "problems": [problem_shown(one, language) | {"who": _who(one, numbers)} for one in problems],
        "tablets": [_tablet(row, audible) for row in devices.listed(connection)],
        "accounts": [_account(row) for row in rows[:MOST_ACCOUNTS]],
        "closed": named(shops(connection), zone, CLOSED),
        "accounts_all": len(rows),
        "outbox": outbox | {"oldest_utc": moment(outbox["oldest_utc"])},
        "quarantined": sum(overview.quarantined(connection).values()),
        "pos_seen": moment(overview.pos_seen(connection)),
        "slots": [_slot(row) for row in polls_since(connection, now - STRIP)],
        "orders": _by_slot(received, slot_of(now - STRIP)),
        "day": _day(begin, end, [one for one in received if one.received_utc >= begin]),
    }


def _who(problem: Problem, numbers: Mapping[str, str | None]) -> str:
    """The subject of a problem in readable form: the number of an order, the name of a restaurant."""
    number = numbers.get(problem.subject)
    return problem.facts.get("name", problem.subject) if number is None else f"#{number}"


def _tablet(row: Mapping[str, Any], audible: Collection[str]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("name", "role")}
    return shown | {"seen_utc": moment(row["seen_utc"]), "audible": row["name"] in audible}


def _account(row: dict[str, Any]) -> dict[str, Any]:
    moments = ("last_poll_utc", "last_poll_ok_utc", "next_poll_utc", "token_expires_utc")
    return {"name": row["name"], "state": row["state"]} | {name: moment(row[name]) for name in moments}


def _slot(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"slot_utc": moment(row["slot_utc"])}


def _by_slot(received: Iterable[Any], since: datetime) -> list[dict[str, Any]]:
    """The number of orders of each account in each slot of ten minutes."""
    slots = ((one.account, slot_of(one.received_utc)) for one in received if one.received_utc >= since)
    return [
        {"account": name, "slot_utc": moment(slot), "count": count} for (name, slot), count in Counter(slots).items()
    ]


def _day(begin: datetime, end: datetime, received: Sequence[Any]) -> dict[str, Any]:
    """The figures of `orderbridge day`, and the number of orders in each hour."""
    sums = rules.sums_of(received)
    figures = {name: figure if isinstance(figure, int) else amount(figure) for name, figure in sums.items()}
    hours = [0] * round((end - begin) / timedelta(hours=1))
    for one in received:
        hours[min(int((one.received_utc - begin) / timedelta(hours=1)), len(hours) - 1)] += 1
    return {"begin": moment(begin), "figures": figures, "hours": hours}
