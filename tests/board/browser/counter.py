"""The daemon in this process, the sandbox, and tablets in a real browser.

Nothing here sleeps: Playwright moves the page's clock.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.board.branch import PLAIN, Branch, at_work, settings_of
from tests.test_daemon import Till

from orderbridge import config
from orderbridge_board.door import COOKIE
from orderbridge_sandbox import Sandbox
from orderbridge_sandbox.state import Order

CHROMIUM = Path("/usr/bin/chromium")

pytest.importorskip("playwright.async_api", reason="what drives a browser is not installed: ./run test browser")
if not CHROMIUM.exists():
    pytest.skip("no Chromium here (Debian: chromium)", allow_module_level=True)

from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright  # noqa: E402 - if installed
from playwright.async_api import TimeoutError as NotInTime  # noqa: E402

# The tests import these names from here, so that they are skipped if Playwright is missing.
__all__ = ["PLAIN", "Browser", "NotInTime", "Route", "async_playwright"]

PATIENT_MS = 60_000  # a busy machine may take ten times what a quiet one takes
SILENCE = "() => orderbridgeSound.sounding().length === 0 && orderbridgeSound.level() < 0.001"
RINGS = "(name) => orderbridgeSound.sounding().includes(name) && orderbridgeSound.level() > 0.05"
# The alerts that a screen reader speaks, in their order.
ALERTS = """
globalThis.alerts = [];
new MutationObserver((found) => {
  for (const one of found.flatMap(({ addedNodes }) => [...addedNodes])) {
    if (one.getAttribute?.("role") === "alert") alerts.push(one.textContent);
  }
}).observe(document, { childList: true, subtree: true });
"""
# What is played: each note's pitch and shape, written down where it starts.
LISTEN = """
globalThis.played = [];
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function (...given) {
  played.push(`${this.type} ${Math.round(this.frequency.value)}`);
  return start.apply(this, given);
};
"""
BUTTON = ".card[data-key='{}'] button[data-do={}]"


class Tablet:
    """A page with the board, and the errors in its console."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        self.printed: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note_message)
        page.on("request", lambda request: self.asked.append(request.url))

    def _note_message(self, message: Any) -> None:
        """Note a message of the console. A missing touch and a cut connection are no errors."""
        self.printed.append(message.text)
        if not any(known in message.text for known in ("AudioContext was not allowed", "net::ERR_", "status of 503")):
            self.complaints.append(message.text)

    async def open(self, path: str = "") -> None:
        await self.page.goto(self.address + path)

    async def arm(self) -> None:
        """Turn the sound on by one touch. Chromium counts any call of Playwright as a touch."""
        await self.open()
        await self.page.wait_for_selector("#arm, #cards", state="attached")
        await self.page.evaluate("() => document.querySelector('#arm')?.click()")
        await self.page.wait_for_selector("#cards", state="attached")

    async def hears(self, name: str) -> None:
        await self.page.wait_for_function(RINGS, arg=name)

    async def is_silent(self) -> None:
        await self.page.wait_for_function(SILENCE)

    async def shows(self, order: Order, text: str) -> None:
        await self.page.locator(self.card(order), has_text=text).wait_for()

    def card(self, order: Order) -> str:
        return f".card[data-key='{order.key}']"

    async def tap(self, order: Order, what: str) -> None:
        await self.page.click(BUTTON.format(order.key, what))

    async def middle_of(self, selector: str) -> tuple[float, float]:
        box = await self.page.locator(selector).bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    async def choose(self, text: str) -> None:
        await self.page.locator("dialog button", has_text=text).first.click()

    async def cancel(self, order: Order, reason: str) -> None:
        """Choose a reason, then confirm."""
        await self.tap(order, "cancel")
        await self.choose(reason)
        await self.page.click("dialog [data-do=confirm]")

    async def accept(self, order: Order, minutes: int = 25) -> None:
        """Accept an order: the usual minutes need one touch, others two."""
        await self.tap(order, "accept" if minutes == 25 else "minutes")
        if minutes != 25:
            await self.choose(f"{minutes} dk")


class Counter(Branch):
    def __init__(self, settings: config.Settings, sandbox: Sandbox, till: Till, browser: Browser) -> None:
        super().__init__(settings, sandbox, till)
        self.browser = browser

    async def tablet(self, name: str = "Tezgâh", browser: Browser | None = None, **options: Any) -> Tablet:
        context = await (browser or self.browser).new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        self._left.push_async_callback(context.close)
        return await self.tablet_in(context, name)

    async def armed(self, name: str = "Tezgâh", script: str = "", *, has_clock: bool = False, **options: Any) -> Tablet:
        """`has_clock`: the page's time is moved by the test from now on."""
        tablet = await self.tablet(name, **options)
        if script:
            await tablet.page.add_init_script(script)
        if has_clock:
            await tablet.page.clock.install()
        await tablet.arm()
        return tablet

    async def tablet_in(self, context: BrowserContext, name: str) -> Tablet:
        page = await context.new_page()
        page.set_default_timeout(PATIENT_MS)
        await context.add_cookies([{"name": COOKIE, "value": await self.cookie(name), "url": self.address}])
        return Tablet(page, self.address)


@contextlib.asynccontextmanager
async def opened(sandbox: Sandbox, till: Till, browser: Browser, **more: Any) -> AsyncIterator[Counter]:
    counter = Counter(settings_of(sandbox, till, **more), sandbox, till, browser)
    async with at_work(counter):
        yield counter
