"""PgBouncer between a replica and its server: one that shares sessions among clients is refused."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text
from tests import databases
from tests.wording import says

from orderbridge.errors import Unusable
from orderbridge.store.database import Database, open_database

pytestmark = databases.only(databases.SERVERS[0])
PORT = 6543  # the name of its socket, in a folder of its own
STARTED_WITHIN_S = 30.0
CONFIGURATION = """
[databases]
* = {server}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {place}
auth_type = any
pool_mode = {mode}
default_pool_size = 5
min_pool_size = {least}
logfile = {place}/log
"""


@contextlib.contextmanager
def bouncer(url: str, mode: str, least: int = 0) -> Iterator[str]:
    """The address of a database behind a real PgBouncer in that mode. `least`: how many processes it has in store."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed (tests/debian-packages)")
    server = make_url(url)
    host = server.query.get("host") or server.host
    with databases._place() as (place, as_user):
        file = place / "pgbouncer.ini"
        said = f"host={host} port={server.port or 5432} user={server.username}"
        file.write_text(CONFIGURATION.format(server=said, place=place, port=PORT, mode=mode, least=least))
        with subprocess.Popen(
            [program, file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user
        ) as process:  # type: ignore[call-overload]
            behind = URL.create(
                "postgresql+psycopg",
                "postgres",
                database=server.database,
                query={"host": str(place), "port": str(PORT)},
            )
            try:
                deadline = time.monotonic() + STARTED_WITHIN_S
                with socket.socket(socket.AF_UNIX) as asked:
                    while asked.connect_ex(f"{place}/.s.PGSQL.{PORT}"):  # it comes from another process
                        assert process.poll() is None
                        assert time.monotonic() < deadline
                        time.sleep(0.02)
                yield behind.render_as_string()
            finally:
                process.terminate()


@contextlib.contextmanager
def member(url: str) -> Iterator[Any]:
    fleet = pytest.importorskip("orderbridge_fleet.membership")
    database = Database(url, inline=True)
    membership = fleet.Membership(database)
    yield membership
    membership.close()
    database.close()


@pytest.mark.parametrize("least", [0, 5])
def test_a_pooler_that_gives_sessions_away_is_refused_to_replicas_and_to_one_daemon(
    url: str, least: int, tmp_path: Path
):
    file = tmp_path / "orderbridge.toml"
    with bouncer(url, "transaction", least) as behind, member(behind) as membership:
        for _ in range(3):
            with pytest.raises(Unusable, check=says("pool_mode = session")):
                membership.take()
        if least:
            return
        file.write_text(
            f'language = "en"\n[marketplace]\nbase_url = "https://127.0.0.1:1"\n[database]\nurl = "{behind}"\n[[accounts]]\n'
            'name = "kadikoy"\napp_secret_key = "one"\nrest_secret_key = "two"\n'
        )
        program = Path(sys.executable).with_name("orderbridge")
        said = subprocess.run([program, "--config", file, "run"], capture_output=True, text=True, check=False)
    assert (said.returncode, "pool_mode = session" in said.stderr) == (78, True)


def test_one_that_gives_them_away_after_each_statement_is_refused_to_everybody(url: str):
    with bouncer(url, "statement") as behind, pytest.raises(Unusable, check=says("pool_mode = session")):
        open_database(behind)


def test_also_when_others_use_it_at_the_same_time(url: str):
    """Then a session of ours meets the same process again by chance, and one query shows nothing."""
    is_over = threading.Event()

    def use() -> None:
        engine = create_engine(behind, isolation_level="AUTOCOMMIT", connect_args={"prepare_threshold": None})
        with engine.connect() as connection:
            while not is_over.is_set():
                connection.execute(text("SELECT pg_sleep(0.0003)"))
        engine.dispose()

    with bouncer(url, "transaction") as behind, ThreadPoolExecutor(4) as threads:
        using = [threads.submit(use) for _ in range(4)]
        try:
            for _ in range(20):
                with member(behind) as membership, pytest.raises(Unusable):
                    membership.take()
        finally:
            is_over.set()
        for one in using:
            one.result()


def test_a_session_that_is_another_one_all_of_a_sudden_was_not_ours_alone(url: str):
    with member(url) as first:
        assert first.take()
        first.beat()
        first._ours = -1
        with pytest.raises(Unusable, check=says("pool_mode = session")):
            first.beat()


def test_one_that_leaves_a_session_to_us_is_as_good_as_none(url: str):
    with bouncer(url, "session") as behind, member(behind) as first, member(url) as second:
        assert first.take()
        assert len(first.beat().held) == 64
        assert second.take()
        assert second.beat().held == frozenset()
        excess = first.beat().excess
        first.beat(excess)
        assert second.beat().held == excess
        first.close()
        assert len(second.beat().held) == 64
