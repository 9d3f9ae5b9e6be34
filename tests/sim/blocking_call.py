"""Runs a blocking call of the program in its own thread, which takes simulated time. One thread runs at a time."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Self

from tests.sim.plan import Crashed

ASK_AGAIN_S = 0.01

_here = threading.local()


class BlockingCall:
    """A running call. It and the loop run in turn, so that the same seed gives the same trace."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._turn, self._handed_over = threading.Semaphore(0), threading.Semaphore(0)
        self._wait_s: float | None = 0.0  # None: the call has ended
        self._is_dead = False
        self._result: Any = None
        self._error: BaseException | None = None

    async def run(self) -> Any:
        """The call's result. If its process ends meanwhile, the call raises Crashed."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=copy_context().run, args=(self._body, loop), daemon=True)
        thread.start()
        self._handed_over.acquire()
        while self._wait_s is not None:
            try:
                await asyncio.sleep(self._wait_s)
            except asyncio.CancelledError:
                self._is_dead = True
            self._turn.release()
            self._handed_over.acquire()
        thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def _body(self, loop: asyncio.AbstractEventLoop) -> None:
        _here.call = self
        asyncio._set_running_loop(loop)  # for the simulation's clock
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            self._error = error
        asyncio._set_running_loop(None)
        self._wait_s = None
        self._handed_over.release()

    def rest(self, seconds: float) -> None:
        self._wait_s = seconds
        self._handed_over.release()
        self._turn.acquire()
        if self._is_dead:
            raise Crashed


def rest(seconds: float) -> None:
    """Let simulated time pass in a blocking call. On the loop's own thread this does nothing."""
    call: BlockingCall | None = getattr(_here, "call", None)
    if call is not None:
        call.rest(seconds)


def _left_behind(unwanted: Callable[[Any], object] | None, done: asyncio.Task[Any]) -> None:
    """The caller no longer waits, so an error is dropped."""
    if not done.cancelled() and done.exception() is None and unwanted is not None:
        unwanted(done.result())


async def detached(call: Callable[[], Any], *, unwanted: Callable[[Any], object] | None = None) -> Any:
    """Replaces store.workers.detached."""
    task = asyncio.ensure_future(BlockingCall(call).run())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(partial(_left_behind, unwanted))
        raise


class Lock:
    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> Self:
        while self._is_held:
            rest(ASK_AGAIN_S)
        self._is_held = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_held = False
