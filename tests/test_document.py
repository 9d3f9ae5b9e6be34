"""The table of the document's fields: everything that follows from a line exists, and the exceptions are listed."""

import tomllib
from pathlib import Path

import pytest

from orderbridge.document import Facts, Field, Item, Option, columns_of, fields_of
from orderbridge.marketplace import documents
from orderbridge.store import orders, retention
from orderbridge.store.tables import metadata

TABLES = {Facts: "delivery_orders", Item: "delivery_order_items", Option: "delivery_order_item_options"}
ALL = [pytest.param(rows, one, id=f"{table}.{one.column}") for rows, table in TABLES.items() for one in fields_of(rows)]
WORDS = tomllib.loads(Path("docs/words.toml").read_text("utf-8"))["tables"]
PERSONAL = {"note", "customer_name", "customer_phone", "address", "address_description", "apartment_no", "building_no"}
PERSONAL |= {"neighborhood_name", "district_name", "city_name"}


@pytest.mark.parametrize("rows, one", ALL)
def test_a_field_is_read_and_written_and_has_its_words(rows: type[Facts], one: Field) -> None:
    assert one.column in metadata.tables[TABLES[rows]].columns
    assert one.column in {Facts: orders._FACTS, Item: orders._ITEM, Option: orders._OPTION}[rows]
    within = {Facts: "", Item: "foods.", Option: "foods.option_groups."}[rows]
    plan = {Facts: documents._PLAN, Item: documents._ITEM, Option: documents._OPTION}[rows]
    assert (one.path is None) == (one.column in {"payment_code", "amount_due"})
    assert one.path is None or f"{within}{one.path}" in {label for _, _, label, _ in plan}
    assert all(WORDS[TABLES[rows]]["columns"][one.column])


def test_every_customer_field_is_blanked() -> None:
    """A new field counts as personal until a person has examined it. The list has the examined fields."""
    assert set(columns_of(Facts, personal=True)) == PERSONAL
    assert set(retention._BLANKED) == PERSONAL | {"payload", "payload_hash"}
    assert columns_of(Item, personal=True) == ("note",)
