"""The machine of a simulation: loop, threads, clock, certificates and log."""

import asyncio
import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.sim import fleet
from tests.sim.life import LIFE, SimDaemon, SimLoop, at_once, hear, new_task, open_database, unasked
from tests.sim.plan import LOUD_HEALTH_S, LOUD_SWEEP_S, QUIET_HEALTH_S, QUIET_SWEEP_S, Plan
from tests.sim.simulation import Sim
from tests.wording import forget_secrets

from orderbridge.observe import logs

if TYPE_CHECKING:
    from tests.sim.judge import Judge

# Most of a day is idle, and each check costs time.
QUIET = {
    **dict.fromkeys(("jobs.outbox.FLOOR_S", "jobs.outbox_reader.FLOOR_S"), 60.0),
    **dict.fromkeys(("service.GUARD_S", "service.ALIVE_S", "daemon.ANSWER_EVERY_S"), 60.0),
    "daemon.WATCH_S": 15.0,
    "service.ASK_S": 5.0,
}


class _Inline(ThreadPoolExecutor):
    """Runs a thread's work at once: its time is not simulated."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
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

    places: dict[str, Any] = {
        "store.database.Database.watch": sim.watch,
        "service.Daemon": SimDaemon,
        "service.detached": at_once,
        "service.open_configured": open_database,
        "service.liveness.answer": unasked,
        "web.listening.Listening.run": unasked,
        "clock.SystemClock.now": lambda _: sim.clock.now(),  # of commands
        # Each problem is reported under its own name.
        **dict.fromkeys(("rules.problems.FLAP_LIMIT", "jobs.health_check.ALIKE_LIMIT"), 10**6),
    }
    if sim.plan.batch:
        places |= dict.fromkeys(("store.rows.BATCH", "jobs.intake.CHUNK"), sim.plan.batch)
    if not sim.plan.restless:
        places |= QUIET
        places["jobs.upkeep.SWEEP_S"] = QUIET_SWEEP_S if sim.plan.kind == "day" else LOUD_SWEEP_S
        places["jobs.upkeep.HEALTH_S"] = QUIET_HEALTH_S if sim.plan.kind == "day" else LOUD_HEALTH_S
    if sim.plan.kind == "day" and not sim.plan.restless:  # a third of its reads are for starting orders
        places |= {"jobs.upkeep.STARTS_S": 60.0, "jobs.restore_check.NOTE_EVERY_S": 60.0}
    with contextlib.ExitStack() as stack:
        for module in ("schedulers.base", "executors.base", "triggers.date"):
            stack.enter_context(patch(f"apscheduler.{module}.datetime", Now))
        for name, other in places.items():
            stack.enter_context(patch(f"orderbridge.{name}", other))
        for owner, name, other in () if sim.fleet is None else fleet.in_place(sim):
            stack.enter_context(patch.object(owner, name, other))
        stack.enter_context(patch("os.fsync", lambda _: None) if sim.power is None else sim.power.serving())
        forget_secrets()
        logs.configure(level="info", format="json", stream=sim, environ={})
        yield


@functools.cache
def _freeze_what_is_loaded() -> None:
    """Exclude the loaded modules from garbage collection."""
    gc.collect()
    gc.freeze()


def simulate(plan: Plan, folder: Path, judges: "list[Judge]") -> Sim:
    _freeze_what_is_loaded()
    loop = SimLoop()
    loop.set_task_factory(new_task)
    loop.set_default_executor(_Inline())
    loop.add_signal_handler = hear
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
