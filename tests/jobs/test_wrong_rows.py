"""Each wrong row that a POS can write: refused at its INSERT where the database can, else alone, with what to do.

The till is the stock sqlite3 driver, and beside each wrong row stands a right one of another order, which must go its
way. tests/store/test_tables.py has the constraints one by one; here they are met as the POS meets them.
"""

import asyncio
import sqlite3
from typing import Any

import pytest
from tests.jobs.shop import FINAL, Shop
from tests.store.samples import DAEMONS

from orderbridge.texts import SENTENCES
from orderbridge_sandbox import Fault
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = pytest.mark.plays_daemon

NOBODY = "00000000-0000-4000-8000-000000000000"
FOOD = 1005
HUGE = "k" * 1_000_000
NOT_UTF8 = "Gül\N{LATIN SMALL LETTER S WITH CEDILLA}ah".encode("cp1254")
ORDER = "the order's key"  # stands for the key of an order that is there

Columns = dict[str, Any]


def put(shop: Shop, columns: Columns, key: str) -> int:
    """INSERT, as the driver does it. Bytes under `text of …` are cast to text: what a driver of another charset does."""
    names, marks, values = [], [], []
    for name, value in columns.items():
        names.append(name.removeprefix("text of "))
        marks.append("CAST(? AS TEXT)" if name.startswith("text of ") else "?")
        values.append(value.replace(ORDER, key) if isinstance(value, str) else value)
    inserted = shop.till.execute(
        f"INSERT INTO delivery_actions ({', '.join(names)}) VALUES ({', '.join(marks)})", values
    )
    return int(inserted.lastrowid or 0)


def overwrite(shop: Shop, row_id: int, columns: Columns) -> None:
    """UPDATE of the daemon's columns by the till: no constraint can tell it from the daemon's own."""
    for name, value in columns.items():
        mark = "CAST(? AS TEXT)" if name.startswith("text of ") else "?"
        statement = f"UPDATE delivery_actions SET {name.removeprefix('text of ')} = {mark} WHERE id = ?"
        shop.till.execute(statement, (value, row_id))


async def with_a_right_one_beside(shop: Shop, columns: Columns) -> Columns:
    """The wrong row, after everything that the outbox can do at once; the right row beside it must be done."""
    order, other = await shop.taken_in(), await shop.taken_in()
    ours = {name: value for name, value in columns.items() if name.removeprefix("text of ") in DAEMONS}
    wrong = put(shop, {name: value for name, value in columns.items() if name not in ours}, order.key)
    overwrite(shop, wrong, ours)
    right = shop.act("accept", other)
    await shop.drain()
    assert shop.row(right)["state"] == "done"
    shop.till.text_factory = lambda text: text.decode("utf-8", "replace")
    return shop.row(wrong)


# ---- refused at the INSERT -------------------------------------------------------------------------------------------

AT_THE_INSERT: dict[str, tuple[Columns, str]] = {
    "an unknown action": ({"action": "accpet", "payment_key": ORDER, "preparing_time": 25}, "action_known"),
    "an action in capitals": ({"action": "ACCEPT", "payment_key": ORDER, "preparing_time": 25}, "action_known"),
    "U+0000 in the action": ({"action": "complete\0", "payment_key": ORDER}, "action_known"),
    "a negative food": ({"action": "activate_food", "food_id": -1}, "food_id_1_or_more"),
    "no action": ({"payment_key": ORDER}, r"NOT NULL .*\.action"),
    "no order": ({"action": "accept", "preparing_time": 25}, "order_action_names_its_order"),
    "an order for a restaurant": ({"action": "open_restaurant", "payment_key": ORDER}, "restaurant_action_names"),
    "a food for an order": ({"action": "complete", "payment_key": ORDER, "food_id": FOOD}, "order_action_names"),
    "an order in capitals": ({"action": "complete", "payment_key": NOBODY.replace("4", "A")}, "payment_key_uuid"),
    "an order's number": ({"action": "complete", "payment_key": 100234}, "payment_key_uuid"),
    "an order as bytes": ({"action": "complete", "payment_key": ORDER.encode()}, "payment_key_uuid"),
    "an order of a megabyte": ({"action": "complete", "payment_key": HUGE}, "payment_key_uuid"),
    "a restaurant's name": ({"action": "open_restaurant", "restaurant_id": "Kadıköy"}, "restaurant_id_uuid"),
    "no preparing time": ({"action": "accept", "payment_key": ORDER}, "accept_needs_preparing_time"),
    "NULL minutes": ({"action": "accept", "payment_key": ORDER, "preparing_time": None}, "accept_needs_preparing_time"),
    "0 minutes": ({"action": "accept", "payment_key": ORDER, "preparing_time": 0}, "accept_needs_preparing_time"),
    "-5 minutes": ({"action": "accept", "payment_key": ORDER, "preparing_time": -5}, "accept_needs_preparing_time"),
    "25.5 minutes": ({"action": "accept", "payment_key": ORDER, "preparing_time": 25.5}, "preparing_time_integer"),
    "5000 minutes": ({"action": "accept", "payment_key": ORDER, "preparing_time": 5000}, "accept_needs_preparing_time"),
    "minutes in words": ({"action": "accept", "payment_key": ORDER, "preparing_time": "25 dk"}, "preparing_time"),
    "minutes to complete": ({"action": "complete", "payment_key": ORDER, "preparing_time": 25}, "accept_needs"),
    "no reason": ({"action": "cancel", "payment_key": ORDER}, "cancel_needs_reason_id"),
    "reason 9": ({"action": "cancel", "payment_key": ORDER, "reason_id": 9}, "cancel_needs_reason_id"),
    "a reason in words": ({"action": "cancel", "payment_key": ORDER, "reason_id": "no courier"}, "reason_id"),
    "no food": ({"action": "deactivate_food"}, "food_action_names_its_food"),
    "a food's name": ({"action": "deactivate_food", "food_id": "Ayran"}, "food_id_integer"),
    "half a food": ({"action": "deactivate_food", "food_id": 1.5}, "food_id_integer"),
    "a food beyond 64 bits": ({"action": "deactivate_food", "food_id": "9" * 400}, "food_id_integer"),
    "valid for -5 minutes": ({"action": "complete", "payment_key": ORDER, "valid_minutes": -5}, "valid_minutes"),
    "valid for ever": ({"action": "complete", "payment_key": ORDER, "valid_minutes": 10**9}, "valid_minutes"),
    "withdraw 2": ({"action": "complete", "payment_key": ORDER, "withdraw": 2}, "withdraw_0_or_1"),
    "withdraw yes": ({"action": "complete", "payment_key": ORDER, "withdraw": "yes"}, "withdraw_0_or_1"),
    "an empty request": ({"action": "complete", "payment_key": ORDER, "request_id": ""}, "request_id_1_to_64"),
    "a long request": ({"action": "complete", "payment_key": ORDER, "request_id": "x" * 65}, "request_id_1_to_64"),
    "U+0000 behind the order": ({"action": "complete", "payment_key": f"{ORDER}\0x"}, "payment_key_uuid"),
    "U+0000 behind the restaurant": ({"action": "open_restaurant", "restaurant_id": f"{KADIKOY}\0x"}, "restaurant_id"),
    "an invented state": ({"action": "complete", "payment_key": ORDER, "state": "sent"}, "leave them out"),
    "a row called sent": ({"action": "complete", "payment_key": ORDER, "state": "sending"}, "leave them out"),
    "a row called done": ({"action": "complete", "payment_key": ORDER, "state": "done"}, "leave them out"),
    "attempts": ({"action": "complete", "payment_key": ORDER, "attempts": 1}, "leave them out"),
    "a next attempt": ({"action": "complete", "payment_key": ORDER, "next_attempt_utc": "soon"}, "leave them out"),
    "an expiry": ({"action": "complete", "payment_key": ORDER, "expires_utc": "never"}, "leave them out"),
    "an answer": ({"action": "complete", "payment_key": ORDER, "http_status": 200}, "leave them out"),
    "a code": ({"action": "complete", "payment_key": ORDER, "error_code": "x"}, "leave them out"),
    "a sentence": ({"action": "complete", "payment_key": ORDER, "error_text": "x"}, "leave them out"),
    "a proof": ({"action": "complete", "payment_key": ORDER, "known_by": "me"}, "leave them out"),
    "an end": ({"action": "complete", "payment_key": ORDER, "finished_utc": "x"}, "leave them out"),
}


@pytest.mark.parametrize("columns, constraint", AT_THE_INSERT.values(), ids=AT_THE_INSERT)
async def test_a_row_that_can_never_be_right_is_refused_at_the_insert(shop: Shop, columns: Columns, constraint: str):
    order = await shop.taken_in()
    with pytest.raises(sqlite3.IntegrityError, match=constraint):
        put(shop, columns, order.key)
    assert shop.count("delivery_actions") == 0


# ---- refused by the daemon -------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Columns, str]] = {
    "an unknown order": ({"action": "complete", "payment_key": NOBODY}, "order_unknown"),
    "an unknown food": ({"action": "deactivate_food", "food_id": 999_999}, "food_not_found"),
    "an unknown restaurant": ({"action": "open_restaurant", "restaurant_id": NOBODY}, "restaurant_not_found"),
    "an unknown account": ({"action": "deactivate_food", "food_id": FOOD, "account": "Kadıköy"}, "account_needed"),
    "an empty account": ({"action": "deactivate_food", "food_id": FOOD, "account": ""}, "account_needed"),
    "an account in another charset": (
        {"action": "deactivate_food", "food_id": FOOD, "text of account": NOT_UTF8},
        "account_needed",
    ),
    "an account as bytes": ({"action": "deactivate_food", "food_id": FOOD, "account": b"kadikoy"}, "account_needed"),
    "an account of a megabyte": ({"action": "deactivate_food", "food_id": FOOD, "account": HUGE}, "account_needed"),
    "a time of its own, in words": (
        {"action": "deactivate_food", "food_id": FOOD, "created_utc": "today"},
        "bad_arguments",
    ),
    "a time of its own, as a number": (
        {"action": "deactivate_food", "food_id": FOOD, "created_utc": 46_000.5},
        "bad_arguments",
    ),
    "a time of its own, as bytes": (
        {"action": "deactivate_food", "food_id": FOOD, "created_utc": b"2026"},
        "bad_arguments",
    ),
}


@pytest.mark.parametrize("columns, code", REFUSED.values(), ids=REFUSED)
async def test_a_wrong_row_is_refused_alone_and_says_what_to_do(shop: Shop, columns: Columns, code: str):
    row = await with_a_right_one_beside(shop, columns)
    assert (row["state"], row["error_code"]) == ("refused", code)
    assert row["error_text"].count(". ") >= 1, "what happened, then what to do"


# ---- odd, and carried out all the same -------------------------------------------------------------------------------

TAKEN: dict[str, Columns] = {
    "a signature of a megabyte": {"created_by": HUGE},
    "a signature in another charset": {"text of created_by": NOT_UTF8},
    "a signature with U+0000": {"created_by": "kasa\x002"},
    "a request in another charset": {"text of request_id": NOT_UTF8},
    "a request as bytes": {"request_id": b"receipt 7"},
    "attempts of the POS's own": {"attempts": -3},
    "attempts in words": {"attempts": "many"},
    "a verdict of the POS's own": {"error_code": "x", "error_text": "y", "known_by": "me", "http_status": 200},
    "a verdict in another charset": {"text of error_text": NOT_UTF8},
    "an end in words": {"finished_utc": "tomorrow"},
    "a next attempt in a thousand years": {"next_attempt_utc": "3026-01-01 00:00:00.000"},
    "an expiry in words": {"expires_utc": "never"},
}


@pytest.mark.parametrize("columns", TAKEN.values(), ids=TAKEN)
async def test_what_a_pos_writes_where_nothing_of_it_belongs_harms_nothing(shop: Shop, columns: Columns):
    row = await with_a_right_one_beside(shop, {"action": "deactivate_food", "food_id": FOOD} | columns)
    assert (row["state"], row["error_code"], row["attempts"]) == ("done", None, 1)
    assert len(shop.calls("deactivate_food")) == 1


@pytest.mark.parametrize("columns", [{}, {"withdraw": 1}, {"attempts": 3}], ids=["alone", "withdrawn", "with attempts"])
async def test_a_row_that_the_pos_calls_sent_is_refused_and_holds_nobody(shop: Shop, columns: Columns):
    order = await shop.taken_in()
    called = shop.act("on_the_way", order)
    overwrite(shop, called, {"state": "sending"} | columns)
    behind = shop.act("accept", order)
    await shop.drain()
    row = shop.row(called)
    assert (row["state"], row["error_code"]) == ("refused", "bad_arguments")
    assert row["error_text"] == "state must be empty for this action. Correct it and send it again."
    assert (shop.row(behind)["state"], shop.calls("on_the_way")) == ("done", [])


async def test_a_row_that_waits_for_a_look_is_none_that_the_pos_calls_sent(shop: Shop):
    row = shop.act("cancel", await shop.taken_in())
    shop.world.faults.add(Fault.drop("cancel"), Fault.error("cancel", 404, "sipariş bulunamadı"))
    await shop.drain()
    await asyncio.sleep(5)
    await shop.drain()
    assert (shop.row(row)["state"], shop.row(row)["next_attempt_utc"]) == ("sending", None)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"next_attempt_utc": "soon"}, id="in words"),
        pytest.param({"text of next_attempt_utc": NOT_UTF8}, id="in another charset"),
    ],
)
async def test_a_next_attempt_that_is_no_time_counts_for_none(shop: Shop, columns: Columns):
    food = {"action": "deactivate_food", "food_id": FOOD, "valid_minutes": 2}
    row = await with_a_right_one_beside(shop, food | columns)
    assert (await shop.verdict(row["id"]))["state"] == "done"


@pytest.mark.parametrize("state", sorted(FINAL))
async def test_a_row_that_the_pos_itself_calls_finished_is_not_sent(shop: Shop, state: str):
    row = await with_a_right_one_beside(shop, {"action": "deactivate_food", "food_id": FOOD, "state": state})
    assert (row["state"], shop.calls("deactivate_food")) == (state, [])


async def test_a_row_that_is_withdrawn_as_it_is_written_is_not_sent(shop: Shop):
    row = await with_a_right_one_beside(shop, {"action": "deactivate_food", "food_id": FOOD, "withdraw": 1})
    assert (row["state"], shop.calls("deactivate_food")) == ("withdrawn", [])


# ---- what slipped past the constraints, as on a server that does not check them --------------------------------------

SLIPPED: dict[str, tuple[Columns, str]] = {
    "no order": ({"action": "complete"}, "payment_key is missing."),
    "no restaurant": ({"action": "close_restaurant"}, "restaurant_id is missing."),
    "no food": ({"action": "activate_food"}, "food_id is missing."),
    "a food's name": ({"action": "activate_food", "food_id": "Ayran"}, "food_id is not a whole number."),
    "no preparing time": ({"action": "accept", "payment_key": ORDER}, "preparing_time is missing."),
    "25.5 minutes": (
        {"action": "accept", "payment_key": ORDER, "preparing_time": 25.5},
        "preparing_time is not a whole number.",
    ),
    "5000 minutes": (
        {"action": "accept", "payment_key": ORDER, "preparing_time": 5000},
        "preparing_time is outside the allowed range.",
    ),
    "reason 9": ({"action": "cancel", "payment_key": ORDER, "reason_id": 9}, "reason_id is outside the allowed range."),
    "minutes in words": (
        {"action": "complete", "payment_key": ORDER, "valid_minutes": "an hour"},
        "valid_minutes is not a whole number.",
    ),
    "an unknown action": ({"action": "dance", "payment_key": ORDER}, "action is not known."),
}


@pytest.mark.parametrize("columns, words", SLIPPED.values(), ids=SLIPPED)
async def test_what_slipped_past_the_constraints_says_what_is_wrong_with_it(shop: Shop, columns: Columns, words: str):
    shop.till.execute("PRAGMA ignore_check_constraints = ON")
    row = await with_a_right_one_beside(shop, columns)
    assert (row["state"], row["error_code"]) == ("refused", "bad_arguments")
    assert row["error_text"] == f"{words} Correct it and send it again."
    assert any(words.endswith(f"{said['en']}.") for key, said in SENTENCES.items() if key.startswith("arguments."))


# ---- many at once ----------------------------------------------------------------------------------------------------
