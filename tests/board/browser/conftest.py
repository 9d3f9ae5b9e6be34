"""One Chromium for each worker, and a counter for each test. Without Chromium or its driver the modules are skipped."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from tests.test_daemon import Till, certificates, sandbox, till, world

from orderbridge_board import cards
from orderbridge_sandbox import Sandbox

__all__ = ["certificates", "sandbox", "till", "world"]

FLAGS = "--disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run".split()
FLAGS.append("--no-sandbox")  # the tests may run as root


@pytest.fixture(autouse=True)
def hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time in which a tap can be taken back."""
    monkeypatch.setattr(cards, "HOLD", timedelta(milliseconds=200))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[object]:
    """The launcher of browsers, and the browser that all tests share."""
    from playwright.async_api import async_playwright
    from tests.board.browser.counter import CHROMIUM

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def counter(sandbox: Sandbox, till: Till, chromium: Any) -> AsyncIterator[object]:
    from tests.board.browser.counter import opened

    async with opened(sandbox, till, chromium) as counter:
        yield counter
