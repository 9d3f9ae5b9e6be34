"""A restaurant's daemon in this process, with the sandbox and with its board on a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.board.tablets import Tablet
from tests.test_daemon import Till, begun, settings_for, until
from tests.web.test_service import free_address

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.daemon import RunningDaemon
from orderbridge.service import Service
from orderbridge_board import devices
from orderbridge_sandbox import Sandbox, World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

REASONS = "SELECT id FROM delivery_cancel_reasons"  # read with the first orders; a cancel needs one
# The sandbox would draw these fields by chance. A test that does not name them gets a plain order.
PLAIN = {"courier_type": "restaurant", "shipping_method": "delivery", "note": "", "scheduled_date": ""}


class Branch:
    """The service with its board, which a test stops and starts."""

    def __init__(self, settings: config.Settings, sandbox: Sandbox, till: Till) -> None:
        self.settings = settings
        self.world: World = sandbox.world
        self.till = till
        self.address = f"http://{settings.web.listen}/"
        self.service: Service | None = None
        self._task: asyncio.Task[None] | None = None
        self._left = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self.service = Service(self.settings, lambda: self.settings)
        self._task = begun(self.service.run())
        await until(lambda: self.service._listening.addresses and self.daemon and self.till.has_tables())

    async def stop(self) -> None:
        """Stop in order, as a SIGTERM does."""
        if self.service is not None and self._task is not None:
            self.service.end()
            await self._task
            self.service = None

    @property
    def daemon(self) -> RunningDaemon | None:
        return self.service.extensions["board"].daemon if self.service.extensions else None

    @property
    def board(self) -> Any:
        return self.service._listening._server._pages[0]

    def problems(self) -> set[str]:
        return {str(one.code) for one in self.daemon.problems()}

    async def paired(self, name: str) -> Tablet:
        host, port = self.settings.web.listen.split(":")
        return Tablet((host, int(port)), await self.cookie(name))

    async def cookie(self, name: str) -> str:
        code = await self.code()
        now = SystemClock().now()  # not before the code was made
        cookie = await self.daemon.database.run(lambda tx: devices.pair(tx, code, name, now))
        assert cookie is not None
        return cookie

    async def code(self) -> str:
        """A pairing code, as `orderbridge board pair` prints it."""
        return await self.daemon.database.run(lambda tx: devices.new_code(tx, devices.ACT, SystemClock().now()))

    async def order(self, **document: Any) -> Order:
        """Place an order, and wait until it is in the tables."""
        order = self.world.place_order(restaurant_id=KADIKOY, document=PLAIN | document)
        await until(lambda: order.acknowledged and self.till.rows(REASONS))
        return order

    async def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.till.rows, sql, *values)

    async def run(self, sql: str, *values: object) -> None:
        """Execute a statement as the till does."""
        await asyncio.to_thread(self.till.run, sql, *values)

    async def plant(self, sql: str, *values: object) -> None:
        """Execute a statement as the daemon does, with rights that a till lacks."""
        await asyncio.to_thread(self.till.plant, sql, *values)

    async def close(self) -> None:
        """Close the pages first, so that no cut stream is logged."""
        await self._left.aclose()
        self.world.faults.clear()
        await self.stop()


def settings_of(sandbox: Sandbox, till: Till, mode: str = "beside", **more: Any) -> config.Settings:
    host, port = free_address()
    web = config.Web(listen=f"{host}:{port}", board=mode)
    return settings_for(sandbox, till).model_copy(update={"language": "tr", "web": web} | more)


@contextlib.asynccontextmanager
async def at_work(branch: Branch) -> AsyncIterator[None]:
    try:
        await branch.start()
        yield
    finally:
        await branch.close()
