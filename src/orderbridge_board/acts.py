"""Carries out taps: writes one outbox row per button, however often it is tapped, or silences an alarm."""

import math
from collections.abc import Mapping
from datetime import datetime, time, timedelta, tzinfo
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.actions import ACTIONS, CLOSURE_MINUTES, CLOSURES, Subject
from orderbridge.model import Action
from orderbridge.store.failures import is_refusal
from orderbridge_board import cards, queries
from orderbridge_board.devices import Device
from orderbridge_board.door import Refused
from orderbridge_board.snapshot import shown_row

MOST_SILENCED = 50
LONGEST = 200
TODAY = "today"
LARGEST = 2**53  # the largest integer that JavaScript holds exactly


def act(
    connection: Connection,
    values: Mapping[str, Any],
    device: Device,
    mode: str,
    language: str,
    now: datetime,
    zone: tzinfo,
) -> dict[str, Any]:
    """Write the outbox row of a button, or find the existing one. Raises Refused."""
    action = _action(values.get("action"))
    kind, asked = ACTIONS[action], _subject(ACTIONS[action].subject, values)
    tries = _number(values.get("tries"), 0 if kind.subject is Subject.ORDER else -LARGEST)  # a menu's may be a day
    request_id = cards.request_id(action, "/".join(map(str, asked.values())), tries)
    if kind.argument is not None:
        argument = _number(values.get(kind.argument.column), kind.argument.least)
        if not kind.argument.takes(argument):
            raise Refused(400, "not_understood")
        asked[kind.argument.column] = argument
    if action in CLOSURES:
        asked["valid_until_minutes"] = _closure_minutes(values.get("until"), now, zone)
    if kind.subject is Subject.ORDER:
        key = asked[kind.subject.column]
        if tries > cards.tries(queries.rows_of(connection, [key]).get(key, ()), action):  # no page has shown this
            raise Refused(400, "not_understood")
        if mode == cards.TILL:
            _take_over(connection, key, values.get("revision"))
    until = now + cards.HOLD if action in cards.HELD else None
    try:
        row = queries.ask(connection, request_id, until, action=action, created_by=device.name, **asked)
    except DBAPIError as error:
        if is_refusal(error):
            raise Refused(400, "not_understood") from None
        raise
    if row is None:
        raise Refused(503, "left_out")
    return {"row": shown_row(row, language)}


def _action(value: object) -> Action:
    try:
        return Action(value)  # type: ignore[arg-type]
    except ValueError:
        raise Refused(400, "not_understood") from None


def _subject(subject: Subject, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that name the subject. The marketplace's ids are compared in lower case."""
    if subject is Subject.FOOD:
        return {subject.column: _number(values.get(subject.column), 1), "account": _text(values.get("account"))}
    return {subject.column: _text(values.get(subject.column)).lower()}


def _number(value: object, least: int) -> int:
    """The value if it is an integer in range, and not a bool. Raises Refused."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
        raise Refused(400, "not_understood")
    return value


def _closure_minutes(until: object, now: datetime, zone: tzinfo) -> int | None:
    """The minutes of a closure: as given, or until the restaurant's midnight (TODAY); None: without an end."""
    if until is None:
        return None
    if until == TODAY:
        tomorrow = now.astimezone(zone).date() + timedelta(days=1)
        return math.ceil((datetime.combine(tomorrow, time(), zone) - now).total_seconds() / 60)
    minutes = _number(until, CLOSURE_MINUTES[0])
    if minutes not in CLOSURE_MINUTES:
        raise Refused(400, "not_understood")
    return minutes


def _text(value: object) -> str:
    """The value if it is a short, printable text. Raises Refused. Databases refuse some other characters."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        raise Refused(400, "not_understood")
    return value


def _take_over(connection: Connection, key: str, revision: object) -> None:
    number = _number(revision, 1)
    if number >= 2**31 or not queries.take_over(connection, key, number):
        raise Refused(409, "order_gone")


def take_back(connection: Connection, values: Mapping[str, Any]) -> dict[str, Any]:
    """Withdraw a row that still waits, or show a removed card again. Raises Refused."""
    if values.get("subject") is not None:
        queries.unsilence(connection, _text(values["subject"]))
    elif not queries.withdraw(connection, _number(values.get("id"), 1)):
        raise Refused(409, "too_late")
    return {}


def seen(connection: Connection, values: Mapping[str, Any], device: Device, mode: str, now: datetime) -> dict[str, Any]:
    """Silence these subjects on every device. If the board is the POS, take over the order's revision, too."""
    subjects = values.get("subjects")
    if not isinstance(subjects, list) or len(subjects) > MOST_SILENCED:
        raise Refused(400, "not_understood")
    quiet = [_text(one) for one in subjects]
    if mode == cards.TILL and values.get("payment_key") is not None:
        _take_over(connection, _text(values["payment_key"]).lower(), values.get("revision"))
    queries.silence(connection, quiet, device.name, now)
    return {}
