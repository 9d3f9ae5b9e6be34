"""The people around the daemon: customers, the marketplace's panel, and the till with cooks and couriers."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.sim.plan import LOUD_SWEEP_S, Plan

from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, DEFAULT_SCENERY, KADIKOY, USKUDAR
from orderbridge_sandbox.state import Order, Scenery
from orderbridge_sandbox.world import CannotOrder

if TYPE_CHECKING:
    from tests.sim.simulation import Sim

RESTAURANTS = {
    "kadikoy": (KADIKOY,),
    "besiktas": (BESIKTAS,),
    "chain": (USKUDAR, ATASEHIR),
    "uskudar": (USKUDAR,),
    "atasehir": (ATASEHIR,),
}
FOODS = {"kadikoy": 1001, "besiktas": 1001} | dict.fromkeys(("chain", "uskudar", "atasehir"), 3001)  # on two menus
NOBODYS_KEY = "99999999-9999-4999-8999-999999999999"
ENDED = {5, 6}
OPTION = {"id": "511", "name": "Ekstra Kaşar", "price": "12,50"}
POISON: tuple[dict[str, Any], ...] = ({"payment_key": "no key"}, {"payment_key": None}, {"payment_key": 7})
STRANGE: tuple[dict[str, Any], ...] = (
    {"total": "a lot"}, {"foods": None}, {"customer": "Ayşe"}, {"discount": "%10"}, {"note": "\u0000\ud83c\udf36"},
    {"status_id": "1"}, {"status_id": 99}, {"date": None}, {"courier_type": None}, {"payment_method": "Yemek Kartı"},
    {"payment_method": "Kredi Kartı (kapıda)"}, {"payment_method": " Nakit (para üstü) "},
    {"payment_method": "Banka Kartı"}, {"payment_method": "CASH"}, {"scheduled_date": "2026-03-03 12:00:00"},
)  # fmt: skip
# Unusual documents that can still be shown: a number as text, an option as a list, and so on.
ODD: tuple[dict[str, Any], ...] = (
    {"total": "1.234,50", "courier_fee": "12,50", "order_tip": "10.00"},
    {"total": "1,234", "discount": ""},
    {"total": Decimal("12.345678"), "order_tip": 12345678901},
    {"id": "100001", "courier_fee": None}, {"id": Decimal("1.5"), "order_tip": True},
    {"restaurant_name": "Ç" * 300, "note": "n" * 300}, {"note": 5, "shipping_method": ["pickup"]},
    {"payment_method": "Kredi Kartı"}, {"payment_method": None}, {"scheduled_date": None, "address": None},
    {"address": [], "customer": {"name": "Nur Örnek", "phone": 905000001234}},
    {"scheduled_date": "2026-03-04 20:00:00"},
    {"foods": []}, {"foods": "none"}, {"foods": [{"name": "Ayran"}, 5]}, {"status_id": [1]},
    {"foods": [
        {
            "id": "55555555-5555-4555-8555-555555555555", "food_id": "1007", "name": 7, "note": None,
            "price": "12,50", "quantity": "2", "total": 25, "option_groups": [
                {"id": 51, "name": "Ekstra", "type": "multi", "operation": "+", "options": [OPTION, OPTION]},
                {"id": "52", "name": "Yanında", "type": "multi", "operation": "+", "options": None},
                {"id": 53, "name": "İçecek", "type": "single", "operation": "-", "options": []},
                7,
            ],
        },
        {"id": None, "food_id": Decimal("1.5"), "name": "Lahmacun", "price": None, "option_groups": None},
        {"food_id": 10**19, "name": "Pide", "quantity": "a lot", "option_groups": {"options": OPTION}},
    ]},
)  # fmt: skip


def scenery_for(plan: Plan) -> Scenery:
    """The sandbox's scenery. One food is on two menus. The second account also reaches a shared restaurant."""
    twice = tuple(replace(food, menu="besiktas") for food in DEFAULT_SCENERY.foods if food.menu == "kadikoy")
    scenery = replace(DEFAULT_SCENERY, foods=DEFAULT_SCENERY.foods + twice)
    if not plan.shared:
        return scenery
    also = {"besiktas": (BESIKTAS, KADIKOY)}
    accounts = (replace(one, restaurant_ids=also.get(one.name, one.restaurant_ids)) for one in scenery.accounts)
    return replace(scenery, accounts=tuple(accounts))


NEVER = "12345678-1234-4234-8234-123456789012"
# Rows that violate constraints, written on a connection that does not check them.
WRONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dance", {"food_id": 1}),
    ("dance", {"payment_key": NEVER}),
    ("accept", {"payment_key": NEVER, "preparing_time": 0}),
    ("cancel", {"payment_key": NEVER, "reason_id": 9}),
    ("on_the_way", {"payment_key": NEVER, "valid_minutes": 0}),
    ("open_restaurant", {"restaurant_id": ""}),
)


class Agenda:
    """Planned acts with their times. `hurry` runs the next one now."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._next = 0
        self._waiting: dict[int, tuple[asyncio.TimerHandle, Callable[[], object]]] = {}

    def at(self, when: float, act: Callable[[], object]) -> None:
        number, self._next = self._next, self._next + 1
        loop = asyncio.get_running_loop()
        handle = loop.call_at(max(when, loop.time()), self._do, number, context=Context())
        self._waiting[number] = (handle, act)

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self.at(self._sim.now() + seconds, act)

    def hurry(self) -> None:
        if self._waiting:
            self._do(min(self._waiting))

    def _do(self, number: int) -> None:
        handle, act = self._waiting.pop(number)
        handle.cancel()
        if self._sim.over.is_set():
            return
        try:
            act()
        except sqlite3.DatabaseError as error:
            is_mixed = "malformed" in str(error) and self._sim.restorer.is_mixed
            if "no such table" not in str(error) and not self._sim.is_dark and not is_mixed:
                raise
            self.after(1.0, act)  # there are no tables yet, the machine is off, or a person must repair the file


class Customers:
    """Customers order and cancel; the panel and couriers change orders, too."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._random = sim.plan.stream("customers")
        self._edits = sim.plan.stream("edits")
        self._agenda = Agenda(sim)

    def begin(self) -> None:
        plan = self._sim.plan
        together = self._edits.uniform(0, plan.seconds * 0.7)
        for _ in range(plan.orders):
            alone = self._random.uniform(0, plan.seconds * 0.97)
            self._agenda.at(together if self._edits.random() < plan.crowd else alone, self._order)
        for at in plan.late:
            self._agenda.at(at + 1.3 * LOUD_SWEEP_S, self._flip_some)

    def _order(self) -> None:
        sim, chance = self._sim, self._random
        restaurant = chance.choice(RESTAURANTS[chance.choice(sim.plan.accounts)])
        document: dict[str, Any] = {"scheduled_date": ""}
        odd, which = chance.random(), chance.random()
        if odd < sim.plan.poison:
            document |= POISON[int(which * len(POISON))]
        elif odd < sim.plan.poison + sim.plan.strange:
            document |= STRANGE[int(which * len(STRANGE))]
        with contextlib.suppress(CannotOrder):
            order = sim.world.place_order(restaurant_id=restaurant, document=document)
            sim.trace.note("customer", "orders", key=order.key, number=order.number)
            sim.orders_at[order.key] = sim.now()
            self._make_odd(order)
            if chance.random() < sim.plan.meddling:
                wait = chance.expovariate(1 / 300) * sim.plan.pace
                self._agenda.after(wait, lambda: self.meddle(order.key))

    def _make_odd(self, order: Order) -> None:
        chance, plan = self._edits, self._sim.plan
        if chance.random() < plan.odd:
            order.placed = order.placed | chance.choice(ODD)
            if isinstance(order.placed.get("payment_key"), str) and chance.random() < 0.2:
                order.placed = order.placed | {"payment_key": order.placed["payment_key"].upper()}
        if chance.random() < plan.edits:
            for _ in range(2):
                wait = chance.expovariate(1 / 300) * self._sim.plan.pace
                self._agenda.after(wait, lambda: self._edit(order))
            self._agenda.at(chance.uniform(self._sim.now(), self._sim.plan.seconds), lambda: self._flip(order))
        if plan.late and chance.random() < 0.2:
            order.placed = order.placed | {"scheduled_date": "2026-03-04 20:00:00"}

    def _flip_some(self) -> None:
        """Deliver an order again that ended by silence."""
        for order in list(self._sim.world.orders.values()):
            if self._edits.random() < 0.5:
                self._flip(order)

    def _flip(self, order: Order) -> None:
        """The panel changes an order and changes it back, so that it is delivered again unchanged.

        Or it reopens an ended order, or sets one back to its first status.
        """
        world, status = self._sim.world, order.status_id
        if status == 6:  # by mistake
            world.change_status(order.key, 2)
        elif status not in ENDED and len(order.history) > 1:
            world.change_status(order.key, 99)
            world.change_status(order.key, self._edits.choice((status, status, 1)))
        self._sim.trace.note("panel", "changes_back", key=order.key, status=order.status_id)

    def _edit(self, order: Order) -> None:
        """Change an order's contents. It is delivered again with its next status."""
        chance, placed = self._edits, order.placed
        foods = placed.get("foods")
        some = [food for food in foods if isinstance(food, dict)] if isinstance(foods, list) else []
        some = some or [{"name": "Ayran", "quantity": 1, "option_groups": []}]
        changes: tuple[dict[str, Any], ...] = (
            {"note": f"not {chance.randrange(100)}"},
            {"total": Decimal(chance.randrange(10000)) / 100},
            {"payment_method": chance.choice(("Nakit", "Kredi Kartı (pre-paid)", "Yemek Kartı"))},
            {"foods": some[1:]},
            {"foods": [*some, some[0]]},
            {"foods": [some[0] | {"option_groups": [], "quantity": 7}, *some[1:]]},
            {"customer": {"name": "Elif Numune", "phone": f"+90500000{chance.randrange(10_000):04d}"}},
            {"scheduled_date": "2026-03-02 13:00:00"},
            {"a_new_field": chance.randrange(100)},
        )
        order.placed = placed | chance.choice(changes)
        self._sim.trace.note("customer", "edits", key=order.key)

    def meddle(self, key: str) -> None:
        world = self._sim.world
        order = world.orders.get(key)
        if order is None or order.status_id in ENDED:
            return
        if self._edits.random() < self._sim.plan.edits:
            self._edit(order)
        status = self._random.choice((6, 6, 6, 2, 2, 16, 5, 7, 99))
        if status == 6:
            world.cancel_by_customer(key)
        else:
            world.change_status(key, status)
        self._sim.trace.note("panel", "changes", key=key, status=status)


class Till:
    """A POS with its own connection: it takes orders over, and writes what kitchen and couriers do into the outbox."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._random = sim.plan.stream("till")
        self._agenda = Agenda(sim)
        self.hurry = self._agenda.hurry
        self._looking = False
        self._connection: sqlite3.Connection | None = None
        self.locked_until = 0.0
        self.written: dict[int, float] = {}  # by row: when it was committed
        self.taken_over: dict[str, tuple[int, str | None]] = {}  # by order: pos_revision and pos_reference
        self._uncommitted_orders: dict[str, tuple[int, str | None]] = {}
        self.withdrawn: dict[int, float] = {}  # by row: when it was withdrawn
        self.wrong: set[int] = set()  # rows that violate constraints
        self._uncommitted: list[int] = []
        self._twice = count()  # several may be written at one moment

    def begin(self) -> None:
        plan, chance = self._sim.plan, self._random
        if plan.scripted:
            return
        toggles, blunders = max(2, plan.orders // 15), max(2, plan.orders // 20)
        for act in [self.lock] * plan.locks + [self._toggle] * toggles + [self._blunder] * blunders:
            self._agenda.at(chance.uniform(0, plan.seconds), act)
        for span in plan.hangs:
            others = [(name, 0, chance.uniform(3, 20)) for name in sorted(set(plan.accounts) - {span.what})]
            for name, number, after in (*((span.what, number, number % 2) for number in range(6)), *others):
                about = {"food_id": FOODS[name] + number, "restaurant_id": RESTAURANTS[name][0]}
                self._agenda.at(span.start + after, partial(self.act, "activate_food", **about))

    @property
    def connection(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._sim.is_dark:
                raise sqlite3.OperationalError("the power has failed")
            self._connection = sqlite3.connect(self._sim.path, isolation_level=None, timeout=0)
            self._connection.row_factory = sqlite3.Row
            self._sim.prepare(self._connection)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def lose_power(self) -> None:
        self.close()
        self._connection, self.locked_until = None, 0.0
        self._uncommitted, self._uncommitted_orders = [], {}

    def notice(self) -> None:
        """The daemon has committed: read soon."""
        if not self._looking:
            self._looking = True
            self._agenda.after(self._random.uniform(0.1, 4.0), self._look)

    def _look(self) -> None:
        self._looking = False
        try:
            new = self.connection.execute("SELECT * FROM delivery_new_orders ORDER BY received_utc").fetchall()
            changed = self.connection.execute("SELECT * FROM delivery_changed_orders").fetchall()
        except sqlite3.OperationalError:  # the tables are not there yet
            return
        if self._sim.plan.silence_hours < 1:  # what a till does not take over never ends by silence
            new = [row for row in new if (row["order_number"] or 0) % 8 != 1]
        for row in [*new, *changed]:
            self._take_over(row["payment_key"], row["revision"])
        for row in new if not self._sim.plan.scripted else ():
            self._cook(row["payment_key"], row["status_id"])

    def _take_over(self, key: str, revision: int) -> None:
        own = f"A-{key[:4]}"
        try:
            self.connection.execute(
                "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?",
                (revision, own, key),
            )
            noted = self._uncommitted_orders if self.connection.in_transaction else self.taken_over
            noted[key] = (revision, own)
            self._sim.trace.note("till", "takes_over", about=key, revision=revision)
        except sqlite3.OperationalError:
            self.notice()

    def _cook(self, key: str, status: int | None) -> None:
        chance, pace = self._random, self._sim.plan.pace
        kind = chance.random()
        accept = chance.uniform(2, 120) * pace
        leave = accept + chance.uniform(120, 1200) * pace
        arrive = leave + chance.uniform(120, 1500) * pace
        if 0.92 <= kind < 0.94:
            self._agenda.after(accept, lambda: self.act("complete", payment_key=key, valid_minutes=1))
            self._agenda.after(accept + chance.uniform(50, 90), lambda: self.act("cancel", payment_key=key))
            return
        ways = (
            (0.66, ((accept, "accept"), (leave, "on_the_way"), (arrive, "complete"))),
            (0.74, ((accept, "accept"), (accept, "on_the_way"), (accept, "complete"))),
            (0.82, ((accept, "accept"), (leave, "cancel"))),
            (0.86, ((accept, "accept"), (accept, "cancel"))),
            (0.89, ((accept, "cancel"),)),
            (0.92, ((accept, "complete"), (leave, "on_the_way"), (arrive, "accept"))),
            (0.97, ((accept, "accept"), (accept + 1, "accept"), (accept + 2, "withdraw"))),
        )
        for wait, action in next((steps for share, steps in ways if kind < share), ()):
            self._agenda.after(wait, lambda action=action: self.act(action, payment_key=key))

    def act(self, action: str, **columns: object) -> None:
        if action == "withdraw":
            self.withdraw("payment_key = :payment_key", columns)
            return
        values = {"action": action} | columns
        if action == "accept":
            values.setdefault("preparing_time", self._random.randint(1, 90))
        if action == "cancel":
            values.setdefault("reason_id", self._random.randint(1, 8))
        if self._random.random() < 0.1:
            values.setdefault("valid_minutes", 1)
        row = self.insert(values)
        if row is not None:
            self._think_again(action, row, columns)

    def insert(self, values: dict[str, object]) -> int | None:
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        row = self._write(f"INSERT INTO delivery_actions ({names}) VALUES ({marks})", values)
        action, about, *_ = values.values()
        self._sim.trace.note("till", str(action), row=row, about=about)
        return row

    def _think_again(self, action: str, row: int, columns: dict[str, object]) -> None:
        """Withdraw the row or cancel its order later, while it may be waiting for its next try."""
        chance = self._random
        what, wait = chance.random(), chance.uniform(0, 40)
        if what < 0.06:
            self._agenda.after(wait, lambda: self.withdraw("id = :id", {"id": row}))
        elif what < 0.12 and action in {"accept", "on_the_way"} and "preparing_time" not in columns:
            self._agenda.after(wait, lambda: self.act("cancel", payment_key=columns["payment_key"]))

    def think_better(self) -> None:
        if self.connection.in_transaction:
            return
        waiting = "SELECT id FROM delivery_actions WHERE state = 'pending' AND withdraw = 0"
        with contextlib.suppress(sqlite3.OperationalError):  # there are no tables yet, or the file is locked
            if rows := [row["id"] for row in self.connection.execute(waiting)]:
                self.withdraw("id = :id", {"id": self._random.choice(rows)})

    def withdraw(self, which: str, values: dict[str, object]) -> None:
        asked = f"SELECT id FROM delivery_actions WHERE {which} AND withdraw = 0 AND state IN ('pending', 'sending')"
        rows = [row["id"] for row in self.connection.execute(asked, values)]
        try:
            self._write(f"UPDATE delivery_actions SET withdraw = 1 WHERE {which}", values)
        except sqlite3.IntegrityError:  # the POS's own trigger refuses that, too
            return
        self._sim.trace.note("till", "withdraw", rows=rows or None)
        if self.connection.in_transaction:
            return
        for row in rows:
            self.withdrawn.setdefault(row, self._sim.now())
        self._sim.woken()

    def _write(self, sql: str, values: dict[str, object]) -> int | None:
        written = self.connection.execute(sql, values)
        if not sql.startswith("INSERT"):
            return None
        row = int(written.lastrowid or 0)
        if self.connection.in_transaction:
            self._uncommitted.append(row)
        else:
            self._committed([row])
        return row

    def _committed(self, rows: list[int]) -> None:
        self.written |= dict.fromkeys(rows, self._sim.now())
        self._sim.woken()

    def _toggle(self) -> None:
        chance = self._random
        account = chance.choice(self._sim.plan.accounts)
        restaurant = chance.choice(RESTAURANTS[account])
        times = chance.choice((1, 1, 2, 3))
        if chance.random() < 0.5:
            # Closed for a while only, so that orders continue.
            self.act("close_restaurant", restaurant_id=restaurant)
            for _ in range(times):
                self._agenda.after(chance.uniform(0, 60), lambda: self.act("open_restaurant", restaurant_id=restaurant))
            return
        for _ in range(times):
            action = chance.choice(("activate_food", "deactivate_food"))
            self.act(action, food_id=FOODS[account], restaurant_id=restaurant)

    def _blunder(self) -> None:
        """Write rows that can never succeed; one violates a constraint."""
        first = self._sim.plan.accounts[0]
        match self._random.randrange(7):
            case 0:
                self.act("accept", payment_key=NOBODYS_KEY)
            case 1:
                self.act("deactivate_food", food_id=5, restaurant_id=RESTAURANTS[first][0])
            case 2:
                self.act("open_restaurant", restaurant_id=NOBODYS_KEY)
            case 3:  # with the same request_id, as a POS does that lost the answer
                columns = {"restaurant_id": RESTAURANTS[first][0], "request_id": f"r-{next(self._twice)}"}
                self.act("open_restaurant", **columns)
                with contextlib.suppress(sqlite3.IntegrityError):
                    self.act("open_restaurant", **columns)
                    self._sim.violated("6", "two rows with one request_id")
            case 4:
                self.act("activate_food", food_id=FOODS[first], account="nobody")
            case _:
                action, columns = self._random.choice(WRONG)
                self.connection.execute("PRAGMA ignore_check_constraints = ON")
                self.act(action, **columns)
                self.wrong.add(int(self.connection.execute("SELECT max(id) FROM delivery_actions").fetchone()[0]))
                self.connection.execute("PRAGMA ignore_check_constraints = OFF")

    def left_alone(self, seconds: float) -> None:
        """The till continues to work while the daemon is down for this time."""
        chance = self._random
        try:
            rows = self.connection.execute("SELECT payment_key FROM delivery_open_orders ORDER BY received_utc DESC")
            keys = [row["payment_key"] for row in rows.fetchmany(4)]
        except sqlite3.OperationalError:  # the tables are not there yet
            return
        for key in keys:
            for action in ("accept", "on_the_way", "complete"):
                self._agenda.after(chance.uniform(0, seconds), lambda a=action, k=key: self.act(a, payment_key=k))
        self._agenda.after(chance.uniform(0, seconds), self._toggle)

    def lock(self, seconds: float = 0.0) -> None:
        """The till leaves a transaction open, so that no other program can write."""
        if self.connection.in_transaction:
            return
        with contextlib.suppress(sqlite3.OperationalError):
            self.connection.execute("BEGIN IMMEDIATE")
            seconds = seconds or self._random.choice((0.3, 2.0, 8.0, 20.0))
            self.locked_until = self._sim.now() + seconds
            self._sim.trace.fault("till_locks", seconds=seconds)
            self._sim.disturb("")
            self._agenda.after(seconds, self._unlock)

    def _unlock(self) -> None:
        if not self.connection.in_transaction:  # the power has failed since
            return
        self.connection.execute("COMMIT")
        self.locked_until = 0.0
        self.taken_over |= self._uncommitted_orders
        rows, self._uncommitted, self._uncommitted_orders = self._uncommitted, [], {}
        self._committed(rows)
        self._sim.disturb("")
