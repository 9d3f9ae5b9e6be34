"""A journal is played at its pace, without any text of its customers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.databases import free_port

from orderbridge import model
from orderbridge.store import journal
from orderbridge_sandbox.play import Play, read
from orderbridge_sandbox.rules import CANCELED
from orderbridge_sandbox.rules import COMPLETE_WITH_PAYMENT as COMPLETED

EVENING = datetime(2026, 2, 27, 17, 0, tzinfo=UTC)
CANARY, PHONE = "Kanarya", 5321112233  # the latter in numbers, as a number and as text
REAL: dict[str, Any] = {
    "id": 700123, "status_id": 1, "shipping_method": "delivery", "payment_method": "Nakit",
    "note": "kapıcıya bırakın", "total": 560.75, "discount": "15.00", "date": "2026-02-27 20:00:00",
    "restaurant_id": "0f5a7d9c-1b7e-4c88-9a53-2c5b1a3f4e60",
    "courier_type": "platform_courier", "courier_fee": 19.9, "scheduled_date": "2026-02-27 22:30:00",
    "order_tip": 10,
    "foods": [{
        "id": "7a1e0d55-6f0d-4c1e-9a55-3d2f8e6a7b10", "food_id": 88123, "name": "Gizli Köfte", "note": "",
        "price": 250.5, "quantity": 2, "total": 545.85,
        "option_groups": [
            {"id": 7, "type": "multi", "operation": "+", "options": {"id": 71, "name": "Sos", "price": 44.85}}
        ],
    }],
}  # fmt: skip


def key(number: int) -> str:
    return f"0b7e1c52-6f0d-4c1e-9a55-{number:012x}"


def write(folder: Path, *documents: tuple[int, float, Any]) -> Path:
    """As the daemon writes it: each document's order, its minute of the evening, and its JSON."""
    for number, minute, document in documents:
        raw = json.dumps(document, ensure_ascii=False).encode()
        written = model.Document(raw, sha256(raw).hexdigest(), key(number), 1)
        at = EVENING + timedelta(minutes=minute)
        journal.append(folder, [journal.line("kanarya-hesabi", written, at)], at)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orderbridge.db.documents"


def test_orders_come_at_their_own_pace_or_faster_and_again_after_a_reset(folder, world, clock):
    def counts(*advances: float) -> list[int]:
        found = []
        for seconds in advances:
            clock.advance(seconds)
            world.tick()
            found.append(len(world.orders))
        return found

    write(folder, (1, 0, REAL), (2, 10, REAL), (3, 10.5, REAL))
    world.play = Play(read(folder))
    assert counts(0, 599, 2, 60) == [1, 1, 2, 3]
    world.reset()
    assert counts(0, 9, 2) == [1, 1, 1]
    world.play = Play(read(folder), faster=60)
    world.reset()
    assert counts(0, 9, 2) == [1, 1, 3]


async def test_what_a_till_calculates_with_stays_and_the_rest_is_made_up(folder, world, pos):
    world.play = Play(read(write(folder, (1, 0, REAL))))
    world.tick()
    (order,) = await pos.poll()
    same = ("shipping_method", "payment_method", "total", "discount", "courier_type", "courier_fee", "order_tip")
    assert {name: order[name] for name in same} == {name: REAL[name] for name in same}
    assert (order["status_id"], order["id"], order["date"]) == (1, 100001, "2026-03-01 15:00:00")
    assert order["scheduled_date"] == "2026-03-01 17:30:00", "as long after the order as it was"
    assert order["payment_key"] != key(1)
    assert order["note"] not in {"", REAL["note"]}
    (food,), (real,) = order["foods"], REAL["foods"]
    assert food["id"] != real["id"]
    same = ("food_id", "note", "price", "quantity", "total")
    assert {name: food[name] for name in same} == {name: real[name] for name in same}
    (group,) = food["option_groups"]
    assert (food["name"], group["name"]) == ("Ürün 88123", "Grup 7")
    assert group["options"] == {"id": 71, "name": "Seçenek 71", "price": 44.85}
    assert (await pos.put("/foods/status-passive/88123")).json()["data"] == "OK", "its foods are on the menu"


def test_an_order_is_placed_once_and_cancelled_if_its_customer_did(folder, world, clock):
    canceled = REAL | {"status_id": CANCELED}
    write(folder, (1, 0, REAL), (1, 1, REAL | {"status_id": 2}), (1, 2, canceled), (2, 3, canceled), (3, 4, REAL))
    world.play = Play(read(folder))
    clock.advance(3600)
    world.tick()
    assert [order.status_id for order in world.orders.values()] == [CANCELED, 1]


def test_each_status_comes_at_its_time_and_none_goes_back(folder, world, clock):
    later = [(1, minute, REAL | {"status_id": status}) for minute, status in ((2, 2), (4, 16), (6, 17), (8, 2))]
    write(folder, (1, 0, REAL), *later, (2, 9, REAL | {"status_id": 16}), (3, 9, REAL | {"status_id": PHONE}))
    world.play = Play(read(folder))
    seen = []
    for _ in range(5):
        world.tick()
        seen.append([order.status_id for order in world.orders.values()])
        clock.advance(120)
    assert seen == [[1], [2], [16], [17], [17]]
    world.change_status(next(iter(world.orders)), COMPLETED)
    world.tick()
    assert [order.status_id for order in world.orders.values()] == [COMPLETED, 16, 1]


def test_what_is_not_possible_any_more_is_passed_over(folder, world, clock):
    """A restaurant that a test has closed, and an order that a till has completed."""
    write(folder, (1, 0, REAL), (1, 1, REAL | {"status_id": CANCELED}), (2, 2, REAL), (3, 4, REAL))
    world.play = Play(read(folder))
    world.tick()
    (order,) = world.orders.values()
    world.change_status(order.key, COMPLETED)
    world.close_restaurant(order.restaurant_id)
    clock.advance(150)
    world.tick()
    world.open_restaurant(order.restaurant_id)
    clock.advance(150)
    world.tick()
    assert [order.status_id for order in world.orders.values()] == [COMPLETED, 1]


def test_lines_that_cannot_be_read_are_left_out(folder, world):
    write(folder, (1, 0, REAL), (2, 1, [1]), (3, 2, REAL))
    journal.blank(folder, [key(3)])
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes() + b'{"payment_key":"torn\n\xff\n')
    world.play = Play(read(file))
    assert [one.order for one in read(file)] == [0]


def with_canaries(value: Any, numbers: Iterator[int]) -> Any:
    """A canary in place of each text and as a field that no order has; a phone number in place of each number."""
    match value:
        case dict():
            known = {name: with_canaries(inner, numbers) for name, inner in value.items()}
            unknown = {f"{CANARY}{next(numbers)}": [f"{CANARY}{next(numbers)}", PHONE, {"phone": str(PHONE)}]}
            return known | unknown | {"telephone": PHONE, "e_mail": f"{CANARY}{next(numbers)}@ornek.test"}
        case list():
            return [with_canaries(inner, numbers) for inner in value]
        case str():
            return f"{CANARY}{next(numbers)}"
        case _:
            return PHONE


ADDRESS = "address description apartment_no building_no neighborhood_name district_name city_name".split()
WHOLE = REAL | {
    "payment_key": key(1), "status_text": "Yeni", "restaurant_name": "Lokanta",
    "customer": {"name": "Ayşe", "phone": "+905321112233"}, "address": dict.fromkeys(ADDRESS, "x"),
}  # fmt: skip
ODD = [
    WHOLE,
    WHOLE | {"foods": WHOLE["foods"][0]},
    WHOLE | {"foods": {"1": WHOLE["foods"][0]}},
    {name: str(PHONE) for name in WHOLE},
    {name: [str(PHONE)] for name in WHOLE},
    {name: {CANARY: str(PHONE)} for name in WHOLE},
    dict.fromkeys(WHOLE, PHONE / 10**10),
    dict.fromkeys(WHOLE, f"0.{PHONE}"),
]


def canaries() -> list[tuple[int, float, Any]]:
    numbers = count()
    documents = [with_canaries(WHOLE, numbers), with_canaries(ODD[1], numbers), *ODD[2:]]
    texts = {**WHOLE, "foods": [{name: f"{CANARY}{next(numbers)}" for name in WHOLE["foods"][0]}]}
    documents += [texts, {**texts, **{name: f"{CANARY}{next(numbers)}" for name in WHOLE if name != "foods"}}]
    return [(number, number, document) for number, document in enumerate(documents)]


def is_clean(text: str) -> bool:
    hidden = (CANARY, CANARY.lower(), str(PHONE), "Ayşe Yıl", "kapıcıya", "Gizli", 'Lokanta"')
    return not any(word in text for word in (*hidden, "700123", "0b7e1c52", "0f5a7d9c"))


async def test_no_canary_comes_out_of_the_interface_the_control_interface_or_the_log(folder, world, clock, pos):
    reported: list[str] = []
    world.report = reported.append
    world.play = Play(read(write(folder, *canaries())), faster=1000)
    clock.advance(3600)
    world.tick()
    assert len(world.orders) == len(canaries())
    seen = [await pos.get("/orders/get-current"), await pos.get("/foods/get-foods"), await pos.get("/restaurants/get")]
    seen += [await pos.http.get(f"/_sandbox/{path}") for path in ("orders", "scenery", "ledger", "options", "faults")]
    seen += [await pos.http.get(f"/_sandbox/orders/{order}") for order in world.orders]
    assert [answer.status_code for answer in seen] == [200] * len(seen)
    assert [text for text in (*(answer.text for answer in seen), *reported) if not is_clean(text)] == []
    assert is_clean(repr(list(world.orders.values()))), "nor is it kept"


def test_the_command_prints_no_canary(folder, tmp_path):
    write(folder, *canaries())
    command = [Path(sys.executable).with_name("orderbridge"), "sandbox", "--play", folder, "--faster", "100000"]
    command += ["--listen", f"127.0.0.1:{free_port()}", "--directory", tmp_path / "sandbox"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sandbox:
        printed, placed = "", 0
        assert sandbox.stdout is not None
        while placed < len(canaries()):
            line = sandbox.stdout.readline()
            assert line, printed
            printed, placed = printed + line, placed + ("order.placed" in line)
        sandbox.terminate()
        printed += sandbox.stdout.read()
    assert is_clean(printed)
