"""What `check` finds on this machine: files and who may use them, room on the disk, the port and the board's certificate."""

import os
import pwd
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE, S_IROTH

from orderbridge.cli.report import Checked, Finding, Probe, bad, good, warn
from orderbridge.clock import SystemClock
from orderbridge.config import Settings
from orderbridge.config.addresses import sqlite_file
from orderbridge.config.loading import SYSTEM_FILE
from orderbridge.store.dialects.sqlite_file import BESIDE
from orderbridge.texts import say

READS, WRITES, PASSES = 4, 2, 1
NOBODY = 65534
FULL_BYTES, LOW_BYTES = 20_000_000, 200_000_000  # an order takes 5 kB; SQLite's -wal may grow to some MB
FULL_FILES = 10  # -wal, -shm, a day's journal and what stands beside the database


def configuration(checked: Checked) -> Iterator[Finding]:
    """It was read and is right; what remains are its warnings."""
    settings = checked.settings
    where = str(settings.source.file or say("check.environment"))
    yield good("configuration", say("check.accounts", file=where, count=len(settings.accounts)))
    of_secrets = {say("config.open_secret", file=path) for path in _secret_files(settings)}
    for sentence in settings.warnings:
        if sentence not in of_secrets:
            yield warn("configuration", sentence)


def secrets(checked: Checked) -> Iterator[Finding]:
    """Who else may read them, and whether the service may."""
    worker = _worker(checked.settings)
    for path in dict.fromkeys(_secret_files(checked.settings)):
        yield _secret(path, None if worker == NOBODY else worker)


def authority(checked: Checked) -> Iterator[Finding]:
    """Whether the service may read the configured file of certificates."""
    worker, path = _worker(checked.settings), checked.settings.marketplace.ca_file
    if worker is None or path is None:
        return
    real = path.resolve()
    closed = [one for one in real.parents if not _may(one.stat(), worker, PASSES)]
    if closed or not _may(real.stat(), worker, READS):
        facts = say("check.closed", file=path, where=closed[-1] if closed else real)
        yield bad("certificates", facts, say("check.open_authority", file=path.name))


def space(checked: Checked) -> Iterator[Finding]:
    """On the disk of an SQLite file."""
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


def _secret_files(settings: Settings) -> list[Path]:
    files = [file for one in settings.accounts for file in (one.app_secret_key_file, one.rest_secret_key_file) if file]
    folder = settings.source.file.parent if settings.source.file else Path.cwd()
    master = settings.fleet.master_key_file
    return [folder / file for file in [*files, *([master] if master else [])]]


def _worker(settings: Settings) -> int | None:
    """The user of the service, when we are root: whose the database's folder is, or else its file. None: not known."""
    file = sqlite_file(settings.database.url)
    if os.geteuid() != 0:
        return None
    there = [one.stat().st_uid for one in (file.parent, file) if one.exists()] if file is not None else []
    if not there and settings.source.file == SYSTEM_FILE:
        return NOBODY  # systemd makes user and folder at the first start
    return next(filter(None, there), None)


def owner(checked: Checked) -> Iterator[Finding]:
    """Whether the service may write to the files of the database that are there; root may."""
    worker, file = _worker(checked.settings), sqlite_file(checked.settings.database.url)
    if worker is None:
        return
    for path in (Path(f"{file}{suffix}") for suffix in ("", "-lock", *BESIDE)):
        if path.exists() and not _may(path.stat(), worker, READS | WRITES):
            found = path.stat()
            facts = say("check.owner", file=path, owner=_name(found.st_uid), mode=f"{S_IMODE(found.st_mode):04o}")
            yield bad("rights", facts, say("check.not_the_service_s", file=path, owner=_name(worker)))


def _secret(path: Path, worker: int | None) -> Finding:
    found = path.stat()
    mode = S_IMODE(found.st_mode)
    facts = say("check.owner", file=path, owner=_name(found.st_uid), mode=f"{mode:04o}")
    if mode & S_IROTH:
        return bad("secret", facts, say("check.secret_open", file=path))
    if worker is not None and not _may(found, worker, READS):
        return bad("secret", facts, say("check.secret_hidden", file=path, owner=_name(worker)))
    return good("secret", facts)


def _may(found: os.stat_result, user: int, wanted: int) -> bool:
    """By owner, group and mode. `wanted`: bits as those of others."""
    try:
        entry = pwd.getpwuid(user)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        groups = [user]  # a dynamic user's
    shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
    return found.st_mode >> shift & wanted == wanted


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def port(checked: Checked) -> Iterator[Finding]:
    """Whether the daemon will be able to listen there, unless one does."""
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
    """Whether the board's own certificate and its key belong together, and for how long it is good."""
    wanted = checked.settings.web
    if wanted.certificate is None:
        return
    from orderbridge.rules.page import SOON
    from orderbridge.web import tls

    try:
        tls.context(wanted)
    except OSError as error:
        yield bad("web", f"{wanted.certificate}: {error.strerror or error}", say("health.certificate_refused.remedy"))
        return
    end = tls.ends(wanted)
    facts = "" if end is None else say("check.board_certificate", file=wanted.certificate, end=end)
    if end is not None and end - SystemClock().now() < SOON:
        yield warn("web", facts, say("health.certificate_ends.remedy"))
    else:
        yield good("web", facts)


FILES: tuple[Probe, ...] = (configuration, secrets, authority)
WEB: tuple[Probe, ...] = (port, certificate)
