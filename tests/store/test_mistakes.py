"""A mistake in an INSERT has one name, whatever the database, unless a server's type refuses it before any constraint."""

import re
from typing import Any

from tests.databases import KINDS, only
from tests.jobs.test_wrong_rows import AT_THE_INSERT, ORDER
from tests.store.samples import KEY, NOT_NULL, UNFIT, Refused, put

NO_ACTION: dict[str, dict[str, Any]] = {  # of which another constraint could be told, too
    "minutes": {"payment_key": KEY, "preparing_time": 25},
    "a reason of none": {"payment_key": KEY, "reason_id": 9},
    "nothing": {},
    "half a food": {"food_id": 1.5},
    "an order in capitals": {"payment_key": KEY.upper()},
    "valid for ever": {"restaurant_id": KEY, "valid_minutes": 10**6},
    "an empty request": {"payment_key": KEY, "request_id": ""},
    "withdraw 2": {"payment_key": KEY, "withdraw": 2},
}


def said(pos: Any, columns: dict[str, Any]) -> str:
    values = {name: value.replace(ORDER, KEY) if isinstance(value, str) else value for name, value in columns.items()}
    try:
        put(pos, "delivery_actions", **values)
    except Refused as refused:
        return str(refused).partition("\n")[0]
    return "nothing"


@only(*KINDS)
def test_a_mistake_is_told_by_the_same_name_on_each_database(pos):
    others = {}
    for mistake, (columns, name) in AT_THE_INSERT.items():
        words = said(pos, columns)
        if name != "leave them out" and not re.search(f"(?i){name}|{NOT_NULL}|{UNFIT}|contain NUL", words):
            others[mistake] = words
    assert others == {}


@only(*KINDS)
def test_an_unknown_action_is_told_before_all_else(pos):
    told = {mistake: said(pos, {"action": "cook"} | columns) for mistake, columns in NO_ACTION.items()}
    assert {mistake: words for mistake, words in told.items() if "delivery_actions_action_known" not in words} == {}
