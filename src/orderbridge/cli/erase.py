"""`orderbridge erase` removes a customer's data. docs/privacy.md says what is kept, where and how long."""

import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import click

from orderbridge.cli.common import Context, as_json, confirm, pass_context, show_json
from orderbridge.clock import SystemClock
from orderbridge.errors import StoreError
from orderbridge.store import journal, overview, quarantine, retention
from orderbridge.store.database import Database
from orderbridge.store.retention import Found, scrub
from orderbridge.texts import say, sentence

AT_ONCE = 200  # orders in one transaction
REWRITTEN_BYTES = 256 * 1024 * 1024  # a larger file is rewritten only with --rewrite: it blocks the POS


@click.command()
@click.option("--phone", "phones", multiple=True, help="A customer's phone number; may be repeated.")
@click.option("--order", "wanted", multiple=True, help="An order: number, key or pos_reference; repeatable.")
@click.option("--force", is_flag=True, help="Erase open orders too: the courier loses the address.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--rewrite/--no-rewrite", default=None, help="SQLite: rewrite the file, so that no old data remains.")
@as_json
@pass_context
def erase(
    context: Context,
    phones: tuple[str, ...],
    wanted: tuple[str, ...],
    force: bool,
    yes: bool,
    rewrite: bool | None,
    as_json: bool,
) -> None:
    """Erase a customer's data permanently."""
    if not phones and not wanted:
        raise click.UsageError(say("erase.nothing_named"))
    with context.current() as database:
        found = _find(database, phones, wanted)
        counts: dict[str, Any] = {name: len(getattr(found, name)) for name in ("orders", "open", "documents")}
        click.echo(say("erase.found", **counts), err=True)
        if found.open and not force:
            click.echo(say("erase.open_stay", count=len(found.open)), err=True)
        if not found.orders and not found.documents and not rewrite:
            raise SystemExit(1)
        if not yes and not confirm(say("erase.sure")):
            raise click.Abort
        # The journal first: its lines are found by the customer's orders in the database.
        in_journal = _erase_in_journal(context, found, force=force)
        done = _erase(database, found, force=force) | {"journal": in_journal}
        done["rewritten"] = _rewrite(database, rewrite)
    if as_json:
        show_json(done)
    else:
        click.echo(say("erase.done", orders=done["orders"], documents=done["documents"]))
    if (force and found.open) or found.documents:
        click.echo(say("erase.comes_again"), err=True)
    if done["held"]:
        click.echo(say("erase.held", count=done["held"]), err=True)
    raise SystemExit(1 if done["held"] or done["rewritten"] is False else 0)


def _find(database: Database, phones: tuple[str, ...], wanted: tuple[str, ...]) -> Found:
    """Find the orders. Raises UsageError for an invalid phone number, ClickException if an order is not unique."""
    numbers = [number for phone in phones if (number := retention.normal(phone))]
    if len(numbers) < len(phones):
        raise click.UsageError(say("erase.no_number", least=retention.LEAST))
    keys = []
    for one in wanted:
        named = database.read_now(partial(overview.find, wanted=one))
        if len(named) > 1:
            raise click.ClickException(say("erase.several", wanted=one, count=len(named)))
        # A document that was never stored as an order may be in quarantine under this key.
        keys += [row["payment_key"] for row in named] or [one.lower()]
    return database.read_now(partial(retention.find, phones=numbers, keys=keys))


def _erase(database: Database, found: Found, *, force: bool) -> dict[str, Any]:
    now = SystemClock().now()
    wanted = [key for key in found.orders if force or key not in found.open]
    done = 0
    for start in range(0, len(wanted), AT_ONCE):
        blank = partial(retention.blank, keys=wanted[start : start + AT_ONCE], with_open=force)
        done += len(database.write_now(blank))
    documents = database.write_now(partial(quarantine.blank, ids=found.documents, now=now))
    left = 0 if force else len(found.open)
    return {"orders": done, "documents": documents, "open": left, "held": len(wanted) - done}


def _erase_in_journal(context: Context, found: Found, *, force: bool) -> int:
    """Erase lines of the journal and return how many. Raises SystemExit if it cannot be written."""
    folder = context.settings.journal
    keys = {*found.orders, *found.keys} - (set() if force else set(found.open))
    try:
        return 0 if folder is None else journal.blank(folder, keys)
    except OSError as error:
        click.echo(say("erase.journal_failed", folder=folder, error=error.strerror), err=True)
        raise SystemExit(1) from None


def _rewrite(database: Database, wanted: bool | None) -> bool | None:
    """Rewrite the file and return whether that worked; None for a server's database or if it is not wanted."""
    if not database.dialect.one_writer:
        click.echo(say("erase.server"), err=True)
        return None
    path = Path(database.engine.url.database or "")
    if wanted is None:
        wanted = path.is_file() and path.stat().st_size <= REWRITTEN_BYTES
    if not wanted:
        click.echo(say("erase.not_rewritten"), err=True)
        return None
    try:
        scrub(database.engine)
    except (sqlite3.Error, StoreError) as error:
        click.echo(say("erase.rewrite_failed", error=sentence(error)), err=True)
        return False
    return True


COMMANDS = (erase,)
