"""Logs: one line for each event, in one form for our own events and for every library's.

An event has a dotted, stable name and its facts as fields: `log.info("orders.polled", new=3, known=41, ms=212)`.
Secrets and customers do not belong into a log at all; what is done here about them is the last line of defence: by the
name of the field, and, for secrets that were made known by `hide`, wherever they appear in the finished line.
"""

import contextlib
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO
from urllib.parse import quote

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

HIDDEN = "***"
SHORTEST_SECRET = 4  # hiding a shorter text would blank half of each line and so give it away
PRIVATE = re.compile(r"secret|token|password|authorization|phone|address|customer|note|payload", re.IGNORECASE)
BREAKS_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # surrogates break the encoding
CHATTY = ("apscheduler", "httpcore", "httpx", "uvicorn.access")  # httpx logs addresses, the others every tick
ECHOES = ("psycopg",)  # what it warns of is the end of an error that it raises, told where that is met
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # syslog's, as the journal reads them

_logfmt = structlog.processors.LogfmtRenderer(bool_as_flag=False)
_secrets: set[str] = set()
_hidden: list[str] = []  # each secret in every form that a line can show it in, the longest first


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say that a line could not be written. logging's own answer prints what was to be hidden."""
        with contextlib.suppress(OSError, ValueError):  # the stream may be what is broken
            self.stream.write(f"A log line of {record.name} could not be written.\n")


def hide(secret: str, *, instead_of: str | None = None) -> None:
    """From now on `secret` shows as *** in every line. `instead_of` is an older token that need not be hidden longer."""
    if instead_of in _secrets:
        _secrets.discard(instead_of)
        gone = _forms(instead_of)
        _hidden[:] = [form for form in _hidden if form not in gone]
    if len(secret) >= SHORTEST_SECRET and secret not in _secrets:
        _secrets.add(secret)
        _hidden.extend(_forms(secret))
        _hidden.sort(key=len, reverse=True)


def _forms(secret: str) -> set[str]:
    """As it is, in quotes, in JSON, in an address."""
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe="")}


def configure(
    *,
    level: str = "info",
    format: str = "auto",  # noqa: A002 - the key of the configuration
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Send everything that is logged in this process to `stream` (stderr), from `level` up."""
    stream = stream or sys.stderr
    colors = stream.isatty() and not environ.get("NO_COLOR")
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = _Handler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=_chain(_form(format, stream, environ), colors)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name in (*CHATTY, *ECHOES):
        chatty = logging.getLogger(name)
        chatty.setLevel(max(number, logging.ERROR if name in ECHOES else logging.WARNING))
        chatty.propagate = True  # a server in this process may have cut it off
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a logger that was used before follows, too
    )


def _form(wanted: str, stream: TextIO, environ: Mapping[str, str]) -> str:
    if wanted != "auto":
        return wanted
    if environ.get("JOURNAL_STREAM") and environ["JOURNAL_STREAM"] == _identity(stream):
        return "journal"
    return "console" if stream.isatty() else "json"


def _identity(stream: TextIO) -> str | None:
    """Device and inode, as systemd writes them into JOURNAL_STREAM; None for a stream that is no file."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None
    return f"{status.st_dev}:{status.st_ino}"


def _chain(form: str, colors: bool) -> list[Processor]:
    match form:
        case "console":
            return [_plain, _redact, _console(colors=colors), _hide_secrets]
        case "journal":
            return [_plain, _redact, _journal, _hide_secrets]
        case _:
            return [_plain, _redact, _json, _hide_secrets]


def _plain(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Put time, level and event first, and an exception as two fields. No local variables: they hold orders."""
    record: logging.LogRecord = event.pop("_record")
    ours: bool = event.pop("_from_structlog")
    line: EventDict = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": event.pop("event", ""),
    }
    if not ours:
        line["logger"] = record.name
    error = _exception(event.pop("exc_info", None))
    line.update(event)
    if error:
        line["error"] = "".join(traceback.format_exception_only(error)).strip()
        line["traceback"] = "".join(traceback.format_exception(error)).strip()
    return line


def _exception(given: Any) -> BaseException | None:
    """Exceptions are handed over as themselves, as sys.exc_info()'s three, or as True for the present one."""
    match given:
        case BaseException():
            return given
        case (_, BaseException() as error, _):
            return error
        case None | False:
            return None
        case _:
            return sys.exception()


def _redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {key: _redacted(key, value) for key, value in event.items()}


def _redacted(key: object, value: object) -> object:
    """The value without what is private, and in plain types: a text is searched before it is quoted, perhaps twice."""
    if isinstance(key, str) and PRIVATE.search(key):
        return HIDDEN
    if isinstance(value, Mapping):
        return {_without_secrets(str(inner)): _redacted(inner, part) for inner, part in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(None, part) for part in value]
    if value is None or isinstance(value, int | float):
        return value
    return _without_secrets(str(value))


def _json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return _escaped(json.dumps(event, ensure_ascii=False))


def _journal(_: WrappedLogger, __: str, event: EventDict) -> str:
    """The journal adds the time; the level becomes the priority that it files the line under."""
    del event["time"]
    priority = PRIORITIES.get(event.pop("level"), PRIORITIES["info"])
    return f"<{priority}>{_escaped(_logfmt(None, '', event))}"


def _console(*, colors: bool) -> Processor:
    """For people: aligned, in colours, and a traceback below its line."""
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        timestamp_key="time",
    )

    def render(logger: WrappedLogger, name: str, event: EventDict) -> str:
        below = event.pop("traceback", "")
        shown = {
            key: value if isinstance(value, int | float | None) else _escaped(str(value))
            for key, value in event.items()
        }
        lines = [str(renderer(logger, name, shown)), *below.splitlines()]
        return "\n".join([lines[0], *map(_escaped, lines[1:])])

    return render


def _escaped(line: str) -> str:
    """A value with a line break in it must not pass for a line of its own, nor steer a terminal."""
    return BREAKS_A_LINE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _hide_secrets(_: WrappedLogger, __: str, line: Any) -> str:
    """Runs on the finished line, names of fields and all."""
    return _without_secrets(str(line))


def _without_secrets(text: str) -> str:
    for form in tuple(_hidden):  # another thread may be adding one
        if form in text:
            text = text.replace(form, HIDDEN)
    return text
