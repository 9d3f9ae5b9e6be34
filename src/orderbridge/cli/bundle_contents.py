"""What may stand in a support bundle: columns, keys and fields of these lists, and of a text only what is a code.

What a customer, a cashier or a technician wrote is in none of the lists.
"""

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from orderbridge.document import Facts, Item, Option, fields_of

COLUMNS = {
    "order": """payment_key account order_number status_id status payment_code restaurant_id amount_due total discount
        courier_fee order_tip start_utc payload revision contents_revision last_change
        service_status_id received_utc changed_utc acknowledged_utc acknowledged_status_id ended_utc ended_by problem
        remarks pos_revision pos_total""",
    "items": "line_no item_id food_id price quantity total",
    "options": "line_no option_no group_id option_id price",
    "events": "id at_utc event status_id status",
    "actions": """id action payment_key restaurant_id food_id account preparing_time reason_id valid_minutes withdraw
        created_utc state attempts next_attempt_utc expires_utc http_status error_code known_by finished_utc""",
    "attempts": "action_id attempt started_utc finished_utc outcome spent http_status error_code",
}
# Of the configuration, keys whose text is shown as it is; of `status`, keys whose text may be a code.
CONFIGURATION = frozenset(
    "language base_url timezone url journal command_severity accounts name restaurants listen board format".split()
)
CODES = frozenset("level light code severity state status lamp".split())
LOG = frozenset(
    """account accounts acknowledged action attempt blanked changed code count deleted delivered doing dropped
    ended error error_code errors expires failures http_status id job level logger ms new operation orders outcome owner
    payment_key reason refusals refused restaurant_id restaurants rows seconds severity state status_id subject table type
    unfinished wait_s waiting""".split()
)
TOO_LARGE = 10**8  # may be a telephone number
DEEPEST = 20  # levels of a document
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_CODE = r"[a-z][a-z0-9]*(?:[_.:,][a-z0-9]+)*|[A-Z][A-Z_]*|[A-Za-z]*(?:Error|Exception|Timeout)"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PLAIN = re.compile(rf"{_TIME}|{_UUID}")
_SHOWN = re.compile(rf"{_TIME}|{_UUID}|{_CODE}")
_BEGINS = re.compile(rf"({_TIME})")
_NUMBER = re.compile(r"-?\d{1,8}(?:\.\d{1,6})?")
_EVENT = re.compile(r"[a-z_]+\.[a-z_.]+")
_CONSOLE = re.compile(r"\[([a-z]+) *\] ([a-z_]+\.[a-z_.]+)(?!\S)")
_PAIR = re.compile(r"\b([a-z_]+)=(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S+)")
_PLACE = re.compile(r"/((?:orderbridge|site-packages)/[\w/.-]+\.py)\\?\", line (\d+), in (\w+)")
_RAISED = re.compile(r"([A-Za-z_.]*(?:Error|Exception|Timeout)):")

Names = Collection[str]  # of the configured accounts, which are no customers


def mask(text: str) -> str:
    """That there was a text, and how long."""
    return f"***({len(text)})"


def value(cell: Any, accounts: Names = ()) -> Any:
    """One of a listed place: a number, a time, an id, the name of an account or a code."""
    if cell is None or isinstance(cell, bool | datetime):
        return cell
    if isinstance(cell, int | float | Decimal):
        return cell if -TOO_LARGE < cell < TOO_LARGE else mask(str(cell))
    return cell if cell in accounts or _SHOWN.fullmatch(str(cell)) else mask(str(cell))


def row(part: str, cells: Mapping[str, Any], accounts: Names) -> dict[str, Any]:
    """The listed columns of a row of `COLUMNS[part]`. An account's name is the POS's word: only a configured one is shown."""
    shown = {name: value(cells[name], accounts) for name in COLUMNS[part].split() if name in cells}
    if cells.get("account") not in {None, *accounts}:
        shown["account"] = mask(str(cells["account"]))
    if cells.get("payload"):
        shown["payload"] = document(str(cells["payload"]))
    return shown


def tree(part: Any, accounts: Names = (), *, texts: Collection[str] = (), key: str = "") -> Any:
    """Numbers, times and accounts, the codes of CODES, and what the keys `texts` have."""
    if isinstance(part, dict):
        return {
            str(value(name, accounts)): tree(inner, accounts, texts=texts, key=name) for name, inner in part.items()
        }
    if isinstance(part, list):
        return [tree(inner, accounts, texts=texts, key=key) for inner in part]
    if not isinstance(part, str) or key in CODES or part in accounts or _PLAIN.fullmatch(part):
        return value(part, accounts)
    return part if key in texts else mask(part)


def line(text: str, accounts: Names) -> str:
    """Of a line of the log, in any of its forms, its time, level, event and listed fields, and the places of a traceback."""
    fields = _fields(text)
    found = _CONSOLE.search(text)
    level, event = found.groups() if found else (fields.get("level", ""), fields.get("event", ""))
    at = _BEGINS.match(fields.get("time", text))
    parts = [at[1] if at else "", f"[{value(level)}]" if level else "", event if _EVENT.fullmatch(event) else ""]
    parts += [f"{name}={_field(name, fields[name], accounts)}" for name in fields if name in LOG and name != "level"]
    parts += [f"{file}:{number} {function}" for file, number, function in _PLACE.findall(text)]
    parts += _RAISED.findall(text)[:1]
    return " ".join(filter(None, parts)) or "***"


def _fields(text: str) -> dict[str, str]:
    try:
        return {name: str(cell) for name, cell in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError):  # it is no JSON
        return {name: cell.strip("\"'") for name, cell in _PAIR.findall(text)}


def _field(name: str, cell: str, accounts: Names) -> Any:
    if name == "account":
        return cell if cell in accounts else "***"
    return cell if _NUMBER.fullmatch(cell) else value(cell, accounts)


@cache
def _known_fields() -> frozenset[str]:
    paths = [one.path for rows in (Facts, Item, Option) for one in fields_of(rows) if one.path]
    more = "payment_key status_id status_text courier_type customer foods option_groups options data"
    return frozenset([part for path in paths for part in path.split(".")] + more.split())


def document(payload: str) -> Any:
    """Its structure: the interface's own field names, and of each value only its kind and length."""
    try:
        return _shape(json.loads(payload), DEEPEST)
    except (ValueError, RecursionError):
        return mask(payload)


def _shape(part: Any, deep: int) -> Any:
    if deep == 0:
        return "…"
    if isinstance(part, dict):
        known = _known_fields()
        return {
            key if key in known else f"field {number}": _shape(inner, deep - 1)
            for number, (key, inner) in enumerate(part.items())
        }
    if isinstance(part, list):
        return [_shape(inner, deep - 1) for inner in part]
    if isinstance(part, str):
        return f"text({len(part)})"
    return "null" if part is None else type(part).__name__
