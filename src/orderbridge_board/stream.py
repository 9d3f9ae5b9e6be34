"""Server-sent events: "changed, n" at once and after each change, and a sign of life in between."""

import asyncio
import contextlib

from starlette.types import Receive, Scope, Send

from orderbridge_board.changes import Changes, Listener

BEAT_S = 10.0  # the page says after 25 s without one that it may be stale
SLOW_S = 10.0  # a listener that does not take a line of text for so long is dropped
HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]


class Stream:
    """An answer that ends when the listener goes, is dropped, or the server closes."""

    def __init__(self, changes: Changes, listener: Listener) -> None:
        self._changes = changes
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        scope["state"]["connection"].endure()
        leaving = asyncio.create_task(_left(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEAD})
            word = "changed"
            while not (self._listener.gone or leaving.done()):
                self._listener.news.clear()
                said = f"event: {word}\ndata: {self._changes.number}\n\n".encode()
                async with asyncio.timeout(SLOW_S):
                    await send({"type": "http.response.body", "body": said, "more_body": True})
                word = "changed" if await self._news(leaving) else "beat"
        except TimeoutError:
            scope["state"]["connection"].cut()
            await leaving
        else:
            if not leaving.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._changes.leave(self._listener)
            leaving.cancel()

    async def _news(self, leaving: asyncio.Task[None]) -> bool:
        news = asyncio.create_task(self._listener.news.wait())
        try:
            await asyncio.wait({news, leaving}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            return self._listener.news.is_set()  # what came together with the end of the wait is no beat
        finally:
            news.cancel()


async def _left(receive: Receive) -> None:
    """Until whoever listens is gone."""
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
