"""The files of configuration, secrets and database: whose they are, and whether the service may use them."""

import os
import pwd
import socket
from pathlib import Path
from stat import S_IMODE, S_IROTH

from orderbridge.cli.report import Report
from orderbridge.clock import SystemClock
from orderbridge.config import Settings, Web
from orderbridge.config.addresses import sqlite_file
from orderbridge.config.loading import SYSTEM_FILE
from orderbridge.store.dialects.sqlite_file import BESIDE
from orderbridge.texts import say

READS, WRITES, PASSES = 4, 2, 1
NOBODY = 65534


def check_files(settings: Settings, report: Report) -> None:
    """The configuration was read and is right; what about who else may read it, and who has to?"""
    where = str(settings.source.file or say("check.environment"))
    report.good("configuration", say("check.accounts", file=where, count=len(settings.accounts)))
    secret_files = list(dict.fromkeys(_secret_files(settings)))
    told_below = {say("config.open_secret", file=path) for path in secret_files}
    for sentence in settings.warnings:
        if sentence not in told_below:
            report.look("configuration", sentence)
    worker = _worker(settings)
    for path in secret_files:
        _check_secret(path, None if worker == NOBODY else worker, report)
    if worker is not None and (authority := settings.marketplace.ca_file) is not None:
        _check_authority(authority, worker, report)


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


def check_owner(settings: Settings, report: Report) -> None:
    """Whether the service may write to the files that are there; root may."""
    worker, file = _worker(settings), sqlite_file(settings.database.url)
    if worker is None:
        return
    for path in (Path(f"{file}{suffix}") for suffix in ("", "-lock", *BESIDE)):
        if path.exists() and not _may(path.stat(), worker, READS | WRITES):
            owner, wanted = _name(path.stat().st_uid), _name(worker)
            facts = say("check.owner", file=path, owner=owner, mode=f"{S_IMODE(path.stat().st_mode):04o}")
            report.bad("rights", facts, say("check.not_the_service_s", file=path, owner=wanted))


def _check_authority(path: Path, worker: int, report: Report) -> None:
    real = path.resolve()
    closed = [one for one in real.parents if not _may(one.stat(), worker, PASSES)]
    if closed or not _may(real.stat(), worker, READS):
        facts = say("check.closed", file=path, where=closed[-1] if closed else real)
        report.bad("certificates", facts, say("check.open_authority", file=path.name))


def _check_secret(path: Path, worker: int | None, report: Report) -> None:
    found = path.stat()
    mode = S_IMODE(found.st_mode)
    facts = say("check.owner", file=path, owner=_name(found.st_uid), mode=f"{mode:04o}")
    if mode & S_IROTH:
        report.bad("secret", facts, say("check.secret_open", file=path))
    elif worker is not None and not _may(found, worker, READS):
        report.bad("secret", facts, say("check.secret_hidden", file=path, owner=_name(worker)))
    else:
        report.good("secret", facts)


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


def check_port(listen: str, report: Report) -> None:
    """Whether the daemon will be able to listen there. Only asked while none runs."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            report.bad("web", f"{listen}: {error.strerror}", say("check.port"))
        else:
            report.good("web", listen)


def check_certificate(wanted: Web, report: Report) -> None:
    """Whether the board's own certificate and its key belong together, and for how long it is good."""
    if wanted.certificate is None:
        return
    from orderbridge.rules.page import SOON
    from orderbridge.web import tls

    try:
        tls.context(wanted)
    except OSError as error:
        report.bad("web", f"{wanted.certificate}: {error.strerror or error}", say("health.certificate_refused.remedy"))
        return
    end = tls.ends(wanted)
    said = "" if end is None else say("check.board_certificate", file=wanted.certificate, end=end)
    if end is not None and end - SystemClock().now() < SOON:
        report.look("web", said, say("health.certificate_ends.remedy"))
    else:
        report.good("web", said)
