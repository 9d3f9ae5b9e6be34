"""A database with our tables, on each kind in turn, and a POS that opens it with a stock driver."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import databases
from tests.store.samples import Pos

from orderbridge.store.database import Database


@pytest.fixture(params=databases.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The database that the test runs on: each in turn, or those that `databases.only` names."""
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pos.db"


@pytest.fixture
def database(kind: str, template: Path, path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    if kind == databases.SQLITE:
        shutil.copy(template, path)
        database = Database(f"sqlite:///{path}", inline=True)
        yield database
        database.close()
    else:
        database = request.getfixturevalue(f"{kind}_database")
        databases.empty(database)
        yield database


@pytest.fixture
def url(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def postgresql_pos(postgresql_database: Database) -> Iterator[Pos]:
    """One connection for all tests: making one takes longer than most of them."""
    with Pos.at(postgresql_database.engine.url.render_as_string(hide_password=False)) as pos:
        yield pos


@pytest.fixture(scope="session")
def mariadb_pos(mariadb_database: Database) -> Iterator[Pos]:
    with Pos.at(mariadb_database.engine.url.render_as_string(hide_password=False)) as pos:
        yield pos


@pytest.fixture
def pos(kind: str, url: str, request: pytest.FixtureRequest) -> Iterator[Pos]:
    if kind == databases.SQLITE:
        with Pos.at(url) as pos:
            yield pos
    else:
        pos = request.getfixturevalue(f"{kind}_pos")
        yield pos
        pos.execute("ROLLBACK")
