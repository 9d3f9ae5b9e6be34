"""One run of the real daemon, built as `orderbridge run` builds it, until it stops or is killed at a named point.

Everything of one run belongs to a Life. When that ends nothing of it has an effect any more: its tasks are cancelled,
its transaction is rolled back, its requests are never answered.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from tests.jobs.shop import BASE_URL, TIMEOUT_S
from tests.sim.disk import SimDatabase
from tests.sim.line import Line
from tests.sim.plan import Crashed

from orderbridge.daemon import Daemon
from orderbridge.marketplace.http import Wire

if TYPE_CHECKING:
    from tests.sim.simulation import Sim

LIFE: ContextVar["Life | None"] = ContextVar("LIFE", default=None)


class Life:
    """One run of the daemon, from its start to its end."""

    def __init__(self, sim: "Sim", number: int) -> None:
        self.sim = sim
        self.number = number
        self.alive = True
        self.started = False
        self.died = asyncio.Event()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.daemon: Daemon | None = None
        self.wake: Callable[[], None] = lambda: None
        self.database = SimDatabase(self)

    def point(self, name: str) -> None:
        """A place where the program may end."""
        if not self.alive:
            raise Crashed
        if self.sim.fuse_burns(name):
            self.kill(name)
            raise Crashed

    def kill(self, point: str) -> None:
        self.alive = False
        self.sim.trace.fault("crash", at=point.strip())
        self.sim.disturb("")
        self.sim.tell("crashed", self)
        self.died.set()

    async def run(self) -> str:
        """How it ended: crashed, stopped, or what the daemon itself ended with."""
        context = Context()
        context.run(LIFE.set, self)
        main = asyncio.get_running_loop().create_task(self._main(), context=context)
        died = asyncio.ensure_future(self.died.wait())
        await asyncio.wait([main, died], return_when=asyncio.FIRST_COMPLETED)
        ending = "crashed"
        if self.alive:
            error = main.exception()
            ending = "stopped" if error is None else type(error).__name__
            self.alive = False
        await self._bury(died)
        return ending

    async def _main(self) -> None:
        sim = self.sim
        self.daemon = Daemon(
            sim.settings,
            clock=sim.clock,
            random=sim.plan.stream(f"daemon {self.number}"),
            wire=Wire(
                base_url=BASE_URL, timeout_s=TIMEOUT_S, user_agent="orderbridge/sim", transport=lambda: Line(self)
            ),
            database=self.database,
        )
        await self.daemon.run()

    def ended(self, task: asyncio.Task[Any]) -> None:
        del self.tasks[task]
        if not self.alive and not task.cancelled():
            task.exception()  # looked at: of the dead nothing is news

    def stop(self) -> None:
        if self.alive and self.daemon is not None:
            self.daemon.stop()

    async def _bury(self, *more: asyncio.Future[Any]) -> None:
        scheduler = self.daemon._scheduler if self.daemon else None
        if scheduler is not None and scheduler.running:
            scheduler.shutdown(wait=False)
        left = [task for task in self.tasks if not task.done()]
        for task in [*left, *more]:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
        self.database.engine.dispose()


def new_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """A task belongs to the life that it was made in."""
    context = options.get("context")
    life = (context or copy_context()).get(LIFE)
    task = asyncio.Task(coro, loop=loop, **options)
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(life.ended)
        if not life.alive:
            task.cancel()
    return task
