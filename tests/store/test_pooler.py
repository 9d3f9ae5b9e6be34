"""PgBouncer between a replica and its server: one that shares sessions among clients is refused."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url
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
    """The address of a database behind a real PgBouncer in that mode. `least`: the number of sessions it keeps."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed (tests/debian-packages)")
    server = make_url(url)
    host = server.query.get("host") or server.host
    with databases._place() as (place, as_user):
        file = place / "pgbouncer.ini"
        said = f"host={host} port={server.port or 5432} user={server.username}"
        file.write_text(CONFIGURATION.format(server=said, place=place, port=PORT, mode=mode, least=least))
        silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([program, file], **silent, **as_user) as process:
            query = {"host": str(place), "port": str(PORT)}
            behind = URL.create("postgresql+psycopg", "postgres", database=server.database, query=query)
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
def test_a_pooler_that_gives_sessions_away_is_refused_to_every_daemon(url: str, least: int, tmp_path: Path):
    file = tmp_path / "orderbridge.toml"
    with bouncer(url, "transaction", least) as behind, member(behind) as membership:
        for _ in range(3):
            with pytest.raises(Unusable, check=says("pool_mode = session")):
                membership.take()
        market = 'language = "en"\n[marketplace]\nbase_url = "https://127.0.0.1:1"\n'
        account = '[[accounts]]\nname = "kadikoy"\napp_secret_key = "one"\nrest_secret_key = "two"\n'
        file.write_text(f'{market}[database]\nurl = "{behind}"\n{account}')
        program = Path(sys.executable).with_name("orderbridge")
        ended = subprocess.run([program, "--config", file, "run"], capture_output=True, text=True, check=False)
    assert ended.returncode == 78 and "pool_mode = session" in ended.stderr
    with bouncer(url, "statement") as behind, pytest.raises(Unusable, check=says("pool_mode = session")):
        open_database(behind)


def test_a_pooler_with_lasting_sessions_is_accepted_until_the_session_changes(url: str):
    with bouncer(url, "session") as behind, member(behind) as first, member(url) as second:
        assert (first.take(), len(first.beat().held)) == (True, 64)
        assert (second.take(), second.beat().held) == (True, frozenset())
        excess = first.beat().excess
        first.beat(excess)
        assert second.beat().held == excess
        first.close()
        assert len(second.beat().held) == 64
        second._ours = -1
        with pytest.raises(Unusable, check=says("pool_mode = session")):
            second.beat()
