"""Documents that could not become orders."""

from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import Connection
from tests.store.samples import KEY, LATER, LATER_TEXT, NOW, NOW_TEXT, OTHER, Pos, Row, rows

from orderbridge.model import Document
from orderbridge.store import quarantine
from orderbridge.store.database import Database


def document(digest: str = "d1", payment_key: str | None = KEY) -> Document:
    return Document(raw='{"bozuk": "ş"}'.encode(), digest=digest, payment_key=payment_key, status_id=None)


def keep(
    database: Database, *found: Document, account: str = "kadikoy", reason: str = "not_json", at: datetime = NOW
) -> int:
    """Returns how many of them are new."""

    def work(connection: Connection) -> int:
        return sum(quarantine.keep(connection, account, one, reason, at) for one in found)

    return database.write_now(work)


def kept(pos: Pos) -> list[Row]:
    return rows(pos, "SELECT * FROM delivery_quarantine ORDER BY id")


def test_a_document_is_kept_whole_with_its_reason(database, pos):
    assert keep(database, document()) == 1
    (row,) = kept(pos)
    assert row.pop("id") > 0
    assert [row] == [
        {
            "account": "kadikoy",
            "payment_key": KEY,
            "payload": '{"bozuk": "ş"}',
            "payload_hash": "d1",
            "reason": "not_json",
            "first_seen_utc": NOW_TEXT,
            "last_seen_utc": NOW_TEXT,
            "times_seen": 1,
            "resolved_utc": None,
        }
    ]


def test_a_document_that_comes_again_is_counted(database, pos):
    keep(database, document())
    assert keep(database, document(), document("d2", None), reason="not_an_object", at=LATER) == 1
    again, new = kept(pos)
    assert (again["times_seen"], again["first_seen_utc"], again["last_seen_utc"]) == (2, NOW_TEXT, LATER_TEXT)
    assert again["reason"] == "not_an_object"
    assert (new["payment_key"], new["times_seen"]) == (None, 1)


def test_a_document_twice_in_one_list_is_kept_once(database, pos):
    assert keep(database, document(), document()) == 1
    assert [row["times_seen"] for row in kept(pos)] == [2]


def test_each_account_keeps_its_own(database, pos):
    keep(database, document())
    assert keep(database, document(), account="besiktas") == 1
    assert [row["times_seen"] for row in kept(pos)] == [1, 1]


def test_a_zero_character_is_replaced_because_no_other_database_takes_it(database, pos):
    keep(database, replace(document(), raw=b"a\0b"))
    assert kept(pos)[0]["payload"] == "a\ufffdb"


def resolve(database: Database, *keys: str, account: str = "kadikoy", at: datetime = LATER) -> None:
    database.write_now(lambda tx: quarantine.resolve(tx, account, keys, at))


def test_an_order_that_was_taken_in_after_all_is_resolved(database, pos):
    keep(database, document(), document("d2", OTHER), document("d3", None))
    resolve(database, KEY)
    assert [row["resolved_utc"] for row in kept(pos)] == [LATER_TEXT, None, None]
    assert [row["payment_key"] for row in database.read_now(quarantine.unresolved)] == [OTHER, None]


@pytest.mark.parametrize(
    "keys, account", [((), "kadikoy"), ((KEY,), "besiktas"), ((OTHER,), "kadikoy")], ids=["none", "foreign", "other"]
)
def test_nothing_else_is_resolved(keys, account, database, pos):
    keep(database, document())
    resolve(database, *keys, account=account)
    assert kept(pos)[0]["resolved_utc"] is None


def test_a_resolved_one_keeps_the_time_it_was_resolved(database, pos):
    keep(database, document())
    resolve(database, KEY, at=NOW)
    resolve(database, KEY, at=LATER)
    assert kept(pos)[0]["resolved_utc"] == NOW_TEXT


def test_a_resolved_document_that_comes_again_is_unresolved(database):
    keep(database, document())
    resolve(database, KEY)
    keep(database, document(), at=LATER)
    assert [row["times_seen"] for row in database.read_now(quarantine.unresolved)] == [2]


def test_what_is_kept_is_listed_oldest_first_without_the_documents(database):
    keep(database, document("d2"), document("d1"))
    listed = database.read_now(quarantine.unresolved)
    assert listed[0]["id"] < listed[1]["id"]
    assert listed[0] == {
        "id": listed[0]["id"],
        "account": "kadikoy",
        "payment_key": KEY,
        "reason": "not_json",
        "first_seen_utc": NOW,
        "last_seen_utc": NOW,
        "times_seen": 1,
    }


def test_a_document_that_retention_emptied_is_whole_again_when_it_comes_again(database, pos):
    keep(database, document())
    database.write_now(lambda tx: quarantine.blank_old(tx, LATER, LATER))
    assert [(row["payload"], row["resolved_utc"]) for row in kept(pos)] == [("", LATER_TEXT)]
    keep(database, document(), at=LATER)
    assert [(row["payload"], row["resolved_utc"]) for row in kept(pos)] == [('{"bozuk": "ş"}', None)]
