"""After a restore: db replay, db confirm-restore."""

from collections import Counter
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, show_json, show_rows
from orderbridge.errors import StoreError
from orderbridge.texts import say, sentence

if TYPE_CHECKING:
    from orderbridge.jobs.replay import Found, Replayed
    from orderbridge.jobs.restore_check import RestoreCheck
    from orderbridge.store.database import Database

pass_context = click.make_pass_decorator(Context)

MARGIN = timedelta(days=1)  # before the last thing that the copy knows


@click.command("replay")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="Orders delivered on that day (UTC) or later.")
@as_json
@pass_context
def replay(context: Context, files: tuple[Path, ...], since: datetime | None, as_json: bool) -> None:
    """Take the journal's documents in again, after an older copy of the database was put back.

    Without FILES: those of [orders] journal; without --since: from a day before the end of the copy. What the tables
    know is left alone, so it can be run twice, and beside the daemon. Nothing is sent to the service.
    Exit code 1 when an order could not be taken in.
    """
    raise SystemExit(_replay(context, list(files) or _files(context), since, whole=bool(files), machine=as_json))


def replay_journal(context: Context) -> bool:
    """As `db replay` without an argument; where there is no journal, that is said. Whether something could not be taken."""
    try:
        paths = _files(context)
    except StoreError as error:
        click.echo(sentence(error), err=True)
        paths = []
    return _replay(context, paths, None, whole=False, machine=False)


def _replay(context: Context, paths: list[Path], since: datetime | None, *, whole: bool, machine: bool) -> bool:
    """`whole`: not only from the end of the copy. Returns whether something could not be taken in."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.reimport import Reimport
    from orderbridge.jobs.replay import replay as replayed
    from orderbridge.rules.reimport import UNFINISHED
    from orderbridge.store import account_rows, high_water, schema

    database = context.database()
    try:
        database.read_now(schema.check)
        _look(context, database)
        seen = database.read_now(high_water.older)
        found = _find(paths, _border(since, seen.last_known if seen and not whole else None))
        done = list(replayed(Reimport(database, context.settings, SystemClock().now()), found))
        left = [one for one in done if one.fate in UNFINISHED]
        held = database.read_now(account_rows.held)
        settled = bool(paths) and not left and not held and database.write_now(high_water.settle)
    finally:
        database.close()
    if paths:
        _show(found, done, machine=machine)
    for key, is_so in (("replay.again", bool(left)), ("replay.held", bool(held)), ("replay.settled", settled)):
        if is_so:
            click.echo(say(key), err=True)
    return bool(left)


def _look(context: Context, database: "Database") -> None:
    """What the daemon sees at its start, where none works: after a replay nobody could see it any more."""
    import asyncio

    from orderbridge.clock import SystemClock
    from orderbridge.jobs.daemon_problems import DaemonProblems
    from orderbridge.jobs.restore_check import RestoreCheck
    from orderbridge.observe import logs
    from orderbridge.store.leader import LeaderLock

    logs.configure(level="critical")  # what matters is printed by the command itself
    clock, leader = SystemClock(), LeaderLock(database)
    try:
        if leader.take():
            asyncio.run(_check(RestoreCheck(context.settings, database, clock, DaemonProblems(database, clock))))
    finally:
        leader.close()


async def _check(check: "RestoreCheck") -> None:
    await check.start()
    await check.close()


def _files(context: Context) -> list[Path]:
    from orderbridge.store import journal

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


def _border(day: datetime | None, end: datetime | None) -> datetime | None:
    if day is not None:
        return datetime.combine(day.date(), time(), UTC)
    return None if end is None else end - MARGIN


def _find(paths: list[Path], since: datetime | None) -> "Found":
    from orderbridge.jobs.replay import find

    try:
        return find(paths, since)
    except OSError as error:
        raise StoreError("replay.not_readable", file=error.filename, error=error.strerror) from None


def _show(found: "Found", done: "list[Replayed]", *, machine: bool) -> None:
    """What is known already is counted, and not listed."""
    from orderbridge.rules.reimport import UNFINISHED, Fate

    fates = Counter(one.fate for one in done)
    sums: dict[str, Any] = {
        "orders": len(done),
        "new": fates[Fate.TAKEN_IN],
        "ended": fates[Fate.TAKEN_IN_ENDED],
        "updated": fates[Fate.UPDATED],
        "known": sum(fates[fate] for fate in (Fate.KNOWN, Fate.SUPERSEDED)),
        "left": sum(fates[fate] for fate in (*UNFINISHED, Fate.BLANKED)),
        "torn": found.torn,
    }
    rows = [{name: getattr(one, name) for name in one.__slots__} for one in done if one.fate != Fate.KNOWN]
    if machine:
        show_json({"orders": rows, "sums": sums})
        return
    if rows:
        show_rows(rows, machine=False, empty="")
    click.echo(say("replay.sum", **sums))
    if sums["new"]:
        click.echo(say("replay.look", new=sums["new"]))


@click.command("confirm-restore")
@pass_context
def confirm_restore(context: Context) -> None:
    """Close the alarm about an older copy of the database: somebody has compared it with the service's panel.

    Accounts of the database that were changed after the copy was made are polled again, as they stand in it now.
    """
    from orderbridge.clock import SystemClock
    from orderbridge.store import account_rows, high_water

    now = SystemClock().now()
    settled, names = context.write(lambda tx: (high_water.settle(tx), account_rows.release(tx, now)))
    click.echo(say("replay.settled" if settled else "replay.nothing_to_settle"))
    for name in names:
        click.echo(say("listing.account_is_enabled", name=name))


COMMANDS = (replay, confirm_restore)
