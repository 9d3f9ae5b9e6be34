"""./run walk order|action|token: lists the files and functions that one order, one action or one login uses.

A daemon and the sandbox run in this process, over HTTPS on a SQLite file. `sys.setprofile` records each function of
`src/orderbridge` that is called for the order, action or login. Other work is not recorded: a context variable follows
the recorded work through tasks, timers and database threads. tests/test_walk.py limits the number of files and of
functions.

    order     from the first bytes of the list that contains it to the stored acknowledgement
    action    from the wake-up of the outbox to the committed result
    token     from the poll that has no token to the stored token
"""

import asyncio
import contextlib
import contextvars
import functools
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.soak import configuration_of

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.jobs.executor import Executor
from orderbridge.jobs.intake import Intake
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.poll import Poller
from orderbridge.marketplace.session import Session
from orderbridge.model import CONFIRMED
from orderbridge.net.connection import Connection
from orderbridge.observe import logs
from orderbridge.store import workers
from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.scenery import KADIKOY

say = functools.partial(print, flush=True)

COOLDOWN_S = 0.5
SOURCE = str(Path(logs.__file__).parents[1])
# The coroutine to record, the function whose call begins the record (None: the coroutine itself), and the coroutine
# whose return ends it.
WALKS: dict[str, tuple[Any, Any, Any]] = {
    "order": (Poller.tick, Connection.read, Intake.take),
    "action": (Outbox.run, None, Executor.write),
    "token": (Session.token_for_poll, None, Session.token_for_poll),
}
_work: contextvars.ContextVar[object] = contextvars.ContextVar("work", default=None)


class Walk:
    """Records one walk. It begins with the first matching call after `ready` is set."""

    def __init__(self, name: str) -> None:
        self.root, self._begins, self.ends = WALKS[name]
        self.ready, self.over = threading.Event(), asyncio.Event()
        self._is_on, self._work = False, object()
        self.steps: dict[CodeType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(SOURCE)
            and self.ready.is_set()
            and _work.get() is self._work
        ):
            self._is_on |= self._begins is None or code is self._begins.__code__
            # A coroutine that resumes is on a later line than its first.
            is_call = frame.f_lineno == code.co_firstlineno and not code.co_name.startswith("<")
            if self._is_on and is_call and not self.over.is_set():
                self.steps[code] = self.steps.get(code, 0) + 1

    def follow(self, method: Any) -> Any:
        @functools.wraps(method)
        async def followed(*args: Any, **named: Any) -> Any:
            if method is self.root:  # a timer of an earlier call keeps its own value
                self._work = object()
                _work.set(self._work)
            result = await method(*args, **named)
            if method is self.ends and self._is_on:
                self.over.set()
            return result

        return followed


@contextlib.contextmanager
def recorded(walk: Walk) -> Iterator[None]:
    """Let `walk` record: follow its coroutines, and run the work of database threads in the caller's context."""
    followed = {method: method.__qualname__.split(".") for method in {walk.root, walk.ends}}
    submit, begin = workers.Workers.submit, workers.begin

    def followed_call(call: Any) -> Any:
        return functools.partial(contextvars.copy_context().run, call)

    for method, (owner, name) in followed.items():
        setattr(sys.modules[method.__module__].__dict__[owner], name, walk.follow(method))
    workers.Workers.submit = lambda pool, call, *, urgent: submit(pool, followed_call(call), urgent=urgent)
    workers.begin = lambda call: begin(followed_call(call))
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        workers.Workers.submit, workers.begin = submit, begin
        for method, (owner, name) in followed.items():
            setattr(sys.modules[method.__module__].__dict__[owner], name, method)


async def walked(name: str, folder: Path, world: World, sandbox: Sandbox) -> dict[CodeType, int]:
    """The functions of that walk in the order of their first calls, with the number of their calls."""
    file = folder / "orderbridge.toml"
    file.write_text(configuration_of(sandbox, folder, COOLDOWN_S))
    walk = Walk(name)
    with recorded(walk):
        daemon = Daemon(config.load(file, environ={}))
        running = asyncio.create_task(daemon.run())
        if name == "token":
            walk.ready.set()
        else:  # a first order and action fill the caches
            key = world.place_order(restaurant_id=KADIKOY).key
            await asyncio.to_thread(world.wait_for, lambda: world.orders[key].acknowledged, timeout=30)
            _act(folder, "accept", key)
            await asyncio.to_thread(world.wait_for, lambda: world.orders[key].status_id == CONFIRMED, timeout=30)
            await asyncio.sleep(3 * COOLDOWN_S)
            walk.ready.set()
            world.place_order(restaurant_id=KADIKOY) if name == "order" else _act(folder, "on_the_way", key)
        await asyncio.wait_for(walk.over.wait(), 30)
        daemon.stop()
        await running
    return walk.steps


def _act(folder: Path, action: str, key: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "pos.db", isolation_level=None, timeout=10)) as connection:
        row = action, key, 20 if action == "accept" else None
        connection.execute("INSERT INTO delivery_actions (action, payment_key, preparing_time) VALUES (?, ?, ?)", row)


def steps_of(name: str) -> dict[CodeType, int]:
    """Record that walk with a sandbox and a folder of its own."""
    world = World.default(options=Options(cooldown_seconds=COOLDOWN_S), report=lambda _: None)
    with tempfile.TemporaryDirectory() as folder, Sandbox(world, directory=Path(folder)) as sandbox:
        return asyncio.run(walked(name, Path(folder), world, sandbox))


def files_of(steps: dict[CodeType, int]) -> dict[str, list[CodeType]]:
    """The functions by their file."""
    files: dict[str, list[CodeType]] = {}
    for code in steps:
        files.setdefault(code.co_filename.removeprefix(SOURCE + "/"), []).append(code)
    return files


def main() -> None:
    steps = steps_of(sys.argv[1])
    files = files_of(steps)
    for file, functions in files.items():
        say(file, *(f"{code.co_qualname} {steps[code]}" for code in functions), sep="  ")
    say(f"{len(files)} files, {len(steps)} functions, {sum(steps.values())} calls")


if __name__ == "__main__":
    main()
