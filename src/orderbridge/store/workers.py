"""Threads for what waits for a database, so that the event loop never does, and for what asyncio gives to threads.

They are daemon threads all of them: one that hangs in a server's silence, or in a name server's, is left to the process.
"""

import asyncio
import itertools
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from orderbridge.clock import SystemClock
from orderbridge.errors import Over

T = TypeVar("T")

LEAVE_WITHIN_S = 6.0  # more than a writer of SQLite waits for the file
SETTLE_WITHIN_S = 0.5
DETACHED = "db-detached"


class Workers:
    """Threads over one queue. Urgent work overtakes what waits; within a class, first come, first served."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    async def submit(self, call: Callable[[], T], *, urgent: bool) -> T:
        """What `call` returns or raises. Raises Over when no thread is left that would do it."""
        if self._is_closed:
            raise Over("net.stopping")
        future, job = _job(call, None)
        self._queue.put((0 if urgent else 1, next(self._order), job))
        return await future

    def _work(self) -> None:
        while (job := self._queue.get()[2]) is not None:
            job()
            del job  # and with it what it was called with: a list can be 32 MB

    def close(self, *, wait: bool = True) -> None:
        """End them, once what was submitted is done; wait `LEAVE_WITHIN_S` at most."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put((2, next(self._order), None))
        clock = SystemClock()
        over = clock.monotonic() + (LEAVE_WITHIN_S if wait else 0.0)
        for thread in self._threads:
            thread.join(max(over - clock.monotonic(), 0.0))


class LeftBehind(ThreadPoolExecutor):
    """A loop's default executor, in which getaddrinfo hangs: a thread for each call, and no end waits for one."""

    def submit(self, call: Callable[..., T], /, *args: Any, **named: Any) -> "Future[T]":
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call(*args, **named))
                except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
                    future.set_exception(error)

        threading.Thread(target=work, name=DETACHED, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, which would wait for the resolver of names for as long as that takes."""

    async def run() -> T:
        asyncio.get_running_loop().set_default_executor(LeftBehind(1))
        return await main

    return asyncio.run(run())


def settle() -> None:
    """Before the program ends: a moment for threads that were left behind, to come to where they wait for a server.

    One that is in the middle of an import then would have the interpreter abort.
    """
    clock = SystemClock()
    over = clock.monotonic() + SETTLE_WITHIN_S
    for thread in threading.enumerate():
        if thread.name == DETACHED:
            thread.join(max(over - clock.monotonic(), 0.0))


async def detached(call: Callable[[], T], *, unwanted: Callable[[T], object] | None = None) -> T:
    """Run `call` in a thread of its own, which is left behind when the caller is cancelled or the program ends.

    `unwanted` is given the result that comes when its caller waits no more.
    """
    future, job = _job(call, unwanted)
    threading.Thread(target=job, name=DETACHED, daemon=True).start()
    return await future


def _job(
    call: Callable[[], T], unwanted: Callable[[T], object] | None
) -> tuple["asyncio.Future[T]", Callable[[], None]]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def job() -> None:
        result, failed = None, None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
            failed = error
        try:
            loop.call_soon_threadsafe(_deliver, future, result, failed, unwanted)
        except RuntimeError:  # the loop is closed: its caller waits no more
            if failed is None and unwanted is not None:
                unwanted(result)  # type: ignore[arg-type]

    return future, job


def _deliver(
    future: asyncio.Future[Any], result: Any, error: BaseException | None, unwanted: Callable[[Any], object] | None
) -> None:
    if future.done():  # the caller was cancelled; the work is done all the same
        if error is None and unwanted is not None:
            unwanted(result)
    elif error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
