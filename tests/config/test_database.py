"""The address of the database."""

from pathlib import Path

import pytest
from tests.config.documents import Write, document, problems

from orderbridge.config import load


@pytest.mark.parametrize(
    "given, kept",
    [
        ("sqlite:////var/lib/pos/orders.db", "sqlite:////var/lib/pos/orders.db"),
        ("sqlite:///data/orders.db", "sqlite:///{folder}/data/orders.db"),
        ("postgresql://u:p@h/d", "postgresql+psycopg://u:p@h/d"),
        ("mysql://u:p@h/d", "mysql+pymysql://u:p@h/d"),
        ("mariadb://u:p@h/d", "mariadb+pymysql://u:p@h/d"),
        ("mssql://u:p@h/d", "mssql+pymssql://u:p@h/d"),
        ("mssql+pyodbc://u:p@h/d", "mssql+pyodbc://u:p@h/d"),
    ],
)
def test_a_database_address_gets_its_place_and_its_driver(given: str, kept: str, write: Write, tmp_path: Path) -> None:
    settings = load(write(document(more=f'[database]\nurl = "{given}"')), environ={})
    assert settings.database.url == kept.format(folder=tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///a.db?mode=memory",
        "sqlite:///file:a.db",
        "sqlite://host/a.db",
    ],
)
def test_sqlite_must_be_a_plain_file(url: str, write: Write) -> None:
    assert "plain file on disk" in problems(write(document(more=f'[database]\nurl = "{url}"')))


@pytest.mark.parametrize("url", ["oracle://u:hunter22@h/d", "orders.db", ""])
def test_other_databases_are_refused_without_showing_the_address(url: str, write: Write) -> None:
    said = problems(write(document(more=f'[database]\nurl = "{url}"')))
    assert "begin with one of sqlite://" in said
    assert "hunter22" not in said


def test_the_default_database_lies_in_the_state_directory_of_systemd(write: Write) -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/orderbridge:/var/lib/other"}
    assert load(write(), environ=environ).database.url == "sqlite:////var/lib/orderbridge/orderbridge.db"


def test_a_given_database_does_not_move_to_the_state_directory(write: Write, tmp_path: Path) -> None:
    file = write(document(more='[database]\nurl = "sqlite:///pos.db"'))
    assert (
        load(file, environ={"STATE_DIRECTORY": "/var/lib/orderbridge"}).database.url == f"sqlite:///{tmp_path}/pos.db"
    )
