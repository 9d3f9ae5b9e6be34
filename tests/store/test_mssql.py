"""SQL Server: nothing here ran on one. What would be sent to it is kept in mssql/*.sql, for people to read and compare.

After a change on purpose: ORDERBRIDGE_TEST_REWRITE=1 ./run test tests/store/test_mssql.py
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, Select, event
from sqlalchemy.dialects import mssql
from sqlalchemy.sql.base import Executable
from tests.databases import SQLITE, only
from tests.store.samples import KEY, LATER, NOW, OTHER, RESTAURANT, arrival, became

from orderbridge.model import (
    Action,
    ActionState,
    Attempt,
    CancelReason,
    Change,
    Differs,
    Document,
    LastChange,
    Method,
    Outcome,
    Restaurant,
    Token,
    Variables,
    Verdict,
)
from orderbridge.store import (
    accounts,
    actions,
    books,
    grants,
    health,
    locks,
    orders,
    problems,
    quarantine,
    reference,
    retention,
    schema,
    silence,
    unfinished,
)
from orderbridge.store.database import Database

FILES = Path(__file__).parent / "mssql"
FINGERPRINT = "f" * 64
DAY = timedelta(days=1)
ATTEMPT = Attempt(Outcome.OK, None, 200)
CHANGE = Change(
    status_counts=True,
    status_changed=True,
    differs=Differs.PRINT,
    reopened=False,
    ended_by=None,
    last_change=LastChange.STATUS,
    problem=None,
)
DOCUMENT = Document(raw=b"{}", digest="0" * 64, payment_key=KEY, status_id=None, reason="not_json")

PROBLEM = {
    "code": "unreachable",
    "subject": "kadikoy",
    "account": "kadikoy",
    "severity": "severe",
    "level": 1,
    "since_utc": NOW,
    "how_many": 1,
    "cause": "Platforma ulaşılamıyor.",
    "remedy": "Bağlantıyı kontrol edin.",
    "facts": "{}",
    "told": 0,
    "noted_utc": NOW,
}


def known(tx: Connection) -> Any:
    return orders.stored(tx, [KEY])[KEY]


def row(tx: Connection) -> Any:
    return unfinished.read_unfinished(tx)[0][0]


def vault() -> accounts.Vault:
    return accounts.Vault(FINGERPRINT, "app", "rest")


def health_of_unknown(connection: Connection) -> None:
    row_id = actions.add(connection, action="open_restaurant", restaurant_id=KEY)
    failed = actions.End(Verdict(ActionState.FAILED, "outcome_unknown"), None, 1)
    actions.finish(connection, [(row_id, failed)], NOW)
    health.unknown_outcomes(connection, NOW)


# In an order in which each finds what it needs. A name that begins like a module of the store is one of its functions.
WORK: dict[str, Callable[[Connection], Any]] = {
    "schema.current": schema.current,
    "accounts.register": lambda tx: accounts.register(tx, [accounts.Entry(FINGERPRINT, "kadikoy")]),
    "accounts.reserve_poll": lambda tx: accounts.reserve_poll(tx, FINGERPRINT, now=NOW, until=LATER, longest=DAY),
    "accounts.reserve_poll, too early": lambda tx: accounts.reserve_poll(
        tx, FINGERPRINT, now=NOW, until=LATER, longest=timedelta(0)
    ),
    "accounts.note_poll": lambda tx: accounts.note_poll(tx, FINGERPRINT, state="ok", last_poll_ok_utc=NOW),
    "accounts.note_successes": lambda tx: accounts.note_successes(tx, [accounts.Success(FINGERPRINT, NOW, LATER, 30)]),
    "accounts.reserve_polls": lambda tx: accounts.reserve_polls(tx, [FINGERPRINT, OTHER], now=NOW, until=LATER),
    "accounts.kept_tokens": accounts.kept_tokens,
    "accounts.last_noted_poll": accounts.last_noted_poll,
    "accounts.note_group": lambda tx: accounts.note_group(tx, [FINGERPRINT], "besiktas, kadikoy"),
    "accounts.overview": lambda tx: accounts.overview(tx, [FINGERPRINT]),
    "accounts.Vault.save": lambda tx: vault().save(tx, Token("token", NOW, LATER)),
    "orders.insert_new": lambda tx: orders.insert_new(tx, "kadikoy", [arrival(), arrival(OTHER)], NOW),
    "orders.stored": lambda tx: orders.stored(tx, [KEY, OTHER]),
    "orders.hold": lambda tx: orders.hold(tx, [KEY, OTHER]),
    "orders.payloads": lambda tx: orders.payloads(tx, [KEY, OTHER]),
    "orders.with_unresolved_rows": lambda tx: orders.with_unresolved_rows(tx, [KEY, OTHER]),
    "locks.lock_orders": lambda tx: locks.lock_orders(tx, [KEY]),
    "orders.update_delivered": lambda tx: orders.update_delivered(tx, known(tx), arrival(status_id=2), CHANGE, LATER),
    "orders.update_least": lambda tx: orders.update_least(tx, known(tx), arrival(status_id=2), CHANGE, LATER),
    "orders.set_status": lambda tx: orders.set_status(tx, [became(known(tx), 16)], LATER),
    "orders.doubt_status": lambda tx: orders.doubt_status(tx, [(KEY, "status_doubtful")]),
    "orders.adopt": lambda tx: orders.adopt(tx, KEY, "kadikoy"),
    "orders.mark_acknowledged": lambda tx: orders.mark_acknowledged(tx, [(KEY, 1, "RECEIVED", NOW)]),
    "orders.append_events": lambda tx: orders.append_events(tx, NOW, [(KEY, "x", 1, "RECEIVED", None)]),
    "orders.counts": orders.counts,
    "actions.add": lambda tx: actions.add(tx, action="accept", payment_key=KEY, preparing_time=25),
    "actions.add_once": lambda tx: actions.add_once(tx, "auto", action="complete", payment_key=KEY),
    "unfinished.read_unfinished": unfinished.read_unfinished,
    "unfinished.read_unfinished, on the wire": lambda tx: unfinished.read_unfinished(tx, sending_only=True),
    "actions.start": lambda tx: actions.start(tx, [(row(tx), 1)], NOW),
    "unfinished.unfinished_attempts": unfinished.unfinished_attempts,
    "actions.record": lambda tx: actions.record(tx, [(1, 1, ATTEMPT)], NOW),
    "unfinished.histories": lambda tx: unfinished.histories(tx, [1, 2]),
    "unfinished.as_delivered": lambda tx: unfinished.as_delivered(
        tx, [row(tx), replace(row(tx), action=Action.OPEN_RESTAURANT, payment_key=None, restaurant_id=RESTAURANT)]
    ),
    "actions.forget_attempts": lambda tx: actions.forget_attempts(tx, [(1, 9)]),
    "actions.postpone": lambda tx: actions.postpone(
        tx, [(1, actions.Wait(ActionState.PENDING, NOW, None, 500, None, 1))]
    ),
    "unfinished.newest": lambda tx: unfinished.newest(tx, unfinished.ServerClock(), NOW),
    "unfinished.unfinished_of": lambda tx: unfinished.unfinished_of(tx, [KEY, OTHER]),
    "unfinished.above": lambda tx: unfinished.above(tx, 0, unfinished.ServerClock(), NOW),
    "unfinished.these": lambda tx: unfinished.these(tx, [1, 2], unfinished.ServerClock(), NOW),
    "unfinished.asked_back": lambda tx: unfinished.asked_back(tx, unfinished.ServerClock(), NOW),
    "unfinished.claim": lambda tx: unfinished.claim(tx, [1, 2], unfinished.ServerClock(), NOW),
    "actions.explain": lambda tx: actions.explain(tx, [1], "unreachable", "Biraz bekleyin."),
    "actions.ask_back": lambda tx: actions.ask_back(tx, 1),
    "actions.finish": lambda tx: actions.finish(tx, [(1, actions.End(Verdict(ActionState.FAILED), "text", 1))], NOW),
    "actions.retry": lambda tx: actions.retry(tx, 1, LATER),
    "actions.ends": lambda tx: actions.ends(tx, [KEY, OTHER]),
    "orders.has_news_since": lambda tx: orders.has_news_since(tx, KEY, NOW),
    "quarantine.read": lambda tx: quarantine.read(tx, 1),
    "quarantine.blank_old": lambda tx: quarantine.blank_old(tx, NOW, LATER),
    "books.begin": lambda tx: books.begin(tx, "a"),
    "books.stands": lambda tx: books.stands(tx, NOW, None),
    "books.last_known": books.last_known,
    "books.unknown": lambda tx: books.unknown(tx, [KEY, OTHER]),
    "books.note_older": lambda tx: books.note_older(tx, books.Older(NOW, NOW, 1, "1-2")),
    "books.older": books.older,
    "books.settle": books.settle,
    "books.doubt_rows": lambda tx: books.doubt_rows(tx, NOW, NOW, "x"),
    "quarantine.keep": lambda tx: quarantine.keep(tx, "kadikoy", DOCUMENT, "not_json", NOW),
    "quarantine.unresolved": quarantine.unresolved,
    "quarantine.resolve": lambda tx: quarantine.resolve(tx, "kadikoy", [KEY, OTHER], NOW),
    "reference.replace_restaurants": lambda tx: (
        reference.replace_restaurants(tx, "kadikoy", [Restaurant(KEY, "x"), Restaurant(RESTAURANT, "y")]),
        reference.replace_restaurants(tx, "kadikoy", [Restaurant(RESTAURANT, "z")]),
    ),
    "reference.set_restaurant_status": lambda tx: reference.set_restaurant_status(
        tx, "kadikoy", RESTAURANT, "Open", NOW
    ),
    "reference.restaurant_accounts": reference.restaurant_accounts,
    "reference.restaurants_of": lambda tx: reference.restaurants_of(tx, "kadikoy"),
    "reference.replace_cancel_reasons": lambda tx: reference.replace_cancel_reasons(tx, [CancelReason(1, "x")]),
    "reference.replace_variables": lambda tx: reference.replace_variables(
        tx, Variables((Method("CASH", "Nakit"),), (Method("delivery", "Paket"),))
    ),
    "reference.payment_codes": reference.payment_codes,
    "accounts.adopt_orphans": lambda tx: accounts.adopt_orphans(tx, ["besiktas"]),
    "silence.to_count": lambda tx: silence.to_count(tx, "2027-01-01 00:00:00"),
    "silence.count_from_here": lambda tx: silence.count_from_here(tx, [KEY], local_now="2027-01-01 00:00:00"),
    "silence.silent": lambda tx: silence.silent(tx, timedelta(0), "2027-01-01 00:00:00"),
    "silence.end_silent": lambda tx: silence.end_silent(
        tx, [KEY], now=NOW + DAY, silence=timedelta(0), local_now="2027-01-01 00:00:00"
    ),
    "health.polling": lambda tx: health.polling(tx, [FINGERPRINT]),
    "health.there": lambda tx: health.there(tx, NOW, new=NOW, unacknowledged=NOW, unseen=NOW),
    "health.received": lambda tx: health.received(tx, NOW),
    "health.newest_answers": lambda tx: health.newest_answers(tx, [KEY]),
    "health.not_taken_over": lambda tx: health.not_taken_over(tx, NOW),
    "health.unseen_cancellations": lambda tx: health.unseen_cancellations(tx, NOW, NOW),
    "health.outdated": lambda tx: health.outdated(tx, NOW),
    "health.unknown_outcomes": health_of_unknown,
    "health.quarantined": health.quarantined,
    "health.unacknowledged": lambda tx: health.unacknowledged(tx, NOW, NOW),
    "problems.rewrite": lambda tx: problems.rewrite(tx, [("unreachable", "kadikoy")], [PROBLEM]),
    "problems.written": problems.written,
    "problems.of_codes": lambda tx: problems.of_codes(tx, ["clock_wrong", "database_full"]),
    "problems.sign": lambda tx: problems.sign(tx, timedelta(seconds=90), "Kimse sorgulamıyor.", "Başlatın."),
    "problems.shown": problems.shown,
    "problems.as_subject": lambda _: problems.as_subject("kadikoy"),
    "retention.with_old_contents": lambda tx: retention.with_old_contents(tx, NOW + 2 * DAY),
    "retention.blank_old": lambda tx: retention.blank_old(tx, [KEY], before=NOW + 2 * DAY),
    "retention.blank_around": lambda tx: retention.blank_around(tx, [KEY, OTHER]),
    "retention.blank_order": lambda tx: retention.blank_order(tx, KEY),
    "retention.believed": lambda tx: retention.believed(tx, NOW, ZoneInfo("Europe/Istanbul")),
    "retention.old_orders": lambda tx: retention.old_orders(tx, NOW + 2 * DAY),
    "retention.delete_orders": lambda tx: retention.delete_orders(tx, [KEY, OTHER], before=NOW + 2 * DAY),
    "retention.old_actions": lambda tx: retention.old_actions(tx, NOW + 2 * DAY),
    "retention.delete_actions": lambda tx: retention.delete_actions(tx, [1, 2], before=NOW + 2 * DAY),
    "retention.delete_documents": lambda tx: retention.delete_documents(tx, NOW + 2 * DAY),
}


def functions() -> set[str]:
    """The functions of the store that take a connection."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (accounts, actions, books, orders, quarantine, reference, retention, unfinished)
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and getattr(thing, "__module__", "") == module.__name__
        and next(iter(getattr(thing, "__annotations__", {})), "") == "connection"
    }


def compiled(statement: Executable, columns: list[str] | None) -> str:
    whole = {"render_postcompile": isinstance(statement, Select)}
    text = str(statement.compile(dialect=mssql.dialect(), column_keys=columns, compile_kwargs=whole))
    text = re.sub(r"__\[POSTCOMPILE_(\w+)\]", r"%(\1_1)s", text)  # as many as there are values
    return re.sub(r"\s+\n", "\n", text).strip()


def statements(database: Database) -> str:
    """Each function of the store, with what it would send to SQL Server."""
    sent: list[str] = []

    def note(_: Any, statement: Any, many: list[dict[str, Any]], one: dict[str, Any], __: Any) -> None:
        if isinstance(statement, Executable):
            columns = list(many[0] if many else one)
            if isinstance(statement, Select):
                statement = statement.params(one)  # how many values an IN has
            if (text := compiled(statement, columns or None)) not in sent:
                sent.append(text)

    event.listen(database.engine, "before_execute", note)
    parts = []
    try:
        for name, work in WORK.items():
            sent.clear()
            database.write_now(work)
            parts.append("\n".join([f"-- {name}", *(f"{text};" for text in sent)]))
    finally:
        event.remove(database.engine, "before_execute", note)
    return "\n\n".join(parts) + "\n"


def same_as_kept(name: str, text: str) -> None:
    kept = FILES / name
    if os.environ.get("ORDERBRIDGE_TEST_REWRITE"):
        kept.write_text(text, "utf-8")
    assert text == kept.read_text("utf-8")


@only(SQLITE)
def test_every_statement_is_the_one_that_is_kept(database):
    same_as_kept("statements.sql", statements(database))


def test_the_ddl_is_the_one_that_is_kept():
    same_as_kept("schema.sql", schema.offline_sql("mssql+pymssql://pos@db.example/pos"))


def test_the_grants_are_the_ones_that_are_kept():
    same_as_kept("grants.sql", "\n".join(grants.statements("mssql", "pos", None)) + "\n")


def test_every_function_of_the_store_is_among_them():
    assert functions() - {name.partition(",")[0] for name in WORK} == set()


@pytest.mark.parametrize("word", ["NTEXT", "SKIP LOCKED", "ON CONFLICT", "RETURNING", "LIMIT ", "GLOB", "typeof"])
def test_nothing_of_another_dialect_is_left(word):
    found = [file.name for file in FILES.iterdir() if word in file.read_text("utf-8")]
    assert found == []


def test_no_filtered_index_compares_two_columns():
    lines = (FILES / "schema.sql").read_text("utf-8").splitlines()
    filters = [line.partition(" WHERE ")[2] for line in lines if line.startswith("CREATE INDEX") and " WHERE " in line]
    assert filters
    plain = re.compile(r"(\w+ ([=>] \d|= '\w+'|IS NULL|IS NOT NULL|IN \([^)]*\))( AND )?)+;?")
    assert [condition for condition in filters if not plain.fullmatch(condition)] == []
