"""What the board costs a tablet: how long 200 open orders take to repaint, and whether a shift leaves its heap as it was.

    .venv/bin/python benchmarks/board.py [ORDERS]     # after ./run test browser, which brings what drives Chromium

The sandbox, a daemon in this process on SQLite, and one page in Debian's Chromium. A repaint is all cards anew, layout
included, as after a change of language. The heap is read after a collection, with the board empty.
"""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.async_api import async_playwright
from tests.browser.conftest import FLAGS
from tests.browser.counter import CHROMIUM, Counter, Tablet, opened
from tests.test_daemon import COOLDOWN_S, Till

from orderbridge.sandbox import Options, Sandbox, World
from orderbridge.sandbox.scenery import KADIKOY

OPEN, WAVE, TRIES = 200, 50, 7
REPAINT = """() => {
  const begin = performance.now();
  document.querySelector("#language").click();
  document.body.offsetHeight;
  return performance.now() - begin;
}"""
SHOWN = "(count) => document.querySelectorAll('.card').length === count"
CANCEL = "INSERT INTO delivery_actions (action, payment_key, reason_id) SELECT 'cancel', payment_key, 3 FROM delivery_orders WHERE ended_by IS NULL"


async def shift(counter: Counter, tablet: Tablet, orders: int) -> None:
    """Waves of orders that come and go."""
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


async def main(orders: int) -> None:
    """One page, one shift."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as name:
        world = World.default(options=Options(cooldown_seconds=COOLDOWN_S), tell=lambda _: None)
        with Sandbox(world, directory=Path(name)) as sandbox:
            async with async_playwright() as playwright:
                chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                async with opened(sandbox, Till(Path(name) / "pos.db"), chromium) as counter:
                    tablet = await counter.tablet()
                    await tablet.arm()
                    await shift(counter, tablet, orders)
                await chromium.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
