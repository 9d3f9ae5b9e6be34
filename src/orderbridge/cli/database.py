"""The database's own commands: db upgrade, db sql, db grants, db backup, db restore."""

from pathlib import Path
from typing import NoReturn

import click

from orderbridge.cli import restore
from orderbridge.cli.common import Context
from orderbridge.texts import say

pass_context = click.make_pass_decorator(Context)


@click.group()
def db() -> None:
    """The database."""


@db.command("upgrade")
@pass_context
def db_upgrade(context: Context) -> None:
    """Make the tables, or bring them up to date."""
    from orderbridge.store import revisions, schema

    database = context.database(makes_file=True)
    try:
        database.refuse_closed()
        done = database.write_now(schema.upgrade)
    finally:
        database.close()
    click.echo(say("facts.upgraded" if done else "facts.up_to_date", schema=revisions.HEAD))


@db.command("sql")
@pass_context
def db_sql(context: Context) -> None:
    """Print the DDL for the configured database, for a DBA to run."""
    from orderbridge.store import schema

    click.echo(schema.offline_sql(context.settings.database.url))


@db.command("grants")
@click.argument("role")
@pass_context
def db_grants(context: Context, role: str) -> None:
    """Print the GRANT statements that let ROLE, the POS's own user, do its whole job and no more."""
    from sqlalchemy import make_url

    from orderbridge.config.addresses import sqlite_file
    from orderbridge.store import write_guards
    from orderbridge.store.dialects import of

    url = make_url(context.settings.database.url)
    place = url.database
    if query := of(url.get_backend_name()).schema_query:  # only the server knows in which schema our tables are
        database = context.database()
        try:
            place = database.read_now(lambda tx: tx.exec_driver_sql(query).scalar())
        finally:
            database.close()
    if sqlite_file(context.settings.database.url):
        click.echo("\n".join(f"-- {line}" for line in say("grants.without_roles").splitlines()))
    click.echo("\n".join(write_guards.grant_statements(url.get_backend_name(), role, place)))


@db.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@pass_context
def db_backup(context: Context, file: Path) -> None:
    """Copy the SQLite file to FILE while the daemon and the POS work on it.

    FILE must not be there. On a server: print the commands that back up and restore; exit code 1, nothing is done.
    """
    from orderbridge.errors import StoreError
    from orderbridge.store import backup

    if file.is_dir():
        raise StoreError("backup.is_folder", file=file)
    if not file.parent.is_dir():
        raise StoreError("backup.no_folder", folder=file.parent)
    database = context.database()
    try:
        if database.file is None:
            _say_commands(context.settings.database.url, file)
        size = backup.copy(Path(database.file.path), file)
    finally:
        database.close()
    click.echo(say("backup.done", file=file, size=-(-size // 1024)))


@db.command("restore")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@pass_context
def db_restore(context: Context, file: Path) -> None:
    """Put the copy FILE in the place of the SQLite file, with orderbridge and the POS stopped.

    The former files are moved into a folder beside it. The copy gets their owner, the journal is taken in again, and
    the database is checked. On a server: print the commands that back up and restore; exit code 1, nothing is done.
    """
    from orderbridge.cli import probes
    from orderbridge.cli.check import Checked, Report
    from orderbridge.config.addresses import sqlite_file
    from orderbridge.errors import StoreError
    from orderbridge.store import backup, revisions, schema

    target = sqlite_file(context.settings.database.url)
    if target is None:
        _say_commands(context.settings.database.url, file)
    if target.exists() and target.samefile(file):
        raise StoreError("restore.itself", file=file)
    schema.refuse_unknown(found := backup.revision(file))
    former = backup.restore(file, target.resolve())
    click.echo(say("restore.done", file=target))
    if former is not None:
        click.echo(say("restore.former", folder=former))
    is_left = found == revisions.HEAD and restore.replay_journal(context)
    report, checked = Report(machine=False), Checked(context, context.settings)
    try:
        report.probe(probes.DATABASE, checked)
    finally:
        checked.close()
    if found != revisions.HEAD:
        click.echo(say("restore.older_tables"))
    click.echo(say("restore.left"))
    raise SystemExit(is_left or not report.is_good)


def _say_commands(url: str, file: Path) -> NoReturn:
    from sqlalchemy import make_url

    from orderbridge.store.dialects import of
    from orderbridge.store.write_guards import ALL

    address = make_url(url)
    commands = of(address.get_backend_name()).dump(address, str(file), ALL)
    click.echo(say("backup.by_server" if commands else "backup.no_tool"), err=True)
    click.echo("\n".join(commands or ()))
    raise SystemExit(1)


for command in restore.COMMANDS:
    db.add_command(command)

COMMANDS = (db,)
