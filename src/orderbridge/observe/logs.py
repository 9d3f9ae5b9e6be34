"""Formats and writes the log: one line for each event, for our own events and those of libraries.

An event has a stable, dotted name and facts as fields: `log.info("orders.polled", new=3, known=41, ms=212)`. Secrets
and customers' data must not be logged at all. As a last defence, this module hides them by the name of the field, and
hides the secrets known to orderbridge.hiding anywhere in the line.

The reader of stdout and stderr may stop reading: a pager, a log shipper that hangs, a terminal after Ctrl-S. A full
pipe would then block the event loop. So a thread writes (`Output`). Lines that cannot be written wait in memory up to a
limit; further lines are dropped, and their number is logged later.
"""

import atexit
import contextlib
import io
import json
import logging
import os
import re
import select
import sys
import threading
import traceback
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from orderbridge.clock import SystemClock
from orderbridge.errors import Message, OrderbridgeError
from orderbridge.hiding import HIDDEN, without_secrets
from orderbridge.observe.systemd import PRIORITIES, is_journal
from orderbridge.texts import say, sentence

PRIVATE = re.compile(r"secret|token|password|authorization|phone|address|customer|note|payload", re.IGNORECASE)
BREAKS_A_LINE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # surrogates break the encoding
CHATTY = ("httpcore", "httpx", "uvicorn.access", "alembic")  # httpx logs addresses, the others every request or step
ECHOES = ("apscheduler", "psycopg")  # their warnings are harmless, or logged by us
RESETS = ("sqlalchemy.pool",)  # a connection to an unreachable server, which is logged by us

MAX_WAITING: Final = 1024 * 1024  # characters, about a busy hour
PIECE: Final = 4096  # bytes that a pipe takes as a whole or not at all
DRAIN_S: Final = 2.0  # to write the rest at the end of the process

_log = structlog.get_logger(__name__)
_clock = SystemClock()
_logfmt = structlog.processors.LogfmtRenderer(bool_as_flag=False)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Report that a line could not be written. logging's own message would print its secrets."""
        with contextlib.suppress(OSError, ValueError):  # the stream may be what is broken
            self.stream.write(say("log.not_written", name=record.name) + "\n")


def configure(
    *,
    level: str = "info",
    format: str = "auto",  # noqa: A002 - the key of the configuration
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Write all log events of this process, from `level` up, to `stream` (default: stderr)."""
    stream = stream or sys.stderr
    colors = stream.isatty() and not environ.get("NO_COLOR")
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = _Handler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=_chain(_form(format, stream, environ), colors)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    least = dict.fromkeys(CHATTY, logging.WARNING) | dict.fromkeys(ECHOES, logging.ERROR)
    for name, level_of in (least | dict.fromkeys(RESETS, logging.CRITICAL)).items():
        chatty = logging.getLogger(name)
        chatty.setLevel(max(number, level_of))
        chatty.propagate = True  # a web server in this process may have changed it
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # so that existing loggers change, too
    )


def _form(wanted: str, stream: TextIO, environ: Mapping[str, str]) -> str:
    if wanted != "auto":
        return wanted
    if is_journal(stream, environ):
        return "journal"
    return "console" if stream.isatty() else "json"


def _chain(form: str, colors: bool) -> list[Processor]:
    render = _console(colors=colors) if form == "console" else {"journal": _journal, "json": _json}[form]
    return [_plain, _redact, render, _hide_secrets]


def _plain(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Put time, level and event first, and an exception in two fields, without local variables, which hold orders."""
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
    line.update({f"{key}_" if key in line else key: value for key, value in event.items()})  # a fact is no level
    if error:
        line["error"] = _in_words(error)
        line["traceback"] = "".join(traceback.format_exception(error)).strip()
    return line


def _exception(given: Any) -> BaseException | None:
    """The exception from exc_info, which is an exception, the triple of sys.exc_info(), or True."""
    match given:
        case BaseException():
            return given
        case (_, BaseException() as error, _):
            return error
        case None | False:
            return None
        case _:
            return sys.exception()


def _in_words(error: BaseException) -> str:
    if isinstance(error, OrderbridgeError):
        return f"{type(error).__module__}.{type(error).__qualname__}: {sentence(error)}"
    return "".join(traceback.format_exception_only(error)).strip()


def _redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {key: _redacted(key, value) for key, value in event.items()}


def _redacted(key: object, value: object) -> object:
    """The value in plain types, without private parts. Texts are searched before they are quoted."""
    if isinstance(key, str) and PRIVATE.search(key):
        return HIDDEN
    if isinstance(value, Mapping):
        return {without_secrets(str(inner)): _redacted(inner, part) for inner, part in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(None, part) for part in value]
    if value is None or isinstance(value, int | float):
        return value
    return without_secrets(sentence(value) if isinstance(value, Message | OrderbridgeError) else str(value))


def _json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return _escaped(json.dumps(event, ensure_ascii=False))


def _journal(_: WrappedLogger, __: str, event: EventDict) -> str:
    """A line for the journal, which adds the time; the level becomes its priority."""
    del event["time"]
    priority = PRIORITIES.get(event.pop("level"), PRIORITIES["info"])
    return f"<{priority}>{_escaped(_logfmt(None, '', event))}"


def _console(*, colors: bool) -> Processor:
    """A renderer for terminals: aligned, in colour, with a traceback below its line."""
    renderer = structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="time")

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
    """Escape line breaks and control characters, so that a value cannot imitate a line or control a terminal."""
    return BREAKS_A_LINE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _hide_secrets(_: WrappedLogger, __: str, line: Any) -> str:
    """Hide secrets in the finished line."""
    return without_secrets(str(line))


# ---- stdout and stderr -----------------------------------------------------------------------------------------------


class Output(io.TextIOBase):
    """Replaces a stream. Its `write` never blocks and never fails."""

    def __init__(self, stream: TextIO, max_waiting: int = MAX_WAITING) -> None:
        self._stream = stream
        self._max_waiting = max_waiting
        self._waiting: deque[str] = deque()
        self._size = 0  # characters that are not written yet
        self._dropped = 0  # lines
        self._since: float | None = None  # since when a write has been blocked or failing
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="output", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # so that click recognizes a text stream
            raise TypeError(type(text).__name__)
        with self._changed:
            if self._size + len(text) > self._max_waiting:
                self._dropped += text.count("\n")
            else:
                self._waiting.append(text)
                self._size += len(text)
                self._changed.notify_all()
        return len(text)

    def drain(self) -> None:
        """Wait up to DRAIN_S until all is written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._size, DRAIN_S)

    def stuck_s(self) -> float:
        """Seconds since a write has been blocked or failing."""
        since = self._since
        return 0.0 if since is None else _clock.monotonic() - since

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                text = "".join(self._waiting)
                self._waiting.clear()
            lost = self._write_out(text)
            with self._changed:
                self._size -= len(text)
                self._dropped += lost
                dropped, self._dropped = (self._dropped, 0) if self._since is None else (0, self._dropped)
                self._changed.notify_all()
            if dropped:
                _log.error("log.lines_dropped", count=dropped, reason=say("log.not_read"))

    def _write_out(self, text: str) -> int:
        """Write the text. Returns the number of lines that the system refused."""
        data = memoryview(text.encode(self.encoding, self.errors))
        while data:
            self._since = self._since or _clock.monotonic()
            try:
                written = os.write(self.fileno(), data[:PIECE])
            except BlockingIOError:  # inherited as non-blocking
                select.select([], [self.fileno()], [])
            except (OSError, ValueError):
                return bytes(data).count(b"\n")
            else:
                data, self._since = data[written:], None
        return 0


_outputs: list[Output] = []


def stuck_s() -> float:
    """Seconds for which stdout or stderr has not been read."""
    return max((output.stuck_s() for output in _outputs), default=0.0)


def never_wait() -> None:
    """Make writes to stdout and stderr non-blocking, except streams replaced by a test."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream is getattr(sys, f"__{name}__"):
            _outputs.append(Output(stream))
            setattr(sys, name, _outputs[-1])
            atexit.register(_outputs[-1].drain)
