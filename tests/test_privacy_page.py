"""docs/privacy.md matches the tables and the configuration."""

import re
from pathlib import Path

from orderbridge import config
from orderbridge.cli import erase
from orderbridge.config import keys
from orderbridge.document import Facts, Item, columns_of
from orderbridge.store import retention, tables

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "privacy.md").read_text("utf-8")


def test_every_table_is_named():
    tabled = {name for name, table in tables.metadata.tables.items() if not table.is_view}
    assert tabled <= set(re.findall(r"`(delivery_\w+)`", PAGE))


def test_every_column_that_names_a_customer_is_named():
    section = PAGE.split("\n## ")[1]
    named = set(re.findall(r"`([a-z_]+)`", section)) - set(tables.metadata.tables)
    assert named == {*columns_of(Facts, personal=True), *columns_of(Item, personal=True), "payload", "detail"}


def test_the_days_and_sizes_are_those_of_the_program():
    orders = config.Orders()
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    days = {int(day) for line in rows for day in re.findall(r"\b\d+\b", line)}
    assert days == {orders.retention_days, orders.records_days}
    text = PAGE.rsplit("|\n\n", maxsplit=1)[-1]
    for number in (keys.MIN_RECORDS_DAYS, retention.SWEEP, erase.REWRITTEN_BYTES // 1024**2):
        assert re.search(rf"\b{number}\b", text)
    assert retention.SUBSCRIBER == 10
    assert retention.SLACK.days == 2
