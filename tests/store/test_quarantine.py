"""Documents that could not be stored as orders."""

from dataclasses import replace
from datetime import datetime, timedelta

from tests.store.samples import KEY, LATER, LATER_TEXT, NOW, NOW_TEXT, OTHER, Pos, Row, put_document, put_order, rows

from orderbridge.model import Document
from orderbridge.store import quarantine
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text


def document(digest: str = "d1", payment_key: str | None = KEY) -> Document:
    return Document(raw='{"bozuk": "ş"}'.encode(), digest=digest, payment_key=payment_key, status_id=None)


def ago(minutes: float) -> str:
    return time_text(NOW - timedelta(minutes=minutes))


def keep(database: Database, *found: Document, account="kadikoy", reason="not_json", at=NOW, **how: int) -> int:
    """Keep documents. Returns how many of them are new."""
    return database.write_now(lambda tx: sum(quarantine.keep(tx, account, one, reason, at, **how) for one in found))


def kept(pos: Pos) -> list[Row]:
    return rows(pos, "SELECT * FROM delivery_quarantine ORDER BY id")


def resolve(database: Database, *keys: str, at: datetime = LATER, until: datetime | None = None) -> None:
    database.write_now(lambda tx: quarantine.resolve(tx, keys, at, until=until))


def test_a_document_is_kept_whole_with_its_reason(database, pos):
    assert keep(database, document()) == 1
    (row,) = kept(pos)
    assert row.pop("id") > 0
    assert row == {
        "account": "kadikoy", "payment_key": KEY, "payload": '{"bozuk": "ş"}', "payload_hash": "d1",
        "reason": "not_json",
        "first_seen_utc": NOW_TEXT, "last_seen_utc": NOW_TEXT, "times_seen": 1, "resolved_utc": None,
    }  # fmt: skip
    keep(database, replace(document("d2"), raw=b"a\0b"))  # a NUL, which servers refuse
    assert kept(pos)[1]["payload"] == "a\ufffdb"


def test_a_document_that_comes_again_is_counted_for_its_account(database, pos):
    keep(database, document())
    again = (document(), document("d2", None), document("d2", None))
    assert keep(database, *again, reason="not_an_object", at=LATER) == 1
    assert keep(database, document(), account="besiktas") == 1
    first, second, third = kept(pos)
    assert (first["times_seen"], first["first_seen_utc"], first["last_seen_utc"]) == (2, NOW_TEXT, LATER_TEXT)
    assert (first["reason"], second["payment_key"], second["times_seen"]) == ("not_an_object", None, 2)
    assert (third["account"], third["times_seen"]) == ("besiktas", 1)
    for at in (NOW, LATER):  # a replay is no delivery, and its time is not the last one
        keep(database, document(), reason="database_refused", at=at, times=0)
        assert tuple(kept(pos)[0][name] for name in ("times_seen", "last_seen_utc")) == (2, LATER_TEXT)


def test_an_order_stored_later_is_resolved_for_all_accounts(database, pos):
    keep(database, document(), document("d2", OTHER), document("d3", None))
    keep(database, document(), account="besiktas")
    for keys, until in (((), None), ((OTHER[::-1],), None), ((KEY,), NOW - timedelta(milliseconds=1))):
        resolve(database, *keys, until=until)
        assert {row["resolved_utc"] for row in kept(pos)} == {None}
    resolve(database, KEY)
    resolve(database, KEY, at=LATER + timedelta(minutes=1))  # the first resolution stays
    assert [row["resolved_utc"] for row in kept(pos)] == [LATER_TEXT, None, None, LATER_TEXT]
    named = {"account": "kadikoy", "reason": "not_json", "times_seen": 1, "first_seen_utc": NOW, "last_seen_utc": NOW}
    listed = [{"id": row["id"], "payment_key": row["payment_key"], **named} for row in kept(pos)[1:3]]
    assert [dict(row) for row in database.read_now(quarantine.unresolved)] == listed


def test_all_documents_of_one_order_are_read_with_the_newest_last(database, pos):
    keep(database, document("d1"), document("d2"), document("d3", OTHER), document("d4", None), document("d5", None))
    keep(database, document("d6"), account="besiktas")
    keep(database, document("d1"), at=LATER)  # delivered again since
    ids = {row["payload_hash"]: row["id"] for row in kept(pos)}

    def of_order(digest: str) -> list[str]:
        return [one.payload_hash for one in database.read_now(lambda tx: quarantine.of_order(tx, ids[digest]))]

    assert [of_order(digest) for digest in ("d1", "d2", "d6")] == [["d2", "d6", "d1"]] * 3
    assert (of_order("d3"), of_order("d4")) == (["d3"], ["d4"])
    resolve(database, KEY)
    assert of_order("d1") == []


def test_a_resolved_document_is_whole_and_unresolved_when_it_comes_again(database, pos):
    keep(database, document())
    for times, is_emptied in ((2, False), (3, True)):
        if is_emptied:
            database.write_now(lambda tx: quarantine.blank_old(tx, LATER + timedelta(days=1), LATER))
        else:
            resolve(database, KEY)
        payload = "" if is_emptied else '{"bozuk": "ş"}'
        assert [(row["payload"], row["resolved_utc"]) for row in kept(pos)] == [(payload, LATER_TEXT)]
        keep(database, document(), at=LATER)
        assert [(row["payload"], row["resolved_utc"]) for row in kept(pos)] == [('{"bozuk": "ş"}', None)]
        assert [row["times_seen"] for row in database.read_now(quarantine.unresolved)] == [times]


def test_documents_are_counted_from_the_oldest_and_refused_updates_of_known_orders_apart(database, pos):
    assert database.read_now(quarantine.counted) == ((0, None), (0, None), [])
    refused = {"reason": "database_refused"}
    for number, columns in {
        9: {"resolved_utc": ago(1)}, 8: {}, 7: {}, 6: {"payment_key": KEY, **refused},
        5: {"payment_key": KEY, **refused}, 3: {"payment_key": OTHER, **refused},
    }.items():  # fmt: skip
        times = {"first_seen_utc": ago(number), "last_seen_utc": ago(0)}
        put_document(pos, payload_hash=str(number), **times, **columns)
    put_order(pos)
    (count, oldest), (orders, oldest_order), ((known, since),) = database.read_now(quarantine.counted)
    assert (count, time_text(oldest)) == (2, ago(8))
    assert (orders, time_text(oldest_order)) == (1, ago(3)), "an order that no till sees"
    assert (known, time_text(since)) == (KEY, ago(6))
