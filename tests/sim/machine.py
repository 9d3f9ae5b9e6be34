"""The machine of a simulation: loop, threads, clock, certificates and log."""

import asyncio
import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from tests.sim import fleet
from tests.sim.life import LIFE, SimDaemon, SimLoop, at_once, hear, new_task, open_database, unasked
from tests.sim.plan import LOUD_HEALTH_S, LOUD_SWEEP_S, QUIET_HEALTH_S, QUIET_SWEEP_S, Plan
from tests.sim.simulation import Sim

from orderbridge import hiding
from orderbridge.clock import SystemClock
from orderbridge.observe import logs
from orderbridge.store.database import Database
from orderbridge.web.listening import Listening

if TYPE_CHECKING:
    from tests.sim.judge import Judge

T = TypeVar("T")
# Most of a day is idle, and each check costs time.
QUIET_FLOOR_S, QUIET_CLOCK_WATCH_S = 60.0, 15.0
QUIET_ASK_S, QUIET_GUARD_S = 5.0, 60.0
QUIET_STARTS_S, QUIET_NOTE_S = 60.0, 60.0  # of a day: a third of its reads ask for orders that begin


class _Inline(ThreadPoolExecutor):
    """Runs a thread's work at once: its time is not simulated."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            future.set_exception(error)
        return future


@contextlib.contextmanager
def _surroundings(sim: Sim) -> Iterator[None]:
    class Now:
        @staticmethod
        def now(zone: Any = None) -> datetime:
            life = LIFE.get()
            return (sim.clock if life is None else life.clock).now().astimezone(zone)

    with contextlib.ExitStack() as stack:
        for module in ("schedulers.base", "executors.base", "triggers.date"):
            stack.enter_context(patch(f"apscheduler.{module}.datetime", Now))
        stack.enter_context(patch.object(Database, "watch", sim.watch))
        stack.enter_context(patch("orderbridge.service.Daemon", SimDaemon))
        stack.enter_context(patch("orderbridge.service.detached", at_once))
        stack.enter_context(patch("orderbridge.service.open_configured", open_database))
        stack.enter_context(patch("orderbridge.service.liveness.answer", unasked))
        stack.enter_context(patch.object(Listening, "run", unasked))
        stack.enter_context(patch.object(SystemClock, "now", lambda _: sim.clock.now()))  # of commands
        stack.enter_context(
            patch("orderbridge.rules.problems.FLAP_LIMIT", 10**6)
        )  # each problem is reported under its own name
        stack.enter_context(patch("orderbridge.jobs.health_check.ALIKE_LIMIT", 10**6))
        if sim.plan.batch:
            for name in ("store.rows.BATCH", "jobs.intake.CHUNK"):
                stack.enter_context(patch(f"orderbridge.{name}", sim.plan.batch))
        if not sim.plan.restless:
            stack.enter_context(patch("orderbridge.jobs.outbox.FLOOR_S", QUIET_FLOOR_S))
            stack.enter_context(patch("orderbridge.jobs.outbox_reader.FLOOR_S", QUIET_FLOOR_S))
            stack.enter_context(patch("orderbridge.daemon.WATCH_S", QUIET_CLOCK_WATCH_S))
            stack.enter_context(patch("orderbridge.service.ASK_S", QUIET_ASK_S))
            stack.enter_context(patch("orderbridge.service.GUARD_S", QUIET_GUARD_S))
            stack.enter_context(patch("orderbridge.service.ALIVE_S", QUIET_GUARD_S))
            stack.enter_context(patch("orderbridge.daemon.ANSWER_EVERY_S", QUIET_GUARD_S))
            sweep = QUIET_SWEEP_S if sim.plan.kind == "day" else LOUD_SWEEP_S
            stack.enter_context(patch("orderbridge.jobs.upkeep.SWEEP_S", sweep))
            health = QUIET_HEALTH_S if sim.plan.kind == "day" else LOUD_HEALTH_S
            stack.enter_context(patch("orderbridge.jobs.upkeep.HEALTH_S", health))
            if sim.plan.kind == "day":
                stack.enter_context(patch("orderbridge.jobs.upkeep.STARTS_S", QUIET_STARTS_S))
                stack.enter_context(patch("orderbridge.jobs.restore_check.NOTE_EVERY_S", QUIET_NOTE_S))
        for owner, name, other in () if sim.fleet is None else fleet.in_place(sim):
            stack.enter_context(patch.object(owner, name, other))
        if sim.power is not None:
            stack.enter_context(sim.power.serving())
        else:
            stack.enter_context(patch("os.fsync", lambda _: None))
        hiding.forget_all()
        logs.configure(level="info", format="json", stream=sim, environ={})  # type: ignore[arg-type]
        yield


@functools.cache
def _freeze_what_is_loaded() -> None:
    """Take the loaded modules out of the garbage collector's search."""
    gc.collect()
    gc.freeze()


def simulate(plan: Plan, folder: Path, judges: "list[Judge]") -> Sim:
    """Play one plan to its end on a file in `folder`."""
    _freeze_what_is_loaded()
    loop = SimLoop()
    loop.set_task_factory(new_task)  # type: ignore[arg-type]
    loop.set_default_executor(_Inline())
    loop.add_signal_handler = hear  # type: ignore[method-assign]
    asyncio.set_event_loop(loop)
    try:
        sim = loop.run_until_complete(_build(plan, folder, judges))
        with _surroundings(sim):
            try:
                loop.run_until_complete(sim.play())
            finally:
                loop.run_until_complete(_end_all())
        sim.close()
        return sim
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _end_all() -> None:
    """Cancel all tasks that are left, so that the next simulation does not see them."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _build(plan: Plan, folder: Path, judges: "list[Judge]") -> Sim:
    return Sim(plan, folder, judges)
