"""The probes of `check` on this machine: files and their permissions, the database, the port.

The database's probes test that it exists, accepts writes, grants all rights and keeps commits, and name the daemon.
"""

import os
import pwd
import shutil
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from stat import S_IMODE, S_IROTH

from sqlalchemy.exc import DBAPIError

from orderbridge.cli.check import Checked, Finding, Probe, bad, good, warn
from orderbridge.cli.init import STATE_FILE, UNITS
from orderbridge.clock import SystemClock
from orderbridge.config import Settings
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.config.loading import SYSTEM_FILE
from orderbridge.errors import NoFile, StoreError, Unusable
from orderbridge.extension import installed
from orderbridge.jobs.open_problems import open_problems
from orderbridge.store import accounts, inspection, schema, tables, write_guards
from orderbridge.store.database import Database
from orderbridge.store.dialects.sqlite_checks import writers_of
from orderbridge.store.failures import is_busy, remedy
from orderbridge.store.problem_rows import try_to_write
from orderbridge.texts import say

READS, WRITES, PASSES = 4, 2, 1
NOT_YET_CREATED = 65534  # stands for the daemon's user before systemd creates it
FULL_BYTES, LOW_BYTES = 20_000_000, 200_000_000  # an order takes 5 kB; SQLite's -wal may grow to some MB
FULL_FILES = 10  # -wal, -shm, a day's journal and the high-water file


# ---- files -----------------------------------------------------------------------------------------------------------


def configuration(checked: Checked) -> Iterator[Finding]:
    """The configuration was read; report its warnings."""
    settings = checked.settings
    where = str(settings.source.file or say("check.environment"))
    yield good("configuration", say("check.accounts", file=where, count=len(settings.accounts)))
    of_secrets = {say("config.open_secret", file=path) for path in settings.secret_files}
    for sentence in settings.source.warnings:
        if sentence not in of_secrets:
            yield warn("configuration", sentence)


def secrets(checked: Checked) -> Iterator[Finding]:
    """Whether the daemon's user can read the secret files, and whether others can."""
    worker = _worker(checked.settings)
    for path in dict.fromkeys(checked.settings.secret_files):
        yield _secret(path, None if worker == NOT_YET_CREATED else worker)


def authority(checked: Checked) -> Iterator[Finding]:
    """Whether the daemon's user can read the configured CA file."""
    worker, path = _worker(checked.settings), checked.settings.marketplace.ca_file
    if worker is None or path is None:
        return
    real = path.resolve()
    closed = [one for one in real.parents if not _may(one.stat(), worker, PASSES)]
    if closed or not _may(real.stat(), worker, READS):
        facts = say("check.closed", file=path, where=closed[-1] if closed else real)
        yield bad("certificates", facts, say("check.open_authority", file=path.name))


def space(checked: Checked) -> Iterator[Finding]:
    """Free space and inodes for the SQLite file."""
    file = sqlite_file(checked.settings.database.url)
    if file is None or not file.parent.is_dir():
        return
    folder = file.parent
    if (found := os.statvfs(folder)).f_files and found.f_favail < FULL_FILES:
        yield bad("space", say("check.inodes", folder=folder, count=found.f_favail), say("check.remove_files"))
    free = shutil.disk_usage(folder).free
    facts = say("check.space", folder=folder, megabytes=free // 1_000_000)
    if free < LOW_BYTES:
        yield (bad if free < FULL_BYTES else warn)("space", facts, say("check.make_room"))
    else:
        yield good("space", facts)


def _worker(settings: Settings) -> int | None:
    """The daemon's user, if we are root: the owner of the database's folder or file. None: not known."""
    file = sqlite_file(settings.database.url)
    if os.geteuid() != 0:
        return None
    there = [one.stat().st_uid for one in (file.parent, file) if one.exists()] if file is not None else []
    if not there and settings.source.file == SYSTEM_FILE:
        return NOT_YET_CREATED  # systemd creates it, and the folder, at the first start
    return next(filter(None, there), None)


def owner(checked: Checked) -> Iterator[Finding]:
    """Whether the daemon's user can write the SQLite file. SQLite gives -wal and -shm the owner of that file."""
    worker, file = _worker(checked.settings), sqlite_file(checked.settings.database.url)
    if worker is None or file is None or not file.exists():
        return
    found = file.stat()
    if not _may(found, worker, READS | WRITES):
        yield bad("rights", _owned(file, found), say("check.not_the_service_s", file=file, owner=_name(worker)))


def _owned(path: Path, found: os.stat_result) -> str:
    return say("check.owner", file=path, owner=_name(found.st_uid), mode=f"{S_IMODE(found.st_mode):04o}")


def _secret(path: Path, worker: int | None) -> Finding:
    found = path.stat()
    facts = _owned(path, found)
    if found.st_mode & S_IROTH:
        return bad("secret", facts, say("check.secret_open", file=path))
    if worker is not None and not _may(found, worker, READS):
        return bad("secret", facts, say("check.secret_hidden", file=path, owner=_name(worker)))
    return good("secret", facts)


def _may(found: os.stat_result, user: int, wanted: int) -> bool:
    """Whether the user has these permission bits, by owner, group and mode."""
    try:
        entry = pwd.getpwuid(user)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        groups = [user]  # a dynamic user of systemd
    shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
    return found.st_mode >> shift & wanted == wanted


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


# ---- the database ----------------------------------------------------------------------------------------------------


def database_probes(checked: Checked) -> Iterator[Finding]:
    """Run the database's probes up to the first failure, then those of the port, which need to know of a daemon."""
    try:
        checked.database = checked.context.database()
        for probe in PROBES:
            yield from probe(checked)
    except NoFile as error:
        yield warn("database", error)
    except (StoreError, DBAPIError) as error:
        yield from _broken(checked, error)
        return
    yield from port(checked)
    yield from certificate(checked)


def _broken(checked: Checked, error: StoreError | DBAPIError) -> Iterator[Finding]:
    file = sqlite_file(checked.settings.database.url)
    checked.may_write = False
    if checked.database is None and file is not None and _is_made_by_systemd(checked.settings, file.parent):
        yield warn("database", say("check.made_by_systemd", folder=file.parent))
        return
    checked.is_unusable = isinstance(error, Unusable)
    is_locked = checked.database is None
    if isinstance(error, DBAPIError):
        is_locked = is_busy(error)
        yield bad("database", str(error.orig), remedy(error))
    else:
        yield bad("database", error)
    if is_locked and file is not None and (found := writers_of(str(file))):
        yield warn("locked", f"PID {', '.join(found)}", say("check.locked"))


def _is_made_by_systemd(settings: Settings, folder: Path) -> bool:
    """Whether the folder is the service's state directory before its first start."""
    is_of_unit = settings.source.file == SYSTEM_FILE and (UNITS / "orderbridge.service").exists()
    return is_of_unit and folder == (sqlite_file(STATE_FILE) or folder).parent and not folder.exists()


def _address(checked: Checked) -> Iterator[Finding]:
    yield good("database", without_password(checked.settings.database.url))
    checked.opened.refuse_pooler()


def _schema(checked: Checked) -> Iterator[Finding]:
    """Whether the schema is this program's, and the database intact."""
    database = checked.opened
    found = database.read_now(schema.inspected)
    checked.is_current = found == tables.HEAD
    if found is None and (lacking := database.read_now(database.dialect.lacks)) is not None:
        rights, statement = lacking
        yield bad("rights", say("schema.lacks", rights=rights), say("schema.grant", statement=statement))
    elif found is None:
        yield warn("schema", say("check.no_tables"), say("check.makes_tables"))
    elif not checked.is_current:
        yield warn("schema", say("check.old_tables", found=found, known=tables.HEAD), say("check.updates_tables"))
    else:
        yield good("schema", found)
        yield from _guards(database)
    database.check_intact()


def _guards(database: Database) -> Iterator[Finding]:
    """Whether the triggers that protect our columns from the POS are there."""
    if gone := database.read_now(write_guards.gone):
        yield warn("schema", say("check.guards_gone", names=", ".join(sorted(gone))), say("check.makes_guards"))
    if database.read_now(write_guards.is_held_open):
        yield warn("schema", say("check.guard_open"), say("check.close_guard"))


def _writing(checked: Checked) -> Iterator[Finding]:
    """Whether we have all rights; tried in a transaction that is rolled back."""
    checked.worker = checked.opened.read_now(checked.opened.dialect.worker)
    if not checked.is_current:
        return
    with checked.opened.engine.connect() as connection, connection.begin() as tried:
        lacking = inspection.lacking_rights(connection)
        if not lacking:
            try_to_write(connection)
        tried.rollback()
    checked.may_write = not lacking
    if lacking:
        yield bad("rights", say("check.lacking", rights=", ".join(lacking)), say("check.grant"))
    else:
        yield good("rights", say("check.writes"))


def _promises(checked: Checked) -> Iterator[Finding]:
    unsafe = checked.opened.check_durability()
    yield good("durability", say("check.durable")) if unsafe is None else bad("durability", unsafe)
    if found := checked.opened.read_now(checked.opened.dialect.failover):
        yield (good if found.is_safe else warn)("failover", found.message)


def _extensions(checked: Checked) -> Iterator[Finding]:
    modules = [one.load().probes for one in installed().values()]
    for module in filter(None, modules):
        for probe in import_module(module).PROBES:
            yield from probe(checked)


def _work(checked: Checked) -> Iterator[Finding]:
    """The daemon that holds the database, and the open problems as codes (only while a daemon works)."""
    yield good("worker", checked.worker or say("check.no_worker"))
    if checked.may_write:  # the remedy of a connection error depends on this
        known = {account.fingerprint for account in checked.settings.accounts}
        polled = checked.opened.read_now(lambda tx: accounts.overview(tx, known))
        checked.has_worked = any(one["last_poll_ok_utc"] for one in polled)
    if not checked.is_current or checked.worker is None:
        return
    now = SystemClock().now()
    codes = [str(one.code) for one in checked.opened.read_now(lambda tx: open_problems(tx, checked.settings, now))]
    if not codes:
        yield good("problems", say("check.no_problems"))
        return
    counted = ", ".join(f"{code} ({codes.count(code)})" for code in dict.fromkeys(codes))
    yield warn("problems", counted, say("check.see_status"))


# ---- what is served --------------------------------------------------------------------------------------------------


def port(checked: Checked) -> Iterator[Finding]:
    """Whether the daemon can listen on its address; not tried while one works."""
    listen = checked.settings.web.listen
    if not listen or checked.worker is not None:
        return
    host, _, number = listen.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(number)))
        except OSError as error:
            yield bad("web", f"{listen}: {error.strerror}", say("check.port"))
        else:
            yield good("web", listen)


def certificate(checked: Checked) -> Iterator[Finding]:
    """Whether the board's certificate matches its key, and when it expires."""
    wanted = checked.settings.web
    if wanted.certificate is None:
        return
    from orderbridge.rules.problems import SOON
    from orderbridge.web.listening import certificate_end, tls_context

    try:
        tls_context(wanted)
    except OSError as error:
        yield bad("web", f"{wanted.certificate}: {error.strerror or error}", say("health.certificate_refused.remedy"))
        return
    end = certificate_end(wanted)
    facts = "" if end is None else say("check.board_certificate", file=wanted.certificate, end=end)
    if end is not None and end - SystemClock().now() < SOON:
        yield warn("web", facts, say("health.certificate_ends.remedy"))
    else:
        yield good("web", facts)


PROBES: tuple[Probe, ...] = (_address, _schema, _writing, owner, _promises, _extensions, _work)
FILES: tuple[Probe, ...] = (configuration, secrets, authority)
DATABASE: tuple[Probe, ...] = (space, database_probes)
