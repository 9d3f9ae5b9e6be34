"""Silence: what is counted, which orders end by it, and which never do. tests/jobs/test_starts.py has the starts."""

from datetime import timedelta

import pytest
from tests.databases import SERVERS, only

from tests.store.samples import (  # isort: skip
    KEY, LATER_TEXT, NOW, NOW_TEXT, OTHER, Pos, arrival, became, difference, key, one, order_row, put, put_order,
    put_orders, rows,
)  # fmt: skip
from orderbridge.model import Change, Differs, LastChange
from orderbridge.store import accounts, order_times, orders
from orderbridge.store.database import Database

DAY = timedelta(hours=24)
DAY_S = 86_400
# Taken over by a till, and without a sign since the account had listened for an hour.
SILENT = {"pos_revision": 1, "silence_from": 3600}
CHANGED = Change(True, Differs.NOTHING, None, LastChange.STATUS, None)
SAME = Change(True, Differs.NOTHING, None, None, None)


@pytest.fixture(autouse=True)
def account(pos: Pos) -> None:
    """An account that has listened for ten days."""
    put(pos, "delivery_accounts", fingerprint="f" * 64, name="kadikoy", listened_seconds=10 * DAY_S)


def listen(pos: Pos, seconds: int) -> None:
    pos.execute("UPDATE delivery_accounts SET listened_seconds = listened_seconds + ?", (seconds,))


def count(database: Database) -> list[str]:
    fresh = database.read_now(lambda tx: order_times.to_count(tx, NOW))
    return database.write_now(lambda tx: order_times.count_from_here(tx, fresh, now=NOW))


def end_silent(database: Database) -> list[str]:
    return end_these(database, database.read_now(lambda tx: order_times.silent(tx, DAY, NOW)))


def end_these(database: Database, keys: list[str]) -> list[str]:
    return database.write_now(lambda tx: order_times.end_silent(tx, keys, now=NOW, silence=DAY))


def put_silent(pos: Pos, payment_key: str = KEY, **columns: object) -> str:
    return put_order(pos, payment_key, **SILENT | columns)


def test_the_count_begins_when_a_till_has_taken_the_order_over(database, pos):
    put(pos, "delivery_accounts", fingerprint="0" * 64, name="kadikoy")  # former secrets of the account reset nothing
    put_order(pos)
    assert count(database) == []
    pos.execute("UPDATE delivery_orders SET pos_revision = 1")
    before = order_row(pos)
    assert (count(database), difference(before, order_row(pos))) == ([KEY], {"silence_from"})
    assert (order_row(pos)["silence_from"], count(database)) == (10 * DAY_S, [])


def test_what_is_counted(database, pos):
    later = {"scheduled_for": "2020-01-01 15:00:00", "start_utc": LATER_TEXT}
    now = {"scheduled_for": "2099-01-01 15:00:00", "start_utc": NOW_TEXT}
    ended = {"ended_utc": NOW_TEXT, "ended_by": "completed"}
    put_orders(pos, later, now, {"scheduled_for": "on Sunday"}, ended, {"account": "not configured"}, pos_revision=1)
    assert sorted(count(database)) == [key(1), key(2), key(4)]


def test_a_clock_that_is_set_back_resets_the_count_of_a_scheduled_order(database, pos):
    put_silent(pos, start_utc=LATER_TEXT)
    assert (end_silent(database), count(database), count(database)) == ([], [KEY], [])
    assert order_row(pos)["silence_from"] is None


def test_news_end_the_silence(database, pos):
    put(pos, "delivery_restaurants", account="besiktas", id="r")
    for number, (news, kept) in enumerate([
        (lambda tx, known: orders.update_delivered(tx, known, arrival(key(0), 2), CHANGED, NOW), None),
        (lambda tx, known: orders.update_delivered(tx, known, arrival(key(1), 1), SAME, NOW), 3600),
        (lambda tx, known: orders.set_status(tx, [became(known, 2)], NOW), None),
        (lambda tx, known: orders.set_status(tx, [became(known, 6)], NOW), None),
        (lambda tx, known: orders.adopt(tx, key(4), "besiktas"), None),
        (lambda tx, known: accounts.adopt_orphans(tx, ["besiktas"]), None),
    ]):  # fmt: skip
        put_silent(pos, key(number), status_id=1, service_status_id=1, restaurant_id="r")
        known = database.read_now(lambda tx, number=number: orders.stored(tx, [key(number)]))[key(number)]
        database.write_now(lambda tx, news=news, known=known: news(tx, known))
        assert order_row(pos, key(number))["silence_from"] == kept


def test_an_order_without_news_for_a_day_of_polling_ends_with_its_status_unchanged(database, pos):
    database.write_now(lambda tx: orders.insert_new(tx, "kadikoy", [arrival()], NOW - DAY))
    pos.execute("UPDATE delivery_orders SET pos_revision = 1")
    count(database)
    listen(pos, DAY_S - 1)
    assert end_silent(database) == []
    listen(pos, 1)
    before = order_row(pos)
    assert end_silent(database) == [KEY]
    after = order_row(pos)
    assert (after["ended_utc"], after["ended_by"], after["last_change"]) == (NOW_TEXT, "silence", "ended")
    assert (after["revision"], after["changed_utc"], after["silence_from"]) == (2, NOW_TEXT, None)
    written = {"ended_utc", "ended_by", "last_change", "revision", "changed_utc", "silence_from"}
    assert difference(before, after) == written
    story = one(pos, "SELECT at_utc, event, status, detail FROM delivery_order_events ORDER BY id DESC LIMIT 1")
    assert tuple(story.values()) == (NOW_TEXT, "ended", "RECEIVED", "silence")


def test_an_order_that_is_not_silent_stays_as_it_is(database, pos):
    put(pos, "delivery_accounts", fingerprint="e" * 64, name="besiktas")
    long_ago = {"changed_utc": "2016-03-01 12:00:00.000"}
    less_than_a_day, not_counted = {"silence_from": 9 * DAY_S + 1}, {"silence_from": None}
    columns = [long_ago | one for one in (less_than_a_day, not_counted, {"pos_revision": 0})]
    ended = {"ended_utc": "2026-02-27 12:00:00.000", "ended_by": "completed"}
    put_orders(pos, *columns, {"start_utc": LATER_TEXT}, ended, {"account": "besiktas"}, **SILENT)
    before = rows(pos, "SELECT * FROM delivery_orders")
    assert (end_silent(database), rows(pos, "SELECT * FROM delivery_orders")) == ([], before)


def test_news_between_the_query_and_the_end_count(database, pos):
    news = ["silence_from = NULL", f"start_utc = '{LATER_TEXT}'", "ended_utc = changed_utc", "pos_revision = 0"]
    put_orders(pos, *({} for _ in news), **SILENT)
    quiet = database.read_now(lambda tx: order_times.silent(tx, DAY, NOW))
    for number, change in enumerate(news):
        pos.execute(f"UPDATE delivery_orders SET {change} WHERE payment_key = ?", (key(number),))
    before = rows(pos, "SELECT * FROM delivery_orders")
    assert (len(quiet), end_these(database, quiet)) == (len(news), [])
    assert [rows(pos, f"SELECT * FROM delivery_{table}") for table in ("orders", "order_events")] == [before, []]


def test_silences_begin_and_end_in_short_transactions(database, pos, monkeypatch):
    monkeypatch.setattr(order_times, "SWEEP", 2)
    for number in range(6):
        put_silent(pos, key(number), silence_from=3600 if number < 3 else None)
    for work in (end_silent, count):
        assert [len(work(database)) for _ in range(3)] == [2, 1, 0]


@only(*SERVERS)
def test_an_order_that_is_just_being_delivered_does_not_end(database, pos):
    for payment_key in (KEY, OTHER):
        put_silent(pos, payment_key)
    pos.execute("BEGIN")
    pos.execute("UPDATE delivery_orders SET silence_from = NULL WHERE payment_key = ?", (KEY,))
    assert end_silent(database) == [OTHER]
    pos.execute("COMMIT")
    assert end_silent(database) == []
