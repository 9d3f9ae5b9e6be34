"""Forgetting a customer: `orderbridge erase`. What is kept for how long and where: docs/privacy.md."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, confirm, show_json
from orderbridge.texts import say, sentence

if TYPE_CHECKING:
    from orderbridge.store.database import Database
    from orderbridge.store.erasing import Found

pass_context = click.make_pass_decorator(Context)

AT_ONCE = 200  # orders in one transaction
REWRITTEN_BYTES = 256 * 1024 * 1024  # a file up to this is written anew by itself: some seconds in which others wait


@click.command()
@click.option("--phone", "phones", multiple=True, help="A customer's number, however it is written; may be repeated.")
@click.option("--order", "wanted", multiple=True, help="An order's number, key or pos_reference; may be repeated.")
@click.option("--force", is_flag=True, help="Open orders too: the courier will have no name and no address.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--rewrite/--no-rewrite", default=None, help="SQLite: write the file anew, so that no old byte is left.")
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
    """Blank everything that names a customer, for good. It shows how much that is, and asks."""
    if not phones and not wanted:
        raise click.UsageError(say("erase.nothing_named"))
    with_database = _checked(context)
    try:
        found = _find(with_database, phones, wanted)
        click.echo(
            say("erase.found", orders=len(found.orders), open=len(found.open), documents=len(found.documents)), err=True
        )
        if found.open and not force:
            click.echo(say("erase.open_stay", count=len(found.open)), err=True)
        if not found.orders and not found.documents and not rewrite:
            raise SystemExit(1)
        if not yes and not confirm(say("erase.sure")):
            raise click.Abort
        # First, for once the database has forgotten the customer nobody finds these lines again.
        in_journal = _erase_in_journal(context, found, force=force)
        if in_journal is None:
            raise SystemExit(1)
        done = _erase(with_database, found, force=force) | {"journal": in_journal}
        done["rewritten"] = _rewrite(with_database, rewrite)
    finally:
        with_database.close()
    if as_json:
        show_json(done)
    else:
        click.echo(say("erase.done", orders=done["orders"], documents=done["documents"]))
    if (force and found.open) or found.documents:
        click.echo(say("erase.comes_again"), err=True)
    if done["held"]:
        click.echo(say("erase.held", count=done["held"]), err=True)
    raise SystemExit(1 if done["held"] or done["rewritten"] is False else 0)


def _checked(context: Context) -> "Database":
    from orderbridge.store import schema

    database = context.database()
    try:
        database.read_now(schema.check)
    except BaseException:
        database.close()
        raise
    return database


def _find(database: "Database", phones: tuple[str, ...], wanted: tuple[str, ...]) -> "Found":
    """Raises UsageError for a number that is none, ClickException for an order that is not there or not the only one."""
    from orderbridge.store import erasing, story

    numbers = []
    for phone in phones:
        number = erasing.normal(phone)
        if number is None:
            raise click.UsageError(say("erase.no_number", least=erasing.LEAST))
        numbers.append(number)
    keys = []
    for one in wanted:
        named = database.read_now(lambda tx, one=one: story.find(tx, one))  # type: ignore[misc]
        if len(named) > 1:
            raise click.ClickException(say("erase.several", wanted=one, count=len(named)))
        # An order that never became one may still be in quarantine under its key.
        keys += [row["payment_key"] for row in named] or [one.lower()]
    return database.read_now(lambda tx: erasing.find(tx, phones=numbers, keys=keys))


def _erase(database: "Database", found: "Found", *, force: bool) -> dict[str, Any]:
    from orderbridge.clock import SystemClock
    from orderbridge.store import erasing

    now = SystemClock().now()
    wanted = [key for key in found.orders if force or key not in set(found.open)]
    done = 0
    for start in range(0, len(wanted), AT_ONCE):
        keys = wanted[start : start + AT_ONCE]
        done += len(database.write_now(lambda tx, keys=keys: erasing.blank(tx, keys, with_open=force)))  # type: ignore[misc]
    documents = database.write_now(lambda tx: erasing.blank_documents(tx, found.documents, now))
    return {
        "orders": done,
        "documents": documents,
        "open": 0 if force else len(found.open),
        "held": len(wanted) - done,
    }


def _erase_in_journal(context: Context, found: "Found", *, force: bool) -> int | None:
    """How many lines of the journal of documents; None: it could not be written."""
    from orderbridge.store import journal

    folder = context.settings.journal
    keys = {*found.orders, *found.keys} - (set() if force else set(found.open))
    try:
        return 0 if folder is None else journal.blank(folder, keys)
    except OSError as error:
        click.echo(say("erase.journal_failed", folder=folder, error=error.strerror), err=True)
        return None


def _rewrite(database: "Database", wanted: bool | None) -> bool | None:
    """Whether the file was written anew; None: it is a server's, or nobody wants it."""
    import sqlite3

    from orderbridge.errors import StoreError
    from orderbridge.store.erasing import scrub

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
