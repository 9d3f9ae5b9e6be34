"""The address of the database."""

from pathlib import Path

import pytest
from tests.config.documents import Write, document, problems

from orderbridge.config import load
from orderbridge.config.addresses import database_address, secrets_of, without_password


@pytest.mark.parametrize(
    "given, kept",
    [
        ("sqlite:////var/lib/pos/orders.db", "sqlite:////var/lib/pos/orders.db"),
        ("sqlite:///data/orders.db", "sqlite:///{folder}/data/orders.db"),
        ("postgresql://u:p@h/d", "postgresql+psycopg://u:p@h/d"),
        ("mysql://u:p@h/d", "mysql+pymysql://u:p@h/d"),
        ("mariadb://u:p@h/d", "mariadb+pymysql://u:p@h/d"),
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
        r"sqlite:///pos\u0000.db",
        "sqlite:///a.db?mode=memory",
        "sqlite:///file:a.db",
        "sqlite://host/a.db",
    ],
)
def test_sqlite_must_be_a_plain_file(url: str, write: Write) -> None:
    assert "file on disk" in problems(write(document(more=f'[database]\nurl = "{url}"')))


def test_a_line_break_after_the_address_is_not_the_databases_name(write: Write) -> None:
    """Who makes a secret of a file has one at its end."""
    settings = load(write(document()), environ={"ORDERBRIDGE_DATABASE__URL": "postgresql://u@h/d\n"})
    assert settings.database.url == "postgresql+psycopg://u@h/d"


@pytest.mark.parametrize("url", ["oracle://u:hunter22@h/d", "orders.db", ""])
def test_other_databases_are_refused_without_showing_the_address(url: str, write: Write) -> None:
    said = problems(write(document(more=f'[database]\nurl = "{url}"')))
    assert "begin with one of sqlite://" in said
    assert "hunter22" not in said


@pytest.mark.parametrize(
    "given, kept",
    [
        ("mysql://u:p@ss@h/d", "mysql+pymysql://u:p%40ss@h/d"),
        ("mysql://u:a@b:c?d@h:3306/d?charset=utf8mb4", "mysql+pymysql://u:a%40b:c?d@h:3306/d?charset=utf8mb4"),
        ("mysql://u:p/q@h/d", "mysql+pymysql://u:p/q@h/d"),
        ("mysql://u:p@h/d?ssl_ca=/a@b", "mysql+pymysql://u:p@h/d?ssl_ca=/a@b"),
        ("sqlite:////home/a@b@c/pos.db", "sqlite:////home/a@b@c/pos.db"),
    ],
)
def test_a_password_may_hold_an_at_sign(given: str, kept: str) -> None:
    assert database_address(given) == kept


@pytest.mark.parametrize(
    "given, kept",
    [
        ("postgresql://u:p@a:1,b:2/d?sslmode=require", "u:p@/d?host=a,b&port=1,2&sslmode=require"),
        ("postgresql://u@a,b:5433/d", "u@/d?host=a,b&port=,5433"),
        ("postgresql://a,b/d", "/d?host=a,b"),
        ("postgresql://u@[::1]:5,[::2]/d", "u@/d?host=::1,::2&port=5,"),
        ("postgresql://u:p,@ss@a,b/d", "u:p,%40ss@/d?host=a,b"),
        ("postgresql://u:p,/q@a/d", "u:p,/q@a/d"),
        ("postgresql://u@/d?host=a,b&port=1,2", "u@/d?host=a,b&port=1,2"),
    ],
)
def test_several_servers_may_be_named_as_libpq_names_them(given: str, kept: str) -> None:
    assert database_address(given) == f"postgresql+psycopg://{kept}"


def test_the_names_of_servers_are_no_secret() -> None:
    url = database_address("postgresql://u:hunter22@db-a:1,db-b:2/d")
    assert without_password(url) == "postgresql+psycopg://u:***@/d?host=db-a,db-b&port=1,2"
    assert secrets_of(url) == ["hunter22"]


@pytest.mark.parametrize(
    "url",
    [
        "mysql://hunter22:x/d",
        "mysql://u:p@h:hunter22/d",
        "postgresql://h:hunter22?a=b",
        "postgresql://u@a:1,b:hunter22/d",
    ],
)
def test_a_port_that_is_none_is_refused_without_showing_it(url: str, write: Write) -> None:
    said = problems(write(document(more=f'[database]\nurl = "{url}"')))
    assert "has a port that is not" in said
    assert "hunter22" not in said


def test_an_at_sign_that_may_be_anywhere_is_refused_without_showing_it(write: Write) -> None:
    said = problems(write(document(more='[database]\nurl = "mysql://u:hunter/22@x@h/d"')))
    assert "write it as %40" in said
    assert "hunter" not in said


@pytest.mark.parametrize(
    "url, printed",
    [
        ("mysql+pymysql://u:hunter22@h:3306/d?charset=utf8mb4", "mysql+pymysql://u:***@h:3306/d?charset=utf8mb4"),
        ("mysql+pymysql://u:hunter@22@h/d", "mysql+pymysql://u:***@h/d"),
        ("mysql+pymysql://u:hunter%4022@h/d", "mysql+pymysql://u:***@h/d"),
        ("mysql+pymysql://u:hun/te?r22@h/d", "mysql+pymysql://u:***@h/d"),
        (
            "mysql+pymysql://u@h/d?password=hunter22&charset=utf8mb4",
            "mysql+pymysql://u@h/d?password=***&charset=utf8mb4",
        ),
        ("mysql+pymysql://u@h/d?passwd=hunter22", "mysql+pymysql://u@h/d?passwd=***"),
        ("mysql+pymysql://u@h/d?p%61sswd=hunter22", "mysql+pymysql://u@h/d?p%61sswd=***"),
        (
            "postgresql+psycopg://h/d?sslmode=require&sslpassword=hunter22",
            "postgresql+psycopg://h/d?sslmode=require&sslpassword=***",
        ),
        ("sqlite:////var/lib/pos.db", "sqlite:////var/lib/pos.db"),
    ],
)
def test_an_address_is_printed_without_its_password(url: str, printed: str) -> None:
    assert without_password(url) == printed
    assert not [secret for secret in secrets_of(url) if secret in printed]
    assert bool(secrets_of(url)) == ("***" in printed)


def test_the_default_database_lies_in_the_state_directory_of_systemd(write: Write) -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/orderbridge:/var/lib/other"}
    assert load(write(), environ=environ).database.url == "sqlite:////var/lib/orderbridge/orderbridge.db"


def test_a_given_database_does_not_move_to_the_state_directory(write: Write, tmp_path: Path) -> None:
    file = write(document(more='[database]\nurl = "sqlite:///pos.db"'))
    assert (
        load(file, environ={"STATE_DIRECTORY": "/var/lib/orderbridge"}).database.url == f"sqlite:///{tmp_path}/pos.db"
    )
