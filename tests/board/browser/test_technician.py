"""The technician's page shows the same as the commands do."""

import asyncio
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.board.browser.counter import Counter, Tablet, opened
from tests.cli.shell import account, document
from tests.store.samples import in_its_place, put_action, put_document
from tests.store.samples import opened as file_opened
from tests.test_daemon import COMMAND, Till, settings_for, until

from orderbridge.jobs import upkeep
from orderbridge_board import watch
from orderbridge_sandbox import Fault, Sandbox, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ACCOUNTS = ("chain", "kadikoy")
PLANTED = {"login_refused", "quarantined", "not_taken_over", "cancellation_unseen"}
DATA = "() => fetch('/board/technician?language=tr').then((answer) => answer.json())"
UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-")
AMOUNTS = ("cash", "prepaid", "tips")  # on the page
COUNTS = ("orders", "completed", "unfinished", "cancelled", "never_taken_over")


async def test_the_page_equals_status_and_day(sandbox, till, world, chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "HEALTH_S", 0.2)
    monkeypatch.setattr(watch, "COUNT_S", 0.2)
    accounts = settings_for(sandbox, till, *ACCOUNTS).accounts
    async with opened(sandbox, till, chromium, accounts=accounts) as counter:
        await plant(counter, till, world)
        await until(lambda: counter.problems() >= PLANTED)
        await counter.daemon.database.run(lambda tx: None)  # waits for running writes
        tablet = await counter.tablet()
        path = configured(sandbox, till, tmp_path)
        while True:  # again if a problem began between the commands, as board_unheard may on a slow machine
            status, day = await asyncio.gather(reported(path, "status"), reported(path, "day"))
            await tablet.open("status")
            await tablet.page.wait_for_selector(".strip rect.good", state="attached")
            texts = await tablet.page.locator(".problem").all_text_contents()
            data = dict(await tablet.page.evaluate(DATA))
            if len(status["problems"]) == len(texts) == len(data["problems"]):
                break
        says_the_same(data, status, day)
        await shows(tablet, data, texts)
        await tablet.page.get_by_text("Siparişlere dön").click()
        await tablet.page.wait_for_selector("#arm, #cards", state="attached")


async def test_a_closed_restaurant_is_named_instead_of_all_is_well(counter: Counter, till: Till) -> None:
    await until(lambda: till.rows("SELECT 1 FROM delivery_restaurants WHERE status = 'Open'"))
    await asyncio.to_thread(till.plant, "UPDATE delivery_restaurants SET status = 'Closed'")
    tablet = await counter.tablet()
    await tablet.open("status")
    await tablet.page.wait_for_selector("#light.green")
    assert await tablet.page.get_by_text("KAPALI: Örnek Lokanta Kadıköy").count() == 2
    assert await tablet.page.get_by_text("Her şey yolunda").count() == 0


async def plant(counter: Counter, till: Till, world: World) -> None:
    """A completed order, a cancelled one and a new one that no till has seen, and further problems."""
    done, cancelled, old, _ = [await counter.order() for _ in range(4)]
    rows = [await asyncio.to_thread(till.accept, done)]
    rows += [await asyncio.to_thread(till.act, action, done) for action in ("on_the_way", "complete")]
    await until(lambda: till.state(rows[-1]) == "done")
    await counter.run("UPDATE delivery_orders SET pos_revision = 1 WHERE payment_key <> ?", old.key)
    await asyncio.to_thread(world.cancel_by_customer, cancelled.key)
    await until(lambda: till.status(cancelled) == 6)
    late = f"{datetime.now(UTC) - timedelta(minutes=30):%Y-%m-%d %H:%M:%S.%f}"
    change = "UPDATE delivery_orders SET received_utc = ? WHERE payment_key = ?"
    await counter.plant(change, late, old.key)
    change = "UPDATE delivery_orders SET changed_utc = ?, ended_utc = ? WHERE payment_key = ?"
    await counter.plant(change, late, late, cancelled.key)
    world.refuse_account("chain")
    world.faults.add(Fault.too_many("accept", times=None))
    with file_opened(till.path) as pos, in_its_place(pos):
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
        put_document(pos, first_seen_utc=now, last_seen_utc=now)  # an old one is blanked
        put_action(pos, payment_key=old.key, state="failed", finished_utc=now)
    await asyncio.to_thread(till.accept, old)  # and waits, or is on its way again


def configured(sandbox: Sandbox, till: Till, folder: Path) -> Path:
    path = folder / "orderbridge.toml"
    parts = {"marketplace": f'ca_file = "{sandbox.ca_file}"', "database": f'url = "sqlite:///{till.path}"'}
    parts["accounts"] = "".join(account(name, f"sandbox-{name}-secret") for name in ACCOUNTS)
    text = document(base_url=sandbox.base_url, more='[web]\nboard = "beside"', **parts)
    path.write_text(text.replace('language = "en"', 'language = "tr"'))
    path.chmod(0o600)
    return path


async def reported(configuration: Path, name: str) -> dict[str, Any]:
    command = [COMMAND, "--config", configuration, name, "--json"]
    return dict(json.loads((await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)).stdout))


def says_the_same(data: dict[str, Any], status: dict[str, Any], day: dict[str, Any]) -> None:
    facts = ("code", "subject", "severity", "count", "cause", "remedy")
    shown, known = ([[one[fact] for fact in facts] for one in found["problems"]] for found in (data, status))
    assert shown == known and {one[0] for one in shown} >= PLANTED
    shown, known = ({one["name"]: one["state"] for one in found["accounts"]} for found in (data, status))
    assert shown == known
    assert shown.keys() == set(ACCOUNTS)
    for found in (data, status):
        assert (found["outbox"]["waiting"], found["outbox"]["failed_last_day"], found["quarantined"]) == (1, 1, 1)
    figures = [{name: Decimal(one) for name, one in found.items()} for found in (data["day"]["figures"], day["total"])]
    assert (figures[0], sum(data["day"]["hours"])) == (figures[1], day["total"]["orders"])


async def shows(tablet: Tablet, data: dict[str, Any], texts: list[str]) -> None:
    for one, text in zip(data["problems"], texts, strict=True):
        assert all(one[part] in text for part in ("who", "cause", "remedy"))
        assert one["code"] not in text
        assert UUID.search(text) is None
    assert await tablet.page.locator("#light.red", has_text=data["problems"][0]["cause"]).count() == 1
    names = await tablet.page.locator("tbody th").all_text_contents()
    assert names == [one["name"] for one in (*data["tablets"], *data["accounts"])]
    rows = await tablet.page.locator("section", has_text="Bekleyen işlemler").text_content() or ""
    assert re.search("Bekleyen: 1, gönderiliyor: [01], son 24 saatte başarısız: 1", rows)
    assert "Karantinada: 1" in rows
    figures = data["day"]["figures"]
    wanted = [str(figures[name]) for name in COUNTS]
    wanted += [f"{float(figures[name]):,.2f}".translate(str.maketrans(",.", ".,")) for name in AMOUNTS]
    figures = await tablet.page.locator(".figure dd").all_text_contents()  # others if there are any
    assert figures[: len(wanted)] == wanted
    assert await tablet.page.locator(".strip rect.order").count() == len(data["orders"]) > 0
    assert await tablet.page.locator("rect.hour").count() == len(data["day"]["hours"]) >= 23
    assert tablet.complaints == []
