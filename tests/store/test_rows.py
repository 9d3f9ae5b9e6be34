"""Many rows in one driver call: stored, failed and skipped exactly as single ones."""

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.exc import DataError, IntegrityError
from tests.databases import POSTGRESQL, SQLITE, only
from tests.store.samples import NOW, arrival, facts, item, key, one, option, put_order, rows

from orderbridge.store import orders
from orderbridge.store.database import Database
from orderbridge.store.rows import SHORT_WAY_FROM

HARD = ["\\N", "\\.", "a\tb\nc\rd\\n", "", " ", '🌯 İstanbul\'da "dürüm"; %s %(x)s ? :y', "\x01\x1f\x7f", "NULL", None]
AMOUNTS = [None, Decimal(0), Decimal("0.0001"), Decimal("-12.5"), Decimal("9999999999.9999"), Decimal("1E+3")]


def many(number: int = SHORT_WAY_FROM + len(HARD) * len(AMOUNTS)) -> list[Any]:
    """As many different orders as the batch path requires."""
    made = []
    for n in range(number):
        hard, other, quantity = HARD[n % len(HARD)], HARD[-n % len(HARD)], None if n % 2 else Decimal("1.5")
        line = item(name=hard, note=other, food_id=2**62, quantity=quantity, options=())
        lines = (line, item(options=(option(option_name=hard), option(price=None))))
        known = {"note": hard, "customer_name": other, "total": AMOUNTS[n % len(AMOUNTS)], "items": lines}
        problems = ("text_cut:note",) if n % 2 else ()
        made.append(arrival(key(n), facts=facts(**known, order_number=None if n % 3 else n), problems=problems))
    return made


def insert(database: Database, new: list[Any]) -> None:
    database.write_now(lambda tx: orders.insert_new(tx, "kadikoy", new, NOW))


def everything(pos: Any) -> list[list[dict[str, object]]]:
    asked = {"orders": "payment_key", "order_items": "payment_key, line_no", "order_events": "payment_key"}
    asked["order_item_options"] = "payment_key, line_no, option_no"
    shown = [rows(pos, f"SELECT * FROM delivery_{table} ORDER BY {order}") for table, order in asked.items()]
    return [[{name: value for name, value in row.items() if name != "id"} for row in table] for table in shown]


def test_a_batch_gives_the_same_as_single_rows(database, pos):
    insert(database, many())
    at_once = everything(pos)
    for table in ("order_events", "order_item_options", "order_items", "orders"):
        pos.execute(f"DELETE FROM delivery_{table}")
    database.write_now(lambda tx: [orders.insert_new(tx, "kadikoy", [new], NOW) for new in many()])
    assert (everything(pos), len(at_once[0])) == (at_once, len(many()))


def test_a_batch_is_one_statement_and_one_duplicate_refuses_it(database, pos, monkeypatch):
    """Without a batch, each row would pass through SQLAlchemy's insert()."""
    monkeypatch.delattr("orderbridge.store.rows.insert")
    put_order(pos, key(7))
    with pytest.raises(IntegrityError) as caught:
        insert(database, many())
    assert "Ayşe" not in str(caught.value)
    assert one(pos, "SELECT count(*) AS n FROM delivery_orders")["n"] == 1
    pos.execute("DELETE FROM delivery_orders")
    insert(database, many())  # the connection still works


@only(POSTGRESQL)
def test_a_drivers_error_names_no_customer(database):
    bad = [*many(), arrival(key(999), facts=facts(customer_name="x" * 300, items=()))]
    with pytest.raises(DataError) as caught:
        insert(database, bad)
    assert "xxx" not in f"{caught.value} {caught.value.orig}"
    assert caught.value.orig.sqlstate == "22001"


@only(SQLITE, POSTGRESQL)
def test_a_row_left_out_by_a_trigger_is_noticed_in_a_batch(database, pos, kind):
    """An order that was not stored must not be acknowledged."""
    trigger = "CREATE TRIGGER pos_refuses BEFORE INSERT ON delivery_orders"
    if kind == SQLITE:
        pos.execute(f"{trigger} WHEN NEW.payment_key LIKE '%07' BEGIN SELECT RAISE(IGNORE); END")
    else:
        returned = "RETURN CASE WHEN NEW.payment_key LIKE '%%07' THEN NULL ELSE NEW END;"
        pos.execute(f"CREATE FUNCTION pos_refuses() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {returned} END$$")
        pos.execute(f"{trigger} FOR EACH ROW EXECUTE FUNCTION pos_refuses()")
    try:
        with pytest.raises(IntegrityError, match="row left out"):
            insert(database, many())
        assert one(pos, "SELECT count(*) AS n FROM delivery_orders")["n"] == 0
    finally:
        pos.execute("DROP TRIGGER pos_refuses" if kind == SQLITE else "DROP FUNCTION pos_refuses CASCADE")
