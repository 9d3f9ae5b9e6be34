"""The table of the document's fields: everything that follows from a line exists, and the exceptions are listed."""

import tomllib
from pathlib import Path
from typing import get_type_hints

import pytest

from orderbridge.document import Facts, Field, Item, Option, ValueKind, columns_of, fields_of
from orderbridge.marketplace import documents
from orderbridge.store import orders, retention
from orderbridge.store.tables import metadata

TABLES = {Facts: "delivery_orders", Item: "delivery_order_items", Option: "delivery_order_item_options"}
ALL = [pytest.param(rows, one, id=f"{table}.{one.column}") for rows, table in TABLES.items() for one in fields_of(rows)]
WORDS = tomllib.loads(Path("docs/words.toml").read_text("utf-8"))["tables"]
PERSONAL = set(
    "note customer_name customer_phone address address_description apartment_no building_no neighborhood_name"
    " district_name city_name".split()
)


@pytest.mark.parametrize("rows, one", ALL)
def test_a_field_is_read_and_written_and_has_its_words(rows: type[Facts], one: Field) -> None:
    assert one.column in metadata.tables[TABLES[rows]].columns
    assert one.column in {Facts: orders._FACTS, Item: orders._ITEM, Option: orders._OPTION}[rows]
    within = {Facts: "", Item: "foods.", Option: "foods.option_groups."}[rows]
    plan = {Facts: documents._PLAN, Item: documents._ITEM, Option: documents._OPTION}[rows]
    is_made = one.column in {"payment_code", "amount_due"}
    assert (one.path is None) == is_made
    assert is_made or f"{within}{one.path}" in {label for _, _, label, _ in plan}
    assert all(WORDS[TABLES[rows]]["columns"][one.column])


def test_a_kind_and_a_type_say_the_same() -> None:
    """mypy sees that a field's type is what its function returns; here, that its function says its kind."""
    names = {ValueKind.WHOLE: "int", ValueKind.MONEY: "Decimal"}
    for rows in TABLES:
        hints = get_type_hints(rows)
        for one in fields_of(rows):
            assert names.get(one.kind, "str") in str(hints[one.column]), one.column


def test_a_group_s_fields_stand_before_those_of_its_options() -> None:
    """The reader puts them together in that order."""
    inside = [bool(one.path and "." in one.path) for one in fields_of(Option)]
    assert inside == sorted(inside)


def test_what_names_a_customer_is_blanked() -> None:
    """A new field is personal until a person has examined it: this is the list of the examined ones."""
    assert set(columns_of(Facts, personal=True)) == PERSONAL
    assert set(retention._BLANKED) == PERSONAL | {"payload", "payload_hash"}
    assert columns_of(Item, personal=True) == ("note",)
