"""Logs: one line for each event, in the right form for each reader, whatever is in it."""

import io
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.observe.lines import Started, only

from orderbridge.observe import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_event_is_one_json_object_with_its_facts_and_its_context(start: Started, log: Any) -> None:
    stream = start()
    with structlog.contextvars.bound_contextvars(account="kadikoy"):
        log.error("problem.began", level=1, time="19:02", name="Kadıköy")
    event = only(stream)
    assert event.pop("time").endswith("Z")
    bound = {"account": "kadikoy", "name": "Kadıköy", "level_": 1, "time_": "19:02"}
    assert event == {"level": "error", "event": "problem.began", **bound}, "no fact hides a line's own"
    assert "Kadıköy" in stream.getvalue()


def test_a_librarys_line_has_the_same_form_with_its_loggers_name_and_the_time_in_utc(start: Started) -> None:
    stream = start()
    record = logging.LogRecord("uvicorn.error", logging.INFO, "", 0, "running %s", ("0001",), None)
    record.created = 1_700_000_000.5
    logging.getLogger("uvicorn.error").handle(record)
    event = {"level": "info", "event": "running 0001", "logger": "uvicorn.error"}
    assert only(stream) == {"time": "2023-11-14T22:13:20.500Z", **event}


@pytest.mark.parametrize("name, quiet, heard", [
    *((name, "info", "warning") for name in logs.CHATTY),
    *((name, "warning", "error") for name in logs.ECHOES),
    *((f"{name}.impl.QueuePool", "error", "critical") for name in logs.RESETS),
])  # fmt: skip
def test_a_library_logs_only_what_nothing_else_logs(name: str, quiet: str, heard: str, start: Started) -> None:
    """An error that a driver logs was expected, or is logged where it is caught. The driver's line names the server."""
    stream = start(level="debug")
    getattr(logging.getLogger(name), quiet)("error ignored (host=db user=pos)")
    assert stream.getvalue() == ""
    getattr(logging.getLogger(name), heard)("trouble")
    assert only(stream)["event"] == "trouble"


def test_configuring_again_replaces_the_stream_and_the_level(start: Started, log: Any) -> None:
    before = start("journal", level="warning")
    log.warning("first")
    stream = start("json", level="error")
    log.warning("orders.polled")
    logging.getLogger("httpx").warning("trouble")
    log.error("orders.late")
    assert only(stream)["event"] == "orders.late"
    assert before.getvalue() == "<4>event=first\n"


@pytest.mark.parametrize("form, stream, environ, begins, colours", [
    ("auto", io.StringIO, {}, "{", False), ("auto", io.StringIO, {"JOURNAL_STREAM": "1:2"}, "{", False),
    ("auto", Terminal, {}, "", True), ("auto", Terminal, {"NO_COLOR": "1"}, "20", False),
    ("auto", Terminal, {"NO_COLOR": ""}, "", True), ("console", io.StringIO, {}, "20", False),
])  # fmt: skip
def test_the_form_follows_the_stream(form, stream, environ, begins, colours, start, log):
    written = start(form, stream=stream(), **environ)
    log.info("orders.polled", new=3)
    assert "orders.polled" in written.getvalue()
    assert written.getvalue().startswith(begins)
    assert ("\x1b[" in written.getvalue()) is colours


@pytest.mark.parametrize("matches", [True, False])
def test_auto_is_the_journals_form_for_the_journal(matches: bool, log: Any, tmp_path: Path, start: Started) -> None:
    start()  # for its clean-up
    file = tmp_path / "journal"
    with file.open("w", encoding="utf-8") as stream:
        status = os.fstat(stream.fileno())
        here = f"{status.st_dev}:{status.st_ino}"
        logs.configure(stream=stream, environ={"JOURNAL_STREAM": here if matches else "1:2"})
        log.info("orders.polled", new=3)
    written = file.read_text("utf-8")
    assert (written == "<6>event=orders.polled new=3\n") is matches
    assert written.startswith("{") is not matches


@pytest.mark.parametrize(
    "method, priority", [("debug", 7), ("info", 6), ("warning", 4), ("error", 3), ("exception", 3), ("critical", 2)]
)
def test_the_journal_gets_the_priority_of_the_level(method: str, priority: int, start: Started, log: Any) -> None:
    stream = start("journal", level="debug")
    getattr(log, method)("tick")
    assert stream.getvalue().startswith(f"<{priority}>event=tick")


BREAKS = "a\nb\rc\x0bd\x1b[2Je\x85f\u2028g\ud800"


@pytest.mark.parametrize("form", ["json", "journal", "console"])
@pytest.mark.parametrize("where", ["event", "fact", "inner fact", "library"])
def test_a_line_break_in_a_value_does_not_break_the_line(form: str, where: str, start: Started, log: Any) -> None:
    stream = start(form)
    if where == "library":
        logging.getLogger("library").info(BREAKS)
    else:
        facts = {"event": {}, "fact": {"fact": BREAKS}, "inner fact": {"fact": {"inner": [BREAKS]}}}[where]
        log.info("tick" if facts else BREAKS, **facts)
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().encode("utf-8")


def fail() -> None:
    customer = "Ayşe Deneme"
    raise KeyError(len(customer))


@pytest.mark.parametrize("given", [True, "instance", "library"])
@pytest.mark.parametrize("form", ["json", "journal"])
def test_an_exception_is_two_fields_of_its_line(form: str, given: Any, start: Started, log: Any) -> None:
    stream = start(form)
    try:
        fail()
    except KeyError as error:
        logger = logging.getLogger("library") if given == "library" else log
        logger.warning("job.failed", exc_info=error if given == "instance" else True)
    (line,) = stream.getvalue().splitlines()
    assert "KeyError: 11" in line
    assert "in fail" in line
    assert "Deneme" not in line, "local variables hold orders"


def test_the_console_shows_a_traceback_below_the_line_and_no_local_variables(start: Started, log: Any) -> None:
    stream = start("console")
    try:
        fail()
    except KeyError:
        log.exception("job.failed")
    log.warning("job.failed", exc_info=ValueError("\x1b[2J"))
    assert len(stream.getvalue().splitlines()) > 4
    assert "Deneme" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue(), "an exception's own words steer no terminal"
