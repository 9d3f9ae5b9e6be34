"""Makes the screenshots of the board: board-tr.png, board-en.png, status-tr.png and status-en.png.

    ./run test browser                # brings what drives the browser
    .venv/bin/python docs/pictures.py [FOLDER]

The sandbox plays the service, a daemon of its own serves the board, and Debian's Chromium shows it. The orders are the
same each time; ages and times are not.
"""

import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from orderbridge.clock import SystemClock
from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.scenery import APP_SECRET, KADIKOY

CHROMIUM = "/usr/bin/chromium"
COMMAND = Path(sys.executable).with_name("orderbridge")
LISTEN = "127.0.0.1:18489"
PAGE = f"http://{LISTEN}/"
SIZE = {"width": 1280, "height": 800}
SLOT = "INSERT INTO delivery_board_slots (account, slot_utc, polls, failed, logins) VALUES (?, ?, ?, ?, ?)"
CONFIGURATION = """
language = "{language}"
[marketplace]
base_url = {base_url}
ca_file = {ca_file}
cooldown_seconds = 0.5
[database]
url = {database}
[web]
listen = "{listen}"
board = "beside"
[[accounts]]
name = "kadikoy"
app_secret_key = "{app_secret}"
rest_secret_key = "sandbox-kadikoy-secret"
"""


def item(name: str, price: float, quantity: int = 1, note: str = "", *options: str) -> dict[str, Any]:
    """One line of an order."""
    chosen = [
        {
            "id": 51,
            "name": "Ekstra",
            "type": "multi",
            "operation": "+",
            "options": {"id": 511, "name": option, "price": 0},
        }
        for option in options
    ]
    known = {"food_id": 1001, "name": name, "price": price, "quantity": quantity, "total": round(price * quantity, 2)}
    return known | {
        "id": f"00000000-0000-4000-8000-{sum(name.encode()):012}",
        "note": note,
        "option_groups": chosen,
    }


PLAIN = {"courier_fee": 0, "order_tip": 0, "discount": "0.00", "scheduled_date": "", "note": ""}
CASH, CARD = "Nakit", "Kredi Kartı (pre-paid)"  # as the service calls them
ORDERS: list[dict[str, Any]] = [
    {
        "payment_method": CARD,
        "courier_type": "restaurant",
        "foods": [item("Kuşbaşılı Pide", 254.90), item("Ayran", 35.00)],
        "total": 289.90,
    },
    {
        "payment_method": CARD,
        "courier_type": "platform_courier",
        "foods": [item("Lahmacun", 89.90, 3, "Acısız")],
        "total": 269.70,
    },
    {
        "payment_method": CASH,
        "courier_type": "restaurant",
        "note": "Zile basmayın, bebek uyuyor",
        "foods": [item("Kıymalı Pide", 219.90, 2, "Soğansız", "Ekstra Kaşar", "Acı Sos"), item("Ayran", 26.25, 2)],
        "total": 492.30,
    },
    {
        "payment_method": CASH,
        "courier_type": "come_get",
        "shipping_method": "pickup",
        "foods": [item("Izgara Köfte", 285.00)],
        "total": 285.00,
    },
    {
        "payment_method": CASH,
        "courier_type": "restaurant",
        "foods": [item("Mercimek Çorbası", 95.00, 2)],
        "total": 190.00,
    },
]
AT_REST = """() => !document.querySelector(".card.gone, .resting, button[aria-disabled=true]")
  && document.getAnimations().every((one) => one.effect.getTiming().iterations > 1)"""


@contextlib.contextmanager
def daemon(folder: Path, sandbox: Sandbox, language: str) -> Iterator[Path]:
    """One that serves the board; where its configuration is."""
    file = folder / f"{language}.toml"
    file.write_text(
        CONFIGURATION.format(
            language=language,
            base_url=json.dumps(sandbox.base_url),
            ca_file=json.dumps(str(sandbox.ca_file)),
            database=json.dumps(f"sqlite:///{folder}/{language}.db"),
            listen=LISTEN,
            app_secret=APP_SECRET,
        )
    )
    file.chmod(0o600)
    with (folder / "log").open("ab") as log:
        started = subprocess.Popen([COMMAND, "--config", file, "run"], stdout=log, stderr=log)  # noqa: S603 - our own
    try:
        yield file
    finally:
        started.terminate()
        started.wait()


def code(file: Path) -> str:
    """Eight digits, once the daemon answers."""
    while True:
        try:
            with urllib.request.urlopen(f"{PAGE}readyz", timeout=5):  # noqa: S310 - our own
                break
        except OSError:
            time.sleep(0.1)
    command = [COMMAND, "--config", file, "board", "pair"]
    return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)  # noqa: S603 - our own


def pair(page: Page, file: Path, language: str) -> None:
    """As somebody would."""
    page.goto(PAGE)
    page.wait_for_selector(".pairing")
    if language == "en":
        page.click("#language")
    page.fill("#code", code(file))
    page.click(".pairing button[type=submit]")
    page.wait_for_selector("#arm, #cards", state="attached")
    page.evaluate("() => document.querySelector('#arm')?.click()")
    page.wait_for_selector("#cards", state="attached")


def fill(page: Page, world: World) -> None:
    """Orders of every kind: on its way, accepted, cancelled, and two that are new."""
    placed = [world.place_order(restaurant_id=KADIKOY, document=PLAIN | document) for document in ORDERS]
    cards = [f".card[data-key='{order.key}']" for order in placed]
    for card in cards:
        page.wait_for_selector(card)
    tap(page, f"{cards[0]} [data-do=accept]")
    tap(page, f"{cards[4]} [data-do=accept]")
    tap(page, f"{cards[4]} [data-do=on_the_way]")
    page.wait_for_selector(f"{cards[4]}.line [data-do=complete]:enabled")
    world.cancel_by_customer(placed[1].key)
    page.wait_for_selector(".card.stop")
    page.wait_for_function(AT_REST)


def tap(page: Page, button: str) -> None:
    """Once it takes a touch."""
    page.click(f"{button}:not([aria-disabled])")


def paint_a_day(database: Path) -> None:
    """What the polls of a whole day would have left: a dead line at noon and two logins."""
    now = SystemClock().now()
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        connection.execute("UPDATE delivery_guard SET open = open + 1")
        for place in range(1, 143):
            slot = (now - timedelta(minutes=10 * place)).replace(second=0, microsecond=0)
            slot = slot.replace(minute=slot.minute // 10 * 10)
            row = ("kadikoy", f"{slot:%Y-%m-%d %H:%M:%S.000000}", 20, 20 * (60 < place < 64), int(place in {59, 130}))
            connection.execute(SLOT, row)
        connection.execute("UPDATE delivery_guard SET open = open - 1")


def main(folder: Path) -> None:
    """Both pages in both languages."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for language in ("tr", "en"):
            world = World.default(options=Options(cooldown_seconds=0.4), report=lambda _: None)
            with Sandbox(world, directory=Path(name)) as sandbox, daemon(Path(name), sandbox, language) as file:
                code(file)
                page = chromium.new_page(viewport=SIZE)
                pair(page, file, language)
                fill(page, world)
                page.mouse.move(0, 0)
                page.screenshot(path=folder / f"board-{language}.png")
                paint_a_day(file.with_suffix(".db"))
                page.goto(f"{PAGE}status")
                page.wait_for_selector("dl")
                page.screenshot(path=folder / f"status-{language}.png")
                page.close()
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
