"""The pages for operators match the program: every code, command, option, key and file."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs import build
from pydantic import BaseModel

from orderbridge import config
from orderbridge.cli import erase
from orderbridge.cli.main import program
from orderbridge.config import keys as key_limits
from orderbridge.document import Facts, Item, columns_of
from orderbridge.rules.problems import Code
from orderbridge.store import retention, tables

ROOT = Path(__file__).parents[1]
TEXTS = {code: path.read_text("utf-8") for code, path in build.OPERATIONS.items()}
MADE = re.compile(r"<!-- made by docs/build\.py: (\w+) -->.*?<!-- end -->", re.DOTALL)
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"(?:^|[ /`])orderbridge((?: +[^`#&|\n]+)?)")
OF_A_TABLE = r"marketplace|database|actions|orders|alarms|web|log"
KEY = re.compile(rf"`((?:{OF_A_TABLE})\.\w+)`")
FILE = re.compile(r"`((?:deploy|docs|benchmarks)/[\w./-]+)`")
EVENTS = {"web.not_listening"}  # an event of the log, not a key

FLEET = (ROOT / "docs" / "fleet.md").read_text("utf-8")
each = pytest.mark.parametrize("code", TEXTS)
each_page = pytest.mark.parametrize("page", [*TEXTS.values(), FLEET], ids=[*TEXTS, "fleet"])


@each
def test_generated_parts_are_up_to_date(code: str):
    assert build.built(TEXTS[code], code) == TEXTS[code], "run: .venv/bin/python docs/build.py"
    assert MADE.findall(TEXTS[code]) == (list(build.OPERATIONS_MAKERS) if code == "en" else ["alarms"])


@each
def test_every_code_is_documented_with_its_remedy(code: str):
    rows = re.findall(r"(?m)^- `(\w+)`: (.+) → (.+)$", TEXTS[code])
    assert sorted(row[0] for row in rows) == sorted(Code)


def spoken(text: str) -> Iterator[str]:
    """The words after `orderbridge` in a code span or at the beginning of a shell line."""
    for line in "\n".join(BLOCK.findall(text)).splitlines():
        if "pip" not in line and "systemctl" not in line and "journalctl" not in line:
            yield from COMMAND.findall(line.partition("#")[0])
    for span in re.findall(r"`([^`\n]+)`", BLOCK.sub("", text)):
        if span.startswith("orderbridge "):
            yield from COMMAND.findall(span)


def followed(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and the remaining words."""
    command: click.Command = program
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


@each_page
def test_every_file_command_and_option_exists(page: str):
    assert [name for name in FILE.findall(page) if not (ROOT / name).exists()] == []
    commands = [words.split() for words in spoken(page) if words.split()]
    assert len(commands) > 10
    for words in commands:
        if words[0].startswith(("-", ".", "/")) or words[0] in {"orderbridge", "for", "process", "processes"}:
            continue
        command, rest = followed([word for word in words if not word.startswith((">", "/"))])
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield prefix + name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from keys(info.annotation, f"{prefix}{name}.")


@each
def test_every_key_exists(code: str):
    named = set(KEY.findall(MADE.sub("", TEXTS[code]))) - EVENTS
    assert (len(named) > 5, named - set(keys(config.Settings))) == (True, set())


def test_both_languages_have_the_same_sections_and_names() -> None:
    """Their sections, commands, keys and files are the same."""
    for pattern in (r"(?m)^## (\d+)\.", KEY.pattern, FILE.pattern):
        both = [sorted(re.findall(pattern, MADE.sub("", text))) for text in TEXTS.values()]
        assert both[0] == both[1]
    lines = ("".join(BLOCK.findall(text)).splitlines() for text in TEXTS.values())
    english, turkish = ([line.partition("#")[0].strip() for line in of_page] for of_page in lines)
    assert english == turkish


PRIVACY = (ROOT / "docs" / "privacy.md").read_text("utf-8")


def test_every_table_is_named():
    tabled = {name for name, table in tables.metadata.tables.items() if not table.is_view}
    assert tabled <= set(re.findall(r"`(delivery_\w+)`", PRIVACY))


def test_every_column_that_names_a_customer_is_named():
    section = PRIVACY.split("\n## ")[1]
    named = set(re.findall(r"`([a-z_]+)`", section)) - set(tables.metadata.tables)
    assert named == {*columns_of(Facts, personal=True), *columns_of(Item, personal=True), "payload", "detail"}


def test_the_days_and_sizes_are_those_of_the_program():
    orders = config.keys.Orders()
    rows = [line for line in PRIVACY.splitlines() if line.startswith("| ")]
    days = {int(day) for line in rows for day in re.findall(r"\b\d+\b", line)}
    assert days == {orders.retention_days, orders.records_days}
    text = PRIVACY.rsplit("|\n\n", maxsplit=1)[-1]
    for number in (key_limits.MIN_RECORDS_DAYS, retention.SWEEP, erase.REWRITTEN_BYTES // 1024**2):
        assert re.search(rf"\b{number}\b", text)
    assert (retention.SUBSCRIBER, retention.SLACK.days) == (10, 2)
