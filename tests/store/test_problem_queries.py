"""Each query of the health check finds only its own problem; and the alarms as a till reads them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, make_url, select
from tests import databases
from tests.store.samples import KEY, NOW, OTHER, Pos, key, put, put_action, put_document, put_order, put_orders, rows

from orderbridge.store import own_tables, problem_queries, problem_rows
from orderbridge.store.database import Database
from orderbridge.store.ddl import NAME_LENGTH, time_text
from orderbridge.store.dialects.face import TroubleKind

MINUTE = timedelta(minutes=1)
BORDER = NOW - 3 * MINUTE
CANCELLED = {"revision": 2, "pos_revision": 1, "last_change": "cancelled", "ended_by": "cancelled"}
SINCE = datetime(2026, 3, 1, 12, tzinfo=UTC)
VIEW = "SELECT * FROM delivery_alarms ORDER BY code, subject"


def times(**changes: int) -> problem_queries.Times:
    borders = dict.fromkeys(("new_since", "unacknowledged_since", "unseen_since", "undecided_since"), BORDER)
    return {"lately": NOW - problem_queries.REMEMBERED, "ahead": NOW + MINUTE, "by_board": 0, **borders, **changes}


def found(database: Database, kind: str, **changes: int) -> list[tuple[Any, str, str | None, int]]:
    """The rows of a query. The faster query, which only says whether there are some, must agree."""
    rows = database.read_now(lambda tx: problem_queries.rows(tx, kind, times(**changes)))
    assert not rows or kind in database.read_now(lambda tx: problem_queries.kinds(tx, times()))
    return sorted((subject, time_text(since), account, count) for subject, since, account, count in rows)


def ago(minutes: float) -> str:
    return time_text(NOW - minutes * MINUTE)


YESTERDAY = ago(24 * 60 + 1)


def test_received_orders_of_the_last_day_are_found(database, pos):
    scheduled = {"pos_revision": 1, "scheduled_for": "2026-03-02 19:30:00"}
    others = [{"status_id": 2}, {"status_id": None}, {"ended_utc": ago(1), "ended_by": "cancelled"}]
    put_orders(pos, {}, scheduled, *others, {"changed_utc": YESTERDAY}, status_id=1, changed_utc=ago(5))
    rows = database.read_now(lambda tx: problem_queries.received(tx, times()))
    found = {(row.payment_key, row.pos_revision, row.scheduled_for) for row in rows}
    assert found == {(key(0), 0, None), (key(1), 1, "2026-03-02 19:30:00")}


def test_the_newest_accept_of_each_order_counts_and_an_unfinished_cancel_for_a_short_time(database, pos):
    put_action(pos, payment_key=KEY, state="expired", finished_utc=ago(9))
    put_action(pos, payment_key=KEY, state="pending")
    put_action(pos, "complete", payment_key=KEY)
    put_action(pos, payment_key=OTHER, state="failed", finished_utc=ago(1))
    newest, _ = database.read_now(lambda tx: problem_queries.newest_answers(tx, [KEY, OTHER, key(1)], BORDER))
    assert {name: row.state for name, row in newest.items()} == {KEY: "pending", OTHER: "failed"}
    for number, state in enumerate(("pending", "sending", "refused", "failed", "done")):
        put_action(pos, payment_key=key(number), state="expired", finished_utc=ago(9))
        put_action(pos, "cancel", payment_key=key(number), state=state)
    now, keys = datetime.now(UTC), [key(number) for number in range(5)]
    for border, counts, late in (
        (now - 5 * MINUTE, ["pending", "sending", "expired", "expired", "expired"], set()),
        (now + 5 * MINUTE, ["expired"] * 5, {key(0), key(1)}),
    ):
        newest, old = database.read_now(lambda tx, border=border: problem_queries.newest_answers(tx, keys, border))
        assert [newest[one].state for one in keys] == counts
        assert set(old) & {key(0), key(1)} == late


def test_actions_in_doubt_beside_a_document_without_a_key_are_counted_by_account(database, pos):
    for number, (account, state, at) in enumerate([
        ("kadikoy", "sending", ago(5)), ("kadikoy", "sending", ago(9)), ("kadikoy", "sending", ago(1)),
        ("kadikoy", "pending", ago(5)), ("moda", "sending", ago(5)), ("uskudar", "sending", ago(5)),
    ]):  # fmt: skip
        put_order(pos, key(number), account=account)
        row = put_action(pos, payment_key=key(number), state=state)
        for attempt in (1, 2):
            times = {"started_utc": at, "finished_utc": at}
            put(pos, "delivery_action_attempts", action_id=row, attempt=attempt, outcome="unknown", **times)
    for account, payment_key, seen in [("kadikoy", None, ago(1)), ("moda", None, ago(4)), ("uskudar", KEY, ago(1))]:
        put_document(pos, account=account, payment_key=payment_key, payload_hash=account, last_seen_utc=seen)
    assert found(database, "undecided") == [("kadikoy", ago(9), "kadikoy", 2)]
    pos.execute("UPDATE delivery_quarantine SET resolved_utc = last_seen_utc")
    assert found(database, "undecided") == []


def test_orders_that_no_till_takes_over_are_counted_by_account_from_the_oldest(database, pos):
    others = [{"received_utc": ago(1)}, {"pos_revision": 1}, {"ended_utc": ago(1)}]
    put_orders(pos, {}, {"received_utc": ago(10)}, *others, {"account": "moda"}, received_utc=ago(4), status_id=1)
    assert found(database, "not_taken_over") == [("kadikoy", ago(10), "kadikoy", 2), ("moda", ago(4), "moda", 1)]
    pos.execute("UPDATE delivery_orders SET status_id = 2 WHERE payment_key = ?", (key(0),))
    assert found(database, "not_taken_over", by_board=1) == [("kadikoy", ago(4), "kadikoy", 1)]


def test_open_orders_that_were_never_acknowledged_are_counted_by_account_without_replayed_ones(database, pos):
    others = [{"acknowledged_utc": ago(1)}, {"received_utc": ago(1)}, {"ended_utc": ago(1)}, {"changed_utc": YESTERDAY}]
    put_orders(pos, {}, {"received_utc": ago(10)}, *others, {"account": "moda"}, {}, received_utc=ago(4))
    put(pos, "delivery_order_events", payment_key=key(7), event="replayed", at_utc=ago(4))
    assert found(database, "not_acknowledged") == [("kadikoy", ago(10), "kadikoy", 2), ("moda", ago(4), "moda", 1)]


def test_a_cancellation_is_unseen_until_a_till_has_read_it_or_has_asked_for_it(database, pos):
    seen = [{"pos_revision": 2}, {"pos_revision": 0}, {"ended_by": "silence", "last_change": "ended"}]
    seen += [{"changed_utc": ago(2)}, {"changed_utc": YESTERDAY}, {}]
    put_orders(pos, *seen, {}, {"last_change": "contents"}, **CANCELLED | {"changed_utc": ago(4), "ended_utc": ago(4)})
    for number, state in ((5, "done"), (6, "refused")):
        put_action(pos, "cancel", payment_key=key(number), state=state)
    assert found(database, "cancellation_unseen") == [(key(number), ago(4), "kadikoy", 1) for number in (6, 7)]


def test_a_clock_that_was_set_back_ends_no_problem_of_an_order(database, pos):
    """Each is of an hour ahead; one of half a minute ahead is new, and may be a difference of two clocks."""
    for number, minutes in enumerate((-60, -0.5)):
        times = {"received_utc": ago(minutes), "changed_utc": ago(minutes), "account": "kadikoy"}
        put_order(pos, key(2 * number), status_id=1, **times)
        put_order(pos, key(2 * number + 1), **times | CANCELLED, ended_utc=ago(minutes))
    for kind in ("not_taken_over", "not_acknowledged"):
        assert found(database, kind) == [("kadikoy", ago(-60), "kadikoy", 1)]
    assert found(database, "cancellation_unseen") == [(key(1), ago(-60), "kadikoy", 1)]


def test_an_open_order_whose_contents_are_refused_is_found(database, pos):
    outdated = {"problem": "contents_outdated"}
    listed = [outdated, {"problem": "text_cut:name,contents_outdated"}, {"problem": "text_cut:name"}, {}]
    listed += [outdated | {"ended_utc": ago(1), "ended_by": "cancelled"}, outdated | {"changed_utc": YESTERDAY}]
    put_orders(pos, *listed, changed_utc=ago(4))
    assert found(database, "contents_outdated") == [(key(number), ago(4), None, 1) for number in (0, 1)]


UNKNOWN = {"state": "failed", "error_code": "outcome_unknown", "finished_utc": ago(5)}


def unknown(database: Database) -> list[int]:
    return [int(row_id) for row_id, *_ in found(database, "outcome_unknown")]


def test_a_row_of_unknown_outcome_is_found(database, pos):
    expected = [put_action(pos, action, **UNKNOWN) for action in ("complete", "deactivate_food", "close_restaurant")]
    put_action(pos, **UNKNOWN | {"payment_key": key(1)})
    others = [{"error_code": "service_error"}, {"state": "refused"}, {"finished_utc": YESTERDAY}]
    for number, changes in enumerate(others):
        put_action(pos, "complete", **UNKNOWN | {"payment_key": key(2 + number)} | changes)
    assert unknown(database) == expected


@pytest.mark.parametrize("action, other, told", [
    ("complete", {"state": "done"}, False), ("complete", {}, False), ("complete", {"state": "failed"}, True),
    ("complete", {"state": "done", "payment_key": OTHER}, True), ("deactivate_food", {"state": "done"}, False),
    ("deactivate_food", {"state": "done", "food_id": 2}, True), ("close_restaurant", {"state": "done"}, False),
    ("close_restaurant", {"state": "done", "restaurant_id": key(9)}, True),
])  # fmt: skip
def test_a_newer_row_for_the_same_subject_ends_the_doubt(action, other, told, database, pos):
    row = put_action(pos, action, **UNKNOWN)
    put_action(pos, action, **other)
    assert (row in unknown(database)) is told


def test_news_of_the_order_end_the_doubt(database, pos):
    put_orders(pos, {}, {"changed_utc": ago(4)}, {"ended_utc": ago(9), "ended_by": "completed"}, changed_utc=ago(9))
    ids = [put_action(pos, "complete", payment_key=key(number), **UNKNOWN) for number in range(3)]
    assert unknown(database) == ids[:1]


def test_the_accounts_of_the_configuration_are_read_and_no_others(database, pos):
    for fingerprint in ("a" * 64, "b" * 64):
        put(pos, "delivery_accounts", fingerprint=fingerprint, name="kadikoy", state="failing", last_error="timeout")
    polling = database.read_now(lambda tx: problem_queries.polling(tx, {"a" * 64, "c" * 64}))
    assert polling == {"a" * 64: ("failing", None, None, "timeout", None, 0, 0, None)}


def row(code: str = "login_refused", subject: str = "kadıköy", **changes: Any) -> dict[str, Any]:
    return {
        "code": code, "subject": subject, "account": subject or None, "severity": "severe", "level": 1,
        "since_utc": SINCE, "how_many": 3, "cause": "Platform 'ğüşiöç' demiyor.", "remedy": "Bakın.", "facts": "{}",
        "told": 0,
    } | changes  # fmt: skip


def write(database: Database, *some: dict[str, Any], gone: tuple[problem_rows.RowKey, ...] = ()) -> None:
    rows = dict.fromkeys(gone) | {(one["code"], one["subject"]): one for one in some}
    database.write_now(lambda tx: problem_rows.rewrite(tx, own_tables.problems, rows))


def sign(database: Database, seconds: float = 90) -> None:
    words = ("Kimse sorgulamıyor.", "Başlatın.")
    database.write_now(lambda tx: problem_rows.note_alive(tx, timedelta(seconds=seconds), *words))


def test_a_till_reads_what_is_wrong_and_of_a_silent_daemon_only_that(database: Database, pos: Pos):
    assert rows(pos, VIEW) == []
    write(database, row(), row("quarantined", "", since_utc=None, severity="warning"))
    sign(database)
    first, second = rows(pos, VIEW)
    assert (first["code"], first["subject"], first["account"]) == ("login_refused", "kadıköy", "kadıköy")
    assert (first["severity"], first["level"], first["how_many"]) == ("severe", 1, 3)
    assert (first["cause"], first["remedy"]) == ("Platform 'ğüşiöç' demiyor.", "Bakın.")
    assert str(first["since_utc"]).startswith("2026-03-01 12:00:00")
    assert (second["code"], second["since_utc"], second["account"]) == ("quarantined", None, None)
    long = problem_rows.as_subject("ş" * 3000)
    assert len(long) == NAME_LENGTH
    write(database, row(how_many=7), row("outdated", long, account=None), gone=(("quarantined", ""),))
    found = [(one["code"], one["subject"], one["how_many"]) for one in rows(pos, VIEW)]
    assert found == [("login_refused", "kadıköy", 7), ("outdated", long, 3)]
    times = database.read_now(lambda tx: tx.execute(select(own_tables.alarms.c.since_utc)).scalars().all())
    assert times == [SINCE, SINCE], "we read the view as a till does"
    sign(database, -1)
    (only,) = rows(pos, VIEW)
    assert (only["code"], only["subject"], only["account"], only["severity"]) == ("not_polling", "", None, "severe")
    assert (only["cause"], only["remedy"]) == ("Kimse sorgulamıyor.", "Başlatın.")
    assert only["level"] == 1 and only["how_many"] == 1 and only["since_utc"] is not None


def test_a_command_keeps_the_problems_that_only_the_running_daemon_knows(database: Database):
    write(database, row(), row("clock_wrong", ""))

    def seen(connection: Connection) -> list[str]:
        return [one["code"] for one in problem_rows.of_codes(connection, ["clock_wrong", "database_full"])]

    assert (database.read_now(seen), database.read_now(problem_rows.is_silent)) == ([], False), "none has ever worked"
    sign(database)
    assert (database.read_now(seen), database.read_now(problem_rows.is_silent)) == (["clock_wrong"], False)
    sign(database, -1)
    assert (database.read_now(seen), database.read_now(problem_rows.is_silent)) == ([], True)


@databases.only(databases.POSTGRESQL)
def test_a_server_that_refuses_writes_is_found(database: Database, url: str):
    assert database.hindrance(problem_rows.try_to_write) is None
    of_reader = make_url(url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    reader = Database(of_reader.render_as_string(hide_password=False), inline=True)
    assert reader.hindrance(problem_rows.try_to_write) is TroubleKind.READ_ONLY
    reader.close()
