"""The command `order KEY`: an order, its history, and what it waits for."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from orderbridge.actions import ARGUMENTS
from orderbridge.cli.common import Context, as_json, cell, fact_lines, pass_context, show_json, table
from orderbridge.cli.order_commands import key_of
from orderbridge.model import BOARD_REFERENCE, UNFINISHED
from orderbridge.store import overview
from orderbridge.texts import SENTENCES, say

SHOWN_LINES = {
    "items": ("line_no", "name", "note", "quantity", "price", "total"),
    "options": ("line_no", "group_name", "option_name", "operation", "price"),
}


@click.command()
@click.argument("key")
@as_json
@pass_context
def order(context: Context, key: str, as_json: bool) -> None:
    """Show the history of an order."""
    whole = key_of(context, key, machine=as_json)
    story = context.read(lambda tx: overview.full_order(tx, whole))
    story["story"], story["waits_for"] = _entries(story), list(_waits(story))
    if as_json:
        show_json(story)
    else:
        _show_story(story, ZoneInfo(context.settings.marketplace.timezone))


def _show_story(story: dict[str, Any], zone: ZoneInfo) -> None:
    """Print the order, its items, its history in local time, and what it waits for."""
    order = {name: value for name, value in story["order"].items() if value not in {None, ""} and name != "payload"}
    click.echo("\n".join(fact_lines((name, cell(value)) for name, value in order.items())))
    for name, columns in SHOWN_LINES.items():
        if story[name]:
            click.echo(f"\n{say(f'story.{name}')}")
            click.echo("\n".join(table([{column: row[column] for column in columns} for row in story[name]])))
    click.echo(f"\n{say('story.title', zone=zone.key)}")
    day = ""
    for entry in story["story"]:
        at = entry["at_utc"].astimezone(zone)
        if f"{at:%Y-%m-%d}" != day:
            day = f"{at:%Y-%m-%d}"
            click.echo(day)
        click.echo(f"  {at:%H:%M:%S}.{at.microsecond // 1000:03d}  {entry['text']}")
    click.echo(f"\n{say('story.waits_for')}")
    for sentence in story["waits_for"] or [say("story.wait_nothing")]:
        click.echo(f"  {sentence}")


Entry = dict[str, Any]  # at_utc, what (a stable code), text


def _entries(story: dict[str, Any]) -> list[Entry]:
    """All entries, the oldest first; entries of one moment stay in causal order."""
    found = [
        *_of_events(story["events"], {row["id"] for row in story["actions"]}),
        *(entry for row in story["actions"] for entry in _of_action(row)),
        *(entry for tried in story["attempts"] for entry in _of_attempt(tried, story["actions"])),
    ]
    return sorted((one for one in found if one["at_utc"] is not None), key=lambda one: one["at_utc"])


def _of_events(events: list[dict[str, Any]], action_ids: set[int]) -> Iterator[Entry]:
    for event in events:
        word = event["event"]
        if "." in word and action_ids:  # an action's end is shown with its row
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
        reason = f": {row['error_code']}: {row['error_text']}" if row["error_code"] else ""
        text = say("story.action_ended", id=row["id"], action=row["action"], state=row["state"], known=known) + reason
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
    """The duration; "?" if the clock was set back meanwhile."""
    length = -1.0 if begun is None else (ended - begun).total_seconds()
    return f"{length:.1f}" if length >= 0 else "?"


def _waits(story: dict[str, Any]) -> Iterator[str]:
    """Sentences about what has to happen next; none for an ended order that the POS has read."""
    order, unfinished = story["order"], [row for row in story["actions"] if row["state"] in UNFINISHED]
    is_open = order["ended_utc"] is None
    if order["acknowledged_utc"] is None or order["acknowledged_status_id"] != order["service_status_id"]:
        yield say("story.wait_acknowledge")
    if order["pos_revision"] == 0 and is_open:
        yield say("story.wait_take_over")
    elif 0 < order["pos_revision"] < order["revision"] and order["pos_reference"] != BOARD_REFERENCE:
        yield say("story.wait_read", revision=order["revision"], change=order["last_change"])
    for row in unfinished:
        key = "story.wait_outcome" if row["state"] == "sending" else "story.wait_send"
        yield say(key, id=row["id"], action=row["action"], reason=row["error_text"] or "").strip()
    if is_open and order["status"] == "RECEIVED" and not unfinished:
        yield say("story.wait_answer")
    elif is_open and not unfinished and order["pos_revision"] >= order["revision"]:
        yield say("story.wait_news")
    if order["problem"]:
        yield say("story.problem", codes=order["problem"])


COMMANDS = (order,)
