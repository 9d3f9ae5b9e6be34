"""An order's story in order of time, and what it waits for now, as `orderbridge order` tells it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orderbridge.actions import ARGUMENTS
from orderbridge.model import BOARD_REFERENCE, UNFINISHED
from orderbridge.texts import SENTENCES, say

Entry = dict[str, Any]  # at_utc, what (a stable word), text


def entries(story: dict[str, Any]) -> list[Entry]:
    """Everything that happened, the oldest first; of one moment in the order in which it is caused."""
    found = [
        *_of_events(story["events"], {row["id"] for row in story["actions"]}),
        *(entry for row in story["actions"] for entry in _of_action(row)),
        *(entry for tried in story["attempts"] for entry in _of_attempt(tried, story["actions"])),
    ]
    return sorted((one for one in found if one["at_utc"] is not None), key=lambda one: one["at_utc"])


def _of_events(events: list[dict[str, Any]], told: set[int]) -> Iterator[Entry]:
    for event in events:
        word = event["event"]
        if "." in word and told:  # an action's end: its row tells it, and with what was said
            continue
        key = f"story.{word}"
        text = say(key) if key in SENTENCES else word
        more = ", ".join(str(part) for part in (event["status"], event["detail"]) if part)
        yield {"at_utc": event["at_utc"], "what": word, "text": f"{text}: {more}" if more else text}


def _of_action(row: dict[str, Any]) -> Iterator[Entry]:
    by = f" {say('story.by', name=row['created_by'])}" if row["created_by"] else ""
    argument = next((f" {row[one.column]}" for one in ARGUMENTS if row[one.column] is not None), "")
    asked = say("story.asked", id=row["id"], action=f"{row['action']}{argument}", by=by)
    yield {"at_utc": row["created_utc"], "what": "action.asked", "text": asked}
    if row["finished_utc"] is not None:
        known = say("story.known_by", how=row["known_by"]) if row["known_by"] else ""
        said = f": {row['error_code']}: {row['error_text']}" if row["error_code"] else ""
        text = say("story.action_ended", id=row["id"], action=row["action"], state=row["state"], known=known) + said
        yield {"at_utc": row["finished_utc"], "what": "action.ended", "text": text}


def _of_attempt(tried: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[Entry]:
    action = next((row["action"] for row in rows if row["id"] == tried["action_id"]), "")
    answer = [
        *([f"HTTP {tried['http_status']}"] if tried["http_status"] is not None else []),
        *(str(tried[name]) for name in ("outcome", "error_code") if tried[name]),
        *([f"[{' '.join(tried['detail'].split())}]"] if tried["detail"] else []),
    ]
    facts = {"id": tried["action_id"], "number": tried["attempt"], "action": action}
    begun, ended = tried["started_utc"], tried["finished_utc"]
    if ended is None:
        text = " ".join([say("story.request_open", **facts), *answer])
    else:
        text = say("story.request", **facts, answer=" ".join(answer) or "-", seconds=_seconds(begun, ended))
    yield {"at_utc": begun, "what": "request", "text": text}


def _seconds(begun: datetime | None, ended: datetime) -> str:
    """How long it took; "?" when a clock was set meanwhile."""
    length = -1.0 if begun is None else (ended - begun).total_seconds()
    return f"{length:.1f}" if length >= 0 else "?"


def waits_for(story: dict[str, Any]) -> list[str]:
    """What has to happen next, in sentences; none for an order that is over and seen."""
    return list(_waits(story))


def _waits(story: dict[str, Any]) -> Iterator[str]:
    order, unfinished = story["order"], [row for row in story["actions"] if row["state"] in UNFINISHED]
    is_open = order["ended_utc"] is None
    if order["acknowledged_utc"] is None or order["acknowledged_status_id"] != order["service_status_id"]:
        yield say("story.wait_acknowledge")
    if order["pos_revision"] == 0 and is_open:
        yield say("story.wait_take_over")
    elif 0 < order["pos_revision"] < order["revision"] and order["pos_reference"] != BOARD_REFERENCE:
        yield say("story.wait_read", revision=order["revision"], change=order["last_change"])
    for row in unfinished:
        said = row["error_text"] or ""
        if row["state"] == "sending":
            yield say("story.wait_outcome", id=row["id"], action=row["action"], said=said).strip()
        else:
            yield say("story.wait_send", id=row["id"], action=row["action"], said=said).strip()
    if is_open and order["status"] == "RECEIVED" and not unfinished:
        yield say("story.wait_answer")
    elif is_open and not unfinished and order["pos_revision"] >= order["revision"]:
        yield say("story.wait_news")
    if order["problem"]:
        yield say("story.problem", codes=order["problem"])
