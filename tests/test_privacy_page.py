"""docs/privacy.md and its Turkish twin say what the tables and the configuration say."""

import re
from pathlib import Path

import pytest

from orderbridge import config
from orderbridge.cli import erase
from orderbridge.config import keys
from orderbridge.document import Facts, Item, columns_of
from orderbridge.store import erasing, retention, tables

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {name: (DOCS / name).read_text("utf-8") for name in ("privacy.md", "gizlilik.md")}
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@each_page
def test_every_table_is_named(page: str):
    tabled = {name for name, table in tables.metadata.tables.items() if not table.is_view}
    assert tabled <= set(re.findall(r"`(delivery_\w+)`", page))


@each_page
def test_every_column_that_names_a_customer_is_named(page: str):
    section = page.split("\n## ")[1]
    named = set(re.findall(r"`([a-z_]+)`", section)) - set(tables.metadata.tables)
    assert named == {*columns_of(Facts, personal=True), *columns_of(Item, personal=True), "payload", "detail"}


@each_page
def test_the_days_and_sizes_are_those_of_the_program(page: str):
    orders = config.Orders()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert {int(day) for line in rows for day in re.findall(r"\b\d+\b", line)} == {
        orders.retention_days,
        orders.records_days,
    }
    text = page.rsplit("|\n\n", maxsplit=1)[-1]
    for number in (
        keys.LEAST_RECORDS_DAYS,
        retention.SWEEP,
        erase.REWRITTEN_BYTES // 1024**2,
    ):
        assert re.search(rf"\b{number}\b", text)
    assert erasing.SUBSCRIBER == 10
    assert retention.SLACK.days == 2


def test_both_pages_have_the_same_tables_and_commands():
    english, turkish = PAGES.values()
    for pattern in (r"^\|", r"^## ", r"^```", r"`[a-z_\[\]-]+`"):
        counted = [len(re.findall(pattern, page, re.MULTILINE)) for page in (english, turkish)]
        assert counted[0] == counted[1], pattern
