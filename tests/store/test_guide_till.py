"""The till of the POS guide, with the statements of its page, on each database: nothing is lost or done twice."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from docs.build import GUIDES
from sqlalchemy import URL, Engine, make_url, update
from tests.databases import MARIADB, POSTGRESQL, SERVERS, only
from tests.store.samples import NOW, NOW_TEXT, Pos, Refused, Row, arrival, facts, item, key, put, rows

from orderbridge.model import ActionState
from orderbridge.store import orders, tables
from orderbridge.store.database import Database

PAGE = GUIDES["en"].read_text("utf-8")
LOOP = re.sub(r"--.*", "", re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0])
PRINTED = [" ".join(found.split()) for found in re.findall(r"(?:SELECT|INSERT INTO|UPDATE|DELETE FROM)\b[^;]*;", LOOP)]
CLOCKS = {
    kind: re.search(rf"^\| {name} \| `(.*?)` \| `(.*?)` \|$", PAGE, re.MULTILINE)
    for kind, name in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL"), ("mariadb", "MariaDB"))
}
OWN_TABLES = re.findall(r"CREATE TABLE .*?\);", re.sub(r"--.*", "", PAGE), re.DOTALL)
# The set-up of each server under its heading, with only prose between them.
COMMANDS = {
    kind.lower(): commands
    for kind, commands in re.findall(r"### (\w+)\n(?:(?!```|#)[^\n]*\n)*```sh\n(.*?)```", PAGE, re.DOTALL)
}
CLIENT = {POSTGRESQL: "psql", MARIADB: "mariadb"}
MINE = f"obs_guide_{os.getpid()}"
PRODUCTS = re.search(r"### Your products\n(.*?)\n## ", PAGE, re.DOTALL)
SHOWN = re.compile(r"```sql\n(.*?)```\n```\n(.*?)```", re.DOTALL)
FOODS = [(1001, "Mercimek Çorbası", "renamed", "Mercimek"), (1002, "Ezogelin Çorbası", "new", None)]
FOODS += [(1003, "Yayla Çorbası", "gone", None), (1004, "Tarhana", "gone", None), (1005, "Ayran", "new", None)]


def sql(*words: str) -> str:
    """The statement of the loop that contains these words."""
    (found,) = (one for one in PRINTED if all(word in one for word in words))
    return found.rstrip(";")


SQL = {
    "new": sql("FROM delivery_new_orders"), "take_over": sql("pos_reference = :reference"),
    "lines": sql("FROM delivery_order_items "), "options": sql("FROM delivery_order_item_options "),
    "ticket": sql("INSERT INTO till_papers"), "changed": sql("FROM delivery_changed_orders"),
    "note": sql("pos_revision < :revision"), "last_paper": sql("SELECT kind, revision"),
    "papers": sql("SELECT till_papers.*"), "papers_left": sql("SELECT count(*) FROM till_papers"),
    "needless": sql("DELETE FROM till_papers"), "may_be_out": sql("paper = 'begun'", "paper = 'out'"),
    "begun": sql("tries = tries + 1"), "out": sql("SET paper = 'out'", "kind = :kind"),
    "last_asked": sql("SELECT request_id, state"), "tries": sql("SELECT count(*) FROM delivery_actions"),
    "last_switch": sql("SELECT action, state"),
    "ask": sql("INSERT INTO delivery_actions", "payment_key"), "switch": sql("INSERT INTO delivery_actions", "food_id"),
    "asked": sql("INSERT INTO till_asked"), "verdicts": sql("FROM till_asked JOIN"),
    "seen": sql("DELETE FROM till_asked"), "unanswered": sql("needs_answer_since IS NOT NULL"),
    "open": sql("FROM delivery_open_orders", "ORDER BY received_utc"), "lamp": sql("FROM delivery_lamp"),
    "waiting": sql("SELECT payment_key, action, error_text"),
    "forget": sql("payload IS NULL"),
}  # fmt: skip

OVER = {"revision": 2, "last_change": "cancelled", "ended_utc": NOW, "ended_by": "cancelled"}


class PowerCut(Exception):
    """The program was killed."""


class Till:
    """The program of the guide. `paper`: what was printed, which survives the program."""

    def __init__(self, pos: Pos, name: str = "K1", *, accepts: bool = True, paper: list[str] | None = None) -> None:
        self.pos, self.name, self.accepts = pos, name, accepts
        self.paper = [] if paper is None else paper
        self.seen: list[tuple[str, str]] = []
        self.refused: list[str] = []
        self.printer_dies = False

    def do(self, statement: str, **values: object) -> Any:
        now, age = CLOCKS[self.pos.kind].groups()  # type: ignore[union-attr]
        statement = re.sub(r"AGE\((\w+)\)", lambda found: age.replace("column", found[1]), statement)
        statement = re.sub(r"\bNOW\b", lambda _: now, statement).replace("K1-", f"{self.name}-")
        names = re.findall(r"(?<!:):(\w+)", statement)
        given = values | {"till": self.name}
        return self.pos.execute(re.sub(r"(?<!:):\w+", "?", statement), [given[name] for name in names])

    def all(self, statement: str, **values: object) -> list[Row]:
        cursor = self.do(statement, **values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def one(self, statement: str, **values: object) -> Row | None:
        found = self.all(statement, **values)
        return found[0] if found else None

    def round(self) -> None:
        self.take_over()
        self.changes()
        self.print_papers()
        self.verdicts()

    def take_over(self, found: list[Row] | None = None) -> None:
        """Take orders over. `found`: the rows as read before another program took them over."""
        for order in self.all(SQL["new"]) if found is None else found:
            self.pos.execute("BEGIN IMMEDIATE")
            order |= {"reference": f"{self.name}-{order['order_number']}"}
            try:
                if self.do(SQL["take_over"], **order).rowcount == 1:
                    if self.accepts and self.at_once(order):
                        self.ask("accept", order, preparing_time=25)
                    self.ticket(order, "NEW")
                    self.pos.execute("COMMIT")
                    continue
            except Refused:
                self.refused.append(order["payment_key"])
            self.pos.execute("ROLLBACK")

    def at_once(self, order: Row) -> bool:
        codes = (order["problem"] or "").split(",") if order["problem"] else []
        soon = order["status"] == "RECEIVED" and order["scheduled_for"] is None
        return soon and order["age"] <= 600 and all(code.startswith("total_mismatch") for code in codes)

    def ticket(self, order: Row, kind: str) -> None:
        names = [line["name"] for line in self.all(SQL["lines"], **order)]
        names += [choice["option_name"] for choice in self.all(SQL["options"], **order)]
        text = f"{kind} {order.get('reference') or order['pos_reference']}: {', '.join(names)}"
        self.do(SQL["ticket"], **order | {"kind": kind, "text": text})

    def changes(self, found: list[Row] | None = None) -> None:
        for order in self.all(SQL["changed"]) if found is None else found:
            self.pos.execute("BEGIN IMMEDIATE")
            if self.do(SQL["note"], **order).rowcount != 1:
                self.pos.execute("ROLLBACK")
                continue
            if order["ended_utc"] is not None:
                self.do(SQL["needless"], **order)
                self.do(SQL["may_be_out"], **order)
            last = self.one(SQL["last_paper"], **order)
            if order["ended_utc"] is not None:
                if order["ended_by"] == "cancelled" and last and last["kind"] in {"NEW", "CHANGED"}:
                    self.ticket(order, "STOP")
            elif not last or last["kind"] == "STOP" or order["contents_revision"] > last["revision"]:
                self.ticket(order, "CHANGED")
            self.pos.execute("COMMIT")

    def print_papers(self, found: list[Row] | None = None) -> None:
        for one in self.all(SQL["papers"]) if found is None else found:
            if self.do(SQL["begun"], **one).rowcount != 1:
                continue
            head = "PERHAPS A SECOND COPY " if one["tries"] else ""
            self.paper.append(head + one["ticket"])
            if self.printer_dies:
                raise PowerCut
            self.do(SQL["out"], **one)

    def ask(self, action: str, order: Row, **arguments: int) -> Row | None:
        asked = {"preparing_time": None, "reason_id": None} | arguments
        asked |= {"action": action, "payment_key": order["payment_key"]}
        last = self.one(SQL["last_asked"], **asked)
        if last and last["state"] in {"pending", "sending", "done"}:
            return last
        (tries,) = self.do(SQL["tries"], **asked).fetchone()
        asked["request_id"] = f"{action}-{order['payment_key']}-{tries + 1}"
        self.do(SQL["ask"], **asked)
        self.do(SQL["asked"], **asked)
        return None

    def switch(self, action: str, name: str, **subject: object) -> Row | None:
        """Switch a food or a restaurant. `name`: its id for the request_id."""
        mine = "food_id = :food_id AND account = :account"
        ids = mine if "food_id" in subject else "restaurant_id = :restaurant_id AND food_id IS NULL"
        last_switch = SQL["last_switch"].replace(mine, ids)
        tries = SQL["tries"].replace("payment_key = :payment_key", ids)
        asked = {"food_id": None, "account": None, "restaurant_id": None, "action": action} | subject
        last = self.one(last_switch, **asked)
        if last and last["action"] == action and last["state"] in {"pending", "sending"}:
            return last
        (count,) = self.do(tries, **asked).fetchone()
        asked["request_id"] = f"{action}-{name}-{count + 1}"
        self.do(SQL["switch"], **asked)
        self.do(SQL["asked"], **asked)
        return None

    def verdicts(self) -> None:
        for row in self.all(SQL["verdicts"]):
            self.seen.append((row["request_id"], row["state"]))
            self.do(SQL["seen"], **row)

    def waiting(self) -> list[str]:
        """The orders whose customers wait for an answer. It also reads the rest of the screen."""
        for shown in ("lamp", "open", "waiting", "papers_left"):
            self.all(SQL[shown])
        return [order["payment_key"] for order in self.all(SQL["unanswered"])]


@pytest.fixture
def till(pos: Pos) -> Iterator[Till]:
    for statement in OWN_TABLES:
        pos.execute(statement.rstrip(";"))
    yield Till(pos)
    pos.execute("ROLLBACK") if pos.kind != "sqlite" else None
    for table in re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", PAGE):
        pos.execute(f"DROP TABLE {table}")


def a_minute_later(pos: Pos) -> None:
    pos.execute("UPDATE till_papers SET since = since - 61")


def deliver(database: Database, *numbers: int, at: datetime | None = None, **changes: Any) -> None:
    """New orders, as the daemon stores them."""
    at = at or datetime.now(UTC)
    new = []
    for number in numbers:
        known = facts(order_number=number, items=(item(name=f"Pide {number}"),), **changes.get("facts", {}))
        new.append(arrival(key(number), facts=known, problems=changes.get("problems", ())))
    database.write_now(lambda tx: orders.insert_new(tx, "kadikoy", new, at))


def change(database: Database, number: int, **values: Any) -> None:
    mine = tables.orders.c.payment_key == key(number)
    database.write_now(lambda tx: tx.execute(update(tables.orders).where(mine).values(**values)))


def end(database: Database, request_id: str, state: ActionState, code: str | None = None) -> None:
    mine = tables.actions.c.request_id == request_id
    database.write_now(lambda tx: tx.execute(update(tables.actions).where(mine).values(state=state, error_code=code)))


def test_every_statement_of_the_page_is_played():
    assert sorted(SQL.values()) == sorted(one.rstrip(";") for one in PRINTED)


def test_an_order_is_taken_over_printed_and_accepted_once_despite_any_crash(database, pos, till):
    deliver(database, 1)
    paper, found = till.paper, till.all(SQL["new"])
    till.take_over()  # and is killed before it prints
    Till(pos, "K2", paper=paper).take_over(found)
    second = Till(pos, paper=paper)
    second.printer_dies = True
    with pytest.raises(PowerCut):
        second.round()
    third = Till(pos, paper=paper)
    third.round()
    assert paper == ["NEW K1-1: Pide 1, Ayran"]  # the former program may still print
    a_minute_later(pos)
    for _ in range(2):
        third.round()
        Till(pos, "K2", paper=paper).round()
    assert paper == ["NEW K1-1: Pide 1, Ayran", "PERHAPS A SECOND COPY NEW K1-1: Pide 1, Ayran"]
    (asked,) = rows(pos, "SELECT action, payment_key, preparing_time, request_id, created_by FROM delivery_actions")
    assert (list(asked.values()), third.waiting()) == (["accept", key(1), 25, f"accept-{key(1)}-1", "K1"], [])
    end(database, asked["request_id"], ActionState.REFUSED, "refused")
    for _ in range(2):
        third.round()
    assert (third.seen, third.waiting()) == ([(f"accept-{key(1)}-1", "refused")], [key(1)])
    (order,) = third.all(SQL["open"])
    for _ in range(2):  # a person accepts it again, with a double click
        third.ask("accept", order, preparing_time=40)
    asked = rows(pos, "SELECT request_id FROM delivery_actions ORDER BY id")
    assert [row["request_id"][-2:] for row in asked] == ["-1", "-2"]


def test_a_changed_order_is_printed_again_and_an_ended_one_is_not_cooked(database, pos, till):
    deliver(database, 1, 2, 3)
    till.take_over()
    change(database, 3, **OVER)  # before it is printed
    till.print_papers()
    assert till.paper == ["NEW K1-1: Pide 1, Ayran", "NEW K1-2: Pide 2, Ayran"]
    change(database, 1, revision=2, last_change="status", status="CONFIRMED")
    change(database, 2, **OVER)
    found = till.all(SQL["changed"])  # as read by a second window of the till, which writes later
    for _ in range(2):
        till.round()
    assert till.paper[2:] == ["STOP K1-2: Pide 2, Ayran"]
    change(database, 1, revision=4, contents_revision=3, last_change="status")
    change(database, 2, revision=4, contents_revision=3, last_change="contents")
    change(database, 3, revision=3, last_change="status", ended_utc=None, ended_by=None)  # the service takes it back
    for _ in range(2):
        till.round()
    till.changes(found)
    till.print_papers()
    change(database, 2, payload=None)  # its customer's data are blanked
    till.do(SQL["forget"])
    emptied = {row["payment_key"]: row["ticket"] == "" for row in rows(pos, "SELECT * FROM till_papers")}
    assert emptied == {key(1): False, key(2): True, key(3): False}
    assert sorted(till.paper[3:]) == ["CHANGED K1-1: Pide 1, Ayran", "CHANGED K1-3: Pide 3, Ayran"]
    assert rows(pos, "SELECT * FROM delivery_changed_orders") == []


def test_what_a_person_must_judge_waits_and_what_cannot_be_taken_over_harms_no_other(database, pos, till):
    deliver(database, 1, facts={"scheduled_for": "2026-03-01 19:00:00"})
    deliver(database, 2, problems=("not_a_number:total",))
    deliver(database, 3, problems=("total_mismatch:line_1", "total_mismatch:total"))
    deliver(database, 4, at=datetime.now(UTC) - timedelta(minutes=11))
    deliver(database, 5)
    till.do(SQL["ticket"], payment_key=key(5), revision=1, kind="NEW", text="a fault of the program")
    till.take_over()
    assert till.refused == [key(5)]
    assert [order["payment_key"] for order in rows(pos, "SELECT payment_key FROM delivery_new_orders")] == [key(5)]
    assert [row["payment_key"] for row in rows(pos, "SELECT payment_key FROM delivery_actions")] == [key(3)]
    assert sorted(till.waiting()) == [key(1), key(2), key(4)]


def test_two_loops_that_print_at_once_print_each_paper_once(database, pos, till):
    """Both have read all tickets before either begins one: two programs, or a loop that survived a killed till."""
    deliver(database, *range(1, 21))
    till.take_over()
    for again in (False, True):
        if again:
            a_minute_later(pos)
            pos.execute("UPDATE till_papers SET paper = 'begun'")
        for found in [till.all(SQL["papers"]) for _ in range(2)]:
            till.print_papers(found)
    assert len(set(till.paper[:20])) == 20
    assert [paper.startswith("PERHAPS A SECOND COPY NEW") for paper in till.paper] == [False] * 20 + [True] * 20


def test_a_ticket_that_may_be_printed_gets_a_stop_slip_and_a_waiting_one_is_dropped(database, pos, till):
    deliver(database, 1, 2)
    till.take_over()
    till.printer_dies = True
    with pytest.raises(PowerCut):
        till.print_papers()
    for number in (1, 2):
        change(database, number, **OVER)
    later = Till(pos, paper=till.paper)
    a_minute_later(pos)
    later.print_papers()  # if printing runs before CHANGES, no ended order is printed or forgotten
    assert till.paper == ["NEW K1-1: Pide 1, Ayran"]
    later.round()
    assert till.paper[1:] == ["STOP K1-1: Pide 1, Ayran"]


def test_another_till_takes_over_the_tickets_of_a_dead_one_after_a_minute(database, pos, till):
    deliver(database, 1, 2)
    till.take_over()  # and is killed
    living = Till(pos, "K2")
    living.round()
    assert living.paper == []
    a_minute_later(pos)
    living.round()
    assert living.paper == ["NEW K1-1: Pide 1, Ayran", "NEW K1-2: Pide 2, Ayran"]
    till.round()  # it still runs
    assert till.paper == []
    now = datetime.now(UTC)
    change(database, 1, changed_utc=now, **OVER | {"ended_utc": now})
    living.round()
    assert len(living.paper) == 2
    change(database, 1, changed_utc=now - timedelta(seconds=90))
    living.round()
    assert living.paper[2:] == ["STOP K1-1: Pide 1, Ayran"]


def test_a_stopped_tills_unanswered_order_rings_at_the_others_after_a_minute(database, pos, till):
    minute_ago = datetime.now(UTC) - timedelta(seconds=65)
    deliver(database, 1)
    deliver(database, 2, at=minute_ago)
    till.accepts = False
    till.take_over()  # and stops
    deliver(database, 3, at=minute_ago)  # not taken over: an accept would bring no ticket
    assert (Till(pos, "K2").waiting(), sorted(till.waiting())) == ([key(2)], [key(1), key(2)])


def test_a_double_click_switches_a_food_or_a_restaurant_once(database, pos, till):
    restaurant = "11111111-1111-4111-8111-111111111111"
    for state in (ActionState.DONE, ActionState.PENDING):
        for _ in range(2):
            till.switch("deactivate_food", "kadikoy-1005", food_id=1005, account="kadikoy")
            till.switch("close_restaurant", restaurant, restaurant_id=restaurant)
        number = 1 if state is ActionState.DONE else 2
        end(database, f"deactivate_food-kadikoy-1005-{number}", state)
        end(database, f"close_restaurant-{restaurant}-{number}", state)
    till.switch("activate_food", "kadikoy-1005", food_id=1005, account="kadikoy")
    asked = [row["request_id"] for row in rows(pos, "SELECT request_id FROM delivery_actions ORDER BY id")]
    named = [f"deactivate_food-kadikoy-1005-{number}" for number in (1, 2)]
    closed = [f"close_restaurant-{restaurant}-{number}" for number in (1, 2)]
    assert asked == [named[0], closed[0], named[1], closed[1], "activate_food-kadikoy-1005-1"]
    till.verdicts()
    assert till.seen == [(named[0], "done"), (closed[0], "done")]


def test_a_switch_back_is_asked_though_the_first_one_still_waits(pos, till):
    for action in ("deactivate_food", "activate_food", "deactivate_food"):
        till.switch(action, "kadikoy-1005", food_id=1005, account="kadikoy")
    asked = [row["request_id"] for row in rows(pos, "SELECT request_id FROM delivery_actions ORDER BY id")]
    assert [name.rpartition("-kadikoy-1005-")[::2] for name in asked] == [
        ("deactivate_food", "1"), ("activate_food", "1"), ("deactivate_food", "2"),
    ]  # fmt: skip


def script(kind: str, server: URL) -> str:
    """The script of the page, with names of this test run, without its lines for pip, the service and the daemon."""
    lines = [line for line in COMMANDS[kind].splitlines() if not re.match(r"pip|orderbridge check", line)]
    said = "set -eu -o pipefail\n" + "\n".join(lines)
    said = re.sub(r"\b(ROLE|USER|OWNER|AUTHORIZATION|grants|TO) (bridge|till)\b", rf"\1 {MINE}_\2", said)
    said = re.sub(r"\bpos\b", MINE, said)
    said = said.replace("-U postgres", f"-q -v ON_ERROR_STOP=1 -U {server.username}")
    return said.replace("-u root", f"-u {server.username}")


def environment(server: URL, own: URL) -> dict[str, str]:
    host, port, password = str(server.host or server.query.get("host", "")), server.port, str(server.password or "")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORDERBRIDGE_")}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PGHOST": host, "PGPORT": str(port or 5432), "PGPASSWORD": password, "PGDATABASE": "postgres",
        "MYSQL_HOST": host, "MYSQL_TCP_PORT": str(port or 3306), "MYSQL_PWD": password,
        "MYSQL_UNIX_PORT": str(server.query.get("unix_socket", "")),
        "ORDERBRIDGE_DATABASE__URL": own.render_as_string(hide_password=False),
        "ORDERBRIDGE_MARKETPLACE__BASE_URL": "https://127.0.0.1:1", "ORDERBRIDGE_ACCOUNTS__0__NAME": "a",
        "ORDERBRIDGE_ACCOUNTS__0__APP_SECRET_KEY": "x", "ORDERBRIDGE_ACCOUNTS__0__REST_SECRET_KEY": "y",
    }  # fmt: skip


def remove(engine: Engine, kind: str) -> None:
    force = " WITH (FORCE)" if kind == POSTGRESQL else ""
    word = "ROLE" if kind == POSTGRESQL else "USER"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {MINE}{force}")
        for name in ("bridge", "till"):
            with suppress(Exception):  # not created, because of an earlier failure
                connection.exec_driver_sql(f"DROP {word} {MINE}_{name}")


@pytest.mark.slow
@only(*SERVERS)
def test_the_setup_statements_work_in_their_order(kind: str, database: Database, url: str, tmp_path: Path):
    if shutil.which(CLIENT[kind]) is None:
        pytest.skip(f"not installed: {CLIENT[kind]}")
    (tmp_path / "orderbridge.toml").touch(mode=0o600)
    server = make_url(url)
    said = make_url(re.findall(r'url = "(.*)"', COMMANDS[kind])[0])
    own = server.set(drivername=said.drivername, username=f"{MINE}_bridge", password=said.password, database=MINE)
    given = environment(server, own)
    try:
        run = ["bash", "-c", script(kind, server)]
        done = subprocess.run(run, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        daemon = Database(own.set(drivername=server.drivername).render_as_string(hide_password=False), inline=True)
        till_at = own.set(drivername=server.drivername, username=f"{MINE}_till", password="secret-2")
        with Pos.at(till_at.render_as_string(hide_password=False)) as pos:
            for statement in OWN_TABLES:
                pos.execute(statement.rstrip(";"))
            deliver(daemon, 1)
            till = Till(pos)
            till.round()
            assert (till.paper, till.waiting()) == (["NEW K1-1: Pide 1, Ayran"], [])
            with pytest.raises(Refused):
                pos.execute("DELETE FROM delivery_orders")
        daemon.close()
    finally:
        remove(database.engine, kind)


def test_the_statements_about_products_give_the_rows_that_are_shown(database: Database, pos: Pos):
    assert PRODUCTS is not None
    ((statements, expected),) = SHOWN.findall(PRODUCTS[1])
    *made, foods, lines = (one.strip() for one in re.sub("--.*", "", statements).split(";") if one.strip())
    menu = {"account": "kadikoy", "category": "Çorbalar", "source": "menu"}
    menu |= {"seen_utc": NOW_TEXT, "changed_utc": NOW_TEXT}
    for statement in made:
        pos.execute(statement)
    try:
        for number, name, change, old_name in FOODS:
            named = {"food_id": number, "name": name, "last_change": change, "old_name": old_name}
            put(pos, "delivery_foods", **menu, **named, gone_utc=NOW_TEXT if change == "gone" else None)
        for number in (1001, 1003, 1005):
            pos.execute("INSERT INTO till_products VALUES ('kadikoy', ?, ?)", (number, f"SOUP-{number % 10}"))
        ordered = [item(food_id=1001, name="Mercimek Çorbası"), item(food_id=1002, name="Ezogelin Çorbası", quantity=1)]
        order = arrival(key(1), facts=facts(items=tuple(ordered)))
        database.write_now(lambda tx: orders.insert_new(tx, "kadikoy", [order], NOW))
        assert text_of([*rows(pos, foods), *rows(pos, lines.replace("…", key(1)))]) == expected
    finally:  # a server's tables are those of other tests, too
        pos.execute("DROP TABLE till_products")


def text_of(found: list[Row]) -> str:
    return "".join("|".join(map(shown, row.values())) + "\n" for row in found)


def shown(value: object) -> str:
    return "" if value is None else f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
