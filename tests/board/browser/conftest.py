"""One Chromium for each worker. Where there is none, or nothing that drives it, the tests' modules skip themselves."""

from collections.abc import AsyncIterator

import pytest_asyncio

FLAGS = (
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[object]:
    """What starts one, and the one that all tests share."""
    from playwright.async_api import async_playwright
    from tests.board.browser.counter import CHROMIUM

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()
