"""What must not appear in a log: the last line of defence."""

import json
import logging
from typing import Any

import pytest
from tests.observe.lines import Started, only

from orderbridge import hiding
from orderbridge.clock import SystemClock
from orderbridge.jobs.alarms import Ping
from orderbridge.observe import logs

SECRET = "s3cr3t-of-the-test"

PRIVATE = ("rest_secret_key", "access_token", "password", "Authorization", "customer_phone", "address_description")
PRIVATE += ("customer", "note", "payload")


def test_a_private_field_is_blanked_by_its_name_at_any_depth(start: Started, log: Any) -> None:
    stream = start()
    private = dict.fromkeys(PRIVATE, "Ayşe Deneme")
    log.info("tick", **private, order={"list": [private], "id": 7}, lines=(private,))
    assert "Deneme" not in stream.getvalue()
    assert only(stream)["order"]["id"] == 7


class Carrier:
    """An object whose repr holds a secret."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return f"Carrier({self.secret!r})"


@pytest.mark.parametrize("form", ["json", "journal", "console"])
@pytest.mark.parametrize("middle", ["", '"', "\\", "'", "'\"", " ", "ş", "/+"])
def test_a_hidden_secret_appears_nowhere_in_a_line(middle: str, form: str, start: Started, log: Any) -> None:
    """In whichever way a character in its middle is escaped."""
    stream = start(form)
    secret = f"qqqq{middle}wwww"
    hiding.hide(secret)
    facts = {"fact": f"<{secret}>", "own": Carrier(secret), "key": {secret: 1}}
    facts |= {secret: 1} if " " not in secret else {}
    event = f"event {secret}"
    log.info(event, inner=[secret], deeper={"list": [secret]}, **facts)
    logging.getLogger("library").warning("header %s", secret)
    log.warning("job.failed", exc_info=ValueError(secret))
    assert "qqqq" not in stream.getvalue()
    assert logs.HIDDEN in stream.getvalue()


@pytest.mark.parametrize("hidden, fact, shown", [
    ([("a key/+", None)], "https://api.example.com/?k=a%20key%2F%2B", "https://api.example.com/?k=***"),
    ([("a key/+", None)], "https://api.example.com/?k=a+key%2f%2b", "https://api.example.com/?k=***"),
    ([("rest şube&<2>", None)], "<p>rest şube&amp;&lt;2&gt;</p>", "<p>***</p>"),
    ([("rest şube&<2>", None)], r"{'error': 'rest \u015fube&<2>'}", "{'error': '***'}"),
    ([("rest/key", None)], r'{"error": "REST\/KEY"}', '{"error": "***"}'),
    ([('a "key"', None)], json.dumps({"error": json.dumps('a "key"')}), r'{"error": "\"***\""}'),
    ([(SECRET, None), (f"{SECRET}-longer", None)], f"{SECRET}-longer", "***"),
    ([("old-value", None), ("new-value", "old-value"), ("old-value", "new-value")], "old-value", "***"),
    ([(SECRET, None), (SECRET, SECRET)], SECRET, "***"),
    *(([(short, None)], "abc-ticket", "abc-ticket") for short in ("", "abc", "tick", "tic", "abc-tic", "c-ticks")),
], ids=str)  # fmt: skip
def test_a_secret(hidden: list[Any], fact: str, shown: str, start: Started, log: Any) -> None:
    stream = start()
    for value, former in hidden:
        hiding.hide(value, instead_of=former)
    log.info("abc-ticks_of", fact=fact)
    assert (only(stream)["event"], only(stream)["fact"]) == ("abc-ticks_of", shown)


def test_the_last_few_tokens_are_hidden(start: Started, log: Any) -> None:
    stream = start()
    values = [f"value-{number}" for number in range(9)]
    for former, value in zip([None, *values], values, strict=False):
        hiding.hide(value, instead_of=former)
    log.info("tick", facts=values)
    assert only(stream)["facts"] == [*values[:5], "***", "***", "***", "***"]
    assert sum(map(len, hiding._known.values())) == 4


@pytest.mark.parametrize(
    "path, shown", [("/poll", "orders.poll"), ("/orders/poll", "/orders/poll"), ("/ping/5b7c1f0e-77", "***")]
)
def test_a_short_ping_path_is_not_hidden_in_other_texts(path: str, shown: str, start: Started, log: Any) -> None:
    stream = start()
    Ping(f"https://hc.example.com{path}", clock=SystemClock())
    log.info("tick", fact=shown if shown != "***" else path.strip("/"), url=f"https://hc.example.com{path}")
    assert (only(stream)["fact"], only(stream)["url"]) == (shown, "***")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


def test_a_line_that_fails_to_format_is_not_printed_raw(start, log, capsys) -> None:
    stream = start()
    log.info("tick", fact=Unprintable(), token=SECRET)
    assert stream.getvalue() == "A log line of orderbridge.test could not be written.\n"
    stream.close()
    log.info("tick")
    assert capsys.readouterr().err == ""
