"""`orderbridge status` shows problems, accounts, orders and the outbox on one screen, the worst problem first.

It works without a daemon, on a read-only file and on the schema of another version. A part that cannot be read is
named, and counts as a problem.
"""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from orderbridge import __version__
from orderbridge.cli.common import (
    Context,
    ago,
    as_json,
    fact_lines,
    folded,
    local,
    pass_context,
    show_json,
    table,
    warned,
)
from orderbridge.clock import Clock, SystemClock
from orderbridge.config import Settings
from orderbridge.config.addresses import without_password
from orderbridge.errors import OrderbridgeError, Over, StoreError
from orderbridge.jobs.open_problems import all_names, described, open_problems
from orderbridge.model import AccountState
from orderbridge.rules.problems import Code
from orderbridge.store import accounts, orders, overview, reference, schema
from orderbridge.store.database import Database
from orderbridge.store.dialects.face import TroubleKind
from orderbridge.store.problem_rows import try_to_write
from orderbridge.texts import say, sentence

MAX_LINES = 5  # of one code; --json lists all
MAX_ACCOUNTS = 20  # with more, only the first WORST_ACCOUNTS of those with a problem are shown
WORST_ACCOUNTS = 8
MAX_NAMES = 200  # characters for the names of accounts without a problem
MAX_DETAIL = 300  # characters: an error may quote a page
EVERY_S = 2.0
HOME = "\x1b[H\x1b[2J"
LIGHTS = {"healthy": "green", "warning": "yellow", "severe": "red"}


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every 2 seconds, until Ctrl-C.")
@as_json
@pass_context
def status(context: Context, watch: bool, as_json: bool) -> None:
    """Show problems, accounts, orders and outbox."""
    read, show = context.view or (facts_of, lines)
    if watch and not as_json:
        raise SystemExit(keep_watching(lambda: _screen(lambda: read(context), show)))
    facts = read(context)
    if as_json:
        show_json(facts)
    else:
        for line in show(facts):
            click.echo(line)
    raise SystemExit(0 if facts["healthy"] else 1)


def keep_watching(screen: Callable[[], tuple[bool, list[str]]], pause: Callable[[float], None] = time.sleep) -> int:
    """Show the screen again and again until Ctrl-C. `screen` returns whether all is well, and the lines.

    Returns the exit code: 1 if the last screen had a problem.
    """
    is_well, before = True, None
    try:
        while True:
            is_well, shown = screen()
            if sys.stdout.isatty():
                click.echo(HOME, nl=False, file=sys.__stdout__)  # the unescaped stream
                click.echo("\n".join(_fitting(shown)), nl=False)
            elif (news := _steady(shown)) != before:
                now: datetime = SystemClock().now()
                click.echo("\n".join([f"--- {now.astimezone():%Y-%m-%d %H:%M:%S}", *shown]))
                before = news
            sys.stdout.flush()
            pause(EVERY_S)
    except KeyboardInterrupt:
        click.echo()
    return 0 if is_well else 1


def _fitting(shown: list[str]) -> list[str]:
    """Cut the lines to the height of the terminal, which would scroll the worst problems away."""
    rows = max(shutil.get_terminal_size().lines - 1, 2)
    return shown if len(shown) <= rows else [*shown[: rows - 1], "…"]


def _steady(shown: list[str]) -> list[str]:
    """The lines without digits, so that passing time does not count as a change."""
    return ["".join(letter for letter in line if not letter.isdigit()).strip() for line in shown]


def _screen(
    read: Callable[[], dict[str, Any]], show: Callable[[dict[str, Any]], Iterator[str]]
) -> tuple[bool, list[str]]:
    """One screen of --watch; an unreachable database is shown, not raised."""
    try:
        facts = read()
    except (OrderbridgeError, DBAPIError) as error:
        reason = sentence(getattr(error, "orig", error))
        return False, [warned(f"{say('lights.red')}: {reason}", is_wrong=True, colour="red")]
    return facts["healthy"], list(show(facts))


# ---- the facts -------------------------------------------------------------------------------------------------------


def facts_of(context: Context) -> dict[str, Any]:
    """All facts, as `--json` shows them. Raises StoreError if the database cannot be opened."""
    parts, unread = _read(context)
    problems, outbox, quarantined = parts.pop("problems") or [], parts["outbox"], parts["quarantined"]
    listed = _accounts(parts, {one["subject"] for one in problems})
    worst = problems[0]["severity"] if problems else "severe" if unread else "healthy"
    file = context.settings.source.file
    return {
        "version": __version__,
        "configuration": None if file is None else str(file),
        "database": without_password(context.settings.database.url),
        "healthy": not problems and not unread,
        "light": LIGHTS[worst],
        "timezone": context.settings.marketplace.timezone,
        "problems": problems,
        "unread": unread,
        **parts,
        "accounts": sorted(listed, key=lambda one: (one["healthy"], one["name"])),
        "actions_unfinished": (outbox or {}).get("waiting"),
        "quarantined": None if quarantined is None else sum(quarantined.values()),
        "failover": parts["failover"] and parts["failover"]._asdict(),
        "closed": [one._asdict() for one in parts["closed"] or ()],
    }


def _read(context: Context) -> tuple[dict[str, Any], dict[str, str]]:
    """The result of `_parts`. If the database cannot be written, it is read again with the reason."""
    settings, clock = context.settings, SystemClock()
    with closing(context.database()) as database:
        database.read_now(schema.check_known)
        parts, unread = _parts(database, settings, clock)
        # A server is always tested. SQLite only if polls fail: the test takes the lock that the POS needs.
        is_cheap = not database.dialect.one_writer
        if is_cheap or any(one["code"] == Code.NOT_POLLING for one in parts["problems"] or ()):
            hindrance = database.hindrance(try_to_write)
            if hindrance is not None:
                parts, unread = _parts(database, settings, clock, hindrance)
    return parts, unread


def _parts(
    database: Database, settings: Settings, clock: Clock, hindrance: TroubleKind | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts by name, and the reason for each that is None because it could not be read.

    `at_utc` is taken last, because reading may take long.
    """
    readers: dict[str, Callable[[Connection], Any]] = {
        "schema": schema.check,
        "problems": lambda tx: _open_problems(tx, database, settings, clock, hindrance),
        "accounts": lambda tx: accounts.overview(tx, all_names(tx, settings)),
        "orders": orders.counts,
        "open_orders": overview.open_orders,
        "outbox": lambda tx: overview.outbox(tx, clock.now()),
        "quarantined": overview.quarantined,
        "pos_seen_utc": overview.pos_seen,
        "failover": database.dialect.failover,
        "closed": lambda tx: reference.closed(tx, clock.now()),
    }
    parts: dict[str, Any] = dict.fromkeys(readers)
    unread: dict[str, str] = {}
    for name, read in readers.items():
        try:
            parts[name] = database.read_now(read)
        except Over:
            raise
        except (StoreError, SQLAlchemyError) as error:
            unread[name] = " ".join(sentence(getattr(error, "orig", error)).split())
    del parts["schema"]
    return parts | {"at_utc": clock.now()}, unread


def _open_problems(
    tx: Connection, database: Database, settings: Settings, clock: Clock, hindrance: TroubleKind | None
) -> list[dict[str, Any]]:
    unsafe, unattended = database.durability.judge(tx), database.is_unattended()
    found = open_problems(tx, settings, clock.now(), unsafe=unsafe, hindrance=hindrance, unattended=unattended)
    rows = [described(one, settings.language) for one in found]
    worker = None if unattended else database.dialect.worker(tx)
    for row in rows if worker else ():
        if row["code"] == Code.NOT_POLLING:  # a second daemon would only wait
            row["remedy"] = say("status.another_works", worker=worker)
    return rows


def _accounts(parts: dict[str, Any], unhealthy: set[str]) -> Iterator[dict[str, Any]]:
    """The accounts with their open orders and quarantined documents."""
    by_account: dict[str, list[dict[str, Any]]] = {}
    for one in parts["open_orders"] or ():
        by_account.setdefault(one["account"], []).append(one)
    for account in parts["accounts"] or ():
        mine = by_account.get(account["name"], [])
        yield account | {
            "open": {one["status"]: one["count"] for one in mine},
            "oldest_unanswered_utc": next((one["oldest"] for one in mine if one["status"] == "RECEIVED"), None),
            "quarantined": (parts["quarantined"] or {}).get(account["name"], 0),
            "healthy": account["name"] not in unhealthy,
        }


# ---- for people ------------------------------------------------------------------------------------------------------


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """The lines of the screen."""
    now, zone, light = facts["at_utc"], ZoneInfo(facts["timezone"]), facts["light"]
    state = say("status.healthy") if facts["healthy"] else say("status.ill", light=say(f"lights.{light}"))
    yield warned(f"orderbridge {facts['version']}: {state}", is_wrong=not facts["healthy"], colour=light)
    for name, why in facts["unread"].items():
        yield warned(say("status.unread", what=name, why=why[:MAX_DETAIL]), is_wrong=True, colour="red")
    yield from _problems(facts["problems"], now, zone)
    yield ""
    yield from fact_lines((say(f"label.{name}"), text) for name, text in _sums(facts, now, zone))
    yield ""
    yield from _account_lines(facts["accounts"], now, zone)
    for one in facts["closed"][:MAX_LINES]:
        words = {"name": one["name"] or one["id"], "since": local(one["status_since_utc"], zone, now)}
        closed = say("health.restaurant_closed.cause", **words, who=one["status_by"] or "?")
        yield warned(closed, is_wrong=True)
    yield from _more("restaurant_closed", len(facts["closed"]))


def _more(code: str, count: int) -> Iterator[str]:
    if count > MAX_LINES:
        yield f"… {say('status.more', code=code, count=count - MAX_LINES)}"


def _problems(found: list[dict[str, Any]], now: datetime, zone: ZoneInfo) -> Iterator[str]:
    """Up to MAX_LINES problems of each code, then the cause and the remedy of that code."""
    for code in dict.fromkeys(one["code"] for one in found):
        alike = [one for one in found if one["code"] == code]
        yield ""
        for one in alike[:MAX_LINES]:
            yield warned(_problem(one, now, zone), is_wrong=True, colour=LIGHTS[one["severity"]])
        yield from _more(code, len(alike))
        yield folded("  ", alike[0]["cause"])
        yield folded("  ", alike[0]["remedy"])


def _problem(one: dict[str, Any], now: datetime, zone: ZoneInfo) -> str:
    since, detail = one["since"], " ".join((one["detail"] or "").split())[:MAX_DETAIL]
    parts = [
        one["code"],
        one["subject"],
        f"({one['count']})" if one["count"] > 1 else "",
        say("status.since_when", time=local(since, zone, now), ago=ago(since, now)) if since else "",
        f"[{detail}]" if detail else "",
    ]
    return " ".join(filter(None, parts))


def _account_lines(listed: list[dict[str, Any]], now: datetime, zone: ZoneInfo) -> Iterator[str]:
    shown, is_many = listed, len(listed) > MAX_ACCOUNTS
    if is_many:
        unhealthy = [account for account in listed if not account["healthy"]]
        shown = unhealthy[:WORST_ACCOUNTS]
        yield say("status.many_accounts", count=len(listed), ill=len(unhealthy))
    if shown:
        is_clean = not any(one["quarantined"] for one in shown)  # without its column the table fits 80 columns
        yield from table([_account(one, now, zone, is_clean=is_clean) for one in shown])
    elif not listed:
        yield say("status.no_account", running=say("command.is_it_running"))
    if is_many:
        names = ", ".join(account["name"] for account in listed if account["healthy"])
        yield say("status.well_accounts", names=names if len(names) <= MAX_NAMES else f"{names[:MAX_NAMES]}…")


def state_text(state: str) -> str:
    """The state in words; an unknown state of a newer daemon is shown unchanged."""
    return say(f"states.{state}") if state in set(AccountState) else state


def _account(one: dict[str, Any], now: datetime, zone: ZoneInfo, *, is_clean: bool) -> dict[str, str]:
    waits, token = one["oldest_unanswered_utc"], one["token_expires_utc"]
    good, menu = one["last_poll_ok_utc"], one["menu_read_utc"]
    return {
        say("status.account"): one["name"][:24],
        say("status.state"): state_text(one["state"]),
        say("status.good_poll"): ago(good, now) if good else "-",
        say("status.token_until"): local(token, zone, now) if token and token > now else "-",
        say("status.open"): str(sum(one["open"].values())),
        say("status.unanswered"): ago(waits, now) if waits else "-",
        **({} if is_clean else {say("status.quarantine"): str(one["quarantined"])}),
        say("status.menu"): one["menu_error"] or (ago(menu, now) if menu else "-"),
    }


def _sums(facts: dict[str, Any], now: datetime, zone: ZoneInfo) -> Iterator[tuple[str, str]]:
    """Keys of labels and their texts, without the parts that could not be read."""
    counts, outbox, seen, standby = facts["orders"], facts["outbox"], facts["pos_seen_utc"], facts["failover"]
    yield "configuration", facts["configuration"] or say("facts.no_file")
    yield "database", facts["database"]
    if standby is not None:
        yield "failover", warned(sentence(standby["message"]), is_wrong=not standby["is_safe"])
    if counts is not None:
        by_status: Counter[str] = Counter()
        for one in facts["open_orders"] or []:
            by_status[one["status"]] += one["count"]
        listed = ", ".join(f"{status} {count}" for status, count in sorted(by_status.items()))
        yield "orders", say("status.orders", **counts) + (f": {listed}" if listed else "")
    if outbox is not None:
        oldest = outbox["oldest_utc"]
        waits = say("status.oldest", ago=ago(oldest, now)) if oldest else ""
        yield "actions", say("status.actions", waiting=outbox["waiting"], failed=outbox["failed_last_day"]) + waits
    if facts["quarantined"] is not None:
        yield "quarantine", str(facts["quarantined"])
    if "pos_seen_utc" not in facts["unread"]:
        last = seen and say("status.pos_seen", time=local(seen, zone, now), ago=ago(seen, now))
        yield "pos", last or say("status.pos_never_seen")


COMMANDS = (status,)
