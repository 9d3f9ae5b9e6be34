"""People who run the program's commands, from click down, and tablets that tap on its board's routes."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import click
import httpx
from sqlalchemy.exc import DBAPIError, OperationalError
from starlette.applications import Starlette
from tests.sim.life import LIFE
from tests.sim.line import served
from tests.sim.people import FOODS, RESTAURANTS, Agenda
from tests.sim.plan import MINUTE

from orderbridge.cli import action_commands, common, erase, order_commands
from orderbridge.errors import Unusable
from orderbridge.jobs.reimport import WRITTEN, Reimport, find, replay
from orderbridge.store import journal
from orderbridge_board import cli as board_commands
from orderbridge_board.cards import HELD, HOLD
from orderbridge_board.door import COOKIE

if TYPE_CHECKING:
    from tests.sim.life import Life
    from tests.sim.simulation import Sim

ADDRESS = "http://127.0.0.1:8484"
BACK_WITHIN_S = HOLD.total_seconds() + 1.0  # some come too late
CLOSURES = "SELECT id FROM delivery_actions WHERE state IN ('pending', 'sending') OR until_utc IS NOT NULL ORDER BY id"
CUSTOMERS = "SELECT customer_phone FROM delivery_orders WHERE customer_phone <> '' ORDER BY received_utc"


@dataclass(frozen=True, slots=True)
class Tap:
    """A button that was tapped. `row`: the id of the row that the tablet was shown."""

    at: float
    tablet: str
    values: dict[str, Any]
    row: int


class Hands:
    """Runs the plan's commands and taps, each at its time."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._random = sim.plan.stream("hands")
        self._agenda = Agenda(sim)
        self._tablets = Tablets(sim)
        self._folder = sim.settings.journal

    def begin(self) -> None:
        acts: dict[str, Callable[[], None]] = {
            "close": self._close,
            "erase": self._erase,
            "quarantine": self.retry_quarantined,
            "replay": self._replay,
            "tap": self._tablets.tap,
            "withdraw": self._withdraw,
        }
        for at, what in self._sim.plan.hands:
            self._agenda.at(at, acts[what])
        for span in self._sim.plan.away:
            self._agenda.at(span.start, partial(self._sim.take_out, span))
            self._agenda.at(span.end, self._sim.configure)

    def run(self, command: click.Command, *words: str) -> tuple[int, str]:
        """Run a command. Returns its exit code and what it printed."""
        said, code = StringIO(), 0
        context = common.Context(self._sim.settings)
        context.database = lambda **_: self._sim.technician.database()
        try:
            with redirect_stdout(said), redirect_stderr(StringIO()):
                command.main(words, obj=context, standalone_mode=False)
        except SystemExit as end:
            code = int(end.code or 0)
        except (click.ClickException, DBAPIError, Unusable):  # the file is locked or mixed, or a trigger refuses
            code = 1
        self._sim.trace.note("hand", " ".join([str(command.name), *words]), code=code)
        return code, said.getvalue()

    def run_for_json(self, command: click.Command, *words: str) -> Any:
        """Run a command with --json. Returns the parsed output, or None if it failed."""
        _, said = self.run(command, *words, "--json")
        return json.loads(said) if said else None

    def _select(self, sql: str) -> list[sqlite3.Row]:
        try:
            return self._sim.till.connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # an older copy was put back beside the -wal of another file
            return []

    def _close(self) -> None:
        """A closure or a sold-out food, some without an end, some ended by the opposite command."""
        chance = self._random
        account = chance.choice(self._sim.plan.accounts)
        restaurant = chance.choice(RESTAURANTS[account])
        minutes = chance.choice((1, 1, 2, 3, 5))
        if chance.random() < 0.4:
            action, back, about = "close_restaurant", "open_restaurant", {"restaurant_id": restaurant}
        else:
            action, back = "deactivate_food", "activate_food"
            about = {"food_id": FOODS[account], "restaurant_id": restaurant}
        row = self._sim.till.insert({"action": action} | about | {"valid_until_minutes": minutes})
        if row is not None and chance.random() < 0.25:
            insert = partial(self._sim.till.insert, {"action": back} | about)
            self._agenda.after(chance.uniform(1, 2 * minutes * MINUTE), insert)

    def _withdraw(self) -> None:
        """`orderbridge actions withdraw ID`, of a pending row or of a closure's end."""
        if rows := [row["id"] for row in self._select(CLOSURES)]:
            row = self._random.choice(rows)
            if self.run(action_commands.actions, "withdraw", str(row))[0] == 0:
                self._sim.till.withdrawn.setdefault(row, self._sim.now())
                self._sim.woken()

    def retry_quarantined(self, *, whole: bool = False) -> None:
        """`orderbridge quarantine retry`, of some documents in any order, or of all."""
        kept = self._select("SELECT id, payment_key FROM delivery_quarantine WHERE resolved_utc IS NULL ORDER BY id")
        some = [] if whole else self._random.sample(kept, self._random.randint(0, len(kept)))
        words = [str(row["id"]) for row in some]
        for one in self.run_for_json(order_commands.quarantine, "retry", *words) or ():
            if one["payment_key"] is not None and one["outcome"] in WRITTEN:
                self._sim.tell("released", one["payment_key"], one["id"])
                self._sim.till.notice()

    def _erase(self) -> None:
        """`orderbridge erase --phone`"""
        phones = [row["customer_phone"] for row in self._select(CUSTOMERS)]
        if not phones:
            return
        self._sim.disturb("")
        self.run(erase.erase, "--phone", self._random.choice(phones), "--yes", "--no-rewrite", "--json")
        self._sim.tell("erased")  # also if rows are locked: the journal is erased then

    def _replay(self) -> None:
        """What `orderbridge db replay` does, while a daemon works."""
        if self._folder is None or not self._folder.is_dir():
            return
        sim = self._sim
        with closing(sim.technician.database()) as database:
            try:
                found = find(journal.files(self._folder))
                done = list(replay(Reimport(database, sim.settings, sim.clock.now()), found))
            except OperationalError:  # a till holds the file
                return
        sim.trace.note("hand", "replay", orders=len(done))
        for one in done:
            if one.fate in WRITTEN:
                sim.tell("replayed", one.payment_key)
                sim.till.notice()


class Tablets:
    """Two tablets that show the board. Each tap is a task of the process that serves it."""

    NAMES = ("one", "two")

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._random = sim.plan.stream("tablets")
        self._cookies: dict[str, str] = {}

    def tap(self) -> None:
        """Tap a button, once or twice at the same moment, on one tablet or on both."""
        life = self._sim.life
        if life is None or not life.alive or not life.started:
            return
        context = Context()
        context.run(LIFE.set, life)
        task = asyncio.get_running_loop().create_task(self._tap(life), context=context)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.result())  # its error would be unseen

    async def _tap(self, life: "Life") -> None:
        chance = self._random
        what, back, often = chance.random(), chance.random(), chance.choice((1, 1, 2, 3))
        waits = [chance.uniform(0.0, 0.4) for _ in range(often)]
        tablets = [chance.choice(self.NAMES) for _ in range(often)]
        pick = chance.random()
        for name in self.NAMES:
            if name not in self._cookies:
                await self._pair(life, name)
        shown = await self._ask(life, tablets[0], "state" if what < 0.6 else "menu")
        values = None if shown is None else self._button(shown, pick, chance)
        if values is None:
            return
        rows = await asyncio.gather(
            *(self._press(life, name, values, wait) for name, wait in zip(tablets, waits, strict=True))
        )
        if back < 0.15 and (mine := [row for row in rows if row is not None]):
            await asyncio.sleep(pick * BACK_WITHIN_S)
            await self._ask(life, tablets[0], "back", {"id": mine[0]})

    def _button(self, shown: dict[str, Any], pick: float, chance: Any) -> dict[str, Any] | None:
        buttons: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"payment_key": card["key"], "action": button["action"]}, button)
            for card in shown.get("orders", ())
            for button in card["actions"]
        ]
        until = {"until": chance.choice((None, 1, 1, 2, "today"))}
        minutes, reason = {"preparing_time": chance.choice((10, 25, 60))}, {"reason_id": chance.randint(1, 8)}
        for food in shown.get("foods", ()):
            action = "activate_food" if food["off"] else "deactivate_food"
            buttons.append(({"action": action, "food_id": food["food_id"], "account": food["account"]}, food))
        for shop in shown.get("restaurants", ()):
            action = "open_restaurant" if shop["off"] else "close_restaurant"
            buttons.append(({"action": action, "restaurant_id": shop["id"]}, shop))
        if not buttons:
            return None
        chosen, button = buttons[int(pick * len(buttons))]
        more = {"accept": minutes, "cancel": reason, "close_restaurant": until, "deactivate_food": until}
        return chosen | {"tries": button["tries"]} | more.get(chosen["action"], {})

    async def _press(self, life: "Life", tablet: str, values: dict[str, Any], wait: float) -> int | None:
        await asyncio.sleep(wait)
        at = self._sim.now()
        answer = await self._ask(life, tablet, "act", values)
        if answer is None:
            return None
        row = int(answer["row"]["id"])
        self._sim.trace.note("tablet", str(values["action"]), tablet=tablet, row=row)
        self._sim.tell("tapped", Tap(at, tablet, values, row))
        return row

    async def _pair(self, life: "Life", name: str) -> None:
        code = self._sim.hands.run_for_json(board_commands.board, "pair")
        if code is None:
            return
        response = await self._served(life, name, "pair", {"code": code["code"], "name": name})
        if response.status_code == 200:
            self._cookies[name] = response.headers["set-cookie"].partition(";")[0].partition("=")[2]

    async def _ask(self, life: "Life", tablet: str, what: str, values: dict[str, Any] | None = None) -> Any:
        """The board's answer; None: an error."""
        response = await self._served(life, tablet, what, values)
        if response.status_code == 200:
            if what == "back" and values is not None:
                self._sim.till.withdrawn.setdefault(values["id"], self._sim.now())
            return response.json()
        self._sim.trace.note("tablet", f"{what} is refused", tablet=tablet, http=response.status_code)
        if response.status_code >= 500 and response.status_code != 503:
            self._sim.violated("7", f"the board answers {response.status_code} to {what} {values}")
        return None

    async def _served(self, life: "Life", tablet: str, what: str, values: dict[str, Any] | None) -> httpx.Response:
        if life.board is None:
            life.board = Starlette(routes=[route for pages in life.service.pages() for route in pages.routes()])
        headers = {"cookie": f"{COOKIE}={self._cookies.get(tablet, '')}", "origin": ADDRESS}
        method, body = ("GET", None) if values is None else ("POST", values)
        return await served(life.board, httpx.Request(method, f"{ADDRESS}/board/{what}", headers=headers, json=body))


def held_s(action: str) -> float:
    return HOLD.total_seconds() if action in HELD else 0.0
