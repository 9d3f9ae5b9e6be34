"""One process of the real program, as `orderbridge run` starts it, until it stops or is killed at a named point.

A Life holds all of one process: the service, and the daemons that it builds one after another, each with a number. When
it ends, its tasks are cancelled, its transaction is rolled back, and its requests are never answered.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heappop
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp
from tests.jobs.shop import BASE_URL, TIMEOUT_S
from tests.jobs.virtual import VirtualLoop
from tests.sim.disk import SimDatabase
from tests.sim.line import Line
from tests.sim.plan import Crashed

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.net.http import Wire
from orderbridge.service import Service

if TYPE_CHECKING:
    from tests.sim.simulation import Sim


class SimLoop(VirtualLoop):
    """A VirtualLoop in which a process can be paused. Other callbacks run in the same order, at the same times."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    tasks = 0  # created so far
    # Whether the handle's process is paused. Then it keeps the handle for later.
    keep_if_paused: Callable[[asyncio.Handle], bool] | None = None

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._take_due()
        if not ready and not self._stopping:
            if not scheduled:
                raise RuntimeError("every task waits, and nothing is due")
            self._virtual.time += max(scheduled[0]._when - self._virtual.time, 0.0)
        end = self._virtual.time + self._clock_resolution
        while scheduled and scheduled[0]._when < end:
            ready.append(self._take_due())
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled and not (self.keep_if_paused is not None and self.keep_if_paused(handle)):
                handle._run()

    def _take_due(self) -> asyncio.TimerHandle:
        handle = heappop(self._scheduled)
        handle._scheduled = False
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled handle in the heap until its time."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error in a callback is the simulation's own, and ends it."""
        if "handle" in context:
            raise context["exception"]
        super().call_exception_handler(context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)


LIFE: ContextVar["Life | None"] = ContextVar("LIFE", default=None)


class SimDaemon(Daemon):
    """The daemon on the simulation's clock, line and disk."""

    def __init__(self, settings: config.Settings, *, database: SimDatabase, **kept: Any) -> None:
        """`kept`: what survives a reload."""
        self._life = life = LIFE.get()
        life.sim.built += 1
        self.accounts = {account.name for account in settings.accounts}
        random = life.sim.plan.stream(f"daemon {life.sim.built}")
        wire = Wire(base_url=BASE_URL, timeout_s=TIMEOUT_S, transport=life.new_line())
        super().__init__(settings, clock=life.clock, random=random, wire=wire, database=database, **kept)

    async def run(self) -> None:
        self._life.begin(self)
        await super().run()


async def at_once(call: Callable[[], Any], *, unwanted: object = None) -> Any:
    """Replaces store.workers.detached: other threads' time is not simulated."""
    return call()


def open_database(*_: object, **__: object) -> SimDatabase:
    """Replaces store.database.open_database."""
    return LIFE.get().new_database()


async def unasked(*_: object, **__: object) -> None:
    """Replaces observe.liveness.answer and Listening.run, because there are no sockets."""
    await asyncio.Event().wait()


class Life:
    """One process, from its start to its end."""

    def __init__(self, sim: "Sim", process: int) -> None:
        self.sim = sim
        self.process = process
        self.clock = sim.clock  # the machine's
        self.number = 0  # of the current daemon
        self.alive = True
        self.started = False  # whether the current daemon has started
        self.died = asyncio.Event()
        self.down = 2.0  # seconds until the next process is started in its place
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.daemon: SimDaemon | None = None
        self.wake: Callable[[], None] = lambda: None
        self.service = Service(sim.settings, sim.load)
        self.board: ASGIApp | None = None  # its routes, made at the first request of a tablet
        self._databases: list[SimDatabase] = []
        self._heard: dict[int, tuple[Context, Callable[[], object]]] = {}

    def new_database(self) -> SimDatabase:
        self._databases.append((SimDatabase if self.sim.fleet is None else self.sim.fleet.new_database)(self))
        return self._databases[-1]

    def new_line(self) -> Line:
        return (Line if self.sim.fleet is None else self.sim.fleet.new_line)(self)

    def begin(self, daemon: SimDaemon) -> None:
        """A daemon has the lead, and begins to work."""
        self.daemon, self.started = daemon, False
        self.sim.begin(self)

    def point(self, name: str) -> None:
        """A point at which the program may be killed."""
        if not self.alive:
            raise Crashed
        if self.sim.fleet is not None:
            self.sim.fleet.comes_to(self, name)
        if (down := self.sim.crashes_at(name)) is not None:
            self.kill(name, down)
            raise Crashed

    def kill(self, point: str, down: float) -> None:
        self.alive, self.down = False, down
        self.sim.trace.fault("crash", at=point.strip())
        self.sim.disturb("")
        self.sim.may_lose_power()
        self.sim.problems.clear()
        self.sim.tell("crashed")
        self.died.set()
        if self.sim.fleet is not None:
            self.sim.fleet.killed(self)

    async def run(self) -> str:
        """Run to the end. Returns crashed, stopped, or the program's error."""
        context = Context()
        context.run(LIFE.set, self)
        main = asyncio.get_running_loop().create_task(self.service.run(), context=context)
        died = asyncio.ensure_future(self.died.wait())
        await asyncio.wait([main, died], return_when=asyncio.FIRST_COMPLETED)
        ending = "crashed"
        if self.alive:
            error = main.exception()
            ending = "stopped" if error is None else type(error).__name__
            self.alive = False
        await self._clean_up(died)
        return ending

    def hear(self, number: int, handler: Callable[[], object], *arguments: object) -> None:
        """Replaces the loop's add_signal_handler."""
        assert not arguments
        self._heard[number] = copy_context(), handler

    def signal(self, number: signal.Signals) -> None:
        if self.alive and number in self._heard:
            context, handler = self._heard[number]
            context.copy().run(handler)

    def ended(self, task: asyncio.Task[Any]) -> None:
        del self.tasks[task]
        if not self.alive and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    async def _clean_up(self, *more: asyncio.Future[Any]) -> None:
        if self.daemon is not None:
            self.daemon.timetable.close()
        left = [task for task in self.tasks if not task.done()]
        for task in [*left, *more]:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
        for database in self._databases:
            database.close()


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set depends on when it was created, not on its address."""

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, name=options.pop("name", None) or f"Task-{number}", **options)

    def __hash__(self) -> int:
        return self._number


def new_task(loop: SimLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Create a task that belongs to the current life."""
    context = options.get("context")
    life = (context or copy_context()).get(LIFE)
    loop.tasks += 1
    task = SimTask(loop.tasks, coro, loop=loop, **options)
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(life.ended)
        if not life.alive:
            task.cancel()
    return task


def hear(number: int, handler: Callable[[], object], *arguments: object) -> None:
    LIFE.get().hear(number, handler, *arguments)
