"""A counter: the service in this process, the sandbox behind it, and tablets in a real browser before it.

Nothing here sleeps. What the page does by its own clock is brought about by Playwright's.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect
from tests import databases
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

CHROMIUM = Path("/usr/bin/chromium")

pytest.importorskip("playwright.async_api", reason="what drives a browser is not installed: ./run test browser")
if not CHROMIUM.exists():
    pytest.skip("no Chromium here (Debian: chromium)", allow_module_level=True)

from playwright.async_api import Browser, Page, Route, async_playwright  # noqa: E402 - only where it is
from playwright.async_api import TimeoutError as NotInTime  # noqa: E402

__all__ = [
    "Browser",
    "NotInTime",
    "Route",
    "async_playwright",
]  # the tests take them from here: what is not installed skips them

PATIENT_MS = 60_000  # a busy machine may take ten times what a quiet one takes
SILENCE = "() => orderbridgeSound.sounding().length === 0 && orderbridgeSound.level() < 0.001"
RINGS = "(name) => orderbridgeSound.sounding().includes(name) && orderbridgeSound.level() > 0.05"
# What is said aloud by a screen reader: each alert, as it comes.
ALERTS = """
globalThis.alerts = [];
new MutationObserver((found) => {
  for (const one of found.flatMap(({ addedNodes }) => [...addedNodes])) {
    if (one.getAttribute?.("role") === "alert") alerts.push(one.textContent);
  }
}).observe(document, { childList: true, subtree: true });
"""
REASONS = "SELECT id FROM delivery_cancel_reasons"  # read beside the first orders: without them nothing can be chosen
BUTTON = ".card[data-key='{}'] button[data-do={}]"


class ServerTill(Till):
    """The same on a server."""

    def __init__(self, url: str, path: Path) -> None:
        super().__init__(path)  # where nothing is
        self.url = url
        self.engine = create_engine(url)

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        with self.engine.begin() as connection:
            found = connection.exec_driver_sql(sql.replace("?", "%s"), values)
            return [dict(row) for row in found.mappings()] if found.returns_rows else []

    def run(self, sql: str, *values: object) -> int:
        self.rows(sql, *values)
        return 0

    def plant(self, sql: str, *values: object) -> None:
        self.rows(sql, *values)

    def has_tables(self) -> bool:
        return inspect(self.engine).has_table("delivery_orders")


@contextlib.contextmanager
def till_on(kind: str, path: Path) -> Iterator[Till]:
    """A till, and a database of its own. PostgreSQL only where there is a server anyway."""
    if kind == databases.SQLITE:
        yield Till(path)
        return
    if databases.POSTGRES_URL is None:
        pytest.skip("ORDERBRIDGE_TEST_POSTGRES_URL names no server")
    with databases.own_database(databases.POSTGRES_URL, f"obs_browser_{os.getpid()}") as url:
        till = ServerTill(url, path)
        yield till
        till.engine.dispose()


class Tablet:
    """A page with the board, and what it complained of."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, message: Any) -> None:
        """That it wants a touch is no complaint; nor is a line that was cut."""
        self.said.append(message.text)
        if not any(known in message.text for known in ("AudioContext was not allowed", "net::ERR_", "status of 503")):
            self.complaints.append(message.text)

    async def open(self, path: str = "") -> None:
        await self.page.goto(self.address + path)

    async def arm(self) -> None:
        """The one touch that turns the sound on. To Chromium whatever Playwright asks of a page is one already."""
        await self.open()
        await self.page.wait_for_selector("#arm, #cards", state="attached")
        await self.page.evaluate("() => document.querySelector('#arm')?.click()")
        await self.page.wait_for_selector("#cards", state="attached")

    async def hears(self, name: str) -> None:
        """It is played, and can be heard."""
        await self.page.wait_for_function(RINGS, arg=name)

    async def is_silent(self) -> None:
        await self.page.wait_for_function(SILENCE)

    async def shows(self, order: Order, text: str) -> None:
        """The card says so."""
        await self.page.locator(self.card(order), has_text=text).wait_for()

    def card(self, order: Order) -> str:
        return f".card[data-key='{order.key}']"

    async def tap(self, order: Order, what: str) -> None:
        await self.page.click(BUTTON.format(order.key, what))

    async def tap_now(self, selector: str) -> None:
        """Where it is, whether it takes that or not."""
        box = await self.page.locator(selector).bounding_box()
        assert box is not None
        await self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    async def choose(self, text: str) -> None:
        """In the dialog that is open."""
        await self.page.locator("dialog button", has_text=text).first.click()

    async def cancel(self, order: Order, reason: str) -> None:
        """A reason, and then the word that it is meant."""
        await self.tap(order, "cancel")
        await self.choose(reason)
        await self.page.click("dialog [data-do=confirm]")

    async def accept(self, order: Order, minutes: int = 25) -> None:
        """The usual minutes with one touch, others with two."""
        if minutes == 25:
            await self.tap(order, "accept")
        else:
            await self.tap(order, "minutes")
            await self.choose(f"{minutes} dk")


class Counter:
    """The whole of it."""

    def __init__(self, settings: config.Settings, sandbox: Sandbox, till: Till, browser: Browser) -> None:
        self.settings = settings
        self.world: World = sandbox.world
        self.till = till
        self.browser = browser
        self.address = f"http://{settings.web.listen}/"
        self.service: Service | None = None
        self._task: asyncio.Task[None] | None = None
        self._left = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """A daemon that listens."""
        self.service = Service(self.settings, lambda: self.settings)
        self._task = begun(self.service.run())
        await until(lambda: self.service._listening.addresses and self.daemon and self.till.has_tables())

    async def stop(self) -> None:
        """In order, as a SIGTERM does."""
        if self.service is not None and self._task is not None:
            self.service._end()
            await self._task
            self.service = None

    @property
    def daemon(self) -> RunningDaemon | None:
        return self.service.extensions["board"].daemon if self.service.extensions else None

    @property
    def board(self) -> Any:
        return self.service._listening._server._pages[0]

    def problems(self) -> set[str]:
        """Codes of what the daemon says is wrong."""
        return {str(one.code) for one in self.daemon.problems()}

    async def tablet(self, name: str = "Tezgâh", browser: Browser | None = None, **options: Any) -> Tablet:
        """One that was paired."""
        context = await (browser or self.browser).new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        self._left.push_async_callback(context.close)
        page = await context.new_page()
        page.set_default_timeout(PATIENT_MS)
        await context.add_cookies(
            [{"name": "orderbridge_board", "value": await self._cookie(name), "url": self.address}]
        )
        return Tablet(page, self.address)

    async def _cookie(self, name: str) -> str:
        database = self.daemon.database
        code = await self.code()
        now = SystemClock().now()  # not before the code was made
        cookie = await database.run(lambda tx: devices.pair(tx, code, name, now))
        assert cookie is not None
        return cookie

    async def code(self) -> str:
        """As `orderbridge board pair` prints it."""
        now = SystemClock().now()
        return await self.daemon.database.run(lambda tx: devices.new_code(tx, devices.ACT, now))

    async def order(self, **document: Any) -> Order:
        """One more, once it is in the tables."""
        order = self.world.place_order(restaurant_id=KADIKOY, document=PLAIN | document)
        await until(lambda: order.acknowledged and self.till.rows(REASONS))
        return order

    async def close(self) -> None:
        """Pages first: a stream that is cut at the end is no news."""
        await self._left.aclose()
        self.world.faults.clear()
        await self.stop()


# An order that is no draw of the sandbox's: what a test does not name is plain.
PLAIN = {
    "courier_type": "restaurant",
    "shipping_method": "delivery",
    "note": "",
    "scheduled_date": "",
}


@contextlib.asynccontextmanager
async def opened(
    sandbox: Sandbox, till: Till, browser: Browser, mode: str = "beside", **more: Any
) -> AsyncIterator[Counter]:
    """A counter whose daemon runs."""
    host, port = free_address()
    changes: dict[str, Any] = {"language": "tr", "web": config.Web(listen=f"{host}:{port}", board=mode)}
    if isinstance(till, ServerTill):
        changes["database"] = config.Database(url=till.url)
    settings = settings_for(sandbox, till).model_copy(update=changes | more)
    counter = Counter(settings, sandbox, till, browser)
    try:
        await counter.start()
        yield counter
    finally:
        await counter.close()


def seconds(text: str) -> int:
    """Of an age such as 1:35."""
    minutes, rest = re.findall(r"\d+", text)[:2]
    return 60 * int(minutes) + int(rest)
