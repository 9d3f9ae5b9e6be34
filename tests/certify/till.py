"""A till for the tests: a correct one, and eleven with one fault each. Plain DB-API, as a POS developer writes it.

    python till.py URL FOLDER FAULT watch           runs until it is ended; FAULT: none, or a key of OWN; holds_lock:3
                                                    holds it 3 s, with another :3 it reads every 3 s
    python till.py URL FOLDER FAULT VERB ARGS       its buttons: what --hands of certify is given

It accepts by itself. Everything else is done by its buttons.
"""

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LOOK_S = 0.1
CANNOT = 64


class Books:
    """The shared database: SQLite, PostgreSQL or MariaDB."""

    def __init__(self, url: str) -> None:
        kind, place = url.partition(":")[0].partition("+")[0], urlsplit(url)
        name, query = unquote(place.path.lstrip("/")), parse_qs(place.query)
        who: dict[str, Any] = {"user": place.username, "password": place.password or "", "autocommit": True}
        self.is_sqlite = kind == "sqlite"
        if self.is_sqlite:
            import sqlite3

            self._line: Any = sqlite3.connect(url.partition(":///")[2], isolation_level=None, timeout=15)
        elif kind == "postgresql":
            import psycopg

            host = query.get("host", [place.hostname])[0]
            self._line = psycopg.connect(dbname=name, host=host, port=place.port, **who)
        else:
            import pymysql

            who["charset"] = "utf8mb4"
            self._line = pymysql.connect(database=name, host=place.hostname, port=place.port or 3306, **who)

    def execute(self, statement: str, values: tuple[Any, ...]) -> Any:
        cursor = self._line.cursor()
        cursor.execute(statement if self.is_sqlite else statement.replace("?", "%s"), values)
        return cursor

    def run(self, statement: str, *values: Any) -> int:
        """Execute a statement. Returns the number of changed rows."""
        return int(self.execute(statement, values).rowcount)

    def read(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        cursor = self.execute(statement, values)
        names = [one[0] for one in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    @contextmanager
    def writing(self, *, deferred: bool = False) -> Iterator[None]:
        self.run("BEGIN IMMEDIATE" if self.is_sqlite and not deferred else "BEGIN")
        try:
            yield
        except BaseException:
            self.run("ROLLBACK")
            raise
        self.run("COMMIT")


class Till:
    def __init__(self, url: str, folder: str, fault: str) -> None:
        self.books = Books(url)
        self.fault, _, held = fault.partition(":")
        self.held_s = int(held or 10)
        self.turn_s = float(held) if held and self.fault != "holds_lock" else LOOK_S
        self.tickets = Path(folder)
        self.tickets.mkdir(exist_ok=True)
        self.waiting: list[tuple[str, str]] = []  # tickets, if its printer is slow

    # ---- what it does by itself --------------------------------------------------------------------------------------

    def watch(self) -> None:
        for _ in itertools.count():
            try:
                self.read()
            except Exception as error:  # noqa: BLE001 - the next round tries again, as tills do
                if "delivery_new_orders" not in str(error) and "locked" not in str(error):
                    sys.stderr.write(f"till: {type(error).__name__}: {error}\n")
            time.sleep(self.turn_s)

    def read(self) -> None:
        if self.fault == "never_takes_over":
            return
        for key, text in self.waiting:
            self.put_on_paper(key, text)
        self.waiting.clear()
        new = self.books.read("SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key")
        for order in new:
            with suppress(Exception) if self.fault == "deferred_begin" else nullcontext():  # locked: the next one, then
                self.take_over(order)
        if new and self.fault == "holds_lock":  # one write transaction, open while it prints
            with self.books.writing():
                self.note("pos_revision", new[0]["payment_key"])
                time.sleep(self.held_s)
        for order in self.books.read("SELECT * FROM delivery_changed_orders ORDER BY changed_utc"):
            self.follow(order)

    def take_over(self, order: dict[str, Any]) -> None:
        key, reference = order["payment_key"], f"A-{order['order_number']}"
        with self.books.writing(deferred=self.fault == "deferred_begin"):
            if self.fault == "deferred_begin":
                self.books.read("SELECT * FROM delivery_order_items WHERE payment_key = ?", key)
                time.sleep(0.06 if self.turn_s == LOOK_S else 0)  # it computes, while what it has read becomes outdated
            changed = self.books.run(
                "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?, pos_total = ?"
                " WHERE payment_key = ? AND pos_revision = 0",
                *(order["revision"], reference, order["total"], key),
            )
            if changed and order["status"] == "RECEIVED":
                self.ask("accept", key, preparing_time=25)
                if self.fault == "accepts_twice":
                    self.ask("accept", key, request_id=f"again-{key}", preparing_time=25)
            if changed and self.fault == "writes_foreign_column":
                self.books.run("UPDATE delivery_orders SET status_text = 'TAKEN' WHERE payment_key = ?", key)
            if changed and self.fault == "deletes_row":
                self.books.run("DELETE FROM delivery_order_events WHERE payment_key = ?", key)
        if changed:
            self.print(order)

    def follow(self, order: dict[str, Any]) -> None:
        key = order["payment_key"]
        if self.fault == "ignores_cancelled" and order["last_change"] == "cancelled":
            return
        if self.fault == "ignores_contents" and order["contents_revision"] > order["pos_revision"]:
            return
        if order["ended_by"] == "cancelled" and self.fault != "tells_no_kitchen":
            self.tell_kitchen(key, "STOP")
        if order["ended_utc"] is None and order["contents_revision"] > order["pos_revision"]:
            self.print(order)
        with self.books.writing():
            self.note("revision" if self.fault == "writes_newest" else str(order["revision"]), key)

    def note(self, revision: str, key: str) -> None:
        self.books.run(f"UPDATE delivery_orders SET pos_revision = {revision} WHERE payment_key = ?", key)

    def ask(self, action: str, key: str, **columns: Any) -> None:
        """Write a row. A second one with the same request_id is the same request."""
        self.insert({"action": action, "payment_key": key, "request_id": f"{action}-{key}"[:64], **columns})

    def insert(self, values: dict[str, Any]) -> None:
        if self.books.read("SELECT id FROM delivery_actions WHERE request_id = ?", values["request_id"]):
            return
        marks = ", ".join("?" * len(values))
        self.books.run(f"INSERT INTO delivery_actions ({', '.join(values)}) VALUES ({marks})", *values.values())

    def print(self, order: dict[str, Any]) -> None:
        key, lines = order["payment_key"], [f"{order['order_number']}", str(order["note"] or "")]
        if order["scheduled_for"]:
            lines.append(f"FOR {order['scheduled_for']}")
        if order["problem"]:
            lines.append(f"LOOK: {order['problem']}")
        for item in self.books.read("SELECT * FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no", key):
            lines += [f"{item['quantity']} x {item['name']}", str(item["note"] or "")]
        self.tell_kitchen(key, "\n".join(lines))

    def tell_kitchen(self, key: str, text: str) -> None:
        if self.fault == "prints_later":
            self.waiting.append((key, text))
        else:
            self.put_on_paper(key, text)

    def put_on_paper(self, key: str, text: str) -> None:
        with (self.tickets / key).open("a", encoding="utf-8") as papers:
            papers.write(f"{text}\n")

    # ---- its buttons -------------------------------------------------------------------------------------------------

    def press(self, verb: str, arguments: list[str]) -> int:
        match verb:
            case "accept":
                self.ask("accept", arguments[0], preparing_time=int(arguments[1]))
            case "cancel":
                self.ask("cancel", arguments[0], reason_id=int(arguments[1]))
            case "on_the_way" | "complete":
                self.ask(verb, arguments[0])
            case "withdraw":
                unfinished = "payment_key = ? AND state IN ('pending', 'sending')"
                self.books.run(f"UPDATE delivery_actions SET withdraw = 1 WHERE {unfinished}", arguments[0])
            case "open" | "close":
                self.insert({**once(), "action": f"{verb}_restaurant", "restaurant_id": arguments[0]})
            case "food_on" | "food_off":
                action = "activate_food" if verb == "food_on" else "deactivate_food"
                food, restaurant = arguments
                self.insert({**once(), "action": action, "food_id": int(food), "restaurant_id": restaurant})
            case "ticket":
                ticket = self.tickets / arguments[0]
                sys.stdout.write(ticket.read_text("utf-8") if ticket.exists() else "")
            case "collect":
                self.collect(arguments[0])
            case _:
                return CANNOT
        return 0

    def collect(self, key: str) -> None:
        (order,) = self.books.read("SELECT * FROM delivery_orders WHERE payment_key = ?", key)
        due = order["amount_due"]
        if self.fault == "bills_prepaid" and due == 0:
            due = order["total"]
        sys.stdout.write("ask" if due is None else f"{due:.2f}")


def once() -> dict[str, str]:
    return {"request_id": f"pressed-{time.time_ns()}"}


if __name__ == "__main__":
    till = Till(*sys.argv[1:4])
    if sys.argv[4] == "watch":
        till.watch()
    sys.exit(till.press(sys.argv[4], sys.argv[5:]))
