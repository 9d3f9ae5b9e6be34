"""A TCP proxy that can be cut silently: it stops passing data on, without an error."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Line:
    """Listens on a local port of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._there = host, port
        self._loop = asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._passes.set()
        self._kept: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passes.wait()
        there, back = await asyncio.open_connection(*self._there)
        for one in (self._pass_on(reader, back), self._pass_on(there, writer)):
            task = asyncio.create_task(one)
            self._kept.add(task)
            task.add_done_callback(self._kept.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        await self._passes.wait()  # an end of the stream is not passed on, either
        writer.close()

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        self._loop.call_soon_threadsafe(self._passes.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._passes.set)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = list(self._kept)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
