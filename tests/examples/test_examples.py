"""Each example of docs/examples, run against the daemon as a process and the sandbox over HTTPS.

A runtime that is not here is skipped with a word. `tests/debian-packages` lists what brings them; continuous
integration installs it.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orderbridge.sandbox import Fault, Options, Sandbox, World
from orderbridge.sandbox.scenery import APP_SECRET, KADIKOY
from orderbridge.sandbox.state import Order

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
COMMAND = Path(sys.executable).with_name("orderbridge")
JDBC = ("/usr/share/java/sqlite-jdbc.jar", "/usr/share/java/xerial-sqlite-jdbc.jar")
WITHIN_S = 200.0  # on a busy machine a compiler and a process take their time
HELD_S = 2.0  # another program writes that long; a driver without a busy timeout gives up at once
SOLD_OUT, SOLD = 1005, 1007
ORDERS = 3
# The view goes on to show the order, as a till has it that read before the other one wrote.
TAKEN_ELSEWHERE = """
    BEGIN IMMEDIATE;
    UPDATE delivery_orders SET pos_revision = 1, pos_reference = 'B-7' WHERE payment_key = '{key}';
    DROP VIEW delivery_new_orders;
    CREATE VIEW delivery_new_orders AS
        SELECT * FROM delivery_orders WHERE ended_utc IS NULL AND (pos_revision = 0 OR pos_reference = 'B-7');
    COMMIT;
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


# ---- how each is run -------------------------------------------------------------------------------------------------


def needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (tests/debian-packages)")


def made(*command: object, folder: Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def answers(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def python(_: Path) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / "python" / "pos.py")]


def node(_: Path) -> list[str]:
    needs("node")
    if not answers("node", "-e", "require('node:sqlite')") and not answers("node", "-e", "require('better-sqlite3')"):
        pytest.skip("this node is older than 22.5, and better-sqlite3 is not found (NODE_PATH)")
    return ["node", str(EXAMPLES / "node" / "pos.js")]


def php(_: Path) -> list[str]:
    needs("php")
    if not answers("php", "-r", "exit(in_array('sqlite', PDO::getAvailableDrivers()) ? 0 : 1);"):
        pytest.skip("php has no pdo_sqlite (tests/debian-packages)")
    return ["php", str(EXAMPLES / "php" / "pos.php")]


def java(_: Path) -> list[str]:
    needs("java", "javac")
    driver = next((path for path in JDBC if Path(path).exists()), None)
    if driver is None:
        pytest.skip("no JDBC driver for SQLite in /usr/share/java (tests/debian-packages)")
    return ["java", "-cp", driver, str(EXAMPLES / "java" / "Pos.java")]


def csharp(folder: Path) -> list[str]:
    needs("mono", "mcs")
    source = EXAMPLES / "csharp" / "Pos.cs"
    references = ("-r:System.Data.dll", "-r:Mono.Data.Sqlite.dll")
    made("mcs", "-warnaserror", "-d:MONO", *references, "-out:Pos.exe", source, folder=folder)
    return ["mono", str(folder / "Pos.exe")]


def pascal(folder: Path) -> list[str]:
    needs("fpc")
    if not list(Path("/usr/lib").glob("*/fpc/*/units/*/fcl-db/sqlite3conn.ppu")):
        pytest.skip("Free Pascal has no sqlite3conn (tests/debian-packages)")
    made("fpc", "-v0", f"-FE{folder}", EXAMPLES / "pascal" / "pos.pas", folder=folder)
    return [str(folder / "pos")]


LANGUAGES = (python, node, php, java, csharp, pascal)


# ---- the service, the daemon, the file -------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return World.default(options=Options(cooldown_seconds=0.5), tell=lambda line: None)


@pytest.fixture
def placed(world: World) -> list[Order]:
    """One order to accept, one that holds the food that is sold out, one that the service will not have accepted."""
    orders = [
        place(world, SOLD, "Nakit", "89.90", note="Zile basmayın"),
        place(world, SOLD_OUT, "Kredi Kartı", "219.90"),
        place(world, SOLD, "Kapıda Nakit", "1250.00", scheduled_date="2030-01-01 19:00:00"),
    ]
    world.faults.add(Fault.error("accept", 404, "sipariş bulunamadı", argument=orders[2].key))
    return orders


@pytest.fixture
def elsewhere(world: World) -> Order:
    """An order that another till takes over between the SELECT of the mini POS and its UPDATE."""
    return place(world, SOLD, "Nakit", "10.00")


def place(world: World, food_id: int, payment_method: str, total: str, **facts: str) -> Order:
    food = {
        "id": "1",
        "food_id": food_id,
        "name": "Kuşbaşılı Pide",
        "price": str(Decimal(total) / 2),
        "quantity": 2,
        "total": total,
    }
    option = {"id": 31, "name": "Kaşar", "price": "0.00"}
    group = {"id": 3, "name": "Ekstra", "type": "multi", "operation": "+", "options": option}
    document: dict[str, Any] = {
        "courier_type": "restaurant",
        "payment_method": payment_method,
        "scheduled_date": "",
        "note": "",
        "total": Decimal(total),
        "foods": [food | {"note": "Acısız", "option_groups": [group]}],
    }
    return world.place_order(restaurant_id=KADIKOY, document=document | facts)


@pytest.fixture
def database(tmp_path: Path, world: World, placed: list[Order], elsewhere: Order) -> Iterator[Path]:
    """The file of a daemon that runs and has brought the orders in."""
    path = tmp_path / "pos.db"
    with Sandbox(world, directory=tmp_path) as sandbox, (tmp_path / "log").open("wb") as log:
        configuration = tmp_path / "orderbridge.toml"
        configuration.write_text(
            f"""
            language = "tr"
            [marketplace]
            base_url = {json.dumps(sandbox.base_url)}
            ca_file = {json.dumps(str(sandbox.ca_file))}
            cooldown_seconds = 0.5
            [database]
            url = {json.dumps(f"sqlite:///{path}")}
            [[accounts]]
            name = "kadikoy"
            app_secret_key = "{APP_SECRET}"
            rest_secret_key = "sandbox-kadikoy-secret"
            [web]
            listen = ""
            """
        )
        configuration.chmod(0o600)
        daemon = subprocess.Popen([COMMAND, "--config", configuration, "run"], stdout=log, stderr=log)
        try:
            until(lambda: all(order.acknowledged for order in [*placed, elsewhere]))
            write(path, TAKEN_ELSEWHERE.format(key=elsewhere.key))
            yield path
        finally:
            daemon.terminate()
            assert daemon.wait(WITHIN_S) == 0


def until(condition: Callable[[], bool]) -> None:
    over = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < over, "the daemon has not done it"
        time.sleep(0.02)  # it comes from another process


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, timeout=WITHIN_S)) as connection:
        return connection.execute(sql).fetchall()


def write(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path, timeout=WITHIN_S)) as connection:
        connection.executescript(script)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another program is writing while the mini POS starts."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=WITHIN_S, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    release = threading.Timer(HELD_S, connection.rollback)
    release.start()
    yield
    release.join()
    connection.close()


# ---- what each must do -----------------------------------------------------------------------------------------------


def test_every_example_is_run():
    assert {language.__name__ for language in LANGUAGES} == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert all(len(list(path.iterdir())) == 1 for path in EXAMPLES.iterdir()), "one file each"


def run(command: list[str], path: Path, orders: int) -> str:
    done = subprocess.run(
        [*command, str(path), "kadikoy", str(SOLD_OUT), str(orders)],
        env=os.environ | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "NODE_NO_WARNINGS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def pieces(output: str) -> list[str]:
    """What a mini POS said, each order in one piece with the lines below it."""
    return sorted(re.split(r"\n(?! )", output.rstrip("\n")))


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.__name__)
def test_a_mini_pos_does_its_whole_job(
    language: Callable[[Path], list[str]], tmp_path: Path, request: pytest.FixtureRequest
):
    command = language(tmp_path)  # first: a skip needs no daemon
    path: Path = request.getfixturevalue("database")
    world: World = request.getfixturevalue("world")
    elsewhere: Order = request.getfixturevalue("elsewhere")
    accepted, cancelled, refused = placed = request.getfixturevalue("placed")
    one, two, three = (f"A-{order.number}" for order in placed)
    cook = "  2 x Kuşbaşılı Pide\n    + Ekstra: Kaşar\n    note: Acısız"
    tickets = {
        one: f"  collect 89.90, Nakit\n  note: Zile basmayın\n{cook}",
        two: f"  collect 0.00, Kredi Kartı\n{cook}",
        three: f"  ask what to collect, Kapıda Nakit\n  not now: for 2030-01-01 19:00:00\n{cook}",
    }
    no = "Platform bu siparişi bulamadı. Siparişi platformun panelinden kontrol edin."

    with held(path):
        first = run(command, path, ORDERS)
    assert pieces(first) == sorted(
        [
            *(f"new {reference}\n{ticket}" for reference, ticket in tickets.items()),
            f"verdict deactivate_food {SOLD_OUT}: done",
            f"verdict accept {one}: done",
            f"verdict cancel {two}: done",
            f"verdict accept {three}: refused {no}",
            f"changed {one}: CONFIRMED (status)",
            f"changed {two}: CANCELED (cancelled)\n  STOP: cancelled",
        ]
    )
    assert (accepted.status_id, accepted.preparing_time) == (2, 25)
    assert (cancelled.status_id, cancelled.reason_id) == (6, 1)
    assert refused.status_id == elsewhere.status_id == 1
    assert world.inactive_foods == {("kadikoy", SOLD_OUT)}
    taken = rows(path, "SELECT pos_reference, revision - pos_revision FROM delivery_orders ORDER BY order_number")
    assert taken == [(one, 0), (two, 0), (three, 0), ("B-7", 0)]

    # Only items, notes or money are printed anew, and never of an order that is over.
    for order in (accepted, cancelled):
        write(
            path,
            f"UPDATE delivery_orders SET contents_revision = revision + 1,"
            f" revision = revision + 1, last_change = 'contents' WHERE payment_key = '{order.key}'",
        )
    # It starts again, and an order that it asked to accept is new to it once more: it asks no second time.
    look = "  look at it in the service's panel: status_doubtful"
    doubted = tickets[three].replace(cook, f"{look}\n{cook}")
    write(path, f"UPDATE delivery_orders SET pos_revision = 0 WHERE payment_key = '{refused.key}'")
    assert pieces(run(command, path, 1)) == sorted(
        [
            f"open {one}: CONFIRMED\n{tickets[one]}",
            f"open {three}: RECEIVED\n{doubted}",
            f"new {three}\n{doubted}",
            f"verdict deactivate_food {SOLD_OUT}: done",
            f"verdict accept {three}: refused {no}",
            f"changed {one}: CONFIRMED (contents)\n{tickets[one]}",
            f"changed {two}: CANCELED (contents)\n  STOP: cancelled",
        ]
    )
    asked = rows(path, "SELECT payment_key FROM delivery_actions WHERE action IN ('accept', 'cancel')")
    assert sorted(asked) == sorted((order.key,) for order in placed)
