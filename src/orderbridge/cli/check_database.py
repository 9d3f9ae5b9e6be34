"""The database: is it there, does it write, may we do all we have to, is it safe, and who works on it?"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from orderbridge.cli.check_files import WEB, owner, space
from orderbridge.cli.draft import STATE_FILE, UNITS
from orderbridge.cli.report import Checked, Finding, Probe, Report, bad, good, warn
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.config.loading import SYSTEM_FILE
from orderbridge.errors import NoFile, StoreError, Unusable
from orderbridge.extension import installed
from orderbridge.store import accounts, inspection, revisions, schema, write_guards
from orderbridge.store.dialects.sqlite_checks import writers_of
from orderbridge.store.failures import is_busy, remedy
from orderbridge.store.inspection import failover
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.config import Settings
    from orderbridge.store.database import Database


@contextmanager
def check_database(checked: Checked, report: Report) -> Iterator[None]:
    """Run the probes of the database, which stays open within. `checked` says what was found."""
    report.probe([space], checked)
    database = _open(checked, report)
    try:
        if database is not None and _probe(checked, report):
            report.probe(WEB, checked)
        yield
    finally:
        checked.database = None
        if database is not None:
            database.close()


def _open(checked: Checked, report: Report) -> "Database | None":
    file = sqlite_file(checked.settings.database.url)
    try:
        checked.database = checked.context.database()
    except NoFile as error:
        report.add(warn("database", error))
        report.probe(WEB, checked)
    except StoreError as error:
        if file is not None and _is_made_by_systemd(checked.settings, file.parent):
            report.add(warn("database", say("check.made_by_systemd", folder=file.parent)))
        else:
            report.add(bad("database", error))
            checked.is_unusable = isinstance(error, Unusable)
            report.probe([_holders], checked)
    return checked.database


def _probe(checked: Checked, report: Report) -> bool:
    """Whether all probes came to their end."""
    try:
        report.probe(PROBES, checked)
    except StoreError as error:
        checked.may_write = False
        report.add(bad("database", error))
        checked.is_unusable = isinstance(error, Unusable)
        return False
    except DBAPIError as error:
        checked.may_write = False
        report.add(bad("database", str(error.orig), remedy(error)))
        if is_busy(error):
            report.probe([_holders], checked)
        return False
    return True


def _is_made_by_systemd(settings: "Settings", folder: Path) -> bool:
    """Whether it is the unit's state directory, before the first start."""
    is_unit_s = settings.source.file == SYSTEM_FILE and (UNITS / "orderbridge.service").exists()
    return is_unit_s and folder == (sqlite_file(STATE_FILE) or folder).parent and not folder.exists()


def _holders(checked: Checked) -> Iterator[Finding]:
    file = sqlite_file(checked.settings.database.url)
    if file is not None and (found := writers_of(str(file))):
        yield warn("locked", f"PID {', '.join(found)}", say("check.locked"))


# ---- the probes ------------------------------------------------------------------------------------------------------


def _address(checked: Checked) -> Iterator[Finding]:
    yield good("database", without_password(checked.settings.database.url))
    checked.opened.refuse_pooler()


def _schema(checked: Checked) -> Iterator[Finding]:
    """Whether the tables are those of this program, and whole."""
    database = checked.opened
    found = database.read_now(schema.inspected)
    checked.is_current = found == revisions.HEAD
    if found is None and (lacking := database.read_now(schema.lacks)) is not None:
        rights, statement = lacking
        yield bad("rights", say("schema.lacks", rights=rights), say("schema.grant", statement=statement))
    elif found is None:
        yield warn("schema", say("check.no_tables"), say("check.makes_tables"))
    elif not checked.is_current:
        yield warn("schema", say("check.old_tables", found=found, known=revisions.HEAD), say("check.updates_tables"))
    else:
        yield good("schema", found)
        yield from _guards(database)
    database.check_intact()


def _guards(database: "Database") -> Iterator[Finding]:
    """Whether a till is kept from writing what is not its own."""
    if gone := database.read_now(write_guards.gone):
        yield warn("schema", say("check.guards_gone", names=", ".join(sorted(gone))), say("check.makes_guards"))
    if database.read_now(write_guards.is_held_open):
        yield warn("schema", say("check.guard_open"), say("check.close_guard"))


def _writing(checked: Checked) -> Iterator[Finding]:
    """Whether no right is missing. In a transaction that is undone."""
    checked.worker = checked.opened.read_now(checked.opened.dialect.worker)
    if not checked.is_current:
        return
    with checked.opened.engine.connect() as connection, connection.begin() as tried:
        lacking = inspection.lacking_rights(connection)
        if not lacking:
            inspection.try_writing(connection)
        tried.rollback()
    checked.may_write = not lacking
    if lacking:
        yield bad("rights", say("check.lacking", rights=", ".join(lacking)), say("check.grant"))
    else:
        yield good("rights", say("check.writes"))


def _promises(checked: Checked) -> Iterator[Finding]:
    unsafe = checked.opened.check_durability()
    yield good("durability", say("check.durable")) if unsafe is None else bad("durability", unsafe)
    if found := checked.opened.read_now(failover):
        yield (good if found.is_safe else warn)("failover", found.said)


def _extensions(checked: Checked) -> Iterator[Finding]:
    modules = [one.load().probes for one in installed().values()]
    for module in filter(None, modules):
        for probe in import_module(module).PROBES:
            yield from probe(checked)


def _works(checked: Checked) -> Iterator[Finding]:
    """Who works on it."""
    yield good("worker", checked.worker or say("check.nobody"))


def _problems(checked: Checked) -> Iterator[Finding]:
    """What `status` would say, in one line. Without a daemon it is only that there is none."""
    if not checked.is_current or checked.worker is None:
        return
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.findings import open_problems

    now = SystemClock().now()
    codes = [str(one.code) for one in checked.opened.read_now(lambda tx: open_problems(tx, checked.settings, now))]
    if not codes:
        yield good("problems", say("check.no_problems"))
        return
    counted = ", ".join(f"{code} ({codes.count(code)})" for code in dict.fromkeys(codes))
    yield warn("problems", counted, say("check.see_status"))


def _has_polled(checked: Checked) -> Iterator[Finding]:
    """Whether the service has answered before: it says what an error of the line can mean."""
    if checked.may_write:
        known = {account.fingerprint for account in checked.settings.accounts}
        polled = checked.opened.read_now(lambda tx: accounts.overview(tx, known))
        checked.has_worked = any(one["last_poll_ok_utc"] for one in polled)
    yield from ()


PROBES: tuple[Probe, ...] = (
    _address,
    _schema,
    _writing,
    owner,
    _promises,
    _extensions,
    _works,
    _problems,
    _has_polled,
)
