"""`orderbridge audit`: no finding for a sound history; each planted contradiction is the only finding."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.jobs.shop import settings_for
from tests.store.samples import KEY, NOW, RESTAURANT, Pos, at, key, put, put_action, put_document, put_order

from orderbridge.jobs.audit import Audit, audit
from orderbridge.store.database import Database
from orderbridge.texts import SENTENCES

Plant = Callable[[Pos], object]
FAILED = {"state": "failed", "known_by": None, "error_code": "outcome_unknown", "error_text": "?"}
OPEN = {"state": "pending", "known_by": None, "finished_utc": None}
OK, UNKNOWN = "ok", "unknown"


def event(pos: Pos, second: float, word: str, status_id: int | None = None, payment_key=KEY, **more) -> None:
    values = {"payment_key": payment_key, "at_utc": at(second), "event": word, "status_id": status_id}
    put(pos, "delivery_order_events", **values | more)


def action(pos: Pos, *requests: tuple[float, float | None, str | None], name: str = "accept", **columns: object) -> int:
    """Insert a row with its requests: when each began and ended, in seconds, and its outcome."""
    ended = next((end for _, end, _ in reversed(requests) if end is not None), 30)
    how = "answer" if any(outcome == OK for _, _, outcome in requests) else "status"
    done = {"state": "done", "known_by": how, "finished_utc": at(ended)}
    row_id = put_action(pos, name, **{"created_utc": at(2)} | done | columns)
    for number, (start, end, outcome) in enumerate(requests, start=1):
        request = {"started_utc": at(start), "finished_utc": None if end is None else at(end), "outcome": outcome}
        put(pos, "delivery_action_attempts", action_id=row_id, attempt=number, **request)
    return row_id


def sound(pos: Pos) -> None:
    """Insert a history without contradictions, some of whose parts look like one."""
    put_order(pos, received_utc=at(0), acknowledged_utc=at(1), payload="{}", payload_hash="d")
    put(pos, "delivery_daemon", id=1, seen_utc=at(6000), silent_from_utc=at(6090), cause="", remedy="")
    event(pos, 0, "received", 1)
    event(pos, 1, "acknowledged", 1)
    put_document(pos, payment_key=key(7), payload_hash="e")
    event(pos, 1, "acknowledged", 1, payment_key=key(7))  # a document in quarantine
    put_document(pos, payment_key=key(8), first_seen_utc=at(1), last_seen_utc=at(1), resolved_utc=at(3))
    event(pos, 2, "acknowledged", 1, key(8))  # kept in quarantine, and taken in from there
    put_order(pos, key(8), received_utc=at(3))
    event(pos, 3, "received", 1, key(8))
    action(pos, (3, 4, "unauthorized"), (4, 5, "rate_limited"), (35, 36, "unknown"), (70, 71, OK))
    action(pos, (5, 6, OK), name="open_restaurant", created_utc=at(5))
    action(pos, (5, 6, OK), name="deactivate_food", account="kadikoy", created_utc=at(5))
    action(pos, (5, 6, OK), name="deactivate_food", account="moda", created_utc=at(5))  # the same number, another menu
    action(pos, (5, 6, OK), name="deactivate_food", restaurant_id=RESTAURANT, created_utc=at(5))  # a lane of its own
    # Committed late: when the newer row was sent, it could not be seen.
    action(pos, (9, 10, OK), name="close_restaurant", restaurant_id=key(2), created_utc=at(6))
    action(pos, (7, 8, OK), name="open_restaurant", restaurant_id=key(2), created_utc=at(6))
    action(pos, (90, 91, OK), name="close_restaurant", restaurant_id=key(5), created_utc=at(6))
    action(pos, (7, 8, UNKNOWN), (70, 71, OK), name="open_restaurant", restaurant_id=key(5), created_utc=at(6))
    action(pos, *[(n, n, UNKNOWN) for n in range(92, 97)], name="open_restaurant", restaurant_id=key(6))
    pos.execute("UPDATE delivery_action_attempts SET error_code = 'stopped_while_sending' WHERE attempt = 5")
    retried = action(pos, (20, 21, "refused"), (5000, 5001, OK), name="activate_food", food_id=9, created_utc=at(19))
    pos.execute("UPDATE delivery_action_attempts SET spent = 1 WHERE action_id = ? AND attempt = 1", (retried,))
    event(pos, 71, "acknowledged", 2)  # at once after the answer
    event(pos, 100, "status", 2)
    action(pos, (110, 111, UNKNOWN), name="on_the_way", created_utc=at(100), **FAILED | {"finished_utc": at(180)})
    event(pos, 112, "status", 16)  # whose poll may have begun before the request ended
    action(pos, (200, 201, OK), name="complete", created_utc=at(190))
    late = FAILED | {"created_utc": at(2090), "finished_utc": at(2300)}
    expired = action(pos, (2100, 2101, UNKNOWN), payment_key=key(8), **late)
    event(pos, 2200, "status", 2, key(8))  # after its first end: `actions retry` came too late
    pos.execute("UPDATE delivery_action_attempts SET spent = 1 WHERE action_id = ?", (expired,))
    late = FAILED | {"created_utc": at(2390), "finished_utc": at(2700)}
    action(pos, (2400, 2401, UNKNOWN), payment_key=key(8), **late)
    event(pos, 2500, "start", 2, key(8))  # not by a poll
    event(pos, 2600, "ended", 2, key(8), detail="silence")  # nor this
    for word in ("status", "replayed"):
        event(pos, 2650, word, 2, key(8))  # from the journal
    for name in ("close_restaurant", "open_restaurant"):
        action(pos, restaurant_id=key(3), name=name, **OPEN | {"created_utc": at(2900)})


def _early(pos: Pos) -> None:
    put_order(pos, key(1))
    event(pos, 3000, "acknowledged", 1, key(1))
    event(pos, 3001, "received", 1, key(1))


def _beside_action(pos: Pos) -> None:
    action(pos, (3000, 3002, OK), name="cancel", created_utc=at(2999))
    event(pos, 3001, "acknowledged", 16)


def _newer_first(pos: Pos) -> None:
    action(pos, (3075, 3076, OK), name="open_restaurant", restaurant_id=key(4), created_utc=at(3000))
    action(pos, (3070, 3071, OK), name="close_restaurant", restaurant_id=key(4), created_utc=at(3000))


def _at_once(pos: Pos) -> None:
    action(pos, (3000, 3002, OK), name="cancel", created_utc=at(2999))
    action(pos, (3001, 3003, OK), name="cancel", created_utc=at(3000))


def _shown(pos: Pos) -> None:
    put_order(pos, key(1))
    event(pos, 3000, "received", 1, key(1))
    event(pos, 3100, "status", 2, key(1))
    action(pos, (3021, 3022, UNKNOWN), payment_key=key(1), created_utc=at(3020), **FAILED | {"finished_utc": at(3120)})


def food(pos: Pos, *requests: tuple[float, float | None, str | None], **columns: object) -> int:
    return action(pos, *requests, name="activate_food", **{"created_utc": at(3000)} | columns)


PLANTED: dict[str, tuple[int, Plant]] = {
    "acknowledged_before_stored": (1, _early),
    "document_lost": (1, lambda pos: put_order(pos, key(1), acknowledged_utc=at(5), payload_hash="d")),
    "acknowledged_beside_action": (2, _beside_action),
    "no_end": (4, lambda pos: food(pos, **OPEN, valid_minutes=10)),
    "end_without_time": (4, lambda pos: food(pos, finished_utc=None)),
    "end_without_reason": (4, lambda pos: food(pos, state="refused", known_by=None)),
    "done_without_proof": (4, lambda pos: food(pos, known_by=None)),
    "done_unanswered": (4, lambda pos: food(pos, (3005, 3006, UNKNOWN), known_by="answer")),
    "done_and_denied": (4, lambda pos: food(pos, (3005, 3006, OK), state="refused", error_code="food_not_found")),
    "row_lost": (4, lambda pos: put(pos, "delivery_action_attempts", action_id=999, attempt=1, started_utc=at(5))),
    "beside_another": (5, _at_once),
    "after_newer": (5, _newer_first),
    "sent_after_answer": (6, lambda pos: food(pos, (3005, 3006, "refused"), (3007, 3008, OK))),
    "sent_too_often": (6, lambda pos: food(pos, *[(n, n, "service_failed") for n in range(3001, 3006)])),
    "shown_and_not_known": (6, _shown),
}


def checked(database: Database, since: datetime = NOW - timedelta(minutes=1)) -> Audit:
    return database.read_now(lambda tx: audit(tx, settings_for(Path("unused"), "kadikoy"), since))


def test_a_sound_history_has_no_finding_and_each_finding_is_planted(database: Database, pos: Pos) -> None:
    sound(pos)
    found = checked(database)
    assert (found.orders, found.actions, found.findings) == (2, 17, [])
    sentences = set(SENTENCES.of("audit")) - {f"audit.{word}" for word in ("result", "finding", "order", "action")}
    assert sentences == {f"audit.{code}" for code in PLANTED}


@pytest.mark.parametrize("code", PLANTED)
def test_a_contradiction_is_found_alone(database: Database, pos: Pos, code: str) -> None:
    promise, plant = PLANTED[code]
    sound(pos)
    plant(pos)
    assert [(one.promise, one.code) for one in checked(database).findings] == [(promise, code)]
    assert checked(database, since=NOW + timedelta(days=1)).findings == []


def test_a_row_that_leaves_between_two_requests_of_another_is_found_unless_a_person_asked_for_the_second(database, pos):
    row = action(pos, (3001, 3002, UNKNOWN), (3090, 3091, OK), name="cancel", created_utc=at(2930))
    other = action(pos, (3010, 3011, OK), name="cancel", created_utc=at(3009))
    assert [(one.code, one.action_id) for one in checked(database).findings] == [("beside_another", other)]
    pos.execute("UPDATE delivery_action_attempts SET spent = 1 WHERE action_id = ? AND attempt = 1", (row,))
    assert [(one.code, one.action_id) for one in checked(database).findings] == [("after_newer", row)]
    pos.execute("UPDATE delivery_actions SET expires_utc = ? WHERE id = ?", (at(4000), row))
    assert checked(database).findings == []


def test_an_acknowledged_order_that_is_nowhere_is_found(database: Database, pos: Pos) -> None:
    sound(pos)
    event(pos, -31 * 86400, "acknowledged", 1, payment_key=key(2))  # a document that left quarantine, and is deleted
    event(pos, 3000, "acknowledged", 1, payment_key=key(1))
    findings = checked(database, since=NOW - timedelta(days=90)).findings
    assert [(one.promise, one.code, one.payment_key) for one in findings] == [(1, "document_lost", key(1))]


def test_times_out_of_order_by_parallel_accounts_hide_no_finding(database: Database, pos: Pos) -> None:
    sound(pos)
    _beside_action(pos)
    put_order(pos, key(1))
    event(pos, 3000.5, "received", 1, key(1))
    assert [one.code for one in checked(database).findings] == ["acknowledged_beside_action"]


def test_a_clock_that_was_set_back_causes_no_finding(database: Database, pos: Pos) -> None:
    put_order(pos)
    event(pos, 200.5, "acknowledged", 1)
    action(pos, (200, 201, OK), created_utc=at(199))
    codes = [one.code for one in checked(database).findings]
    assert codes == ["acknowledged_before_stored", "acknowledged_beside_action"]
    event(pos, 100, "accept.done", 2)
    assert [one.code for one in checked(database).findings] == ["acknowledged_before_stored"]


def test_a_request_during_which_or_before_which_the_clock_was_set_causes_no_finding(database: Database, pos: Pos):
    put_order(pos)
    event(pos, 300, "received", 1)
    action(pos, (100, 250, UNKNOWN), created_utc=at(99), **FAILED | {"finished_utc": at(260)})
    action(pos, (209, 211, OK), name="on_the_way", created_utc=at(204))
    assert [one.code for one in checked(database).findings] == ["beside_another"]
    event(pos, 210, "status", 1)
    row = food(pos, (3001, 3602, OK))  # it took ten minutes
    food(pos, (3300, 3301, OK), created_utc=at(3299))
    assert checked(database).findings == []
    pos.execute("UPDATE delivery_action_attempts SET error_code = 'stopped_while_sending' WHERE action_id = ?", (row,))
    assert [one.code for one in checked(database).findings] == ["beside_another"]
