"""Worker threads for the database and for other blocking calls, so that the event loop never waits.

All are daemon threads: one that hangs, in the database or in DNS, does not keep the process from ending.
"""

import asyncio
import errno
import itertools
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from orderbridge.clock import SystemClock
from orderbridge.errors import NoThread, Over

T = TypeVar("T")

CLOSE_WITHIN_S = 6.0  # more than a writer of SQLite waits for the file
SETTLE_WITHIN_S = 0.5
DETACHED = "db-detached"


class Workers:
    """Threads with one queue. Urgent work goes first; otherwise work is done in the order of its submission."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: queue.PriorityQueue[tuple[int, int, Future[Any] | None, Callable[[], Any]]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._is_closed = False
        self._threads = [_start(self._work, name) for _ in range(threads)]

    async def submit(self, call: Callable[[], T], *, urgent: bool) -> T:
        """Run `call` in a thread, and return its result. Raises Over after `close`."""
        if self._is_closed:
            raise Over("net.stopping")
        future = _running()
        self._queue.put((0 if urgent else 1, next(self._order), future, call))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            _, _, future, call = self._queue.get()
            if future is None:
                return
            _fulfil(future, call)
            del future, call  # frees its arguments, too: a list can be 32 MB

    def close(self, *, wait: bool = True) -> None:
        """End the threads after their submitted work; wait at most CLOSE_WITHIN_S."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put((2, next(self._order), None, lambda: None))
        clock = SystemClock()
        over = clock.monotonic() + (CLOSE_WITHIN_S if wait else 0.0)
        for thread in self._threads:
            thread.join(max(over - clock.monotonic(), 0.0))


def _running() -> "Future[Any]":
    """A future that stays running when its caller is cancelled, because the work continues."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _fulfil(future: "Future[T]", call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        future.set_exception(error)


def _start(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread. Raises NoThread if the system has none left."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(errno.EAGAIN, str(error)) from None
    return thread


def begin(call: Callable[[], T]) -> "Future[T]":
    """Run `call` in a thread of its own. Raises NoThread."""
    future = _running()
    _start(partial(_fulfil, future, call), DETACHED)
    return future


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with a thread for each call (getaddrinfo may hang), and without a wait for them at the end."""

    def run_in_executor(self, _: object, func: Callable[..., T], *args: Any) -> Any:  # type: ignore[override]
        return asyncio.wrap_future(begin(partial(func, *args)), loop=self)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, but without waiting for DNS at the end."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


def settle() -> None:
    """Wait briefly before the program ends: a thread in the middle of an import would make the interpreter abort."""
    clock = SystemClock()
    over = clock.monotonic() + SETTLE_WITHIN_S
    for thread in threading.enumerate():
        if thread.name == DETACHED:
            thread.join(max(over - clock.monotonic(), 0.0))


async def detached(call: Callable[[], T], *, unwanted: Callable[[T], object] | None = None) -> T:
    """Run `call` in a separate thread, which is abandoned if the caller is cancelled or the program ends.

    `unwanted` gets the result if the caller no longer waits.
    """
    future = begin(call)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if unwanted is not None:
            future.add_done_callback(lambda done: None if done.exception() else unwanted(done.result()))
        raise
