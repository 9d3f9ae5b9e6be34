"""The database: is it there, does it write, may we do all we have to, is it safe, and who works on it?"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from orderbridge.cli.check_files import check_certificate, check_owner, check_port
from orderbridge.cli.check_settings import check_settings
from orderbridge.cli.common import Context
from orderbridge.cli.draft import STATE_FILE, UNITS
from orderbridge.cli.report import Report
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.config.loading import SYSTEM_FILE
from orderbridge.errors import NoFile, StoreError, Unusable
from orderbridge.store import guards, inspection, replicas, revisions, schema
from orderbridge.store.alone import membership
from orderbridge.store.dialects.sqlite_checks import writers_of
from orderbridge.store.durability import failover
from orderbridge.store.failures import is_busy, remedy
from orderbridge.store.membership import Membership
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.store.database import Database

FULL_BYTES, LOW_BYTES = 20_000_000, 200_000_000  # an order takes 5 kB; SQLite's -wal may grow to some MB
FULL_FILES = 10  # -wal, -shm, a day's journal and what stands beside the database


@contextmanager
def check_database(context: Context, report: Report) -> Iterator["Database | None"]:
    """The open database, if a token may be kept in it."""
    file = sqlite_file(context.settings.database.url)
    if file is not None and file.parent.is_dir():
        _check_space(file.parent, report)
    try:
        database = context.database()
    except NoFile as error:
        report.look("database", str(error))
        if context.settings.web.listen:
            check_port(context.settings.web.listen, report)
        check_certificate(context.settings.web, report)
        yield None
        return
    except StoreError as error:
        if file is not None and _is_made_by_systemd(context, file.parent):
            report.look("database", say("check.made_by_systemd", folder=file.parent))
            yield None
            return
        report.bad("database", str(error))
        report.is_unusable = isinstance(error, Unusable)
        _say_holders(file, report)
        yield None
        return
    try:
        yield database if _is_usable(context, database, report) else None
    finally:
        database.close()


def _is_made_by_systemd(context: Context, folder: Path) -> bool:
    """Whether it is the unit's state directory, before the first start."""
    is_unit_s = context.settings.source.file == SYSTEM_FILE and (UNITS / "orderbridge.service").exists()
    return is_unit_s and folder == (sqlite_file(STATE_FILE) or folder).parent and not folder.exists()


def _is_usable(context: Context, database: "Database", report: Report) -> bool:
    report.good("database", without_password(context.settings.database.url))
    try:
        database.refuse_pooler()
        is_current = _check_schema(database, report)
        database.check_intact()
        worker = database.read_now(database.dialect.worker)
        may_write = is_current and _check_writing(database, report)
        check_owner(context.settings, report)
        _check_promises(database, report)
        if context.settings.fleet.from_database:
            _check_fleet(database, report)
        if is_current:
            check_settings(context.settings, database, report)
        shared = worker and is_current and _shares(database)
        report.good("worker", shared or worker or say("check.nobody"))
        if is_current and worker is not None:
            _sum_up(context, database, report)
    except StoreError as error:
        report.bad("database", str(error))
        report.is_unusable = isinstance(error, Unusable)
        return False
    except DBAPIError as error:
        report.bad("database", str(error.orig), remedy(error))
        if is_busy(error):
            _say_holders(sqlite_file(context.settings.database.url), report)
        return False
    if worker is None and context.settings.web.listen:
        check_port(context.settings.web.listen, report)
    check_certificate(context.settings.web, report)
    return may_write


def _check_space(folder: Path, report: Report) -> None:
    if (found := os.statvfs(folder)).f_files and found.f_favail < FULL_FILES:
        report.bad("space", say("check.inodes", folder=folder, count=found.f_favail), say("check.remove_files"))
    free = shutil.disk_usage(folder).free
    facts = say("check.space", folder=folder, megabytes=free // 1_000_000)
    if free < FULL_BYTES:
        report.bad("space", facts, say("check.make_room"))
    elif free < LOW_BYTES:
        report.look("space", facts, say("check.make_room"))
    else:
        report.good("space", facts)


def _check_schema(database: "Database", report: Report) -> bool:
    """Whether the tables are those of this program."""
    found = database.read_now(schema.inspected)
    if found is None and (lacking := database.read_now(schema.lacks)) is not None:
        rights, statement = lacking
        report.bad("rights", say("schema.lacks", rights=rights), say("schema.grant", statement=statement))
    elif found is None:
        report.look("schema", say("check.no_tables"), say("check.makes_tables"))
    elif found != revisions.HEAD:
        report.look("schema", say("check.old_tables", found=found, known=revisions.HEAD), say("check.updates_tables"))
    else:
        report.good("schema", found)
        _check_guards(database, report)
    return found == revisions.HEAD


def _check_guards(database: "Database", report: Report) -> None:
    """Whether a till is kept from writing what is not its own."""
    if gone := database.read_now(guards.gone):
        report.look("schema", say("check.guards_gone", names=", ".join(sorted(gone))), say("check.makes_guards"))
    if database.read_now(guards.is_held_open):
        report.look("schema", say("check.guard_open"), say("check.close_guard"))


def _check_writing(database: "Database", report: Report) -> bool:
    """Whether no right is missing. In a transaction that is undone."""
    with database.engine.connect() as connection, connection.begin() as tried:
        lacking = inspection.lacking_rights(connection)
        if not lacking:
            inspection.try_writing(connection)
        tried.rollback()
    if lacking:
        report.bad("rights", say("check.lacking", rights=", ".join(lacking)), say("check.grant"))
    else:
        report.good("rights", say("check.writes"))
    return not lacking


def _check_promises(database: "Database", report: Report) -> None:
    unsafe = database.check_durability()
    if unsafe is not None:
        report.bad("durability", unsafe)
    else:
        report.good("durability", say("check.durable"))
    if found := database.read_now(failover):
        (report.good if found.is_safe else report.look)("failover", found.said)


def _check_fleet(database: "Database", report: Report) -> None:
    """Whether replicas can share it."""
    from orderbridge.rules.buckets import share

    try:
        found = membership(database, share)
        if isinstance(found, Membership):
            with contextlib.closing(found):
                found.check()
    except StoreError as error:
        report.bad("fleet", str(error))
    else:
        report.good("fleet", say("check.shared" if isinstance(found, Membership) else "check.alone"))


def _shares(database: "Database") -> str:
    """Of replicas each with what it has of the buckets; of a daemon that works alone nothing."""
    found, count = database.read_now(lambda tx: (replicas.shares(tx), replicas.count(tx)))
    said = (", PID ".join(name.split(" ")[:2]) for name in found)  # the host, the process and a number
    return "; ".join(f"{who}: {held}/{count}" for who, held in zip(said, found.values(), strict=True))


def _say_holders(file: Path | None, report: Report) -> None:
    holders = [] if file is None else writers_of(str(file))
    if holders:
        report.look("locked", f"PID {', '.join(holders)}", say("check.locked"))


def _sum_up(context: Context, database: "Database", report: Report) -> None:
    """What `status` would say, in one line. Without a daemon it is only that there is none."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.findings import open_problems

    found = database.read_now(lambda tx: open_problems(tx, context.settings, SystemClock().now()))
    if not found:
        report.good("problems", say("check.no_problems"))
        return
    codes = [str(one.code) for one in found]
    counted = ", ".join(f"{code} ({codes.count(code)})" for code in dict.fromkeys(codes))
    report.look("problems", counted, say("check.see_status"))
