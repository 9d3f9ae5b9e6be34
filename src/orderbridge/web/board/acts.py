"""What a tap does: one outbox row, whoever taps how often, or a word that somebody has seen something."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError, IntegrityError

from orderbridge.actions import ACTIONS, Subject
from orderbridge.model import Action
from orderbridge.rules import board as rules
from orderbridge.store import board as store
from orderbridge.store.devices import Device
from orderbridge.web.board.door import Refused
from orderbridge.web.board.state import shown_row

MOST_TRIES = 10_000
MOST_SILENCED = 50
LONGEST = 200


def act(connection: Connection, values: Mapping[str, Any], device: Device, mode: str) -> dict[str, Any]:
    """Write the row that was asked for, or find the one that is there. Raises Refused."""
    try:
        action = Action(values.get("action", ""))
    except ValueError:
        raise Refused(400, "not_understood") from None
    kind = ACTIONS[action]
    asked: dict[str, Any] = {name: values.get(name) for name in _names(kind.subject)}
    subject = "/".join(str(value) for value in asked.values() if value is not None)
    tries = values.get("tries")
    if not isinstance(tries, int) or not 0 <= tries < 2**53 or not _is_plain(asked):
        raise Refused(400, "not_understood")
    if kind.argument is not None:
        asked[kind.argument.column] = values.get(kind.argument.column)
        if not kind.argument.takes(asked[kind.argument.column]):
            raise Refused(400, "not_understood")
    if mode == rules.TILL and kind.subject is Subject.ORDER:
        _take_over(connection, asked["payment_key"], values.get("revision"))
    request_id = rules.request_id(action, subject, tries)
    try:
        row = store.ask(connection, request_id, action=action, created_by=device.name, **asked)
    except (IntegrityError, DatabaseError):
        raise Refused(400, "not_understood") from None
    return {"row": shown_row(_Row(row))}


class _Row:
    """A row's columns as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


def _names(subject: Subject) -> tuple[str, ...]:
    return (subject.column, "account") if subject is Subject.FOOD else (subject.column,)


def _is_plain(asked: Mapping[str, Any]) -> bool:
    """What names its subject: short texts, and a food's number."""
    return all(
        isinstance(value, int) if name == Subject.FOOD.column else isinstance(value, str) and 0 < len(value) <= LONGEST
        for name, value in asked.items()
    )


def _take_over(connection: Connection, key: str, revision: object) -> None:
    if not isinstance(revision, int) or not 0 < revision < 2**31:
        raise Refused(400, "not_understood")
    if not store.take_over(connection, key, revision):
        raise Refused(409, "order_gone")


def take_back(connection: Connection, values: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for a row back that still waits. Raises Refused."""
    row_id = values.get("id")
    if not isinstance(row_id, int) or not 0 < row_id < 2**63 or not store.withdraw(connection, row_id):
        raise Refused(409, "too_late")
    return {}


def seen(connection: Connection, values: Mapping[str, Any], device: Device, mode: str, now: datetime) -> dict[str, Any]:
    """Somebody has seen these: they are quiet on every device. As the POS, an order's revision is taken over, too."""
    subjects = values.get("subjects")
    if not isinstance(subjects, list) or len(subjects) > MOST_SILENCED:
        raise Refused(400, "not_understood")
    if not all(isinstance(one, str) and 0 < len(one) <= LONGEST for one in subjects):
        raise Refused(400, "not_understood")
    key = values.get("payment_key")
    if mode == rules.TILL and isinstance(key, str):
        _take_over(connection, key, values.get("revision"))
    store.silence(connection, subjects, device.name, now)
    return {}
