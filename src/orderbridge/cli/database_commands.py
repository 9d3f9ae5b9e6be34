"""The database's own commands: db upgrade, sql, grants, backup, restore, replay, confirm-restore."""

import asyncio
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

import click
from sqlalchemy import make_url

from orderbridge.cli import probes
from orderbridge.cli.check import Checked, Report
from orderbridge.cli.common import Context, as_json, pass_context, show_json, show_rows
from orderbridge.clock import SystemClock
from orderbridge.config.addresses import database_address, sqlite_file
from orderbridge.errors import StoreError
from orderbridge.jobs import context as jobs
from orderbridge.jobs.reimport import UNFINISHED, Decision, Found, Reimport, Replayed, find
from orderbridge.jobs.reimport import replay as replayed
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.observe import logs
from orderbridge.store import accounts, backup, high_water, journal, schema, tables, write_guards
from orderbridge.store.database import Database
from orderbridge.store.dialects import of
from orderbridge.store.leader import LeaderLock
from orderbridge.texts import say, sentence

MARGIN = timedelta(days=1)  # before the newest entry of the restored copy


@click.group()
def db() -> None:
    """Back up, restore and upgrade the database."""


@db.command("upgrade")
@pass_context
def db_upgrade(context: Context) -> None:
    """Create the tables, or upgrade them."""
    with closing(context.database(makes_file=True)) as database:
        database.refuse_closed()
        done = database.write_now(schema.upgrade)
    click.echo(say("facts.upgraded" if done else "facts.up_to_date", schema=tables.HEAD))


@db.command("sql")
@pass_context
def db_sql(context: Context) -> None:
    """Print the DDL for the configured database."""
    click.echo(schema.offline_sql(context.settings.database.url))


@db.command("grants")
@click.argument("role")
@pass_context
def db_grants(context: Context, role: str) -> None:
    """Print the GRANT statements for the POS's user, ROLE."""
    url = make_url(context.settings.database.url)
    place = url.database
    if query := of(url.get_backend_name()).schema_query:  # only the server knows the schema of our tables
        with closing(context.database()) as database:
            place = database.read_now(lambda tx: tx.exec_driver_sql(query).scalar())
    if sqlite_file(context.settings.database.url):
        click.echo("\n".join(f"-- {line}" for line in say("grants.without_roles").splitlines()))
    click.echo("\n".join(write_guards.grant_statements(url.get_backend_name(), role, place)))


@db.command("try")
@click.argument("url")
@as_json
def db_try(url: str, as_json: bool) -> None:
    """Test whether the empty database URL meets the requirements."""
    from orderbridge.cli import trial

    try:
        address = database_address(sys.stdin.readline().strip() if url == "-" else url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="URL") from None
    raise SystemExit(not trial.run(address, machine=as_json))


@db.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@pass_context
def db_backup(context: Context, file: Path) -> None:
    """Copy the SQLite file to FILE while it is in use."""
    if file.is_dir():
        raise StoreError("backup.is_folder", file=file)
    if not file.parent.is_dir():
        raise StoreError("backup.no_folder", folder=file.parent)
    with closing(context.database()) as database:
        if database.file is None:
            _show_command(context.settings.database.url, file, "backup.by_server")
        size = backup.copy(Path(database.file.path), file)
    click.echo(say("backup.done", file=file, size=-(-size // 1024)))


@db.command("restore")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@pass_context
def db_restore(context: Context, file: Path) -> None:
    """Replace the SQLite file with the copy FILE."""
    target = sqlite_file(context.settings.database.url)
    if target is None:
        _show_command(context.settings.database.url, file, "restore.by_server")
    if target.exists() and target.samefile(file):
        raise StoreError("restore.itself", file=file)
    schema.refuse_unknown(found := backup.revision(file))
    former = backup.restore(file, target.resolve())
    click.echo(say("restore.done", file=target))
    if former is not None:
        click.echo(say("restore.former", folder=former))
    is_left = found == tables.HEAD and _replay_journal(context)
    report = Report(machine=False)
    with closing(Checked(context, context.settings)) as checked:
        report.probe(probes.DATABASE, checked)
    if found != tables.HEAD:
        click.echo(say("restore.older_tables"))
    click.echo(say("restore.left"))
    raise SystemExit(is_left or not report.is_good)


def _show_command(url: str, file: Path, key: Literal["backup.by_server", "restore.by_server"]) -> NoReturn:
    """Print the server's own command, and never the one that would write over a file to restore."""
    address = make_url(url)
    commands = of(address.get_backend_name()).dump(address, str(file), write_guards.ALL)
    click.echo(say(key if commands else "backup.no_tool"), err=True)
    click.echo(commands[key == "restore.by_server"] if commands else "")
    raise SystemExit(1)


# ---- after a restore -------------------------------------------------------------------------------------------------


@db.command("replay")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="Orders delivered on that day (UTC) or later.")
@as_json
@pass_context
def replay(context: Context, files: tuple[Path, ...], since: datetime | None, as_json: bool) -> None:
    """Store the journal's documents after a restore."""
    raise SystemExit(_replay(context, list(files) or _files(context), since, whole=bool(files), machine=as_json))


def _replay_journal(context: Context) -> bool:
    """Do as `db replay` without arguments; without a journal, print why. Returns whether an order was left out."""
    try:
        paths = _files(context)
    except StoreError as error:
        click.echo(sentence(error), err=True)
        paths = []
    return _replay(context, paths, None, whole=False, machine=False)


def _replay(context: Context, paths: list[Path], since: datetime | None, *, whole: bool, machine: bool) -> bool:
    """Replay the files (`whole`) or only what is newer than the copy. Returns whether an order was left out."""
    with context.current() as database:
        database.check_intact()  # the mark must not follow a damaged file
        _note_older_copy(context, database)
        older = database.read_now(high_water.older)
        end = None if whole or older is None or older.last_known is None else older.last_known - MARGIN
        found = _find(paths, end if since is None else since.replace(tzinfo=UTC))
        done = list(replayed(Reimport(database, context.settings, SystemClock().now()), found))
        left = any(one.fate in UNFINISHED for one in done)
        held = bool(database.read_now(accounts.held))
        settled = bool(paths) and not left and not held and database.write_now(high_water.settle)
    if paths:
        _show(found, done, machine=machine)
    for key, is_so in (("replay.again", left), ("replay.held", held), ("replay.settled", settled)):
        if is_so:
            click.echo(say(key), err=True)
    return left


def _note_older_copy(context: Context, database: Database) -> None:
    """Note that the copy is older, as a starting daemon does. After the replay nothing would show it."""

    async def check() -> None:
        of_jobs = jobs.Context.of(context.settings, database, SystemClock())
        found = RestoreCheck(of_jobs, {account.name for account in context.settings.accounts})
        await found.start()
        await found.close()

    logs.configure(level="critical")  # what matters is printed by the command itself
    with closing(LeaderLock(database)) as leader:
        if leader.take():
            asyncio.run(check())


def _files(context: Context) -> list[Path]:
    folder = context.settings.journal
    if folder is None:
        raise StoreError("replay.no_journal")
    try:
        found = journal.files(folder)
    except OSError as error:
        raise StoreError("replay.not_readable", file=folder, error=error.strerror) from None
    if not found:
        raise StoreError("replay.no_files", folder=folder)
    return found


def _find(paths: list[Path], since: datetime | None) -> Found:
    try:
        return find(paths, since)
    except OSError as error:
        raise StoreError("replay.not_readable", file=error.filename, error=error.strerror) from None


def _show(found: Found, done: list[Replayed], *, machine: bool) -> None:
    """Print the replayed orders and their sums; orders that were known already are only counted."""
    counts = Counter(one.fate for one in done)
    sums: dict[str, Any] = {
        "orders": len(done),
        "new": counts[Decision.TAKEN_IN],
        "ended": counts[Decision.TAKEN_IN_ENDED],
        "updated": counts[Decision.UPDATED],
        "known": counts[Decision.KNOWN] + counts[Decision.SUPERSEDED],
        "left": sum(counts[one] for one in (*UNFINISHED, Decision.BLANKED)),
        "torn": found.torn,
    }
    rows = [{name: getattr(one, name) for name in one.__slots__} for one in done if one.fate != Decision.KNOWN]
    if machine:
        show_json({"orders": rows, "sums": sums})
        return
    if rows:
        show_rows(rows, machine=False, empty="")
    click.echo(say("replay.sum", **sums))
    if sums["new"]:
        click.echo(say("replay.check_panel", new=sums["new"]))


@db.command("confirm-restore")
@pass_context
def confirm_restore(context: Context) -> None:
    """Close the alarm about an older copy."""
    now = SystemClock().now()
    settled, names = context.write(lambda tx: (high_water.settle(tx), accounts.release(tx, now)))
    click.echo(say("replay.settled" if settled else "replay.nothing_to_settle"))
    for name in names:
        click.echo(say("listing.account_is_enabled", name=name))


COMMANDS = (db,)
