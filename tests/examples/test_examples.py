"""Each example of docs/examples, run with the daemon as a process and the sandbox over HTTPS.

A missing runtime skips its test with a message. `tests/debian-packages` lists the packages; continuous integration
installs them.
"""

import fcntl
import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orderbridge_sandbox import Fault, Options, Sandbox, World
from orderbridge_sandbox.commands import change_order
from orderbridge_sandbox.demo import CONFIGURATION
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
COMMAND = Path(sys.executable).with_name("orderbridge")
WITHIN_S = 200.0  # on a busy machine a compiler and a process take their time
HELD_S = 0.3  # another program writes that much longer; a driver without a busy timeout gives up at once
SOLD_OUT, SOLD = 1005, 1007
NOTHING_WAITS = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM delivery_actions WHERE state IN ('pending', 'sending'))"
# The view still shows the order, as to a till that has read before another one writes.
TAKEN_ELSEWHERE = """
    BEGIN IMMEDIATE;
    UPDATE delivery_orders SET pos_revision = 1, pos_reference = 'B-7' WHERE payment_key = '{key}';
    DROP VIEW delivery_new_orders;
    CREATE VIEW delivery_new_orders AS
        SELECT * FROM delivery_orders WHERE ended_utc IS NULL AND (pos_revision = 0 OR pos_reference = 'B-7');
    COMMIT;
"""

# Written in place of the stopped daemon: a yellow lamp, and an order without a problem.
YELLOW = """
    BEGIN IMMEDIATE;
    UPDATE delivery_guard SET open = open + 1;
    INSERT OR REPLACE INTO delivery_daemon (id, seen_utc, silent_from_utc, cause, remedy)
        VALUES (1, '2026-01-01 00:00:00.000', '9999-12-31 00:00:00.000', '', '');
    INSERT OR REPLACE INTO delivery_lamps (account, lamp, since_utc, sentence, remedy)
        VALUES ('kadikoy', 'yellow', '2026-01-01 00:00:00.000', 'Bakın.', 'Arayın.');
    UPDATE delivery_orders SET problem = NULL WHERE payment_key = '{key}';
    UPDATE delivery_guard SET open = open - 1;
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


LANGUAGES = (python, node, php, csharp, pascal)


# ---- the service, the daemon, the file -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shop:
    """A daemon that runs and has brought the orders in, and its file."""

    world: World
    path: Path
    daemon: subprocess.Popen[bytes]
    orders: dict[str, Order]

    def key(self, name: str) -> str:
        return self.orders[name].key

    def reference(self, name: str) -> str:
        return f"K1-{self.orders[name].number}"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=WITHIN_S)) as connection:
            return connection.execute(sql).fetchall()

    def until(self, sql: str) -> None:
        until(lambda: bool(self.rows(sql)))

    def write(self, script: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=WITHIN_S)) as connection:
            connection.executescript(script)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The daemon is stopped, and holds no lock."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=WITHIN_S)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            self.daemon.send_signal(signal.SIGSTOP)
            connection.execute("COMMIT")
        try:
            yield
        finally:
            self.daemon.send_signal(signal.SIGCONT)


def place(world: World, food_id: int, payment_method: str, amount: str, **facts: str) -> Order:
    """An order with two of one food. Each line has an option and a note."""
    option = {"id": 31, "name": "Kaşar", "price": "0.00"}
    group = {"id": 3, "name": "Ekstra", "type": "multi", "operation": "+", "options": option}
    food = {"id": "1", "food_id": food_id, "name": "Kuşbaşılı Pide", "note": "Acısız", "option_groups": [group]}
    food |= {"price": str(Decimal(amount) / 2), "quantity": 2, "total": amount}
    document = {"courier_type": "restaurant", "payment_method": payment_method, "scheduled_date": "", "note": ""}
    document |= {"total": Decimal(amount), "foods": [food]}
    return world.place_order(restaurant_id=KADIKOY, document=document | facts)


def placed(world: World) -> dict[str, Order]:
    """One order for each outcome. A refused action is refused at every try."""
    orders = {
        "plain": place(world, SOLD, "Nakit", "89.90", note="Zile basmayın"),
        "sold_out": place(world, SOLD_OUT, "Kredi Kartı", "219.90"),
        "refused": place(world, SOLD, "Kapıda Nakit", "1250.00", total="1301.37"),
        "later": place(world, SOLD, "Nakit", "40.00", scheduled_date="2030-01-01 19:00:00"),
        "doubtful": place(world, SOLD, "Nakit", "50.00", scheduled_date="31.02.2030 19:00"),
        "called_off": place(world, SOLD, "Nakit", "60.00", courier_type="platform_courier"),
        "changed": place(world, SOLD, "Nakit", "70.00"),
        "elsewhere": place(world, SOLD, "Nakit", "10.00"),
    }
    world.faults.add(Fault.error("accept", 404, "sipariş bulunamadı", argument=orders["refused"].key, times=None))
    return orders


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    options = Options(cooldown_seconds=0.5, changed_are_listed_again=True)
    world = World.default(options=options, report=lambda line: None)
    orders, path = placed(world), tmp_path / "pos.db"
    with Sandbox(world, directory=tmp_path) as sandbox, (tmp_path / "log").open("wb") as log:
        configuration = tmp_path / "orderbridge.toml"
        addresses = {"base_url": sandbox.base_url, "ca_file": sandbox.ca_file, "database": f'"sqlite:///{path}"'}
        configuration.write_text(CONFIGURATION.format(language="tr", cooldown=0.5, **addresses))
        configuration.chmod(0o600)
        daemon = subprocess.Popen([COMMAND, "--config", configuration, "run"], stdout=log, stderr=log)
        try:
            until(lambda: all(order.acknowledged for order in orders.values()))
            shop = Shop(world, path, daemon, orders)
            shop.until("SELECT 1 FROM delivery_restaurants")
            shop.write(TAKEN_ELSEWHERE.format(key=shop.key("elsewhere")))
            yield shop
        finally:
            daemon.terminate()
            assert daemon.wait(WITHIN_S) == 0


def until(condition: Callable[[], bool]) -> None:
    over = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < over, "it has not come to that"
        time.sleep(0.02)  # it comes from another process


# ---- the till --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Till:
    """A mini POS as a process, and the hands of a person as others."""

    command: list[str]
    path: Path

    def start(self, *words: object, out: int = subprocess.PIPE) -> subprocess.Popen[str]:
        command = [*self.command, str(self.path), *map(str, words)]
        env = os.environ | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "NODE_NO_WARNINGS": "1"}
        return subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.PIPE, encoding="utf-8")

    def run_at_once(self, *steps: str) -> list[str]:
        """Run the steps of a person at the same time. Returns their outputs."""
        return [ended(process) for process in [self.start(*words.split()) for words in steps]]

    def output(self) -> list[str]:
        """The till's whole output, each message in one piece with the lines below it."""
        return sorted(re.split(r"\n(?! )", ended(self.start("--orders", 0))))

    def die_at_the_printer(self, shop: Shop) -> None:
        """It starts while another program is writing. It is killed while half a ticket is in a stuck printer."""
        out, stuck = os.pipe()
        fcntl.fcntl(stuck, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)
        os.write(stuck, bytes(fcntl.fcntl(stuck, fcntl.F_GETPIPE_SZ)))
        with closing(sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            process = self.start(out=stuck)
            os.close(stuck)
            until(lambda: has_open(process.pid, f"{self.path}-shm"))
            release = threading.Timer(HELD_S, other.rollback)
            release.start()
            release.join()
        shop.until("SELECT 1 FROM till_papers WHERE paper = 'begun'")
        process.kill()
        _, errors = process.communicate()
        os.close(out)
        assert errors == ""


def has_open(pid: int, path: str) -> bool:
    return any(os.path.realpath(link) == path for link in Path(f"/proc/{pid}/fd").iterdir())


def ended(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, errors) == (0, ""), out + errors
    return out.rstrip("\n")


# ---- what each must do -----------------------------------------------------------------------------------------------


def test_every_example_is_run():
    run = {language.__name__ for language in LANGUAGES} | {"shell", "odbc"}  # small tills: test_shell.py, test_odbc.py
    assert run == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert all(len(list(path.iterdir())) == 1 for path in EXAMPLES.iterdir()), "one file each"


COOK = "  2 x Kuşbaşılı Pide\n    + Ekstra: Kaşar\n    note: Acısız"
PANEL = "  look at it in the platform's panel: "
TIME = "2030-01-01 19:00:00"
WORDS = {
    "plain": "collect: 89.90, Nakit\n  note: Zile basmayın",
    "sold_out": "collect: 0.00, Kredi Kartı\n  do not cook it: we cancel it",
    "refused": f"collect: ask, Kapıda Nakit\n{PANEL}total_mismatch:total",
    "later": f"collect: 40.00, Nakit\n  not now: for {TIME}\n  a person must accept it: {{key}}",
    "doubtful": f"collect: 50.00, Nakit\n{PANEL}unreadable_time:scheduled_date\n  a person must accept it: {{key}}",
    "called_off": "collect: 60.00, Nakit",
    "changed": "collect: 70.00, Nakit",
}
NO = "Platform bu siparişi bulamadı. Siparişi platformun panelinden kontrol edin."


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.__name__)
def test_a_mini_pos_does_its_job(language: Callable[[Path], list[str]], tmp_path: Path, request: pytest.FixtureRequest):
    command = language(tmp_path)  # first: a skip needs no daemon
    shop: Shop = request.getfixturevalue("shop")
    till = Till(command, shop.path)
    answers = till.run_at_once(*[f"food_off {SOLD_OUT} {KADIKOY}"] * 2)
    assert sorted(answer.split(":")[0] for answer in answers) == ["", "asked already"]
    till.die_at_the_printer(shop)
    goes_on(till, shop)
    person_acts(till, shop)
    with shop.stopped():
        shows_what_has_changed(till, shop)
        takes_back(till, shop)


def ticket(shop: Shop, name: str) -> str:
    return f"{shop.reference(name)}\n  {WORDS[name].format(key=shop.key(name))}\n{COOK}"


def goes_on(till: Till, shop: Shop) -> None:
    """It prints the orders it took over, marks tickets that may be printed already, and shows verdicts and changes."""
    shop.until(NOTHING_WAITS)
    ((begun,),) = shop.rows("SELECT payment_key FROM till_papers WHERE paper = 'begun'")
    ((paper,),) = shop.rows("SELECT ticket FROM till_papers WHERE kind = 'SOLD OUT'")
    assert paper == f"SOLD OUT {ticket(shop, 'sold_out')}"
    # As if another loop had claimed it more than a minute ago.
    shop.write("UPDATE till_papers SET since = since - 61, till = 'K2' WHERE paper = 'begun'")
    refused, sold_out = shop.reference("refused"), shop.reference("sold_out")
    # The lamp is dark until the daemon's first check.
    output = [piece for piece in till.output() if not piece.startswith("lamp ")]
    wanted = [f"deactivate_food {SOLD_OUT}: done", f"cancel {sold_out}: done", f"{sold_out}: CANCELED, over"]
    wanted.append(f"!!! accept {refused}: refused {NO}")
    for name in ("plain", "called_off", "changed"):
        wanted += [f"accept {shop.reference(name)}: done", f"{shop.reference(name)}: CONFIRMED"]
    for name in WORDS.keys() - {"sold_out"}:  # which ends before it is printed
        copy = "PERHAPS A SECOND COPY from K2 " if shop.key(name) == begun else ""
        wanted.append(f"{copy}{'LATER' if name == 'later' else 'NEW'} {ticket(shop, name)}")
    assert output == sorted(wanted)
    assert (shop.orders["plain"].preparing_time, shop.orders["sold_out"].reason_id) == (25, 1)
    assert [shop.orders[name].status_id for name in ("refused", "later", "doubtful", "elsewhere")] == [1] * 4


def person_acts(till: Till, shop: Shop) -> None:
    """Each verb is a row. What was refused is tried under another request_id."""
    plain, refused, later = shop.key("plain"), shop.key("refused"), shop.key("later")
    steps = (f"accept {refused} 30", f"on_the_way {plain}", f"cancel {later} 3", f"close {KADIKOY}")
    assert till.run_at_once(*steps, f"food_on {SOLD_OUT} {KADIKOY}") == [""] * 5
    shop.until(NOTHING_WAITS)
    assert till.run_at_once(f"complete {plain}", f"open {KADIKOY}") == ["", ""]
    # An acknowledgement names no status: a change that comes before it would be acknowledged unseen.
    until(lambda: all(shop.orders[name].acknowledged for name in ("changed", "called_off")))
    change_order(shop.world, shop.key("changed"), {"note": "Kapıya bırakın"})
    shop.world.cancel_by_customer(shop.key("called_off"))
    changed = "SELECT count(*) FROM delivery_orders WHERE pos_revision < revision AND pos_revision > 0"
    shop.until(f"SELECT 1 WHERE ({changed}) = 4")
    shop.until(NOTHING_WAITS)
    assert shop.orders["plain"].status_id == 5
    assert shop.orders["later"].reason_id == 3
    assert not shop.world.inactive_foods
    assert KADIKOY in shop.world.open_restaurants
    asked = f"SELECT preparing_time FROM delivery_actions WHERE payment_key = '{refused}' ORDER BY id"
    assert shop.rows(asked) == [(25,), (30,)]


def shows_what_has_changed(till: Till, shop: Shop) -> None:
    """A printed order that anyone cancels gets a STOP. One that is new again is neither accepted nor cooked."""
    shop.write(YELLOW.format(key=shop.key("refused")))
    shop.write(f"UPDATE delivery_orders SET pos_revision = 0 WHERE payment_key = '{shop.key('refused')}'")
    names = ("plain", "refused", "later", "called_off", "changed")
    plain, refused, later, called_off, changed = (shop.reference(name) for name in names)
    done = (f"on_the_way {plain}", f"complete {plain}", f"cancel {later}", f"close_restaurant {KADIKOY}")
    done += (f"open_restaurant {KADIKOY}", f"activate_food {SOLD_OUT}")
    wanted = ["lamp yellow, kadikoy: Bakın. Arayın.", *(f"{one}: done" for one in done)]
    for one in (called_off, later):
        wanted += [f"STOP {one}\n  cancelled: do not cook it, do not send it out", f"{one}: CANCELED, over"]
    wanted += [f"CHANGED {changed}\n  collect: 70.00, Nakit\n  note: Kapıya bırakın\n{COOK}", f"{changed}: CONFIRMED"]
    wanted += [f"{plain}: COMPLETE_WITH_PAYMENT, over", f"!!! accept {refused}: refused {NO}"]
    assert till.output() == sorted(wanted)
    asked = f"SELECT count(*) FROM delivery_actions WHERE payment_key = '{shop.key('refused')}'"
    assert shop.rows(asked) == [(2,)]
    assert shop.rows("SELECT count(*) FROM delivery_orders WHERE pos_revision < revision") == [(0,)]


def takes_back(till: Till, shop: Shop) -> None:
    """What needs no daemon: tickets and sums, a double click, impossible actions, and a withdrawn row."""
    doubtful, called_off = shop.key("doubtful"), shop.key("called_off")
    steps = [f"ticket {called_off}", f"ticket {shop.key('sold_out')}"]
    steps += [f"collect {shop.key('refused')}", f"collect {shop.key('sold_out')}"]
    reported, untold, unknown, none, *clicked = till.run_at_once(*steps, *[f"accept {doubtful} 20"] * 2)
    assert reported.splitlines()[0].endswith(f"NEW {shop.reference('called_off')}")
    assert reported.endswith(f"STOP {shop.reference('called_off')}\n  cancelled: do not cook it, do not send it out")
    assert (untold, unknown, none) == ("", "ask", "0.00")
    assert sorted(clicked) == ["", "asked already: pending"]
    no_courier, no_reason, no_verb = ("on_the_way", called_off), ("cancel", doubtful, 9), ("dance",)
    refused = [till.start(*words) for words in (no_courier, no_reason, no_verb)]
    assert till.run_at_once(f"withdraw {doubtful}") == [""]
    for process in refused:
        process.communicate(timeout=WITHIN_S)
    assert [process.returncode for process in refused] == [1, 1, 64]
    asked = f"SELECT action, withdraw FROM delivery_actions WHERE payment_key = '{doubtful}'"
    assert shop.rows(asked) == [("accept", 1)]
    for verb in ("food_off", "food_on", "food_off"):  # the last one counts, though the first still waits
        assert till.run_at_once(f"{verb} {SOLD_OUT} {KADIKOY}") == [""]
