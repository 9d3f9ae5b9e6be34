"""What all tests share: no proxy of the machine, and no secret of one test that blanks the lines of another."""

import os
from collections.abc import Iterator

import pytest
import structlog
from tests import databases

from orderbridge.observe import logs
from orderbridge.store.database import Database

PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proxy settings must not reach a test."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(autouse=True)
def every_level_is_logged() -> None:
    """A test that ran the program before may have left its level behind, and captured logs would lack the rest."""
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def nothing_hidden() -> Iterator[None]:
    """What a test gave to `logs.hide` is forgotten after it."""
    yield
    logs._secrets.clear()
    logs._hidden.clear()


# ---- databases -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Where databases may be made on PostgreSQL."""
    if databases.POSTGRES_URL:
        yield databases.POSTGRES_URL
    else:
        with databases.own_postgresql() as url:
            yield url


@pytest.fixture(scope="session")
def mariadb_server() -> str:
    """Where databases may be made on MariaDB."""
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
    """The same on MariaDB."""
    with databases.made(mariadb_server, f"obs_{os.getpid()}") as database:
        yield database
