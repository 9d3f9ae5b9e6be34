"""The commands on orders: orders, take KEY, quarantine, audit, learned."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import click
from sqlalchemy import Connection, select

from orderbridge.cli.common import Context, as_json, cell, local, pass_context, show_json, show_rows
from orderbridge.clock import SystemClock
from orderbridge.config.keys import UUID
from orderbridge.store import overview, tables
from orderbridge.store import quarantine as kept
from orderbridge.texts import say

LISTED = """received_utc payment_key account order_number status restaurant_name total revision pos_revision
    problem""".split()
KEPT = ("id", "account", "payment_key", "reason", "last_seen_utc", "times_seen")
SHORT_KEY = 8  # characters of a payment_key
ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)  # before any order


@click.command()
@click.option("--new", "which", flag_value="new", help="Only orders that the POS has not taken over.")
@click.option("--changed", "which", flag_value="changed", help="Only orders that changed after the POS took them over.")
@click.option("--all", "which", flag_value="all", help="Ended orders too.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="The most lines to print."
)
@as_json
@pass_context
def orders(context: Context, which: str | None, limit: int, as_json: bool) -> None:
    """List the open orders, the newest first."""
    by_option = {"new": tables.new_orders, "changed": tables.changed_orders, "all": tables.orders}
    table = by_option.get(which or "", tables.open_orders)
    query = select(*(table.c[name] for name in LISTED)).order_by(table.c.received_utc.desc(), table.c.payment_key)

    def read(connection: Connection) -> list[dict[str, Any]]:
        rows = [dict(row) for row in connection.execute(query.limit(limit)).mappings()]
        return overview.with_lines(connection, rows) if as_json else rows

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
    taken = context.write(lambda tx: overview.take_over(tx, whole, revision, reference))
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
    find = overview.exactly if to_act else overview.find
    found = context.read(lambda tx: find(tx, wanted))
    if len(found) == 1:
        return str(found[0]["payment_key"])
    if found:
        show_rows(found, machine=machine, empty="")
        raise click.ClickException(say("story.several", wanted=wanted, count=len(found)))
    if to_act and UUID.fullmatch(wanted.lower()):
        return wanted.lower()
    raise click.ClickException(say("story.none", wanted=wanted))


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


COMMANDS = (orders, take, quarantine, audit_command, learned_command)
