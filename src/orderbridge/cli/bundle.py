"""`orderbridge support-bundle`: everything that support needs, and no customer in it.

Each part is made alone: what cannot be had, without a daemon, a database or a configuration, is named in about.json.
bundle_contents.py lists what may stand in it. The archive is made in memory: a full disk is found out before anything is written.
"""

import io
import json
import os
import platform
import shutil
import sqlite3
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import click
import sqlalchemy
from sqlalchemy import inspect

from orderbridge import __version__
from orderbridge.cli import bundle_contents
from orderbridge.cli.bundle_contents import CONFIGURATION, tree
from orderbridge.cli.common import Context, pass_context, plain
from orderbridge.cli.status import facts_of
from orderbridge.clock import SystemClock
from orderbridge.config import shown
from orderbridge.observe import liveness
from orderbridge.store import overview, revisions, schema
from orderbridge.texts import say

LOG_LINES = 3000
LOG_BYTES = 4 * 1024 * 1024
LOG_S = 20.0  # for journalctl
MOST_STORIES = 20
METRICS_S = 3.0


@click.command("support-bundle")
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--order", "wanted", multiple=True, help="Tell this order's story, too; may be repeated.")
@click.option("--log", "log_file", type=click.Path(path_type=Path), help="The log, where it is no journal's.")
@click.option("--unit", default="orderbridge", show_default=True, help="The systemd unit whose journal to take.")
@pass_context
def support_bundle(
    context: Context, file: Path | None, wanted: tuple[str, ...], log_file: Path | None, unit: str
) -> None:
    """Everything for whoever helps, in one ZIP, without customers and secrets. FILE: `-` is stdout.

    It works while the daemon is dead. Mode 0600; a file that is there is never overwritten.
    """
    bundle = _Bundle()
    _fill(bundle, context, wanted, log_file, unit)
    data = bundle.packed()
    if str(file) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    chosen = file or Path(f"orderbridge-support-{SystemClock().now():%Y%m%d-%H%M%S}.zip")
    _write(chosen, data)
    click.echo(say("bundle.done", file=chosen, size=f"{len(data) / 1024:.0f}"))
    if bundle.missing:
        click.echo(say("bundle.missing", what=", ".join(bundle.missing)), err=True)


class _Bundle:
    """The parts so far, and what could not be had."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {"README.txt": f"orderbridge support-bundle\n\n{say('bundle.readme')}\n"}
        self.missing: dict[str, str] = {}

    def add(self, name: str, make: Callable[[], Any]) -> Any:
        """Make a part; its value, or None when it could not be had. Texts stand as they are, all else as JSON."""
        try:
            made = make()
            text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, indent=1, default=plain)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other parts help all the same
            causes = (error, error.__cause__, getattr(error, "orig", None))
            self.missing[name] = ", ".join(type(cause).__name__ for cause in causes if cause is not None)
            return None
        self.parts[name] = text
        return made

    def packed(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in self.parts.items():
                archive.writestr(name, text)
        return out.getvalue()


def _fill(bundle: _Bundle, context: Context, wanted: tuple[str, ...], log_file: Path | None, unit: str) -> None:
    settings = bundle.add("configuration.json", lambda: tree(shown(context.settings), texts=CONFIGURATION))
    accounts = frozenset(one["name"] for one in (settings or {}).get("accounts", ()))
    if settings is not None:
        bundle.add("status.json", lambda: tree(json.loads(json.dumps(facts_of(context), default=plain)), accounts))
        bundle.add("metrics.txt", lambda: _metrics(context))
        if bundle.add("schema.json", lambda: _read(context, _schema)) is not None:
            keys = bundle.add("orders.txt", lambda: _read(context, partial(_keys, wanted=wanted)))
            for key in (keys or "").split():
                bundle.add(f"orders/{key}.json", partial(_story, context, key, accounts))
    bundle.add("log.txt", lambda: _log(log_file, unit, accounts))
    bundle.add("about.json", lambda: _about() | {"missing": bundle.missing})


def _about() -> dict[str, Any]:
    return {
        "made_utc": SystemClock().now(),
        "orderbridge": __version__,
        "schema": revisions.HEAD,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sqlalchemy": sqlalchemy.__version__,
        "sqlite": sqlite3.sqlite_version,
        "daemons": [bundle_contents.value(liveness.ask(name).split()[0].strip(":")) for name in liveness.daemons()],
    }


def _metrics(context: Context) -> str:
    """Asked at our own address, whatever name the certificate has; by a name that the board knows, too."""
    web = context.settings.web
    if not web.listen:
        return say("bundle.no_metrics") + "\n"
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    asked = Request(f"{web.scheme}://{web.listen}/metrics", headers={"Host": "localhost"})  # noqa: S310 - ours
    with build_opener(ProxyHandler({}), HTTPSHandler(context=unverified)).open(asked, timeout=METRICS_S) as answer:
        return str(answer.read(LOG_BYTES).decode("utf-8", "replace"))


def _read(context: Context, work: Callable[[Any], Any]) -> Any:
    """Also of a database whose tables are another program's."""
    with closing(context.database()) as database:
        return database.read_now(work)


def _schema(tx: Any) -> dict[str, Any]:
    found = inspect(tx)
    ours = [name for name in (*found.get_table_names(), *found.get_view_names()) if name.startswith("delivery_")]
    return {
        "database": tx.dialect.name,
        "server": ".".join(map(str, tx.dialect.server_version_info or ())),
        "revision": schema.current(tx),
        "tables": {name: [column["name"] for column in found.get_columns(name)] for name in sorted(ours)},
    }


def _keys(tx: Any, wanted: tuple[str, ...]) -> str:
    """The orders that were asked for, and those with a trouble."""
    named = [row["payment_key"] for one in wanted for row in overview.find(tx, one)]
    return "\n".join(dict.fromkeys([*named, *overview.troubled(tx)[:MOST_STORIES]]))


def _story(context: Context, key: str, accounts: frozenset[str]) -> dict[str, Any]:
    parts = _read(context, partial(overview.tell, payment_key=key))
    order = bundle_contents.row("order", parts.pop("order"), accounts)
    rows = {part: [bundle_contents.row(part, one, accounts) for one in parts[part]] for part in parts}
    return {"order": order, **rows}


def _log(log_file: Path | None, unit: str, accounts: frozenset[str]) -> str:
    """What is listed of the last lines: of the file, else of the unit's journal."""
    if log_file is not None:
        with log_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - LOG_BYTES, 0))
            raw = file.read()
    else:
        journalctl = shutil.which("journalctl")
        if journalctl is None:
            raise FileNotFoundError("journalctl; --log FILE")
        command = [journalctl, "--unit", unit, "--no-pager", "--output", "short-iso", "--lines", str(LOG_LINES)]
        raw = subprocess.run(command, capture_output=True, timeout=LOG_S, check=True).stdout[-LOG_BYTES:]  # noqa: S603
    lines = raw.decode("utf-8", "replace").splitlines()[-LOG_LINES:]
    return "\n".join(bundle_contents.line(line, accounts) for line in lines) + "\n"


def _write(file: Path, data: bytes) -> None:
    """Raises ClickException; then no half file is left."""
    try:
        with open(file, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError:
        raise click.ClickException(say("bundle.exists", file=file)) from None
    except OSError as error:
        with suppress(OSError):
            file.unlink()
        raise click.ClickException(say("bundle.not_written", file=file, error=error.strerror)) from error


COMMANDS = (support_bundle,)
