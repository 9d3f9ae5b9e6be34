"""For every broken installation of docs/set-ups.md, check and the log of `run` name the cause and the remedy.

ORDERBRIDGE_TEST_REWRITE=1 writes docs/set-ups.md anew from what `check` prints.
"""

import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli import setups
from tests.cli.setups import SETUPS, Place, SetUp
from tests.cli.shell import Ended, Run

from orderbridge.texts import say
from orderbridge_sandbox import Sandbox

PAGE = Path(__file__).parents[2] / "docs" / "set-ups.md"
REWRITE = "ORDERBRIDGE_TEST_REWRITE" in os.environ
HEAD = """# Broken set-ups

What `orderbridge check` prints for each fault of an installation. `orderbridge run` logs the same words.
`check` ends with 78 for what no restart repairs, 69 when the marketplace cannot be reached, and 1 for the rest.
A configuration error also names the file. `tests/cli/test_setups.py` plants every fault.

| printed cause | remedy |
|---|---|
"""
UNSAID = re.compile(
    r"The configuration cannot be used: | \(/etc/orderbridge/[\w.-]+\)(?=:)|: \w+Error: .*$"
    r"| \(SSLError[^)]*\)+(?=\.)|; for localhost.*"
    r"|: connection to server at .*? failed(?=:)| Is the server running[^.]*connections\??| \(_ssl\.c:\d+\)"
    r"|/etc/orderbridge/orderbridge.toml: "
)


def cause_and_remedy(findings: list[dict[str, str]], place: Place) -> tuple[str, str]:
    """Cause and remedy of the most relevant finding: about a character, a holder, or the first that failed."""
    order = sorted(findings, key=lambda one: ("PID" not in one["detail"], one["level"] != "failed"))
    one = next((one for one in order if "not ASCII" in one["detail"]), order[0])
    detail = UNSAID.sub("", masked(" ".join(one["detail"].split()), place))
    what, _, subject = one["check"].partition(" ")
    cause, remedy = detail, masked(one["remedy"], place)
    if not remedy:  # an error's text ends with it
        cause, remedy = [*re.split(r"(?<=[^.])\. (?=[A-Z])|; ", detail, maxsplit=1), ""][:2]
    about = "" if what == "configuration" else f"{say(f'label.{what}')} {subject}".strip() + ": "
    return about + cause, remedy[:1].upper() + remedy[1:]


@contextlib.contextmanager
def standing(planted: SetUp, running: Sandbox, template: Path) -> Iterator[Place]:
    # pytest's own folders belong to root only, and some of these belong to other users.
    temporary, patched = tempfile.TemporaryDirectory(prefix="obs-"), pytest.MonkeyPatch.context()
    with temporary as folder, ExitStack() as stack, patched as patch:
        Path(folder).chmod(0o755)
        place = Place(Path(folder), running, "en", patch, template, stack)
        planted.plant(place)
        place.write()
        yield place


@pytest.fixture
def plant(running: Sandbox, template: Path) -> Iterator[Callable[[SetUp], Place]]:
    with ExitStack() as stack:
        yield lambda planted: stack.enter_context(standing(planted, running, template))


def checked(command: Run, place: Place) -> Ended:
    return command("check", "--json", *(["--config", place.config] if place.has_config else []))


WAITED = "database.waited"  # a warning that a slow machine gives of itself


class Listening(io.StringIO):
    """Receives the log. The first warning or error stops the daemon in order."""

    def write(self, text: str) -> int:
        written = super().write(text)
        is_worse = '"level": "warning"' in text or '"level": "error"' in text
        if is_worse and WAITED not in text and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)
        return written


def logged(command: Run, place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of `run`, and its first relevant line: what it ends with, or the first warning of its log."""
    log = Listening()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", log)
        code = command("run", *(["--config", place.config] if place.has_config else [])).code
    lines = [_plain(line) for line in log.getvalue().splitlines()]
    said = [line for line in lines if line]
    is_whole = bool(said) and said[0].startswith("orderbridge: ")  # what ends it may take several lines
    return code, "\n".join([*said[:1], *(line for line in said[1:] if is_whole and line.startswith("  "))])


def _plain(line: str) -> str:
    """A warning or error of the log as a person reads it; empty for other lines."""
    if not line.startswith("{"):
        return line
    event = json.loads(line)
    if event["level"] not in {"warning", "error", "critical"} or event["event"] == WAITED:
        return ""
    facts = [f"{key}={value}" for key, value in event.items() if key not in {"time", "level", "event"}]
    return " ".join([event["event"], *facts])


IDS = [planted.title for planted in SETUPS]


@pytest.mark.parametrize("planted", SETUPS, ids=IDS)
def test_check_names_the_cause_and_the_remedy(planted: SetUp, command: Run, plant):
    ended = checked(command, plant(planted))
    assert ended.code == planted.code, ended.out + ended.err
    found = [one for one in ended.json if one["level"] != "ok" or one["check"] == "worker"]
    shown = "\n".join(f"{one['check']}: {one['detail']}\n{one['remedy']}" for one in found)
    assert [words for words in planted.says if words not in shown] == [], ended.out + ended.err
    assert ended.err == "", "no log between the findings"
    assert [words for words in ("Traceback", setups.WRONG_SECRET) if words in ended.out] == []


@pytest.mark.parametrize("planted", [one for one in SETUPS if one.log is not None], ids=lambda one: one.title)
def test_the_log_names_the_cause_and_the_remedy(planted, command, plant, monkeypatch):
    code, said = logged(command, plant(planted), monkeypatch)
    wanted = planted.log or [words for words in planted.says if not words.startswith(("PID", "HTTP"))]
    assert [words for words in wanted if words not in said] == [], said
    assert "Traceback" not in said
    assert planted.code != 78 or code == 78, "no restart helps"


def belongs_to_root(place: Place, what: Path, mode: int) -> None:
    setups.open_for_nobody(place)
    os.chown(what, 0, 0)
    place.file.chmod(mode)
    setups.as_nobody(place)


CLOSED = ["the user may not write to the database's file"]
CLOSED += ["root's -wal beside the file", "root's -shm left beside the file"]
CLOSED_SETUPS = [
    *(SETUPS[IDS.index(title)] for title in CLOSED),
    SetUp("everybody may read it", lambda place: belongs_to_root(place, place.file, 0o644), ()),
    SetUp("everybody may write it, in root's folder", lambda place: belongs_to_root(place, place.folder, 0o666), ()),
]


@pytest.mark.parametrize("words", [("run",), ("db", "upgrade"), ("food", "on", "55")], ids=" ".join)
@pytest.mark.parametrize("planted", CLOSED_SETUPS, ids=lambda one: one.title)
def test_a_database_that_this_user_may_not_use_ends_with_78(planted, words, command, plant):
    ended = command(*words, "--config", plant(planted).config)
    assert ended.code == 78 and "this user write" in ended.err, ended.err


def test_the_page_describes_every_broken_installation():
    page = PAGE.read_text("utf-8").lower()
    assert [one.title for one in SETUPS if not any(words.lower() in page for words in one.says)] == []


@pytest.mark.skipif(not REWRITE, reason="only writes the page")
def test_write_the_page(request: pytest.FixtureRequest):
    running, template = request.getfixturevalue("running"), request.getfixturevalue("template")
    command = request.getfixturevalue("command")
    causes: dict[tuple[str, str], dict[str, None]] = {}
    for planted in SETUPS:
        with standing(planted, running, template) as place:
            found = [one for one in checked(command, place).json if one["level"] != "ok" or "PID" in one["detail"]]
            cause, remedy = cause_and_remedy(found, place)
        causes.setdefault((remedy, "" if remedy else cause), {})[cause] = None
    rows = [f"| {'<br>'.join(cells)} | {remedy} |\n" for (remedy, _), cells in causes.items()]
    PAGE.write_text("".join([HEAD, *rows]), "utf-8")


def masked(said: str, place: Place) -> str:
    said = said.replace(str(place.folder), "/etc/orderbridge")
    said = said.replace(str(place.sandbox.ca_file.parent), "sandbox-data")
    said = re.sub(r"/tmp/[\w/.-]*?/(?=[\w.-]+( |:|;|$))", "/etc/orderbridge/", said)
    said = re.sub(r"127\.0\.0\.1(:|', )\d+", r"127.0.0.1\g<1>8443", said)
    said = re.sub(r"port \d+", "port 5432", said)
    said = re.sub(r"(pos\.example:)\d+", r"\g<1>8443", said)
    said = re.sub(r"[\w.-]+, PID \d+ \([^)]*\)", "kasa-pc, PID 1234 (python3)", said)
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(?= )", "2026-11-01 12:00", said)
    said = re.sub(r"(machine|tarih): \d{4}-\d\d-\d\d", r"\1: 2026-11-01", said)
    return re.sub(r"\d\d:\d\d:\d\d", "12:00:00", said)
