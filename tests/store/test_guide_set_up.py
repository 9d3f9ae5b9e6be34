"""The set-up of each server as the POS guide prints it: its commands in their order, and the guide's till at their end."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, make_url
from tests.databases import MARIADB, POSTGRESQL, SERVERS, only
from tests.store.samples import Pos, Refused
from tests.store.test_guide_till import OWN_TABLES, PAGE, Till, deliver

from orderbridge.store.database import Database

# Each under its heading, and nothing but prose between them.
COMMANDS = {
    kind.lower(): commands
    for kind, commands in re.findall(r"### (\w+)\n(?:(?!```|#)[^\n]*\n)*```sh\n(.*?)```", PAGE, re.DOTALL)
}
CLIENT = {POSTGRESQL: "psql", MARIADB: "mariadb"}
MINE = f"obs_guide_{os.getpid()}"


def script(kind: str, server: URL) -> str:
    """What stands there, with names of this run's own. pip, the service and the daemon are not there: without their lines."""
    lines = [line for line in COMMANDS[kind].splitlines() if not re.match(r"pip|orderbridge check", line)]
    said = "set -eu -o pipefail\n" + "\n".join(lines)
    said = re.sub(r"\b(ROLE|USER|OWNER|AUTHORIZATION|grants|TO) (bridge|till)\b", rf"\1 {MINE}_\2", said)
    said = re.sub(r"\bpos\b", MINE, said)
    return said.replace("-U postgres", f"-q -v ON_ERROR_STOP=1 -U {server.username}").replace(
        "-u root", f"-u {server.username}"
    )


def environment(server: URL, own: URL) -> dict[str, str]:
    """Where the server of the tests is, for its client and for orderbridge."""
    host, port, password = str(server.host or server.query.get("host", "")), server.port, str(server.password or "")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORDERBRIDGE_")}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PGHOST": host,
        "PGPORT": str(port or 5432),
        "PGPASSWORD": password,
        "PGDATABASE": "postgres",
        "MYSQL_HOST": host,
        "MYSQL_TCP_PORT": str(port or 3306),
        "MYSQL_PWD": password,
        "MYSQL_UNIX_PORT": str(server.query.get("unix_socket", "")),
        "ORDERBRIDGE_DATABASE__URL": own.render_as_string(hide_password=False),
        "ORDERBRIDGE_MARKETPLACE__BASE_URL": "https://127.0.0.1:1",
        "ORDERBRIDGE_ACCOUNTS__0__NAME": "a",
        "ORDERBRIDGE_ACCOUNTS__0__APP_SECRET_KEY": "x",
        "ORDERBRIDGE_ACCOUNTS__0__REST_SECRET_KEY": "y",
    }


def remove(engine: Engine, kind: str) -> None:
    force = " WITH (FORCE)" if kind == POSTGRESQL else ""
    word = "ROLE" if kind == POSTGRESQL else "USER"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {MINE}{force}")
        for name in ("bridge", "till"):
            with suppress(Exception):  # not made: what failed was told before
                connection.exec_driver_sql(f"DROP {word} {MINE}_{name}")


@pytest.mark.slow
@only(*SERVERS)
def test_the_set_up_works_in_the_order_in_which_it_stands(kind: str, database: Database, url: str, tmp_path: Path):
    if shutil.which(CLIENT[kind]) is None:
        pytest.skip(f"not installed: {CLIENT[kind]}")
    (tmp_path / "orderbridge.toml").touch(mode=0o600)
    server = make_url(url)
    address = re.findall(r'url = "(.*)"', COMMANDS[kind])[0]
    said = make_url(address)
    own = server.set(drivername=said.drivername, username=f"{MINE}_bridge", password=said.password, database=MINE)
    given = environment(server, own)
    try:
        done = subprocess.run(
            ["bash", "-c", script(kind, server)], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        daemon = Database(own.set(drivername=server.drivername).render_as_string(hide_password=False), inline=True)
        till_at = own.set(drivername=server.drivername, username=f"{MINE}_till", password="secret-2")
        with Pos.at(till_at.render_as_string(hide_password=False)) as pos:
            for statement in OWN_TABLES:
                pos.execute(statement.rstrip(";"))
            deliver(daemon, 1)
            till = Till(pos)
            till.round()
            assert (till.paper, till.waiting()) == (["NEW K1-1: Pide 1, Ayran"], [])
            with pytest.raises(Refused):
                pos.execute("DELETE FROM delivery_orders")
        daemon.close()
    finally:
        remove(database.engine, kind)
