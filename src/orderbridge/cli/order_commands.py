"""The commands that show and take over orders: orders, order KEY, take KEY, quarantine, day, audit, learned."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import click
from sqlalchemy import Connection, select

from orderbridge.actions import ARGUMENTS
from orderbridge.cli.common import Context, as_json, cell, fact_lines, local, pass_context, show_json, show_rows, table
from orderbridge.clock import YEARS, SystemClock
from orderbridge.config.keys import UUID
from orderbridge.model import BOARD_REFERENCE, UNFINISHED
from orderbridge.rules import business_day as rules
from orderbridge.rules.business_day import difference, expected, sums_of
from orderbridge.store import overview as stories
from orderbridge.store import quarantine as kept
from orderbridge.store import tables
from orderbridge.texts import SENTENCES, say, spoken

LISTED = """received_utc payment_key account order_number status restaurant_name total revision pos_revision
    problem""".split()
SHOWN_LINES = {
    "items": ("line_no", "name", "note", "quantity", "price", "total"),
    "options": ("line_no", "group_name", "option_name", "operation", "price"),
}
KEPT = ("id", "account", "payment_key", "reason", "last_seen_utc", "times_seen")
SHORT_KEY = 8  # characters of a payment_key
ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)  # before any order


@click.command()
@click.option("--new", "which", flag_value="new", help="Only orders that the POS has not taken over.")
@click.option("--changed", "which", flag_value="changed", help="Only orders that changed after the POS took them over.")
@click.option("--all", "which", flag_value="all", help="Ended orders too.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@as_json
@pass_context
def orders(context: Context, which: str | None, limit: int, as_json: bool) -> None:
    """List the open orders, the newest first."""
    by_option = {"new": tables.new_orders, "changed": tables.changed_orders, "all": tables.orders}
    table = by_option.get(which or "", tables.open_orders)
    query = select(*(table.c[name] for name in LISTED)).order_by(table.c.received_utc.desc(), table.c.payment_key)

    def read(connection: Connection) -> list[dict[str, Any]]:
        rows = [dict(row) for row in connection.execute(query.limit(limit)).mappings()]
        return stories.with_lines(connection, rows) if as_json else rows

    rows = context.read(read)
    shown = partial(_for_people, zone=ZoneInfo(context.settings.marketplace.timezone), now=SystemClock().now())
    show_rows(rows, machine=as_json, empty=say("listing.no_orders"), shown=shown)


def short(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """These columns of a row, with shortened keys."""
    return {name: row[name][:SHORT_KEY] if name.endswith("_key") and row[name] else row[name] for name in names}


def _for_people(row: Mapping[str, Any], zone: ZoneInfo, now: datetime) -> dict[str, Any]:
    """The columns for a terminal: local time, and the first characters of the key, which commands accept."""
    return {
        say("listing.order_received"): local(row["received_utc"], zone, now),
        say("listing.order_number"): row["order_number"],
        say("listing.order_key"): row["payment_key"][:SHORT_KEY],
        say("status.account"): row["account"][:12],
        say("status.state"): row["status"],
        say("listing.order_restaurant"): None if row["restaurant_name"] is None else row["restaurant_name"][:22],
        say("listing.order_total"): row["total"],
        say("listing.order_problem"): row["problem"],
    }


@click.command()
@click.argument("key")
@as_json
@pass_context
def order(context: Context, key: str, as_json: bool) -> None:
    """Show the history of an order."""
    whole = key_of(context, key, machine=as_json)
    story = context.read(lambda tx: stories.full_order(tx, whole))
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


# ---- the history -----------------------------------------------------------------------------------------------------

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


# ---- taking over, quarantine -----------------------------------------------------------------------------------------


@click.command()
@click.argument("key")
@click.option("--revision", type=click.IntRange(1), help="The revision that was read; default the newest.")
@click.option("--reference", default="command line", show_default=True, help="Your own number for the order.")
@as_json
@pass_context
def take(context: Context, key: str, revision: int | None, reference: str, as_json: bool) -> None:
    """Take an order over as a POS does."""
    whole = key_of(context, key, machine=as_json, to_act=True)
    taken = context.write(lambda tx: stories.take_over(tx, whole, revision, reference))
    if taken is None:
        raise click.ClickException(say("listing.not_taken", wanted=key))
    if as_json:
        show_json(taken)
    else:
        click.echo(
            say("listing.taken", number=taken["order_number"], revision=taken["pos_revision"], reference=reference)
        )


@click.group()
def quarantine() -> None:
    """Documents that could not be stored as orders."""


@quarantine.command("list")
@as_json
@pass_context
def quarantine_list(context: Context, as_json: bool) -> None:
    """List the documents with their reasons."""
    rows, empty = context.read(kept.unresolved), say("listing.no_quarantine")
    show_rows(rows, machine=as_json, empty=empty, shown=partial(short, names=KEPT))


@quarantine.command("retry")
@click.argument("ids", type=int, nargs=-1)
@as_json
@pass_context
def quarantine_retry(context: Context, ids: tuple[int, ...], as_json: bool) -> None:
    """Store the orders whose cause is gone."""
    from orderbridge.jobs.reimport import UNFINISHED as LEFT
    from orderbridge.jobs.reimport import Reimport, Released, release

    waiting = [row["id"] for row in context.read(kept.unresolved)]
    if unknown := sorted(set(ids) - set(waiting)):
        raise click.ClickException(say("listing.not_in_quarantine", ids=unknown))
    done: dict[int, Released] = {}
    with closing(context.database()) as database:
        reimport = Reimport(database, context.settings, SystemClock().now())
        for row_id in sorted(ids or waiting):
            if row_id not in done:
                done |= {one.id: one for one in release(reimport, row_id)}
    rows = [{name: getattr(one, name) for name in one.__slots__} for one in done.values()]
    show_rows(rows, machine=as_json, empty=say("listing.no_quarantine"))
    raise SystemExit(any(one.outcome in LEFT for one in done.values()))


def key_of(context: Context, wanted: str, *, machine: bool, to_act: bool = False) -> str:
    """The payment_key of the wanted order. Raises ClickException for none and for several, which are listed.

    `to_act`: the first characters of a key are not enough; a whole key is accepted even if the order is not stored yet.
    """
    find = stories.exactly if to_act else stories.find
    found = context.read(lambda tx: find(tx, wanted))
    if len(found) == 1:
        return str(found[0]["payment_key"])
    if found:
        show_rows(found, machine=machine, empty="")
        raise click.ClickException(say("story.several", wanted=wanted, count=len(found)))
    if to_act and UUID.fullmatch(wanted.lower()):
        return wanted.lower()
    raise click.ClickException(say("story.none", wanted=wanted))


# ---- the sums of a business day (rules.business_day) -------------------------------------------------------------------

IF_ANY = ("payment_unknown", "cash_unfinished", "prepaid_unfinished", "without_amount")
COUNTS = ("orders", "completed", "unfinished", "cancelled", "never_taken_over")
SHOWN = (*COUNTS, "cash", "prepaid", "payment_unknown", "discount", "tips", *IF_ANY[1:])
DIFFERENCE = ("order_number", "pos_reference", "account", "status", "pos_total")


@click.command("day")
@click.argument("day", type=click.DateTime(["%Y-%m-%d", "%d.%m.%Y"]), required=False, metavar="[DATE]")
@click.option(
    "--cut",
    type=click.DateTime(["%H:%M"]),
    default="04:00",
    show_default=True,
    metavar="HH:MM",
    help="When a business day begins, local time.",
)
@as_json
@pass_context
def day_command(context: Context, day: datetime | None, cut: datetime, as_json: bool) -> None:
    """Show the sums of a business day: cash, prepaid, differences."""
    zone = ZoneInfo(context.settings.marketplace.timezone)
    chosen = rules.present(SystemClock().now(), zone, cut.time()) if day is None else day.date()
    if chosen.year not in YEARS:
        raise click.BadParameter(say("day.no_year", date=chosen))
    begin, end = rules.bounds(chosen, zone, cut.time())
    facts = _day_facts(context.read(lambda tx: stories.received(tx, begin, end)))
    if as_json:
        show_json(facts | {"date": f"{chosen}", "begin_utc": begin, "end_utc": end})
    else:
        title = say("day.title", date=f"{chosen}", cut=f"{cut:%H:%M}", zone=zone.key)
        click.echo("\n".join([title, "", *_day_lines(**facts)]))


def _day_facts(orders: list[Any]) -> dict[str, Any]:
    places: dict[tuple[str, str], list[Any]] = {}
    for one in orders:
        places.setdefault((one.account, one.restaurant_id or ""), []).append(one)
    return {
        "total": sums_of(orders),
        "restaurants": [
            {"account": account, "restaurant_id": place, "restaurant_name": _name(theirs), **sums_of(theirs)}
            for (account, place), theirs in places.items()
        ],
        "differences": [
            {name: getattr(one, name) for name in DIFFERENCE} | {"expected": expected(one), "difference": excess}
            for one in orders
            if (excess := difference(one))
        ],
    }


def _name(orders: list[Any]) -> str:
    return next((one.restaurant_name for one in orders if one.restaurant_name), "")


def _day_lines(
    total: Mapping[str, Any], restaurants: list[dict[str, Any]], differences: list[dict[str, Any]]
) -> Iterator[str]:
    rows = [(say(f"day.{name}"), _shown(total[name])) for name in SHOWN if total[name] or name not in IF_ANY]
    wide, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    yield from (f"{label.ljust(wide)}  {value.rjust(right)}" for label, value in rows)
    if len(restaurants) > 1:
        yield from ("", *table([_restaurant(one) for one in sorted(restaurants, key=lambda one: -one["orders"])]))
    if differences:
        yield from ("", say("day.differences", count=len(differences), amount=_shown(total["difference"])))
    for one in differences:
        number = " ".join(str(part) for part in (one["order_number"], one["pos_reference"]) if part is not None)
        amounts = {name: _shown(one[name]) for name in ("expected", "pos_total", "difference")}
        yield "  " + say("day.difference", number=number or "?", **amounts)
    yield from ("", say("day.counted"))


def _restaurant(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        say("day.restaurant"): f"{one['restaurant_name'] or one['restaurant_id'] or '-'} ({one['account']})"[:32],
        say("day.orders"): one["orders"],
        say("day.short_cash"): _shown(one["cash"]),
        say("day.short_prepaid"): _shown(one["prepaid"]),
        say("day.cancelled"): one["cancelled"],
    }


def _shown(figure: Decimal | int) -> str:
    """Format a count as it is, an amount as 1.234,50 in Turkish and 1,234.50 in English."""
    if isinstance(figure, int):
        return str(figure)
    text = f"{figure:,.2f}"
    return text.translate(str.maketrans(",.", ".,")) if spoken() == "tr" else text


# ---- the promises ----------------------------------------------------------------------------------------------------


@click.command("audit")
@click.option("--since", "days", type=click.IntRange(1, 36_500), metavar="DAYS", help="Only the last DAYS days.")
@as_json
@pass_context
def audit_command(context: Context, days: int | None, as_json: bool) -> None:
    """Check the promises on the tables."""
    from orderbridge.jobs.audit import audit

    since = SystemClock().now() - timedelta(days=days) if days else ALWAYS
    found = context.read(lambda tx: audit(tx, context.settings, since))
    if as_json:
        show_json(asdict(found))
    else:
        for one in found.findings:
            subject = say(f"audit.{'order' if one.action_id is None else 'action'}", **asdict(one))
            text = say(f"audit.{one.code}")
            click.echo(say("audit.finding", promise=one.promise, at=cell(one.at_utc), subject=subject, text=text))
        click.echo(say("audit.result", orders=found.orders, actions=found.actions, count=len(found.findings)))
    raise SystemExit(bool(found.findings))


@click.command("learned")
@as_json
@pass_context
def learned_command(context: Context, as_json: bool) -> None:
    """Show what the marketplace does at the open points."""
    from orderbridge.jobs.learned import rows

    show_rows(context.read(rows), machine=as_json, empty=say("listing.nothing_learned"))


COMMANDS = (orders, order, take, quarantine, day_command, audit_command, learned_command)
