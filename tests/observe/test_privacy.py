"""What must not be seen in a log: the last line of defence."""

import logging
from typing import Any

import pytest
from tests.observe.lines import Started, only

from orderbridge import hiding
from orderbridge.clock import SystemClock
from orderbridge.jobs.alarms import Ping
from orderbridge.observe import logs

SECRET = "s3cr3t-of-the-test"


@pytest.mark.parametrize(
    "key",
    [
        *("rest_secret_key", "access_token", "password", "Authorization", "customer_phone", "address_description"),
        *("customer", "note", "payload"),
    ],
)
def test_a_private_field_is_blanked_by_its_name_at_any_depth(key: str, start: Started, log: Any) -> None:
    stream = start()
    log.info(
        "tick", **{key: "Ayşe Deneme"}, order={"list": [{key: "Ayşe Deneme"}], "id": 7}, lines=({key: "Ayşe Deneme"},)
    )
    assert "Deneme" not in stream.getvalue()
    assert only(stream)["order"]["id"] == 7


@pytest.mark.parametrize("form", ["json", "journal", "console"])
@pytest.mark.parametrize("middle", ["", '"', "\\", "'", " ", "ş", "/+"])
def test_a_hidden_secret_shows_nowhere_in_a_line(middle: str, form: str, start: Started, log: Any) -> None:
    """However a character in its middle is written there."""
    stream = start(form)
    secret = f"qqqq{middle}wwww"
    hiding.hide(secret)
    event = f"event {secret}"
    log.info(event, fact=f"<{secret}>", inner=[secret], deeper={"list": [secret]})
    logging.getLogger("library").warning("header %s", secret)
    log.warning("job.failed", exc_info=ValueError(secret))
    assert "qqqq" not in stream.getvalue()
    assert logs.HIDDEN in stream.getvalue()


class Carrier:
    """An object whose own words hold what they should not."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return f"Carrier({self.secret!r})"


@pytest.mark.parametrize("form", ["json", "journal", "console"])
@pytest.mark.parametrize("middle", ["", '"', "'", "\\", "'\"", "/+"])
def test_a_hidden_secret_shows_nowhere_in_an_objects_own_words(
    middle: str, form: str, start: Started, log: Any
) -> None:
    stream = start(form)
    secret = f"qqqq{middle}wwww"
    hiding.hide(secret)
    log.info("tick", fact=Carrier(secret), **{secret.replace(" ", "_"): {secret: 1}})
    assert "qqqq" not in stream.getvalue()


def test_an_address_with_a_secret_is_hidden_too(start: Started, log: Any) -> None:
    stream = start()
    hiding.hide("a key/+")
    log.info("tick", url="https://api.example.com/?k=a%20key%2F%2B")
    assert only(stream)["url"] == "https://api.example.com/?k=***"


def test_a_secret_that_contains_another_is_hidden_whole(start: Started, log: Any) -> None:
    stream = start()
    hiding.hide(SECRET)
    hiding.hide(SECRET + "-longer")
    log.info("tick", fact=SECRET + "-longer")
    assert only(stream)["fact"] == "***"


def test_of_tokens_that_replace_each_other_the_last_few_are_hidden(start: Started, log: Any) -> None:
    stream = start()
    values = [f"value-{number}" for number in range(9)]
    for former, value in zip([None, *values], values, strict=False):
        hiding.hide(value, instead_of=former)
    log.info("tick", facts=values)
    assert only(stream)["facts"] == [*values[:5], "***", "***", "***", "***"]
    assert hiding.count() == 4


def test_a_token_that_comes_back_is_hidden_again(start: Started, log: Any) -> None:
    stream = start()
    hiding.hide("old-value")
    hiding.hide("new-value", instead_of="old-value")
    hiding.hide("old-value", instead_of="new-value")
    log.info("tick", old="old-value")
    assert only(stream)["old"] == "***"


def test_a_token_that_stays_the_same_stays_hidden(start: Started, log: Any) -> None:
    stream = start()
    hiding.hide(SECRET)
    hiding.hide(SECRET, instead_of=SECRET)
    log.info("tick", fact=SECRET)
    assert only(stream)["fact"] == "***"


@pytest.mark.parametrize("short", ["", "abc", "tick", "tic", "abc-tic", "c-ticks"])
def test_a_short_text_does_not_blank_parts_of_other_words(short: str, start: Started, log: Any) -> None:
    stream = start()
    hiding.hide(short)
    log.info("abc-ticks_of", fact="abc-ticket")
    assert (only(stream)["event"], only(stream)["fact"]) == ("abc-ticks_of", "abc-ticket")


@pytest.mark.parametrize(
    "path, shown", [("/poll", "orders.poll"), ("/orders/poll", "/orders/poll"), ("/ping/5b7c1f0e-77", "***")]
)
def test_a_short_path_of_the_ping_blanks_nothing(path: str, shown: str, start: Started, log: Any) -> None:
    stream = start()
    Ping(f"https://hc.example.com{path}", clock=SystemClock())
    log.info("tick", fact=shown if shown != "***" else path.strip("/"), url=f"https://hc.example.com{path}")
    assert (only(stream)["fact"], only(stream)["url"]) == (shown, "***")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


def test_a_line_that_cannot_be_written_is_not_printed_bare(
    start: Started, log: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = start()
    log.info("tick", fact=Unprintable(), token=SECRET)
    assert stream.getvalue() == "A log line of orderbridge.test could not be written.\n"
    assert capsys.readouterr().err == ""


def test_a_closed_stream_does_not_stop_the_program(start: Started, log: Any) -> None:
    start().close()
    log.info("tick")
