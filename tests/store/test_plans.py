"""With years of orders, no frequent statement reads a large table or a whole index of it."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, event
from tests import databases
from tests.databases import MARIADB, POSTGRESQL, SQLITE
from tests.store.samples import LATER, NOW, arrival, became, key
from tests.store.years import FINGERPRINT, NEW, UNFINISHED, fill, keys

from orderbridge.model import ActionState, Attempt, Change, Differs, Document, LastChange, Outcome, Verdict

from orderbridge.store import (  # isort: skip
    accounts, actions, closures, order_times, orders, problem_queries, quarantine, retention, schema, unfinished,
)  # fmt: skip
from orderbridge.store.database import Database
from orderbridge.store.dialects.mysql import NEWS
from orderbridge.store.rows import ORDER, lock

NUMBER = 8000
LARGE = "orders order_items order_item_options order_events actions action_attempts quarantine"
BIG = {f"delivery_{name}" for name in LARGE.split()}
PARTIAL = {f"delivery_orders_{name}_ix" for name in ("new", "changed", "open", "taken", "contents")}
PARTIAL |= {f"delivery_actions_{name}_ix" for name in ("unfinished", "failed", "withdraw", "planned", "subject")}
PARTIAL.add("delivery_quarantine_unresolved_ix")
SOME = list(keys(NUMBER, 5))
BORDERS = ("lately", "ahead", "new_since", "unacknowledged_since", "unseen_since", "undecided_since")
TIMES: problem_queries.Times = {**dict.fromkeys(BORDERS, NOW), "by_board": 0}
ROW_ID = NUMBER - 1
DAY = timedelta(days=1)
Work = Callable[[Connection], Any]


class Plan(NamedTuple):
    id: int = 1
    restaurant_id: str | None = None
    food_id: int | None = None
    created_utc: datetime = NOW
    finished_utc: datetime = NOW


@pytest.fixture(scope="module", params=databases.KINDS)
def years(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """The database. Changes of a test are rolled back."""
    if request.param == SQLITE:
        database = Database(f"sqlite:///{tmp_path_factory.mktemp('years')}/pos.db", inline=True)
        database.write_now(schema.upgrade)
        fill(database, NUMBER)
        yield database
        database.close()
    else:
        with databases.made(request.getfixturevalue(f"{request.param}_server"), f"obs_years_{os.getpid()}") as database:
            fill(database, NUMBER)
            yield database


def deliver(connection: Connection) -> None:
    lock(connection, ORDER, SOME)
    known = orders.stored(connection, SOME[:1])[SOME[0]]
    change = Change(True, Differs.PRINT, None, LastChange.STATUS, None)
    orders.update_delivered(connection, known, arrival(SOME[0], 2), change, LATER)
    orders.hold(connection, [known.payment_key])
    orders.set_status(connection, [became(known, 2)], LATER)
    orders.doubt_status(connection, [(known.payment_key, "status_doubtful")])
    orders.mark_acknowledged(connection, [(SOME[0], 2, "CONFIRMED", LATER)])


def claim(connection: Connection) -> None:
    (row, *_), _ = unfinished.read_unfinished(connection)
    unfinished.claim(connection, [row.id], unfinished.ServerClock(), NOW)
    actions.start(connection, [(row, 2)], NOW)
    actions.record(connection, [(row.id, 2, Attempt(Outcome.OK, None, 200))], NOW)
    actions.record(connection, [(row.id, 2, Attempt(Outcome.NOT_SENT))], NOW)
    actions.postpone(connection, [(row.id, actions.Wait(ActionState.PENDING, NOW, None, 200, None, 1))])
    actions.explain(connection, [row.id], "unreachable", None)
    actions.finish(connection, [(row.id, actions.End(Verdict(ActionState.DONE), None, 1))], NOW)
    actions.withdraw(connection, row.id)
    actions.retry(connection, row.id, NOW)


def keep(connection: Connection) -> None:
    document = Document(raw=b"{}", digest="0" * 64, payment_key=SOME[0], status_id=None, reason="not_json")
    quarantine.keep(connection, "kadikoy", document, "not_json", NOW)


def ask(query: str) -> Work:
    return lambda connection: connection.exec_driver_sql(query).all()


WORK: dict[str, Work] = {
    "the cooldown": lambda tx: accounts.reserve_poll(tx, FINGERPRINT, now=NOW, until=LATER, longest=DAY),
    "what is known of orders": lambda tx: orders.stored(tx, SOME),
    "their documents": lambda tx: orders.payloads(tx, SOME),
    "their unresolved rows": lambda tx: orders.with_unresolved_rows(tx, SOME),
    "the unresolved rows": lambda tx: unfinished.read_unfinished(tx, sending_only=True),
    "the newest waiting rows": lambda tx: unfinished.newest(tx, unfinished.ServerClock(), NOW),
    "a page of unfinished rows": lambda tx: unfinished.above(tx, 0, unfinished.ServerClock(), NOW),
    "a claimed row": lambda tx: unfinished.claim(tx, [1, ROW_ID], unfinished.ServerClock(), NOW),
    "some unfinished rows": lambda tx: unfinished.these(tx, [1, ROW_ID], unfinished.ServerClock(), NOW),
    "what was asked back": lambda tx: unfinished.withdrawn(tx, unfinished.ServerClock(), NOW),
    "their attempts": lambda tx: unfinished.histories(tx, [1, 2, ROW_ID]),
    "what was completed": lambda tx: actions.ends(tx, SOME),
    "a delivery": deliver,
    "a document in quarantine": keep,
    "orders that left quarantine": lambda tx: quarantine.resolve(tx, SOME, NOW),
    "what is in quarantine": quarantine.unresolved,
    "what is kept of an order": lambda tx: quarantine.of_order(tx, 7),
    "a claim and a verdict": claim,
    "what was on the wire": unfinished.unfinished_attempts,
    "a request that may be there": lambda tx: actions.add_once(tx, SOME[0], action="complete", payment_key=SOME[0]),
    "orders whose silence is to be counted": lambda tx: order_times.to_count(tx, NOW),
    "the beginning of the count": lambda tx: order_times.count_from_here(tx, SOME, now=NOW),
    "orders that are silent": lambda tx: order_times.silent(tx, DAY, NOW),
    "the end by silence": lambda tx: order_times.end_silent(tx, SOME, now=NOW, silence=DAY),
    "old contents": lambda tx: retention.with_old_contents(tx, NOW - 60 * DAY),
    "old contents where there are none": lambda tx: retention.with_old_contents(tx, NOW - 700 * DAY),
    "retention": lambda tx: retention.blank_old(tx, [key(NUMBER - 900)], before=NOW - 60 * DAY),
    "the counts of status": orders.counts,
    "health: whether anything is wrong": lambda tx: problem_queries.kinds(tx, TIMES),
    "health: received orders": lambda tx: problem_queries.received(tx, TIMES),
    "health: their accepts": lambda tx: problem_queries.newest_answers(tx, SOME, NOW),
    **{f"health: {kind}": partial(problem_queries.rows, kind=kind, times=TIMES) for kind in problem_queries.QUERIES},
    "health: quarantine": quarantine.counted,
    "orders of an account that has left": lambda tx: accounts.adopt_orphans(tx, ["besiktas"]),
    "new orders": ask("SELECT * FROM delivery_new_orders ORDER BY received_utc"),
    "changed orders": ask("SELECT * FROM delivery_changed_orders ORDER BY changed_utc"),
    "open orders": ask("SELECT * FROM delivery_open_orders ORDER BY changed_utc"),
    "open orders by their arrival": ask("SELECT * FROM delivery_open_orders ORDER BY received_utc"),
    "changed orders by their arrival": ask("SELECT * FROM delivery_changed_orders ORDER BY received_utc LIMIT 5"),
    "new orders of a restaurant": ask("SELECT * FROM delivery_new_orders WHERE restaurant_id = 'x'"),
    "planned ends of closures": closures.planned,
    "newer rows of a restaurant": lambda tx: closures.newer(tx, Plan(restaurant_id="x")),
    "newer rows of a food": lambda tx: closures.newer(tx, Plan(food_id=1001)),
    "closures": ask("SELECT * FROM delivery_closures"),
    "orders of the last hour": lambda tx: orders.received_lately(tx, "kadikoy", NOW, None),
    "a restaurant's orders of the last hour": lambda tx: orders.received_lately(tx, "kadikoy", NOW, "x"),
    "a row's state": ask(f"SELECT state, error_code, error_text FROM delivery_actions WHERE id = {ROW_ID}"),
    "an order taken over": lambda tx: tx.exec_driver_sql(
        f"UPDATE delivery_orders SET pos_revision = 1 WHERE payment_key = '{SOME[0]}'"
    ),
}


@contextmanager
def plans(database: Database) -> Iterator[list[tuple[str, list[str]]]]:
    """The statements that are sent meanwhile, each with the parts of its plan that scan a big table."""
    found: list[tuple[str, list[str]]] = []
    explaining = False

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, _: Any, many: bool) -> None:
        nonlocal explaining
        if explaining or not statement.startswith(("SELECT", "UPDATE", "DELETE")):
            return
        explaining = True
        try:
            values = parameters[0] if many else parameters
            found.append((statement, EXPLAIN[database.engine.dialect.name](connection, statement, values)))
        finally:
            explaining = False

    event.listen(database.engine, "before_cursor_execute", explain)
    try:
        yield found
    finally:
        event.remove(database.engine, "before_cursor_execute", explain)


def explain_sqlite(connection: Connection, statement: str, values: Any) -> list[str]:
    details = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)]
    scans = [one for one in details if one.startswith("SCAN ") and BIG & {*one.split()}]
    return [one for one in scans if not any(index in one for index in PARTIAL)]


def explain_postgresql(connection: Connection, statement: str, values: Any) -> list[str]:
    plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", values).scalar_one()
    return list(_postgresql_scans((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))


def _postgresql_scans(node: dict[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG:
        yield f"Seq Scan on {node['Relation Name']}"
    index = node.get("Index Name")
    if index and index.startswith("delivery_") and "Index Cond" not in node and index not in PARTIAL:
        yield f"the whole of {index}"
    for inner in node.get("Plans", []):
        yield from _postgresql_scans(inner)


def explain_mariadb(connection: Connection, statement: str, values: Any) -> list[str]:
    rows = connection.exec_driver_sql(f"EXPLAIN {statement}", values).mappings().all()
    return [
        f"{row['type']} on {row['table']} by {row['key']}, {row['rows']} rows"
        for row in rows
        if row["table"] in BIG
        and (row["type"] in {"ALL", "index"} or int(str(row["rows"] or 0).split()[0]) > NUMBER // 4)
    ]


EXPLAIN = {SQLITE: explain_sqlite, POSTGRESQL: explain_postgresql, "mysql": explain_mariadb, MARIADB: explain_mariadb}


@pytest.mark.parametrize("name", WORK)
def test_no_query_scans_a_big_table(name, years, monkeypatch):
    monkeypatch.setattr(retention, "SWEEP", 20)  # of these few rows, 200 are worth a scan
    with plans(years) as found, years.engine.connect() as connection, connection.begin() as transaction:
        WORK[name](connection)
        transaction.rollback()
    assert found
    assert [(statement, scans) for statement, scans in found if scans] == []


def test_the_check_finds_a_full_scan(years):
    with plans(years) as found, years.engine.begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM delivery_orders WHERE customer_name = 'x'")
        connection.exec_driver_sql("SELECT id FROM delivery_actions WHERE created_by = 'x'")
        if years.engine.dialect.name in EXPLAIN.keys() - {SQLITE, POSTGRESQL}:
            connection.exec_driver_sql(NEWS)
            assert found.pop() == (NEWS, [])
    for begins in ("SELECT count", "SELECT id"):
        assert [len(scans) for statement, scans in found if statement.startswith(begins)] == [1]
    new, waiting = years.read_now(lambda tx: (orders.counts(tx)["new"], len(unfinished.read_unfinished(tx)[0])))
    assert (new, waiting) == (NEW, UNFINISHED)
