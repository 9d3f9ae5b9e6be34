"""The outbox's transitions: each writes its own columns, guarded by the state that the row must have."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from tests.databases import MARIADB, POSTGRESQL, SERVERS, SQLITE, only

from tests.store.samples import (  # isort: skip
    DAEMONS, KEY, LATER, LATER_TEXT, NEEDED, NOW, NOW_TEXT, OTHER, RESTAURANT, Pos, Row, action_row, difference, key,
    put, put_action, rows,
)  # fmt: skip
from orderbridge.model import Action, ActionState, Attempt, KnownBy, OutboxRow, Outcome, Verdict
from orderbridge.store import actions, unfinished
from orderbridge.store.actions import End, Wait
from orderbridge.store.database import Database

FINAL = [state for state in ActionState if state not in {ActionState.PENDING, ActionState.SENDING}]
UNFINISHED = [ActionState.PENDING, ActionState.SENDING]
TIMEOUT = Attempt(Outcome.UNKNOWN, "timeout", None, "no answer within 20 s")
DONE = Verdict(ActionState.DONE, None, KnownBy.ANSWER, 2, 200)
REFUSED = Verdict(ActionState.REFUSED, "wrong_status", KnownBy.ANSWER, None, 422)
OF_A_VERDICT = DAEMONS - {"expires_utc"}
NO_TIMES = {POSTGRESQL: ["infinity", "-infinity", "0044-03-15 BC", "12026-01-01"], MARIADB: ["0000-00-00 00:00:00"]}


def read(database: Database, **how: bool) -> list[OutboxRow]:
    return database.read_now(lambda tx: unfinished.read_unfinished(tx, **how))[0]


def read_one(database: Database) -> OutboxRow:
    (row,) = read(database)
    return row


def put_attempt(pos: Pos, action_id: int, attempt: int = 1, **columns: Any) -> None:
    put(pos, "delivery_action_attempts", action_id=action_id, attempt=attempt, started_utc=NOW_TEXT, **columns)


def attempts(pos: Pos) -> list[Row]:
    return rows(pos, "SELECT * FROM delivery_action_attempts ORDER BY action_id, attempt")


def test_a_row_is_read_as_plain_values(database, pos):
    assert database.read_now(unfinished.read_unfinished) == ([], [])
    row_id = put_action(pos, account="kadikoy", valid_minutes=7, created_by="kasa 2", created_utc=NOW_TEXT, withdraw=1)
    assert read_one(database) == OutboxRow(
        id=row_id, action=Action.ACCEPT, state=ActionState.PENDING, payment_key=KEY, restaurant_id=None, food_id=None,
        account="kadikoy", preparing_time=25, reason_id=None, valid_minutes=7, withdraw=True, created_utc=NOW,
        next_attempt_utc=None, expires_utc=None, attempts=0, tried=False,
    )  # fmt: skip


def test_rows_of_each_kind_come_by_id_and_finished_ones_do_not(database, pos):
    ids = {state: put_action(pos, state=state.value) for state in ActionState}
    put_action(pos, "deactivate_food", restaurant_id=RESTAURANT)
    put_action(pos, "close_restaurant", next_attempt_utc=NOW_TEXT, expires_utc=LATER_TEXT, attempts=2)
    *first, food, restaurant = read(database)
    assert [row.id for row in first] == [ids[state] for state in UNFINISHED]
    assert (food.action, food.food_id, food.restaurant_id, food.withdraw) == ("deactivate_food", 55, RESTAURANT, False)
    assert (restaurant.next_attempt_utc, restaurant.expires_utc, restaurant.attempts) == (NOW, LATER, 2)
    assert [row.id for row in read(database, sending_only=True)] == [ids[ActionState.SENDING]]


@only(SQLITE)
def test_an_unreadable_row_harms_only_itself(database, pos):
    pos.execute("PRAGMA ignore_check_constraints = ON")
    bad = [put(pos, "delivery_actions", payment_key=KEY, action=action) for action in ("dance", "")]
    good = put_action(pos)
    found, unreadable = database.read_now(unfinished.read_unfinished)
    assert ([row.id for row in found], unreadable) == ([good], bad)
    cells = [("preparing_time", "soon", "soon"), ("created_utc", "yesterday", None)]
    for column, cell, read_as in [*cells, ("expires_utc", "never", None), ("withdraw", 2, True)]:
        pos.execute("DELETE FROM delivery_actions")
        put_action(pos, **{column: cell})
        assert getattr(read_one(database), column) == read_as
    no_text = "CAST(x'6BFF' AS TEXT), CAST(x'FE' AS TEXT)"
    columns = "action, payment_key, account, created_by"
    pos.execute(f"INSERT INTO delivery_actions ({columns}) VALUES ('complete', ?, {no_text})", (KEY,))
    assert [row.account for row in read(database)] == [None, "k\ufffd"]


@only(*SERVERS)
def test_an_unreadable_time_does_not_stop_the_read(kind, database, pos):
    for time in NO_TIMES[kind]:
        put_action(pos, created_utc=time, expires_utc=time)
    good = put_action(pos, created_utc=NOW_TEXT)
    *strange, last = read(database)
    assert [(row.created_utc, row.expires_utc) for row in strange] == [(None, None)] * len(NO_TIMES[kind])
    assert (last.id, last.created_utc) == (good, NOW)


def start(database: Database, row: OutboxRow, attempt: int = 1) -> bool:
    """Start a row. Returns False if another process has started it."""
    try:
        database.write_now(lambda tx: actions.start(tx, [(row, attempt)], NOW))
    except IntegrityError:
        return False
    return True


def test_a_start_marks_the_row_as_sent_and_notes_the_attempt_and_a_second_one_loses(database, pos):
    put_action(pos, next_attempt_utc=NOW_TEXT)
    row = read_one(database)
    before = action_row(pos, row.id)
    assert [start(database, row), start(database, row)] == [True, False]
    after = action_row(pos, row.id)
    assert (after["state"], after["next_attempt_utc"]) == ("sending", None)
    assert difference(before, after) == {"state", "next_attempt_utc"}
    empty = dict.fromkeys(["finished_utc", "outcome", "http_status", "error_code", "detail"])
    assert attempts(pos) == [{"action_id": row.id, "attempt": 1, "started_utc": NOW_TEXT, "spent": 0} | empty]


def test_a_row_that_was_withdrawn_meanwhile_is_not_started(database, pos):
    put_action(pos)
    row = read_one(database)
    pos.execute("UPDATE delivery_actions SET withdraw = 1")
    assert (start(database, row), action_row(pos, row.id)["state"]) == (False, "pending")
    seen = read_one(database)
    for state in FINAL:
        pos.execute("UPDATE delivery_actions SET state = ?", (state.value,))
        assert not start(database, seen)
    assert attempts(pos) == []
    pos.execute("UPDATE delivery_actions SET state = 'pending'")
    assert start(database, seen)  # by a daemon that has seen it


def test_the_end_of_an_attempt_is_recorded_and_one_that_never_left_leaves_no_trace(database, pos):
    row_id = put_action(pos)
    for attempt in (1, 2):
        assert start(database, read_one(database), attempt)
    before = action_row(pos, row_id)

    def record(number: int, attempt: Attempt) -> list[Row]:
        database.write_now(lambda tx: actions.record(tx, [(row_id, number, attempt)], LATER))
        return attempts(pos)

    first, second = record(1, replace(TIMEOUT, http_status=502))
    assert (first["finished_utc"], first["outcome"], first["http_status"]) == (LATER_TEXT, "unknown", 502)
    assert (first["error_code"], first["detail"], second["finished_utc"]) == ("timeout", "no answer within 20 s", None)
    assert action_row(pos, row_id) == before
    first, second = record(2, Attempt(Outcome.OK, None, 200))
    assert (first["outcome"], second["outcome"], second["detail"]) == ("unknown", "ok", None)
    assert record(1, Attempt(Outcome.OK, None, 200)) == [first, second], "by a process that was stopped and replaced"
    assert record(2, Attempt(Outcome.NOT_SENT, "dns_failed")) == [first]


def test_a_history_is_the_finished_attempts_of_its_row_in_order(database, pos):
    first, second, third = put_action(pos), put_action(pos), put_action(pos)
    for row_id, number, finished, outcome in [
        (first, 2, LATER_TEXT, "rate_limited"), (first, 1, NOW_TEXT, "unknown"), (first, 3, None, None),
        (second, 1, NOW_TEXT, "ok"),
    ]:  # fmt: skip
        put_attempt(pos, row_id, number, finished_utc=finished, outcome=outcome, error_code="code", http_status=429)
    found = database.read_now(lambda tx: unfinished.histories(tx, iter([first, third])))
    unknown = Attempt(Outcome.UNKNOWN, "code", 429, ended_utc=NOW)
    assert found == {first: [unknown, Attempt(Outcome.RATE_LIMITED, "code", 429, ended_utc=LATER)], third: []}
    assert database.read_now(lambda tx: unfinished.histories(tx, [])) == {}
    assert {row.id: row.tried for row in read(database)} == {first: True, second: True, third: False}


def finish(tx: Any, row_id: int, verdict: Verdict = REFUSED, words: str | None = "Reddedildi.") -> bool:
    return bool(actions.finish(tx, [(row_id, End(verdict, words, 2))], LATER))


def postpone(tx: Any, row_id: int, state=ActionState.PENDING, at=LATER) -> None:
    actions.postpone(tx, [(row_id, Wait(state, at, TIMEOUT.code, TIMEOUT.http_status, "Biraz bekleyin.", 1))])


def explain(tx: Any, *row_ids: int) -> set[int]:
    return actions.explain(tx, row_ids, "unreachable", "Biraz bekleyin.")


@pytest.mark.parametrize("state", UNFINISHED)
def test_a_verdict_ends_an_unfinished_row_with_its_reason(state, database, pos):
    row_id = put_action(pos, state=state.value, next_attempt_utc=NOW_TEXT, expires_utc=NOW_TEXT, created_by="kasa 2")
    before = action_row(pos, row_id)
    assert database.write_now(lambda tx: finish(tx, row_id))
    after = action_row(pos, row_id)
    assert {name: after[name] for name in OF_A_VERDICT} == {
        "state": "refused", "attempts": 2, "next_attempt_utc": None, "http_status": 422, "error_code": "wrong_status",
        "error_text": "Reddedildi.", "known_by": "answer", "finished_utc": LATER_TEXT, "until_utc": None,
    }  # fmt: skip
    assert difference(before, after) <= OF_A_VERDICT


def test_a_row_waits_with_the_reason(database, pos):
    for state, at in ((state, at) for state in UNFINISHED for at in (LATER, None)):
        row_id = put_action(pos, state="sending")
        before = action_row(pos, row_id)
        database.write_now(lambda tx, row_id=row_id, state=state, at=at: postpone(tx, row_id, state, at))
        after = action_row(pos, row_id)
        assert (after["state"], after["next_attempt_utc"], after["attempts"]) == (state, at and LATER_TEXT, 1)
        assert (after["error_code"], after["error_text"], after["http_status"]) == ("timeout", "Biraz bekleyin.", None)
        assert difference(before, after) <= OF_A_VERDICT - {"finished_utc", "known_by"}


TRANSITIONS = {"finish": finish, "postpone": postpone, "explain": explain, "withdraw": actions.withdraw}


@pytest.mark.parametrize("transition", TRANSITIONS.values(), ids=TRANSITIONS)
def test_a_transition_changes_one_row_only_and_none_that_has_ended(transition, database, pos):
    for state in FINAL:
        row_id = put_action(pos, state=state.value)
        before = action_row(pos, row_id)
        assert not database.write_now(lambda tx, row_id=row_id: transition(tx, row_id))
        assert action_row(pos, row_id) == before
    first, second = (put_action(pos, state="sending") for _ in range(2))
    waiting = put_action(pos)
    before = action_row(pos, second), action_row(pos, waiting)
    database.write_now(lambda tx: transition(tx, first))
    database.write_now(lambda tx: postpone(tx, waiting))
    assert (action_row(pos, second), action_row(pos, waiting)) == before


def retry(database: Database, row_id: int) -> bool:
    return database.write_now(lambda tx: actions.retry(tx, row_id, LATER))


def test_a_failed_row_is_pending_again_with_a_new_expiry_and_spent_attempts(database, pos):
    """An attempt that a copy shows on the wire has an unknown outcome: its number is used, and its doubt counts."""
    ended = {"error_code": "outcome_unknown", "error_text": "Bilinmiyor.", "http_status": 502, "known_by": "poll"}
    times = {"finished_utc": NOW_TEXT, "expires_utc": NOW_TEXT}
    row_id = put_action(pos, state="failed", attempts=4, withdraw=1, created_by="kasa 2", **ended, **times)
    other = put_action(pos, state="failed")
    for one in (row_id, other):
        put_attempt(pos, one, finished_utc=NOW_TEXT, outcome="refused")
    put_attempt(pos, row_id, 2)
    before = action_row(pos, row_id)
    assert retry(database, row_id)
    after = action_row(pos, row_id)
    assert [after[name] for name in ("state", "expires_utc", "attempts", "withdraw")] == ["pending", LATER_TEXT, 0, 0]
    empty = ("next_attempt_utc", "finished_utc", "error_code", "error_text", "known_by", "http_status")
    assert [after[name] for name in empty] == [None] * len(empty)
    assert difference(before, after) <= {*DAEMONS, "withdraw"}
    assert read_one(database).id == row_id
    found = database.read_now(lambda tx: unfinished.histories(tx, [row_id, other]))
    spent = {one: [(each.outcome, each.spent) for each in history] for one, history in found.items()}
    assert spent == {row_id: [(Outcome.REFUSED, True), (Outcome.UNKNOWN, True)], other: [(Outcome.REFUSED, False)]}


def test_an_end_of_an_order_that_we_caused_or_may_have_caused_is_found(database, pos):
    of_orders = [action for action in Action if "payment_key" in NEEDED[action]]
    made = {key(number): one for number, one in enumerate(product(of_orders, ActionState))}
    for payment_key, (action, state) in made.items():
        put_action(pos, action, payment_key=payment_key, state=state.value)
    may_have = {ActionState.DONE, ActionState.FAILED, ActionState.SENDING}
    may_end = set(product((Action.COMPLETE, Action.CANCEL), may_have))
    ended = {(payment_key, one[0]) for payment_key, one in made.items() if one in may_end}
    for asked, expected in ((list(made), ended), ([OTHER], set()), ([], set())):
        assert database.read_now(lambda tx, asked=asked: actions.ends(tx, asked)) == expected


def test_a_row_of_the_daemon_is_like_one_of_the_pos_and_is_added_once(database, pos):
    named = {"action": Action.ACCEPT, "payment_key": KEY}
    row_id = database.write_now(lambda tx: actions.add(tx, **named, preparing_time=25, request_id="auto:1"))
    for request_id in ("auto:1", "auto:2"):
        database.write_now(lambda tx, one=request_id: actions.add_once(tx, one, **named, preparing_time=30))
    row, second = read(database)
    assert (row.id, row.action, row.state, row.preparing_time) == (row_id, "accept", "pending", 25)
    assert row.created_utc is not None
    assert [action_row(pos, one.id)["request_id"] for one in (row, second)] == ["auto:1", "auto:2"]
