"""`orderbridge support-bundle` writes a ZIP with what support needs, without customers' data and secrets.

A part that fails, for example without a daemon, a database or a configuration, does not stop the others; about.json
names it. The archive is made in memory, so that a full disk causes no partial file.
"""

import io
import json
import os
import platform
import re
import shutil
import sqlite3
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import click
import sqlalchemy
from sqlalchemy import inspect

from orderbridge import __version__
from orderbridge.cli.common import Context, pass_context, plain
from orderbridge.cli.status import facts_of
from orderbridge.clock import SystemClock
from orderbridge.config import shown
from orderbridge.document import Facts, Item, Option, fields_of
from orderbridge.observe import liveness
from orderbridge.store import overview, schema, tables
from orderbridge.texts import say

COLUMNS = {
    "order": """payment_key account order_number status_id status payment_code restaurant_id amount_due total discount
        courier_fee order_tip start_utc payload revision contents_revision last_change
        service_status_id received_utc changed_utc acknowledged_utc acknowledged_status_id ended_utc ended_by problem
        remarks pos_revision pos_total""",
    "items": "line_no item_id food_id price quantity total",
    "options": "line_no option_no group_id option_id price",
    "events": "id at_utc event status_id status",
    "actions": """id action payment_key restaurant_id food_id account preparing_time reason_id valid_minutes withdraw
        created_utc state attempts next_attempt_utc expires_utc http_status error_code known_by finished_utc
        valid_until_minutes until_utc""",
    "attempts": "action_id attempt started_utc finished_utc outcome spent http_status error_code",
}
# CONFIGURATION: keys whose text is shown unmasked. CODES: keys of `status` whose text may be a code.
CONFIGURATION = frozenset(
    "language base_url timezone url journal command_severity accounts name restaurants listen board format".split()
)
CODES = frozenset("level light code severity state status lamp menu_error".split())
LOG = frozenset(
    """account accounts acknowledged action attempt back blanked changed code count deleted delivered doing dropped
    ended error error_code errors expires failures food_id foods gone http_status id job level logger ms new
    operation orders outcome owner payment_key reason renamed refusals refused restaurant_id restaurants rows
    seconds severity state status_id subject table type unfinished wait_s waiting""".split()
)
TOO_LARGE = 10**8  # a larger number may be a telephone number
MAX_DEPTH = 20  # levels of a document
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_CODE = r"[a-z][a-z0-9]*(?:[_.:,][a-z0-9]+)*|[A-Z][A-Z_]*|[A-Za-z]*(?:Error|Exception|Timeout)"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PLAIN = re.compile(rf"{_TIME}|{_UUID}")
_SHOWN = re.compile(rf"{_TIME}|{_UUID}|{_CODE}")
_BEGINS = re.compile(rf"({_TIME})")
_NUMBER = re.compile(r"-?\d{1,8}(?:\.\d{1,6})?")
_EVENT = re.compile(r"[a-z_]+\.[a-z_.]+")
_CONSOLE = re.compile(r"\[([a-z]+) *\] ([a-z_]+\.[a-z_.]+)(?!\S)")
_PAIR = re.compile(r"\b([a-z_]+)=(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S+)")
_PLACE = re.compile(r"/((?:orderbridge|site-packages)/[\w/.-]+\.py)\\?\", line (\d+), in (\w+)")
_RAISED = re.compile(r"([A-Za-z_.]*(?:Error|Exception|Timeout)):")

Names = Collection[str]  # of the configured accounts, shown unmasked

LOG_LINES = 3000
LOG_BYTES = 4 * 1024 * 1024
LOG_S = 20.0  # for journalctl
MAX_ORDERS = 20
METRICS_S = 3.0


@click.command("support-bundle")
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--order", "wanted", multiple=True, help="Add the history of this order; may be repeated.")
@click.option("--log", "log_file", type=click.Path(path_type=Path), help="The log file, if not in systemd's journal.")
@click.option("--unit", default="orderbridge", show_default=True, help="The systemd unit whose journal to include.")
@pass_context
def support_bundle(
    context: Context, file: Path | None, wanted: tuple[str, ...], log_file: Path | None, unit: str
) -> None:
    """Write a ZIP for support, without customers' data and secrets."""
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
    """The parts so far, and the errors of those that failed."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {"README.txt": f"orderbridge support-bundle\n\n{say('bundle.readme')}\n"}
        self.missing: dict[str, str] = {}

    def add(self, name: str, make: Callable[[], Any]) -> Any:
        """Add a part and return it; None if it failed, with the reason in `missing`. Only a string is not made JSON."""
        try:
            made = make()
            text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, indent=1, default=plain)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other parts still help
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
        "schema": tables.HEAD,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sqlalchemy": sqlalchemy.__version__,
        "sqlite": sqlite3.sqlite_version,
        "daemons": [value(liveness.ask(name).split()[0].strip(":")) for name in liveness.daemons()],
    }


def _metrics(context: Context) -> str:
    """Read the daemon's metrics at its own address, without verifying the certificate."""
    web = context.settings.web
    if not web.listen:
        return say("bundle.no_metrics") + "\n"
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    request = Request(f"{web.scheme}://{web.listen}/metrics", headers={"Host": "localhost"})  # noqa: S310 - ours
    with build_opener(ProxyHandler({}), HTTPSHandler(context=unverified)).open(request, timeout=METRICS_S) as answer:
        return str(answer.read(LOG_BYTES).decode("utf-8", "replace"))


def _read(context: Context, work: Callable[[Any], Any]) -> Any:
    """Read, whatever the schema revision is: the bundle must also work before an upgrade."""
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
    """The keys of the orders named on the command line and of those with a problem."""
    named = [row["payment_key"] for one in wanted for row in overview.find(tx, one)]
    return "\n".join(dict.fromkeys([*named, *overview.troubled(tx)[:MAX_ORDERS]]))


def _story(context: Context, key: str, accounts: frozenset[str]) -> dict[str, Any]:
    parts = _read(context, partial(overview.full_order, payment_key=key))
    order = row("order", parts.pop("order"), accounts)
    rows = {part: [row(part, one, accounts) for one in parts[part]] for part in parts}
    return {"order": order, **rows}


def _log(log_file: Path | None, unit: str, accounts: frozenset[str]) -> str:
    """The last lines of the file or of the unit's journal, reduced to the listed fields."""
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
    return "\n".join(log_line(one, accounts) for one in lines) + "\n"


def _write(file: Path, data: bytes) -> None:
    """Write the file or raise ClickException; a partial file is removed."""
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


# ---- masking ---------------------------------------------------------------------------------------------------------


def mask(text: str) -> str:
    """Replace a text by its length."""
    return f"***({len(text)})"


def value(cell: Any, accounts: Names = ()) -> Any:
    """Show a number, a time, an id, an account's name or a code; mask anything else."""
    if cell is None or isinstance(cell, bool | datetime):
        return cell
    if isinstance(cell, int | float | Decimal):
        return cell if -TOO_LARGE < cell < TOO_LARGE else mask(str(cell))
    return cell if cell in accounts or _SHOWN.fullmatch(str(cell)) else mask(str(cell))


def row(part: str, cells: Mapping[str, Any], accounts: Names) -> dict[str, Any]:
    """The columns `COLUMNS[part]` of a row. The POS writes `account`; an unknown name is masked."""
    shown = {name: value(cells[name], accounts) for name in COLUMNS[part].split() if name in cells}
    if cells.get("account") not in {None, *accounts}:
        shown["account"] = mask(str(cells["account"]))
    if cells.get("payload"):
        shown["payload"] = document(str(cells["payload"]))
    return shown


def tree(part: Any, accounts: Names = (), *, texts: Collection[str] = (), key: str = "") -> Any:
    """Mask every text in a JSON tree except times, names of accounts, and the values of the keys CODES and `texts`."""
    if isinstance(part, dict):
        return {
            str(value(name, accounts)): tree(inner, accounts, texts=texts, key=name) for name, inner in part.items()
        }
    if isinstance(part, list):
        return [tree(inner, accounts, texts=texts, key=key) for inner in part]
    if not isinstance(part, str) or key in CODES or part in accounts or _PLAIN.fullmatch(part):
        return value(part, accounts)
    return part if key in texts else mask(part)


def log_line(text: str, accounts: Names) -> str:
    """The time, level, event, listed fields and traceback positions of a log line in any of the log formats."""
    fields = _fields(text)
    found = _CONSOLE.search(text)
    level, event = found.groups() if found else (fields.get("level", ""), fields.get("event", ""))
    at = _BEGINS.match(fields.get("time", text))
    parts = [at[1] if at else "", f"[{value(level)}]" if level else "", event if _EVENT.fullmatch(event) else ""]
    parts += [f"{name}={_field(name, fields[name], accounts)}" for name in fields if name in LOG and name != "level"]
    parts += [f"{file}:{number} {function}" for file, number, function in _PLACE.findall(text)]
    parts += _RAISED.findall(text)[:1]
    return " ".join(filter(None, parts)) or "***"


def _fields(text: str) -> dict[str, str]:
    try:
        return {name: str(cell) for name, cell in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError):  # not JSON
        return {name: cell.strip("\"'") for name, cell in _PAIR.findall(text)}


def _field(name: str, cell: str, accounts: Names) -> Any:
    if name == "account":
        return cell if cell in accounts else "***"
    return cell if _NUMBER.fullmatch(cell) else value(cell, accounts)


@cache
def _known_fields() -> frozenset[str]:
    paths = [one.path for rows in (Facts, Item, Option) for one in fields_of(rows) if one.path]
    more = "payment_key status_id status_text courier_type customer foods option_groups options data"
    return frozenset([part for path in paths for part in path.split(".")] + more.split())


def document(payload: str) -> Any:
    """The structure of a document: field names of the interface, and the kind and length of each value."""
    try:
        return _shape(json.loads(payload), MAX_DEPTH)
    except (ValueError, RecursionError):
        return mask(payload)


def _shape(part: Any, deep: int) -> Any:
    if deep == 0:
        return "…"
    if isinstance(part, dict):
        known = _known_fields()
        return {
            key if key in known else f"field {number}": _shape(inner, deep - 1)
            for number, (key, inner) in enumerate(part.items())
        }
    if isinstance(part, list):
        return [_shape(inner, deep - 1) for inner in part]
    if isinstance(part, str):
        return f"text({len(part)})"
    return "null" if part is None else type(part).__name__


COMMANDS = (support_bundle,)
