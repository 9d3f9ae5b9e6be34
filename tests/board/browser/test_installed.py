"""The cached page opens without the daemon, is never older than the daemon, and holds no order."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.board.browser.conftest import FLAGS
from tests.board.browser.counter import CHROMIUM, Counter, Tablet, async_playwright, opened
from tests.test_daemon import WITHIN_S
from tests.web.test_service import free_address

from orderbridge import config
from orderbridge_board import shell

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

CANARY = "kanarya"
KEPT = """async (version) => {
  const all = await caches.keys();
  return all.length === 1 && all[0] === `orderbridge-${version}`
    && Boolean((await navigator.serviceWorker.ready).active) && Boolean(navigator.serviceWorker.controller);
}"""
# Everything that a browser keeps of a page, as one text; a cache's addresses and what it has for them.
STORED = """async () => {
  const found = [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie];
  found.push(JSON.stringify(await indexedDB.databases()));
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    for (const request of await cache.keys()) found.push(request.url, await (await cache.match(request)).text());
  }
  return found.join("\\n");
}"""
# Which of these answers the browser's own cache has.
CACHED = """async (urls) => {
  const found = [];
  for (const url of urls.filter((one) => !/[.]\\w+$/.test(one))) {
    const answer = await fetch(url, { cache: "only-if-cached", mode: "same-origin" }).catch(() => null);
    if (answer?.ok) found.push(url);
  }
  return found;
}"""
NO_TRUST = "ServiceWorkerContainer.prototype.register = () => Promise.reject(new DOMException('', 'SecurityError'));"
INSTALLED = "() => navigator.serviceWorker.getRegistrations().then((all) => all.length)"
DOWN = "Program yanıt vermiyor: yeni siparişler burada görünmez."


def upgraded(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mark = b"\ndocument.documentElement.dataset.upgraded = 'yes';"
    monkeypatch.setitem(shell.FILES, name, shell.FILES[name] + mark)


async def kept(tablet: Tablet) -> None:
    """Wait until the service worker runs and has cached all files of this version."""
    async with asyncio.timeout(WITHIN_S):
        while not await tablet.page.evaluate(KEPT, shell.version()):
            pass


@contextlib.asynccontextmanager
async def in_its_place(counter: Counter, how: str) -> AsyncIterator[None]:
    """Replace the daemon by nothing, by a proxy that cannot reach it, or by a server that accepts and never answers."""
    if how == "refuses":
        yield
        return

    writers = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if how == "proxy":
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>")
            writer.close()

    host, port = counter.settings.web.listen.split(":")
    async with await asyncio.start_server(answer, host, int(port)):
        yield
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("how", ["refuses", "proxy", "silent"])
async def test_a_reload_without_the_daemon_shows_our_page_says_so_and_sounds(how: str, counter: Counter):
    tablet = await counter.armed()
    order = await counter.order()
    await tablet.page.wait_for_selector(tablet.card(order))
    await kept(tablet)
    await counter.stop()
    async with in_its_place(counter, how):
        await tablet.arm()
        await tablet.page.locator("#down", has_text=DOWN).wait_for()
        assert await tablet.page.evaluate("() => document.documentElement.lang") == "tr"
        await tablet.page.locator("#bar.red", has_text="Tablet bilgisayara ulaşamıyor").wait_for()
        await tablet.hears("line")
        if how == "refuses":
            await other_pages_and_words(tablet)
    await counter.start()
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.locator("#down").wait_for(state="hidden")


async def other_pages_and_words(tablet: Tablet) -> None:
    """What was chosen before is kept, too."""
    await tablet.page.click("#language")
    await tablet.page.locator("#down", has_text="The program does not answer").wait_for()
    await tablet.open("status")
    await tablet.page.locator("#light.red", has_text="The tablet cannot reach the computer").wait_for()
    await tablet.arm()
    await tablet.page.locator("#down", has_text="The program does not answer").wait_for()


async def test_nothing_of_an_order_or_a_customer_is_kept(counter: Counter, tmp_path: Path):
    """No cache, no store and no file of the browser's profile contains it, whatever was shown."""
    folder = tmp_path / "profile"
    async with async_playwright() as playwright:
        profile = await playwright.chromium.launch_persistent_context(folder, executable_path=CHROMIUM, args=FLAGS)
        tablet = await counter.tablet_in(profile, "Tezgâh")
        await tablet.arm()
        await kept(tablet)
        named = {"name": f"{CANARY} ad", "phone": f"{CANARY} 555"}
        order = await counter.order(note=f"{CANARY} not", customer=named, address={"address": f"{CANARY} sokak"})
        await tablet.page.locator(tablet.card(order), has_text=f"{CANARY} not").wait_for()
        await tablet.tap(order, "more")
        await tablet.page.locator("dialog", has_text=f"{CANARY} sokak").wait_for()
        await tablet.page.click("dialog [data-do=close]")
        for name in ("menu", "recall"):
            await tablet.page.click(f"#{name}")
            await tablet.page.wait_for_selector(".list")
        await tablet.open("status")
        await tablet.page.wait_for_selector("dl")
        await tablet.page.reload()
        await tablet.page.wait_for_selector("dl")
        stored = await tablet.page.evaluate(STORED)
        asked = {url for url in tablet.asked if "/board/" in url and not url.endswith("/stream")}
        assert await tablet.page.evaluate(CACHED, sorted(asked)) == []
        await profile.close()
    assert "orderbridge.language" in stored
    assert DOWN in stored  # the sentences are there
    assert [word for word in (CANARY, str(order.key), str(order.number)) if word in stored] == []
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any(DOWN.encode() in content for content in files.values())  # the cache is stored as plain text
    words = (CANARY.encode(), str(order.key).encode())
    assert [name for name, content in files.items() if any(word in content for word in words)] == []
    held = {re.sub("^https?://[^/]+", "", line) for line in stored.splitlines() if line.startswith(counter.address)}
    assert held == shell.served().keys() - {"/worker.js"}


async def test_after_an_upgrade_the_new_page_replaces_the_kept_one_by_itself(counter: Counter, monkeypatch):
    """No touch is needed. Any later reload shows the new page, with the daemon or without."""
    tablet = await counter.armed(has_clock=True)
    await kept(tablet)
    await counter.stop()
    old = shell.version()
    upgraded(monkeypatch, "board.js")
    assert shell.version() != old
    await counter.start()
    order = await counter.order()
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.clock.fast_forward(31_000)
    await tablet.page.wait_for_selector("[data-upgraded=yes]", state="attached")
    await kept(tablet)
    await counter.stop()
    await tablet.arm()
    await tablet.page.locator("#down", has_text=DOWN).wait_for()
    await tablet.page.wait_for_selector("[data-upgraded=yes]", state="attached")


async def test_a_cached_page_is_replaced_at_the_first_reload(counter: Counter, monkeypatch):
    """A tablet that was off during the upgrade does not show its cached page beside a newer daemon."""
    tablet = await counter.armed()
    await kept(tablet)
    await tablet.open("livez")
    await counter.stop()
    upgraded(monkeypatch, "common.js")
    await counter.start()
    await tablet.open()
    await tablet.page.wait_for_selector("[data-upgraded=yes]", state="attached")
    await kept(tablet)


async def test_it_can_be_installed(counter: Counter):
    """The private window of the test is Chromium's only objection."""
    tablet = await counter.armed()
    await kept(tablet)
    session = await tablet.page.context.new_cdp_session(tablet.page)
    found = await session.send("Page.getAppManifest")
    assert (found["url"], found["errors"]) == (f"{counter.address}manifest.webmanifest", [])
    errors = await session.send("Page.getInstallabilityErrors")
    assert {one["errorId"] for one in errors["installabilityErrors"]} <= {"in-incognito"}


async def test_the_page_works_without_service_workers(sandbox, till, chromium):
    """Plain HTTP in a local network has no service workers; with an untrusted certificate they are refused."""
    host, port = free_address()
    web = config.Web(listen=f"{host}:{port}", board="beside", hosts=("kasa",))
    async with opened(sandbox, till, chromium, web=web) as counter:
        tablets = [await counter.tablet("Tezgâh")]
        await tablets[0].page.add_init_script(NO_TRUST)
        async with async_playwright() as playwright:
            args = [*FLAGS, f"--host-resolver-rules=MAP kasa {host}"]
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=args)
            counter.address = f"http://kasa:{port}/"
            tablets.append(await counter.tablet("Mutfak", browser))
            for tablet in tablets:
                await tablet.arm()
            order = await counter.order()
            for tablet in tablets:
                await tablet.hears("new")
                await tablet.page.wait_for_selector(tablet.card(order))
                assert tablet.complaints == []
            assert not await tablets[1].page.evaluate("() => isSecureContext || 'serviceWorker' in navigator")
            assert await tablets[0].page.evaluate(INSTALLED) == 0
            await browser.close()
