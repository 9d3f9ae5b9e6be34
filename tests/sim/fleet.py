"""A fleet: two or three replicas on one simulated server (tests.sim.server), and their faults.

A process is killed, stopped or paused, its connection to the server is cut, its session ends, the server restarts, and
a rolling restart replaces all by a newer version. A paused process does nothing, and then continues.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
from tests.sim import blocking_call, server
from tests.sim.disk import SimDatabase, share_compiled
from tests.sim.life import LIFE
from tests.sim.line import Line
from tests.sim.server import LOST_S, LockSession, Server, Transaction, lost

from orderbridge import service
from orderbridge.errors import HELD_BACK, NotSent
from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge_fleet import account_changes, advisory_locks, membership, replica
from orderbridge_fleet.account_settings import MasterKeys
from orderbridge_fleet.membership import Membership

if TYPE_CHECKING:
    from tests.jobs.shop import FakeClock
    from tests.sim.life import Life, SimLoop
    from tests.sim.plan import Blow
    from tests.sim.simulation import Sim

KEY = bytes(range(32))
FLEET = {"accounts": "database", "master_key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}
WRITERS = 4
LOOK_S = 1.0  # between two checks of the polls
ROLL_S = 20.0  # between two replicas' ends in a rolling restart
# What a next version may change (CONTRIBUTING.md).
NEWER = (
    "ALTER TABLE delivery_orders ADD COLUMN made_up VARCHAR(20) DEFAULT 'x'",
    "ALTER TABLE delivery_actions ADD COLUMN made_up INTEGER",
    "CREATE TABLE delivery_made_up (id INTEGER PRIMARY KEY)",
)


class Fleet:
    """The replicas of one simulation."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._chance = sim.plan.stream("fleet")
        self._after = sim.agenda.after
        self.skews = [self._chance.uniform(-3.0, 3.0) for _ in range(sim.plan.replicas)]
        self.places: dict[int, Life] = {}
        self.changed_at = 0.0  # when a replica last had a fault
        self.went_on: dict[int, float] = {}  # process: when its last pause ended
        self._lit: dict[Life, Blow] = {}  # faults that wait for a point of their process
        self._frozen: dict[Life, deque[asyncio.Handle]] = {}
        self._loop: SimLoop = asyncio.get_running_loop()
        self._open_accounts()
        self.server = Server(sim)
        self.close = self.server.close
        self.new_database, self.new_line = FleetDatabase, FleetLine

    def _open_accounts(self) -> None:
        sim = self._sim
        database = Database(sim.settings.database.url, busy_timeout_s=0.0, inline=True)
        share_compiled(database)
        database.write_now(schema.upgrade)
        named = sim.settings.accounts
        database.write_now(lambda tx: account_changes.put(tx, MasterKeys([KEY]), named, sim.clock.now()))
        database.close()
        fleet = type(sim.settings.fleet)(**FLEET)
        sim.settings = sim.settings.model_copy(update={"fleet": fleet, "accounts": []})

    def begin(self) -> None:
        self._look()
        for blow in self._sim.plan.blows:
            self._sim.agenda.at(blow.at, partial(self._strike, blow))

    def _look(self) -> None:
        self._sim.tell("looked")
        self._after(LOOK_S, self._look)

    def _strike(self, blow: "Blow") -> None:
        life = self.places[blow.place]
        if blow.point:
            self._lit[life] = blow
            return
        self._sim.trace.fault(blow.what, place=blow.place, seconds=f"{blow.seconds:.1f}")
        self._note()
        getattr(self, f"_{blow.what}")(life, blow.seconds)

    def comes_to(self, life: "Life", point: str) -> None:
        blow = self._lit.get(life)
        if blow is not None and point.startswith(blow.point) and not self._sim.is_calm:
            del self._lit[life]
            self._strike(replace(blow, point=""))

    def _note(self) -> None:
        self.changed_at = self._sim.now()
        self._sim.disturb("")

    def _kill(self, life: "Life", seconds: float) -> None:
        """Kill the process. In some cases its machine fails, too, so that the server does not notice."""
        if life.alive:
            life.kill("kill", seconds)

    def _stop(self, life: "Life", seconds: float) -> None:
        life.down = seconds
        life.signal(signal.SIGTERM)

    def _reload(self, life: "Life", _: float) -> None:
        life.signal(signal.SIGHUP)

    def _pause(self, life: "Life", seconds: float) -> None:
        if life.alive and life not in self._frozen:
            self._frozen[life] = deque()
            self._loop.keep_if_paused = self._keep_if_paused
            self._after(seconds, lambda: self._go_on(life))

    def _keep_if_paused(self, handle: asyncio.Handle) -> bool:
        life = handle._context.get(LIFE)
        if life not in self._frozen:
            return False
        self._frozen[life].append(handle)
        return True

    def _go_on(self, life: "Life") -> None:
        if life in self._frozen:
            self._loop._ready.extend(self._frozen.pop(life))
            self.went_on[life.process] = self._sim.now()
            self._sim.trace.note("goes on", f"life {life.number}")
            self._note()
        if not self._frozen:
            self._loop.keep_if_paused = None

    def end(self) -> None:
        for life in list(self._frozen):
            self._go_on(life)

    def is_paused(self, life: "Life") -> bool:
        return life in self._frozen

    def _cut(self, life: "Life", seconds: float) -> None:
        self.server.cut[life.process] = max(self.server.cut.get(life.process, 0.0), self._sim.now() + seconds)
        self._after(seconds, self._heal)

    def _heal(self) -> None:
        self._note()
        self._sim.woken()  # the listening session reconnects and reads

    def _session(self, life: "Life", _: float) -> None:
        self.server.end_all_of(life)

    def _restart(self, _: "Life", seconds: float) -> None:
        self.server.is_down = True
        self.server.end_all_of()
        self._after(seconds, self._answer_again)

    def _answer_again(self) -> None:
        self.server.is_down = False
        self._heal()

    def _roll(self, _: "Life", seconds: float) -> None:
        """A rolling restart: the first new one upgrades the tables while the old ones still work."""
        for number in range(self._sim.plan.replicas):
            self._after(number * ROLL_S, partial(self._replace, number, seconds))

    def _replace(self, place: int, seconds: float) -> None:
        if place == 0:
            columns = {row[1] for row in self.server.tables.exec_driver_sql("PRAGMA table_info(delivery_orders)")}
            for statement in NEWER if "made_up" not in columns else ():
                self.server.tables.exec_driver_sql(statement)
            self._sim.change_settings(places=2, language="tr")
        life = self.places.get(place)
        if life is not None:
            self._note()
            self._stop(life, seconds)

    def born(self, life: "Life", place: int) -> None:
        self.places[place] = life
        life.clock = Skewed(self._sim.clock, self.skews[place])
        self._note()

    def killed(self, life: "Life") -> None:
        """The process was killed, perhaps with its machine."""
        self._go_on(life)
        self._note()
        if self._chance.random() < 0.6:
            self.server.end_all_of(life)

    def ended(self, life: "Life") -> None:
        if not life.died.is_set():
            self.server.end_all_of(life)
            self._note()

    def wake(self) -> None:
        for life in list(self.places.values()):
            if life.alive and not self.server.is_cut(life):
                life.wake()

    def at_work(self) -> "list[Life]":
        return [
            life
            for life in self.places.values()
            if life.alive and life.started and not self.is_paused(life) and not self.server.is_cut(life)
        ]


class Skewed:
    """A machine's own clock."""

    def __init__(self, true: "FakeClock", skew_s: float) -> None:
        self._true, self._skew = true, timedelta(seconds=skew_s)

    def now(self) -> datetime:
        return self._true.now() + self._skew

    def monotonic(self) -> float:
        return self._true.monotonic()


class FleetLine(Line):
    """A line that reconnects for each request, and asks again before the first byte whether it may leave."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        trail = request.extensions["trail"]
        trail.sent = False
        self._life.point("connecting")
        await asyncio.sleep(0.003)
        if not trail.may_send():
            raise NotSent(HELD_BACK)
        trail.sent = True
        return await super().handle_async_request(request)


class FleetDatabase(SimDatabase):
    """One replica's sessions on the server: several transactions at once, each of which may fail at any point."""

    def __init__(self, life: "Life") -> None:
        super().__init__(life)
        file, self.file = self.file, None
        if file is not None:
            file.close()
        self._server = life.sim.fleet.server
        self._writers, self._readers = _Sessions(self, writes=True), _Sessions(self, writes=False)
        self._slots = asyncio.Semaphore(WRITERS)
        self._touches_outbox = False

    def _statement(self, *of: Any) -> None:
        self._touches_outbox |= "delivery_actions" in of[2] and not of[2].startswith("SELECT")
        super()._statement(*of)

    async def perform(self, call: Callable[[], Any], *, writes: bool) -> Any:
        async with self._slots:
            await self._travel()
            if not writes:
                result = call()
            else:
                with self._server.transaction(self._life) as mine:
                    with self._server.beginning(mine), self.engine.connect() as connection:
                        self.fence(connection)
                    self._life.point("within a transaction")
                    await asyncio.sleep(self._sim.disk_takes(lambda: ""))
                    await self._travel()
                    result = self._commit(mine, call)
            await self._travel()  # a fault here leaves the commit unknown
            return result

    def _commit(self, mine: Transaction, call: Callable[[], Any]) -> Any:
        self._server.sweep()
        if mine.is_over:
            self._sim.trace.note("server", "ended the transaction", of=f"life {self._life.number}")
            raise lost("the session has ended")
        fence, self.fence = self.fence, lambda _: None
        try:
            result = call()
        finally:
            self.fence = fence
        self._sim.moment("between units of work", "")
        if self._touches_outbox:
            self._touches_outbox = False
            self._sim.woken()
        return result

    async def _travel(self) -> None:
        life, began = self._life, self._sim.now()
        await asyncio.sleep(self._server.latency())
        while self._server.is_cut(life):
            if self._sim.now() >= began + LOST_S:
                raise lost("no answer")
            until = min(self._server.cut[life.process], began + LOST_S)
            await asyncio.sleep(until - self._sim.now() + 1e-3)
        if self._server.is_down:
            raise lost("connection refused")


class _Sessions:
    """Replaces store.workers.Workers: a started unit of work is not cancelled."""

    def __init__(self, database: FleetDatabase, *, writes: bool) -> None:
        self._perform = partial(database.perform, writes=writes)

    async def submit(self, call: Callable[[], Any], *, urgent: bool) -> Any:
        return await asyncio.shield(asyncio.ensure_future(self._perform(call)))

    def close(self) -> None:
        """Waiting work is lost with its process."""


class SimMembership(Membership):
    """A membership on a database that seems to be PostgreSQL."""

    def __init__(self, database: Database) -> None:
        engine = SimpleNamespace(url=database.engine.url, driver="psycopg", name="postgresql")
        dialect = SimpleNamespace(worker=lambda _: "somebody", options=lambda *_: {})
        super().__init__(SimpleNamespace(engine=engine, dialect=dialect))
        self._engine = database.engine


def in_place(sim: "Sim") -> "Iterator[tuple[Any, str, Any]]":
    """The functions that the simulation replaces: owner, name, replacement."""
    for function in server.IN_PLACE:
        yield advisory_locks, function.__name__, function
    yield advisory_locks, "epoch_of", sim.fleet.server.epoch_of
    yield membership, "LockSession", LockSession
    yield membership, "SystemClock", lambda: sim.clock
    yield membership, "threading", SimpleNamespace(Lock=blocking_call.Lock)
    yield membership, "secrets", SimpleNamespace(randbits=lambda _: LIFE.get().process * 1000 + sim.built)
    yield membership, "socket", SimpleNamespace(gethostname=lambda: "machine")
    yield membership, "os", SimpleNamespace(getpid=lambda: 1)
    yield replica, "Membership", SimMembership
    yield replica, "detached", blocking_call.detached
    yield service, "detached", blocking_call.detached
