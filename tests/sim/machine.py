"""The machine around a simulation: the loop, other threads, the clock, the certificates, the log."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from tests.jobs.virtual import VirtualLoop
from tests.sim.life import new_task
from tests.sim.plan import LOUD_SWEEP_S, QUIET_SWEEP_S, Plan
from tests.sim.simulation import Sim

from orderbridge.marketplace import http
from orderbridge.observe import logs
from orderbridge.store import wake

if TYPE_CHECKING:
    from tests.sim.invariant import Invariant

T = TypeVar("T")
# Nothing happens in most of a day, and looking costs the day.
QUIET_FLOOR_S, QUIET_CLOCK_WATCH_S = 60.0, 15.0


class _Inline(ThreadPoolExecutor):
    """Another thread's time is not simulated."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            future.set_exception(error)
        return future


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextlib.contextmanager
def _surroundings(sim: Sim) -> Iterator[None]:
    """What the program asks of the machine is answered by the simulation."""

    class Now:
        @staticmethod
        def now(zone: Any = None) -> datetime:
            return sim.clock.now().astimezone(zone)

    with contextlib.ExitStack() as stack:
        for module in ("schedulers.base", "executors.base", "triggers.date"):
            stack.enter_context(patch(f"apscheduler.{module}.datetime", Now))
        stack.enter_context(patch.object(http, "_tls_context", lambda _: _tls()))
        stack.enter_context(patch.object(wake, "watch", sim.watch))
        if not sim.plan.restless:
            stack.enter_context(patch("orderbridge.jobs.drain.FLOOR_S", QUIET_FLOOR_S))
            stack.enter_context(patch("orderbridge.daemon.CLOCK_WATCH_S", QUIET_CLOCK_WATCH_S))
            sweep = QUIET_SWEEP_S if sim.plan.kind == "day" else LOUD_SWEEP_S
            stack.enter_context(patch("orderbridge.daemon.SWEEP_S", sweep))
        logs._secrets.clear()
        logs._hidden.clear()
        logs.configure(level="info", format="json", stream=sim, environ={})  # type: ignore[arg-type]
        yield


def simulate(plan: Plan, folder: Path, invariants: "list[Invariant]") -> Sim:
    """Play one plan to its end on a file in `folder`."""
    loop = VirtualLoop()
    loop.set_task_factory(new_task)  # type: ignore[arg-type]
    loop.set_default_executor(_Inline())
    asyncio.set_event_loop(loop)
    try:
        sim = loop.run_until_complete(_build(plan, folder, invariants))
        with _surroundings(sim):
            loop.run_until_complete(sim.play())
            loop.run_until_complete(_end_all())
        return sim
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _end_all() -> None:
    """What still travels is no news for the next simulation."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _build(plan: Plan, folder: Path, invariants: "list[Invariant]") -> Sim:
    return Sim(plan, folder, invariants)
