"""docs/examples/odbc/Odbc.cs over unixODBC, as a role that has what `orderbridge db grants` prints, on both servers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from sqlalchemy import make_url
from tests import databases
from tests.store.samples import KEY, OTHER, Pos, end_session, put, put_order, rows

from orderbridge.store import write_guards
from orderbridge.store.database import Database

SOURCE = Path(__file__).parents[2] / "docs" / "examples" / "odbc" / "Odbc.cs"
DRIVERS = {"postgresql": "PostgreSQL Unicode", "mariadb": "MariaDB Unicode"}
CULTURE = "tr_TR.UTF-8"
NOTE = "Zile basmayın 🥙 İıŞğ " + "ş" * 9000  # a driver's buffer holds 8,190
RECEIVED = "2026-03-01 22:30:00.250"  # the next day in Istanbul
TILLS = {"postgresql": "SELECT pid FROM pg_stat_activity WHERE usename = ?"}
TILLS["mariadb"] = "SELECT id FROM information_schema.processlist WHERE user = ?"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=databases.SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def program(kind: str, tmp_path: Path) -> Path:
    """The till's program; skipped where something is missing."""
    missing = [name for name in ("mono", "mcs", "odbcinst") if shutil.which(name) is None]
    driver = DRIVERS[kind]
    if not missing and driver not in subprocess.check_output(["odbcinst", "-q", "-d"], text=True):
        missing = [driver]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (tests/debian-packages)")
    program = tmp_path / "Odbc.exe"
    subprocess.run(["mcs", "-warnaserror", "-r:System.Data.dll", f"-out:{program}", SOURCE], check=True)
    return program


@pytest.fixture
def database(kind: str, program: Path, request: pytest.FixtureRequest) -> Database:
    database: Database = request.getfixturevalue(f"{kind}_database")
    databases.empty(database)
    return database


@pytest.fixture
def role(kind: str, database: Database) -> Iterator[str]:
    url = database.engine.url.render_as_string(hide_password=False)
    place = "public" if kind == "postgresql" else make_url(url).database
    grants = write_guards.grant_statements(database.engine.dialect.name, "{name}", place)
    with databases.poor_user(url, *grants) as poor:
        yield poor


@pytest.fixture
def till(kind: str, role: str, program: Path) -> Iterator[subprocess.Popen[str]]:
    url = make_url(role)
    server = {"Server": url.host or url.query.get("host"), "Port": url.port, "Database": url.database}
    parts = {"Driver": f"{{{DRIVERS[kind]}}}", **server, "Uid": url.username, "Pwd": url.password}
    if kind == "mariadb":
        parts["Charset"] = "utf8mb4"
    where = ";".join(f"{name}={value}" for name, value in parts.items() if value is not None)
    environment = os.environ | {"TILL_ODBC": where, "LANG": CULTURE, "LC_ALL": CULTURE, "TZ": "Europe/Istanbul"}
    with subprocess.Popen(["mono", program], stdout=subprocess.PIPE, env=environment, encoding="utf-8") as till:
        yield till
        till.kill()


def until(out: IO[str] | None, words: str) -> str:
    """Read the till's output up to the line that begins so."""
    assert out is not None
    for line in out:
        if line.startswith(words):
            return line.rstrip("\n")
    raise AssertionError(f"it ended before it printed {words}")


def test_an_example_till_accepts_prints_and_reconnects(kind, database, role, till):
    url = database.engine.url.render_as_string(hide_password=False)
    with Pos.at(url) as daemon:
        daemon.execute("BEGIN")
        put_order(daemon, order_number=1042, amount_due="1089.90", note=NOTE, received_utc=RECEIVED)
        line = {"name": "Kuşbaşılı Pide", "note": "Acısız", "quantity": 2}
        put(daemon, "delivery_order_items", payment_key=KEY, line_no=1, **line)
        daemon.execute("COMMIT")
        assert until(till.stdout, "W1-1042") == f"W1-1042 01:30, collect: 1089.90 {NOTE}"
        assert until(till.stdout, "  2") == "  2 x Kuşbaşılı Pide Acısız"
        asked = "SELECT action, payment_key, preparing_time, request_id, created_by FROM delivery_actions"
        assert [tuple(row.values()) for row in rows(daemon, asked)] == [("accept", KEY, 25, f"accept-{KEY}-1", "W1")]

        daemon.execute("UPDATE delivery_actions SET state = 'refused', error_text = 'Sipariş bulunamadı.'")
        assert until(till.stdout, "accept").endswith("Sipariş bulunamadı.")
        daemon.execute("UPDATE delivery_orders SET revision = 2, status = 'CANCELED', last_change = 'cancelled'")
        assert until(till.stdout, "W1-1042") == "W1-1042: CANCELED"

        for row in rows(daemon, TILLS[kind], make_url(role).username):
            end_session(daemon, next(iter(row.values())))
        until(till.stdout, "!!!")
        put_order(daemon, OTHER, order_number=1043, problem="no_items")
        assert until(till.stdout, "W1-1043").endswith("collect: ASK ")
        assert len(rows(daemon, asked)) == 1, "an order with a problem waits for a person"
