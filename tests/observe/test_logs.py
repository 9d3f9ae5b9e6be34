"""Logs: one line for each event, in the right form for each reader, whatever is in it."""

import io
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.observe.lines import Started, only

from orderbridge.observe import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_event_is_one_json_object_with_its_facts(start: Started, log: Any) -> None:
    stream = start()
    log.info("orders.polled", new=3, name="Kadıköy")
    event = only(stream)
    assert event.pop("time")[10:].count(":") == 2
    assert event == {"level": "info", "event": "orders.polled", "new": 3, "name": "Kadıköy"}
    assert "Kadıköy" in stream.getvalue()


def test_a_fact_of_the_same_name_does_not_hide_how_bad_a_line_is_nor_when_it_was(start: Started, log: Any) -> None:
    stream = start()
    log.error("problem.began", level=1, time="19:02")
    event = only(stream)
    assert (event["level"], event["level_"], event["time_"]) == ("error", 1, "19:02")
    assert event["time"].endswith("Z")


def test_the_time_is_utc_in_iso_form_with_milliseconds(start: Started, time_of: Callable[[float], None]) -> None:
    stream = start()
    time_of(1_700_000_000.5)
    assert only(stream)["time"] == "2023-11-14T22:13:20.500Z"


@pytest.fixture
def time_of(start: Started) -> Callable[[float], None]:
    """Logs one record that was made at this time."""

    def emit(created: float) -> None:
        record = logging.LogRecord("x", logging.INFO, "", 0, "tick", (), None)
        record.created = created
        logging.getLogger().handle(record)

    return emit


def test_a_librarys_line_has_the_same_form_and_its_loggers_name(start: Started) -> None:
    stream = start()
    logging.getLogger("uvicorn.error").info("running %s", "0001")
    assert {**only(stream), "time": ""} == {
        "time": "",
        "level": "info",
        "event": "running 0001",
        "logger": "uvicorn.error",
    }


def test_what_is_bound_to_the_context_is_in_every_line(start: Started, log: Any) -> None:
    stream = start()
    with structlog.contextvars.bound_contextvars(account="kadikoy"):
        log.info("orders.polled")
    assert only(stream)["account"] == "kadikoy"


@pytest.mark.parametrize("name", logs.CHATTY)
def test_chatty_libraries_are_heard_from_warning_on(name: str, start: Started) -> None:
    stream = start(level="debug")
    logging.getLogger(name).info("GET /orders/get-current")
    assert stream.getvalue() == ""
    logging.getLogger(name).warning("trouble")
    assert only(stream)["event"] == "trouble"


@pytest.mark.parametrize("name", logs.ECHOES)
def test_what_a_driver_ignores_after_an_error_that_it_raises_is_no_line_of_its_own(name: str, start: Started) -> None:
    """Seen where two accounts wrote their common lists at once: the error was expected, the driver's line names the server."""
    stream = start(level="debug")
    logging.getLogger(name).warning("error ignored terminating <psycopg.Pipeline [INERROR] (host=db user=pos)>")
    assert stream.getvalue() == ""
    logging.getLogger(name).error("error processing notice callback")
    assert only(stream)["event"] == "error processing notice callback"


@pytest.mark.parametrize("name", logs.RESETS)
def test_that_a_connection_to_a_lost_server_is_not_given_back_clean_is_no_line_of_its_own(
    name: str, start: Started
) -> None:
    """Seen where a MariaDB ended while a connection was in use: the line had the driver's traceback."""
    stream = start(level="debug")
    logging.getLogger(f"{name}.impl.QueuePool").error("Exception during reset or similar")
    assert stream.getvalue() == ""


def test_a_level_above_warning_holds_for_chatty_libraries_too(start: Started) -> None:
    stream = start(level="error")
    logging.getLogger("httpx").warning("trouble")
    assert stream.getvalue() == ""


def test_what_is_below_the_level_is_not_written(start: Started, log: Any) -> None:
    stream = start(level="warning")
    log.info("orders.polled")
    log.warning("orders.late")
    assert only(stream)["event"] == "orders.late"


def test_configuring_again_takes_the_place_of_what_was(start: Started, log: Any) -> None:
    before = start("journal", level="warning")
    log.warning("first")
    stream = start("json")
    log.info("orders.polled")
    assert only(stream)["event"] == "orders.polled"
    assert before.getvalue() == "<4>event=first\n"


def test_a_test_can_capture_events(start: Started, log: Any) -> None:
    start()
    log.info("first")
    with structlog.testing.capture_logs() as events:
        log.info("orders.polled", new=3)
    assert events == [{"event": "orders.polled", "new": 3, "log_level": "info"}]


# ---- forms -----------------------------------------------------------------------------------------------------------


def test_auto_is_json_where_nobody_looks(start: Started, log: Any) -> None:
    stream = start("auto")
    log.info("orders.polled")
    assert stream.getvalue().startswith("{")


@pytest.mark.parametrize("environ, colours", [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_auto_is_the_console_on_a_terminal(environ: dict[str, str], colours: bool, start: Started, log: Any) -> None:
    stream = start("auto", stream=Terminal(), **environ)
    log.info("orders.polled", new=3)
    assert "orders.polled" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
    assert ("\x1b[" in stream.getvalue()) is colours


def test_a_console_that_is_no_terminal_has_no_colours(start: Started, log: Any) -> None:
    stream = start("console")
    log.info("orders.polled", new=3)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("matches", [True, False])
def test_auto_is_the_journals_form_when_stderr_is_the_journal(
    matches: bool, log: Any, tmp_path: Path, start: Started
) -> None:
    start()  # for what it puts back
    file = tmp_path / "journal"
    with file.open("w", encoding="utf-8") as stream:
        status = os.fstat(stream.fileno())
        here = f"{status.st_dev}:{status.st_ino}"
        logs.configure(stream=stream, environ={"JOURNAL_STREAM": here if matches else "1:2"})
        log.info("orders.polled", new=3)
    written = file.read_text("utf-8")
    assert (written == "<6>event=orders.polled new=3\n") is matches
    assert written.startswith("{") is not matches


def test_a_stream_that_is_no_file_is_not_the_journal(start: Started, log: Any) -> None:
    stream = start("auto", JOURNAL_STREAM="1:2")
    log.info("orders.polled")
    assert stream.getvalue().startswith("{")


@pytest.mark.parametrize(
    "method, priority",
    [("debug", 7), ("info", 6), ("warning", 4), ("error", 3), ("exception", 3), ("critical", 2)],
)
def test_the_journal_gets_the_priority_of_the_level(method: str, priority: int, start: Started, log: Any) -> None:
    stream = start("journal", level="debug")
    getattr(log, method)("tick")
    assert stream.getvalue().startswith(f"<{priority}>event=tick")


# ---- one line each ---------------------------------------------------------------------------------------------------

BREAKS = "a\nb\rc\x0bd\x1b[2Je\x85f\u2028g\ud800"


@pytest.mark.parametrize("form", ["json", "journal", "console"])
@pytest.mark.parametrize("where", ["event", "fact", "inner fact", "library"])
def test_a_line_break_in_a_value_does_not_break_the_line(form: str, where: str, start: Started, log: Any) -> None:
    stream = start(form)
    match where:
        case "event":
            log.info(BREAKS)
        case "fact":
            log.info("tick", fact=BREAKS)
        case "inner fact":
            log.info("tick", fact={"inner": [BREAKS]})
        case _:
            logging.getLogger("library").info(BREAKS)
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().encode("utf-8")


def fail() -> None:
    customer = "Ayşe Deneme"
    raise KeyError(len(customer))


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "a library's"])
@pytest.mark.parametrize("form", ["json", "journal"])
def test_an_exception_is_two_fields_of_its_line(form: str, ours: bool, start: Started, log: Any) -> None:
    stream = start(form)
    try:
        fail()
    except KeyError:
        (log if ours else logging.getLogger("library")).exception("job.failed")
    (line,) = stream.getvalue().splitlines()
    assert "KeyError: 11" in line
    assert "in fail" in line
    assert "Deneme" not in line, "local variables hold orders"


@pytest.mark.parametrize("given", [True, "instance"], ids=["True", "an instance"])
def test_an_exception_can_be_handed_over(given: Any, start: Started, log: Any) -> None:
    stream = start()
    try:
        fail()
    except KeyError as error:
        log.warning("job.failed", exc_info=error if given == "instance" else given)
    assert only(stream)["error"] == "KeyError: 11"


def test_the_console_shows_a_traceback_below_the_line_and_no_local_variables(start: Started, log: Any) -> None:
    stream = start("console")
    try:
        fail()
    except KeyError:
        log.exception("job.failed")
    assert len(stream.getvalue().splitlines()) > 3
    assert "Deneme" not in stream.getvalue()


def test_an_exceptions_own_words_do_not_steer_a_terminal(start: Started, log: Any) -> None:
    stream = start("console")
    log.warning("job.failed", exc_info=ValueError("\x1b[2J"))
    assert "\x1b" not in stream.getvalue()
