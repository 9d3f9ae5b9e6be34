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
from tests.store.samples import in_its_place, put_action, put_document
from tests.store.samples import opened as file_opened
from tests.test_daemon import (  # one name after another: they are fixtures
    COMMAND,
    Till,
    settings_for,
    until,
)

from orderbridge.jobs import upkeep
from orderbridge_board import watch
from orderbridge_sandbox import Fault, Sandbox, World
from orderbridge_sandbox.scenery import APP_SECRET

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ACCOUNTS = ("chain", "kadikoy")
PLANTED = {"login_refused", "quarantined", "not_taken_over", "cancellation_unseen"}
ACCOUNT = """
[[accounts]]
name = "{name}"
app_secret_key = "{secret}"
rest_secret_key = "sandbox-{name}-secret"
"""
CONFIGURATION = """
language = "tr"
[marketplace]
base_url = {base_url}
ca_file = {ca_file}
[database]
url = {url}
[web]
board = "beside"
"""
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
        await counter.daemon.database.run(lambda tx: None)  # what is being written is
        tablet = await counter.tablet()
        await tablet.open("status")
        path = configured(sandbox, till, tmp_path)
        after = await asked(tablet)
        while True:  # until no problem begins between the commands: on a slow machine board_unheard may
            before = after
            status, day = await asyncio.gather(reported(path, "status"), reported(path, "day"))
            await tablet.open("status")
            await tablet.page.wait_for_selector(".strip rect.good", state="attached")
            texts = await tablet.page.locator(".problem").all_text_contents()
            after = await asked(tablet)
            if len(before["problems"]) == len(texts) == len(after["problems"]):
                break
        says_the_same(before, after, status, day)
        await shows(tablet, after, texts)
        await tablet.page.get_by_text("Siparişlere dön").click()
        await tablet.page.wait_for_selector("#arm, #cards", state="attached")


async def plant(counter: Counter, till: Till, world: World) -> None:
    """One order completed, one cancelled and one new that no till has seen; and what else can be wrong."""
    done, cancelled, old, _ = [await counter.order() for _ in range(4)]
    rows = [await asyncio.to_thread(till.accept, done)]
    rows += [await asyncio.to_thread(till.act, action, done) for action in ("on_the_way", "complete")]
    await until(lambda: till.state(rows[-1]) == "done")
    await asyncio.to_thread(till.run, "UPDATE delivery_orders SET pos_revision = 1 WHERE payment_key <> ?", old.key)
    await asyncio.to_thread(world.cancel_by_customer, cancelled.key)
    await until(lambda: till.status(cancelled) == 6)
    late = f"{datetime.now(UTC) - timedelta(minutes=30):%Y-%m-%d %H:%M:%S.%f}"
    change = "UPDATE delivery_orders SET received_utc = ? WHERE payment_key = ?"
    await asyncio.to_thread(till.plant, change, late, old.key)
    change = "UPDATE delivery_orders SET changed_utc = ?, ended_utc = ? WHERE payment_key = ?"
    await asyncio.to_thread(till.plant, change, late, late, cancelled.key)
    world.refuse_account("chain")
    world.faults.add(Fault.too_many("accept", times=None))
    with file_opened(till.path) as pos, in_its_place(pos):
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
        put_document(pos, first_seen_utc=now, last_seen_utc=now)  # an old one is blanked
        put_action(pos, payment_key=old.key, state="failed", finished_utc=now)
    await asyncio.to_thread(till.accept, old)  # and waits, or is on its way again


def configured(sandbox: Sandbox, till: Till, folder: Path) -> Path:
    path = folder / "orderbridge.toml"
    facts = {"base_url": sandbox.base_url, "ca_file": str(sandbox.ca_file), "url": f"sqlite:///{till.path}"}
    text = CONFIGURATION.format(**{name: json.dumps(fact) for name, fact in facts.items()})
    path.write_text(text + "".join(ACCOUNT.format(name=name, secret=APP_SECRET) for name in ACCOUNTS))
    path.chmod(0o600)
    return path


async def reported(configuration: Path, name: str) -> dict[str, Any]:
    command = [COMMAND, "--config", configuration, name, "--json"]
    found = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    return dict(json.loads(found.stdout))


async def asked(tablet: Tablet) -> dict[str, Any]:
    answer = "() => fetch('/board/technician?language=tr').then((answer) => answer.json())"
    return dict(await tablet.page.evaluate(answer))


def at(moment: str | None) -> datetime | None:
    """To the millisecond, as a browser has it."""
    if moment is None:
        return None
    found = datetime.fromisoformat(moment)
    return found.replace(microsecond=found.microsecond // 1000 * 1000, tzinfo=found.tzinfo or UTC)


def says_the_same(before: dict[str, Any], after: dict[str, Any], status: dict[str, Any], day: dict[str, Any]) -> None:
    facts = ("code", "subject", "severity", "count", "cause", "remedy")
    both = (after["problems"], status["problems"])
    listed = [[(*(one[fact] for fact in facts), at(one["since"])) for one in found] for found in both]
    assert listed[0] == listed[1]
    assert {one[0] for one in listed[0]} >= PLANTED
    shown, known = ({one["name"]: one for one in found["accounts"]} for found in (after, status))
    assert shown.keys() == known.keys() == set(ACCOUNTS)
    for name, one in shown.items():
        assert one["state"] == known[name]["state"]
        assert at(one["token_expires_utc"]) == at(known[name]["token_expires_utc"])
    polls = [
        at({one["name"]: one for one in found["accounts"]}["kadikoy"]["last_poll_ok_utc"])
        for found in (before, status, after)
    ]
    assert polls == sorted(polls)
    rows = ("waiting", "failed_last_day")
    assert [after["outbox"][name] for name in rows] == [status["outbox"][name] for name in rows]
    assert (after["outbox"]["waiting"], after["outbox"]["failed_last_day"]) == (1, 1)
    assert after["quarantined"] == status["quarantined"] == 1
    assert at(after["pos_seen"]) == at(status["pos_seen_utc"])
    figures = [{name: Decimal(one) for name, one in found.items()} for found in (after["day"]["figures"], day["total"])]
    assert figures[0] == figures[1]
    assert sum(after["day"]["hours"]) == day["total"]["orders"]


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
    assert (await tablet.page.locator(".figure dd").all_text_contents())[
        : len(wanted)
    ] == wanted  # others if there are any
    assert await tablet.page.locator(".strip rect.order").count() == len(data["orders"]) > 0
    assert await tablet.page.locator("rect.hour").count() == len(data["day"]["hours"]) >= 23
    assert tablet.complaints == []
