"""Measures what the board costs the tablet and the daemon, and how soon a tap silences it.

    .venv/bin/python benchmarks/board.py paint [ORDERS]       # the repaint of 200 open orders, and the heap after 1,000
    .venv/bin/python benchmarks/board.py quiet [ROUNDS]       # from an answer until two tablets are silent
    .venv/bin/python benchmarks/board.py idle [SECONDS]       # the daemon's processor time, with and without a tablet

`./run test browser` installs the driver of Chromium. quiet and idle also use the server of
ORDERBRIDGE_TEST_POSTGRES_URL.

paint: the sandbox, a daemon in this process on SQLite, and one page. A repaint draws all cards again, with layout, as
after a change of language. The heap is read after a garbage collection, while the board is empty.
quiet: the daemon as a process, and two pages. Each page notes every 5 ms whether it plays a sound (AnalyserNode). A
round begins when both ring, and ends when both have become silent.
"""

import asyncio
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import rig
import structlog
from playwright.async_api import async_playwright
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import create_engine, text
from tests.board.browser.conftest import FLAGS
from tests.board.browser.counter import CHROMIUM, RINGS, Counter, Tablet, opened
from tests.databases import POSTGRES_URL
from tests.test_daemon import COOLDOWN_S, Till
from tests.web.test_service import free_address

from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.scenery import KADIKOY

# ---- paint -----------------------------------------------------------------------------------------------------------

OPEN, WAVE, TRIES = 200, 50, 7
REPAINT = """() => {
  const begin = performance.now();
  document.querySelector("#language").click();
  document.body.offsetHeight;
  return performance.now() - begin;
}"""
SHOWN = "(count) => document.querySelectorAll('.card').length === count"
CANCEL = (
    "INSERT INTO delivery_actions (action, payment_key, reason_id)"
    " SELECT 'cancel', payment_key, 3 FROM delivery_orders WHERE ended_by IS NULL"
)


async def shift(counter: Counter, tablet: Tablet, orders: int) -> None:
    """Let orders arrive and end in waves."""
    session = await tablet.page.context.new_cdp_session(tablet.page)
    done = 0
    while done < orders:
        wave = OPEN if done == 0 else WAVE
        for _ in range(wave):
            counter.world.place_order(restaurant_id=KADIKOY)
        await tablet.page.wait_for_function(SHOWN, arg=wave, timeout=120_000)
        if wave == OPEN:
            times = sorted([await tablet.page.evaluate(REPAINT) for _ in range(TRIES)])
            print(f"repaint of {OPEN} open orders: {times[len(times) // 2]:.0f} ms, at most {times[-1]:.0f} ms")
        await asyncio.to_thread(counter.till.run, CANCEL)
        await tablet.page.wait_for_function(SHOWN, arg=0, timeout=240_000)
        done += wave
        await session.send("HeapProfiler.collectGarbage")
        used = (await session.send("Runtime.getHeapUsage"))["usedSize"]
        nodes = (await session.send("Memory.getDOMCounters"))["nodes"]
        print(f"after {done} orders: heap {used / 1e6:.2f} MB, {nodes} nodes", flush=True)


async def paint(orders: int) -> None:
    """Measure one page over one shift."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as name:
        world = World.default(options=Options(cooldown_seconds=COOLDOWN_S), report=lambda _: None)
        with Sandbox(world, directory=Path(name)) as sandbox:
            async with async_playwright() as playwright:
                chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                async with opened(sandbox, Till(Path(name) / "pos.db"), chromium) as counter:
                    tablet = await counter.tablet()
                    await tablet.arm()
                    await shift(counter, tablet, orders)
                await chromium.close()


# ---- the daemon, and pages that show its board -----------------------------------------------------------------------


class Shop:
    """A running daemon with a board."""

    def __init__(self, world: World, url: str, folder: Path, address: str, process: int) -> None:
        self.world = world
        self.engine = create_engine(url)
        self.configuration = folder / "orderbridge.toml"
        self.address = address
        self.process = process

    def command(self, *words: str) -> str:
        """Run a command of orderbridge and return what it prints."""
        whole = [rig.COMMAND, "--config", self.configuration, *words]
        return subprocess.check_output(whole, text=True, stderr=subprocess.DEVNULL)

    def tablet(self, chromium: Browser) -> Page:
        """A paired page with its sound on."""
        page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.add_init_script(EAR)
        page.goto(self.address)
        page.fill("#code", self.command("board", "pair"))
        page.click(".pairing button[type=submit]")
        page.wait_for_selector("#arm, #cards", state="attached")
        page.evaluate("() => document.querySelector('#arm')?.click()")
        page.wait_for_selector("#cards", state="attached")
        return page

    def processor_s(self) -> float:
        """The daemon's processor time so far, from /proc/PID/stat, in hundredths of a second."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def run(self, statement: str, key: str) -> Any:
        """Execute a statement as a till does."""
        with self.engine.begin() as connection:
            found = connection.execute(text(statement), {"key": key})
            return found.scalar_one() if found.returns_rows else None


@contextmanager
def shop(url: str, cooldown_s: float) -> Iterator[Shop]:
    """Run the daemon as a process, with the sandbox in this one."""
    world = World.default(options=Options(cooldown_seconds=cooldown_s), report=lambda _: None)
    host, port = free_address()
    with (
        tempfile.TemporaryDirectory() as name,
        rig.address(url, "orderbridge_bench_board") as own,
        Sandbox(world, directory=Path(name)) as sandbox,
        rig.daemon(own, sandbox, Path(name), cooldown_s + 0.1, f"{host}:{port}") as process,
    ):
        rig.until(lambda: world.calls("get_restaurant_status"))
        found = Shop(world, own, Path(name), f"http://{host}:{port}/", process)
        yield found
        found.engine.dispose()


# ---- quiet -----------------------------------------------------------------------------------------------------------

EAR = """
globalThis.heardAt = 0;
setInterval(() => {
  const sound = globalThis.orderbridgeSound;
  if (sound && (sound.sounding().length || sound.level() > 0.001)) heardAt = Date.now();
}, 5);
"""
QUIET = "() => orderbridgeSound.sounding().length === 0 && Date.now() - heardAt > 200"
CHOSEN = """() => {
  const usual = document.querySelectorAll("dialog [data-do=choose]")[3];
  const begin = Date.now();
  usual.click();
  return begin;
}"""
TAKE = "UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = :key"
WRITTEN = "SELECT created_utc FROM delivery_actions WHERE payment_key = :key"
MAX_WAIT_S = 0.8  # a random wait after both ring, so that rounds begin at different points of the polling interval


def by_a_tap(_: Shop, pages: list[Page], key: str) -> float:
    """Accept on the first tablet, measured from the tap on the minutes."""
    pages[0].click(f".card[data-key='{key}'] [data-do=accept]")
    pages[0].wait_for_selector("dialog [data-do=choose]:enabled")
    return float(pages[0].evaluate(CHOSEN))


def by_the_till(shop: Shop, _: list[Page], key: str) -> float:
    """A till takes the order over, measured from before its statement."""
    begin = time.time() * 1000
    shop.run(TAKE, key)
    return begin


def by_the_command(shop: Shop, _: list[Page], key: str) -> float:
    """`orderbridge cancel`, measured from its row's time."""
    shop.command("cancel", key, "--reason", "3")
    written = shop.run(WRITTEN, key)  # SQLite has it as a text
    moment = datetime.fromisoformat(written) if isinstance(written, str) else written
    return float((moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp() * 1000)


ACTS: dict[str, Callable[[Shop, list[Page], str], float]] = {
    "a tap": by_a_tap,
    "the till": by_the_till,
    "the command line": by_the_command,
}


def quiet(rounds: int) -> None:
    """Measure each way to answer, on each database."""
    chance = Random(12)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for url in filter(None, ["sqlite", POSTGRES_URL]):
            with shop(url, COOLDOWN_S) as mine:
                pages = [mine.tablet(chromium) for _ in range(2)]
                for name, act in ACTS.items():
                    took = sorted(one_round(mine, pages, act, chance) for _ in range(rounds))
                    print(
                        f"{url.partition('+')[0]}, answered by {name}: both silent after {median(took):.0f} ms,"
                        f" at most {took[-1]:.0f} ms ({rounds} times)",
                        flush=True,
                    )
                for page in pages:
                    page.context.close()
        chromium.close()


def one_round(shop: Shop, pages: list[Page], act: Callable[[Shop, list[Page], str], float], chance: Random) -> float:
    """The milliseconds from the answer until two ringing tablets are silent."""
    key = shop.world.place_order(restaurant_id=KADIKOY).key
    for page in pages:
        page.wait_for_function(RINGS, arg="new")
    time.sleep(chance.uniform(0, MAX_WAIT_S))
    begin = act(shop, pages, key)
    for page in pages:
        page.wait_for_function(QUIET)
    return max(float(page.evaluate("heardAt")) for page in pages) - begin


# ---- idle ------------------------------------------------------------------------------------------------------------

USUAL_COOLDOWN_S = 30.0
SETTLED_S = 10.0


def idle(seconds: float) -> None:
    """Measure five open orders without a tap, at the marketplace's cooldown, with no, one and two tablets."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for url in filter(None, ["sqlite", POSTGRES_URL]):
            with shop(url, USUAL_COOLDOWN_S) as mine:
                orders = [mine.world.place_order(restaurant_id=KADIKOY) for _ in range(5)]
                rig.until(lambda: all(one.acknowledged for one in orders))  # noqa: B023 - at once
                for tablets in (0, 1, 2):
                    if tablets:
                        mine.tablet(chromium)
                    time.sleep(SETTLED_S)
                    before = mine.processor_s()
                    time.sleep(seconds)
                    used = (mine.processor_s() - before) / seconds
                    print(f"{url.partition('+')[0]}, {tablets} tablets: {used:.2%} of a core", flush=True)
        chromium.close()


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["paint"]
    if what == "paint":
        asyncio.run(paint(int(rest[0]) if rest else 1000))
    elif what == "quiet":
        quiet(int(rest[0]) if rest else 20)
    else:
        idle(float(rest[0]) if rest else 60.0)
