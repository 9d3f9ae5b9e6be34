"""A wrong row that the database accepts (tests/store/test_tables.py: the others) is refused alone, with a remedy."""

import re
from typing import Any

import pytest
from docs import build
from tests.jobs.shop import Shop, listing
from tests.store.samples import DAEMONS

pytestmark = pytest.mark.plays_daemon

NOBODY = "00000000-0000-4000-8000-000000000000"
HUGE = "k" * 1_000_000
NOT_UTF8 = "Gül\N{LATIN SMALL LETTER S WITH CEDILLA}ah".encode("cp1254")
ORDER = "the order's key"  # stands for the key of an order that is there

Columns = dict[str, Any]
FOOD_ROW: Columns = {"action": "deactivate_food", "food_id": 1005}
ROWS: dict[str, list[Columns]] = {  # None: the key of an order that is there
    "order_unknown": [{"action": "complete", "payment_key": NOBODY}],
    "account_needed": [FOOD_ROW | {"account": "Kadıköy"}, FOOD_ROW],
    "food_not_found": [FOOD_ROW | {"food_id": number, "account": "kadikoy"} for number in (999_999, 2005)],
    "restaurant_unknown": [row | {"restaurant_id": NOBODY} for row in ({"action": "close_restaurant"}, FOOD_ROW)],
    "courier_not_restaurant": [{"action": "on_the_way", "payment_key": None}],
    "order_completed": [{"action": "cancel", "reason_id": 1, "payment_key": None}],
    "order_cancelled": [{"action": "complete", "payment_key": None}],
}
DOCUMENTS: dict[str, Columns] = {
    "courier_not_restaurant": {"status_id": 2, "courier_type": "platform_courier"},
    "order_completed": {"status_id": 5},
    "order_cancelled": {"status_id": 6},
}
TAKEN: dict[str, Columns] = {
    "a signature of a megabyte": {"created_by": HUGE},
    "a signature in another charset": {"text of created_by": NOT_UTF8},
    "a signature with U+0000": {"created_by": "kasa\x002"},
    "a request in another charset": {"text of request_id": NOT_UTF8},
    "attempts of the POS's own": {"attempts": -3},
    "attempts in words": {"attempts": "many"},
    "a verdict of the POS's own": {"error_code": "x", "error_text": "y", "known_by": "me", "http_status": 200},
    "an end in words": {"finished_utc": "tomorrow"},
    "a next attempt in words": {"next_attempt_utc": "soon", "valid_minutes": 2},
    "a next attempt in another charset": {"text of next_attempt_utc": NOT_UTF8, "valid_minutes": 2},
    "a next attempt in a thousand years": {"next_attempt_utc": "3026-01-01 00:00:00.000"},
    "an expiry in words": {"expires_utc": "never"},
}
HALF_A_MINUTE: Columns = {"action": "accept", "payment_key": ORDER, "preparing_time": 25.5}
REASON_9: Columns = {"action": "cancel", "payment_key": ORDER, "reason_id": 9}
REFUSED: dict[str, tuple[Columns, str, str]] = {
    "an account as bytes": (FOOD_ROW | {"account": b"kadikoy"}, "account_needed", ""),
    "an account of a megabyte": (FOOD_ROW | {"account": HUGE}, "account_needed", ""),
    "a time of its own, in words": (FOOD_ROW | {"created_utc": "today"}, "bad_arguments", ""),
    # past the constraints
    "no order": ({"action": "complete"}, "bad_arguments", "payment_key is missing."),
    "half a minute": (HALF_A_MINUTE, "bad_arguments", "preparing_time is not a whole number."),
    "reason 9": (REASON_9, "bad_arguments", "reason_id is outside the allowed range."),
    "an unknown action": ({"action": "dance", "payment_key": ORDER}, "bad_arguments", "action is not known."),
}


def put(shop: Shop, columns: Columns, key: str) -> int:
    """INSERT as a driver does. Bytes under `text of …` are cast to text, as by a driver with another charset."""
    names, marks, values = [], [], []
    for name, value in columns.items():
        names.append(name.removeprefix("text of "))
        marks.append("CAST(? AS TEXT)" if name.startswith("text of ") else "?")
        values.append(value.replace(ORDER, key) if isinstance(value, str) else value)
    statement = f"INSERT INTO delivery_actions ({', '.join(names)}) VALUES ({', '.join(marks)})"
    return int(shop.till.execute(statement, values).lastrowid or 0)


def overwrite(shop: Shop, row_id: int, columns: Columns) -> None:
    """UPDATE of the daemon's columns by the till: no constraint can tell it from the daemon's own."""
    for name, value in columns.items():
        mark = "CAST(? AS TEXT)" if name.startswith("text of ") else "?"
        statement = f"UPDATE delivery_actions SET {name.removeprefix('text of ')} = {mark} WHERE id = ?"
        shop.till.execute(statement, (value, row_id))


async def with_a_right_one_beside(shop: Shop, columns: Columns) -> Columns:
    """The wrong row after a run of the outbox, which must have done the right row beside it."""
    order, other = await shop.taken_in(), await shop.taken_in()
    ours = {name: value for name, value in columns.items() if name.removeprefix("text of ") in DAEMONS}
    wrong = put(shop, {name: value for name, value in columns.items() if name not in ours}, order.key)
    overwrite(shop, wrong, ours)
    right = await shop.acted("accept", other)
    assert shop.row(right)["state"] == "done"
    shop.till.text_factory = lambda text: text.decode("utf-8", "replace")
    return shop.row(wrong)


@pytest.mark.parametrize("code", build.REFERENCES)
def test_each_wrong_row_of_the_reference_is_tried(code: str):
    (line,) = re.findall("(?:ends|satır) `refused`[^:]*: (.*)", build.REFERENCES[code].read_text("utf-8"))
    assert re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", line)) == list(ROWS)


@pytest.mark.parametrize("code", ROWS)
async def test_a_wrong_row_ends_with_its_code(code: str, open_shop):
    shop = await open_shop("kadikoy", "besiktas")
    for account in shop.accounts.values():
        account.restaurants_known = True
    order = shop.place(**DOCUMENTS.get(code, {}))
    shop.world.faults.add(listing(order.document))
    await shop.poll()
    rows = [{name: value or order.key for name, value in row.items()} for row in ROWS[code]]
    written = [put(shop, row, order.key) for row in rows]
    await shop.drain()
    assert {shop.end(row)[:2] for row in written} == {("refused", code)}
    if code != "food_not_found":  # which only the service knows
        assert {call.operation for call in shop.world.calls()} <= {"login", "get_current", "acknowledge"}


@pytest.mark.parametrize("columns", TAKEN.values(), ids=TAKEN)
async def test_a_pos_that_writes_the_daemons_columns_harms_nothing(shop: Shop, columns: Columns):
    row = await shop.verdict((await with_a_right_one_beside(shop, FOOD_ROW | columns))["id"])
    assert (row["state"], row["error_code"], row["attempts"]) == ("done", None, 1)
    assert len(shop.calls("deactivate_food")) == 1


@pytest.mark.parametrize("columns", [{}, {"withdraw": 1}, {"attempts": 3}], ids=["alone", "withdrawn", "with attempts"])
async def test_a_row_inserted_as_sending_is_refused_and_blocks_no_other(shop: Shop, columns: Columns):
    order = await shop.taken_in()
    called = shop.act("on_the_way", order)
    overwrite(shop, called, {"state": "sending"} | columns)
    behind = await shop.acted("accept", order)
    row = shop.row(called)
    assert (row["state"], row["error_code"]) == ("refused", "bad_arguments")
    assert row["error_text"] == "state must be empty for this action. Correct it and send it again."
    assert (shop.row(behind)["state"], shop.calls("on_the_way")) == ("done", [])


@pytest.mark.parametrize("columns, code, words", REFUSED.values(), ids=REFUSED)
async def test_a_wrong_row_is_refused_alone_and_says_what_to_do(shop: Shop, columns: Columns, code: str, words: str):
    if words:
        shop.till.execute("PRAGMA ignore_check_constraints = ON")
    row = await with_a_right_one_beside(shop, columns)
    assert (row["state"], row["error_code"]) == ("refused", code)
    assert row["error_text"].count(". ") >= 1, "what happened, then what to do"
    assert not words or row["error_text"] == f"{words} Correct it and send it again."
