"""What many accounts write at about the same moment goes in one transaction: of ten thousand logins each would be one.

One that is refused takes no other along: when the transaction fails, each is written alone.
"""

import asyncio
from collections.abc import Callable

from sqlalchemy import Connection

from orderbridge.store.database import Database
from orderbridge.store.group_commit import concerns_all

Write = Callable[[Connection], None]
Asked = tuple[Write, asyncio.Future[None]]

MOST = 100  # in one transaction: a till waits no longer for it than for a poll's


class Gathered:
    """Writes together what comes within `wait_s` seconds; 0: each at once."""

    def __init__(self, database: Database, wait_s: float) -> None:
        self._database = database
        self._wait_s = wait_s
        self._waiting: list[Asked] = []
        self._writing: asyncio.Task[None] | None = None

    async def run(self, write: Write) -> None:
        """Returns when it is on disk, or raises what kept it from there."""
        if not self._wait_s:
            await self._database.run(write, urgent=True)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await done

    async def _write(self) -> None:
        try:
            await asyncio.sleep(self._wait_s)
            while self._waiting:
                some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write_some(some)
        finally:
            self._writing = None

    async def _write_some(self, some: list[Asked]) -> None:
        def all_of_them(connection: Connection) -> None:
            for write, _ in some:
                write(connection)

        try:
            await self._database.run(all_of_them, urgent=True)
        except Exception as error:  # noqa: BLE001 - it belongs to who asked
            if len(some) > 1 and not concerns_all(self._database, error):
                for one in some:
                    await self._write_some([one])
                return
            for done in _who_waits(some):
                done.set_exception(error)
        else:
            for done in _who_waits(some):
                done.set_result(None)


def _who_waits(some: list[Asked]) -> list[asyncio.Future[None]]:
    return [done for _, done in some if not done.done()]  # else who asked has gone
