"""Shared by all tests: they use no proxy or certificate authority of the machine, and no secret of another test."""

import gc
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from tests import databases
from tests.store.samples import hold_open
from tests.wording import forget_secrets

from orderbridge.store import schema
from orderbridge.store.database import Database

# Hypothesis has no deadline, because the machine may be busy, and the same examples in each run. A search
# (ORDERBRIDGE_TEST_FUZZ) has other examples each time; `./run test quick` has only a few.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
PATIENT["derandomize"] = "ORDERBRIDGE_TEST_FUZZ" not in os.environ
settings.register_profile("patient", **PATIENT)
settings.register_profile("quick", **PATIENT, max_examples=10)
settings.load_profile(os.environ.get("ORDERBRIDGE_TEST_PROFILE", "patient"))

# The objects of ten thousand tests live as long as the run: collecting garbage among them finds none and takes time.
gc.disable()
GC_THRESHOLDS = (20_000, 10, 10)  # thresholds that still find soon what a test leaves


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage from here on, but not among the tests."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`./run test rest` leaves out what `./run test coverage` runs, by the same paths and marks."""
    words = os.environ.get("ORDERBRIDGE_TEST_COUNTED", "").split()
    counted = [config.rootpath / word for word in words if not word.startswith("-")]
    ignored = [config.rootpath / word.removeprefix("--ignore=") for word in words if word.startswith("-")]

    def is_left(item: pytest.Item) -> bool:
        marked = any(item.get_closest_marker(name) for name in ("slow", "postgresql", "mariadb"))
        return marked or any(map(item.path.is_relative_to, ignored)) or not any(map(item.path.is_relative_to, counted))

    config.hook.pytest_deselected(items=[item for item in items if not is_left(item)])
    items[:] = filter(is_left, items)


MACHINES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")


@pytest.fixture(autouse=True, scope="session")
def nothing_of_the_machine() -> Iterator[None]:
    """Hide the machine's network settings, and its certificate authorities, which take 30 ms to read."""
    load = ssl.SSLContext.load_default_certs

    def load_named(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        if {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
            load(context, purpose)

    with pytest.MonkeyPatch.context() as patch:
        for name in MACHINES:
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        patch.setattr(ssl.SSLContext, "load_default_certs", load_named)
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Forget the log level and the secrets that a test leaves. With its level, captured logs would lack lines."""
    structlog.reset_defaults()
    yield
    forget_secrets()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nothing listens, reserved so that no other test gets it."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


_compiled: dict[Any, Any] = {}


@pytest.fixture(autouse=True, scope="session")
def compiled_once() -> Iterator[None]:
    """SQLite's statements are compiled once in a run, and not for each file: that took a fifth of most tests' time.

    SQLAlchemy finds them by the engine's dialect, and all of ours are made with the same options.
    """

    def make(*arguments: Any, **options: Any) -> Engine:
        engine = create_engine(*arguments, **options)
        if isinstance(engine.dialect, SQLiteDialect_pysqlite):
            engine.update_execution_options(compiled_cache=_compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orderbridge.store.database.create_engine", make)
        patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
        patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))
        yield


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our tables: copying it is quicker than creating them."""
    path = tmp_path_factory.mktemp("empty") / "pos.db"
    database = Database(f"sqlite:///{path}", inline=True)
    database.write_now(schema.upgrade)
    database.close()
    return path


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, empty_file: Path) -> Path:
    """The same with an open guard, so that a test may write the daemon's columns."""
    path = tmp_path_factory.mktemp("template") / "pos.db"
    shutil.copy(empty_file, path)
    hold_open(path)
    return path


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with nullcontext(databases.POSTGRES_URL) if databases.POSTGRES_URL else databases.own_postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_server() -> str:
    if databases.MARIADB_URL:
        return databases.MARIADB_URL
    pytest.skip("mariadb")


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server: str) -> Iterator[Database]:
    """One database for all tests of a run; a test empties it before it begins."""
    with databases.made(postgresql_server, f"obs_{os.getpid()}") as database:
        yield database


@pytest.fixture(scope="session")
def mariadb_database(mariadb_server: str) -> Iterator[Database]:
    with databases.made(mariadb_server, f"obs_{os.getpid()}") as database:
        yield database


class Disk:
    """A file system in memory, of four megabytes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.place)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def empty(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root mounts a file system")
    disk = Disk(tmp_path / "disk")
    disk.place.mkdir()
    disk.mount("size=4m")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk.place)], check=True)
