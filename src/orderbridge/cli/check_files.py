"""The configuration and the files of its secrets: whose they are, who may read them."""

import os
import pwd
import socket
from pathlib import Path
from stat import S_IMODE, S_IRGRP, S_IROTH, S_IRUSR

from orderbridge.cli.report import Report
from orderbridge.clock import SystemClock
from orderbridge.config import Settings, Web
from orderbridge.config.addresses import sqlite_file
from orderbridge.texts import say


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
        _check_secret(path, worker, report)


def _secret_files(settings: Settings) -> list[Path]:
    files = [file for one in settings.accounts for file in (one.app_secret_key_file, one.rest_secret_key_file) if file]
    folder = settings.source.file.parent if settings.source.file else Path.cwd()
    master = settings.fleet.master_key_file
    return [folder / file for file in [*files, *([master] if master else [])]]


def _worker(settings: Settings) -> int | None:
    """Who will have to read them: whose the database's file is, when we are root. None: that is not known."""
    file = sqlite_file(settings.database.url)
    try:
        owner = file.stat().st_uid if file is not None and os.geteuid() == 0 else 0
    except OSError:
        return None
    return owner or None


def _check_secret(path: Path, worker: int | None, report: Report) -> None:
    found = path.stat()
    mode = S_IMODE(found.st_mode)
    facts = say("check.owner", file=path, owner=_name(found.st_uid), mode=f"{mode:04o}")
    if mode & S_IROTH:
        report.bad("secret", facts, say("check.secret_open", file=path))
    elif worker is not None and not _may_read(found, worker):
        report.bad("secret", facts, say("check.secret_hidden", file=path, owner=_name(worker)))
    else:
        report.good("secret", facts)


def _may_read(found: os.stat_result, user: int) -> bool:
    if found.st_uid == user:
        return bool(found.st_mode & S_IRUSR)
    try:
        entry = pwd.getpwuid(user)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        groups = []
    return found.st_gid in groups and bool(found.st_mode & S_IRGRP)


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
