"""How the address of the database is read, checked and printed."""

from pathlib import Path

import pytest
from tests.config.documents import Write, document, problems

from orderbridge.config import load
from orderbridge.config.addresses import database_address, secrets_of, without_password


@pytest.mark.parametrize("given, kept", [
    ("sqlite:////var/lib/pos/orders.db", "sqlite:////var/lib/pos/orders.db"),
    ("sqlite:///data/orders.db", "sqlite:///{folder}/data/orders.db"),
    ("postgresql://u:p@h/d", "postgresql+psycopg://u:p@h/d"),
    ("mysql://u:p@h/d", "mysql+pymysql://u:p@h/d"),
    ("mariadb://u:p@h/d", "mariadb+pymysql://u:p@h/d"),
])  # fmt: skip
def test_a_database_address_gets_its_place_and_its_driver(given: str, kept: str, write: Write, tmp_path: Path) -> None:
    """A configured path does not move to the state directory. A line break at the end, as in a file, is stripped."""
    environ = {"STATE_DIRECTORY": "/var/lib/orderbridge"}
    by_file = load(write(document(more=f'[database]\nurl = "{given}"')), environ=environ)
    by_variable = load(write(), environ=environ | {"ORDERBRIDGE_DATABASE__URL": f"{given}\n"})
    assert by_file.database.url == by_variable.database.url == kept.format(folder=tmp_path)


@pytest.mark.parametrize("error, urls", [
    ("file on disk", ["sqlite://", "sqlite:///", "sqlite:///:memory:", r"sqlite:///pos\u0000.db"]),
    ("file on disk", ["sqlite:///a.db?mode=memory", "sqlite:///file:a.db", "sqlite://host/a.db"]),
    ("begin with one of sqlite://", ["oracle://u:hunter22@h/d", "orders.db", ""]),
    ("has a port that is not", ["mysql://hunter22:x/d", "mysql://u:p@h:hunter22/d"]),
    ("has a port that is not", ["postgresql://h:hunter22?a=b", "postgresql://u@a:1,b:hunter22/d"]),
    ("write it as %40", ["mysql://u:hunter/22@x@h/d"]),  # the @ that ends the password may be either
])  # fmt: skip
def test_a_wrong_address_is_refused_without_showing_it(error: str, urls: list[str], write: Write) -> None:
    for url in urls:
        found = problems(write(document(more=f'[database]\nurl = "{url}"')))
        assert error in found and "hunter" not in found


@pytest.mark.parametrize("given, kept", [
    ("mysql://u:p@ss@h/d", "u:p%40ss@h/d"),
    ("mysql://u:a@b:c?d@h:3306/d?charset=utf8mb4", "u:a%40b:c?d@h:3306/d?charset=utf8mb4"),
    ("mysql://u:p/q@h/d", "u:p/q@h/d"), ("mysql://u:p@h/d?ssl_ca=/a@b", "u:p@h/d?ssl_ca=/a@b"),
    ("sqlite:////home/a@b@c/pos.db", "//home/a@b@c/pos.db"),
    ("postgresql://u:p@a:1,b:2/d?sslmode=require", "u:p@/d?host=a,b&port=1,2&sslmode=require"),
    ("postgresql://u@a,b:5433/d", "u@/d?host=a,b&port=,5433"), ("postgresql://a,b/d", "/d?host=a,b"),
    ("postgresql://u@[::1]:5,[::2]/d", "u@/d?host=::1,::2&port=5,"),
    ("postgresql://u:p,@ss@a,b/d", "u:p,%40ss@/d?host=a,b"), ("postgresql://u:p,/q@a/d", "u:p,/q@a/d"),
    ("postgresql://u@/d?host=a,b&port=1,2", "u@/d?host=a,b&port=1,2"),
])  # fmt: skip
def test_a_password_may_hold_an_at_sign_and_several_servers_are_named_as_by_libpq(given: str, kept: str) -> None:
    driver = {"mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg"}
    kind = given.partition(":")[0]
    assert database_address(given) == f"{driver.get(kind, kind)}://{kept}"


@pytest.mark.parametrize("url, printed", [
    ("mysql+pymysql://u:hunter22@h:3306/d?charset=utf8mb4", "mysql+pymysql://u:***@h:3306/d?charset=utf8mb4"),
    ("mysql+pymysql://u:hunter@22@h/d", "mysql+pymysql://u:***@h/d"),
    ("mysql+pymysql://u:hunter%4022@h/d", "mysql+pymysql://u:***@h/d"),
    ("mysql+pymysql://u:hun/te?r22@h/d", "mysql+pymysql://u:***@h/d"),
    ("mysql+pymysql://u@h/d?password=hunter22&charset=utf8", "mysql+pymysql://u@h/d?password=***&charset=utf8"),
    ("mysql+pymysql://u@h/d?passwd=hunter22", "mysql+pymysql://u@h/d?passwd=***"),
    ("mysql+pymysql://u@h/d?p%61sswd=hunter22", "mysql+pymysql://u@h/d?p%61sswd=***"),
    ("postgresql+psycopg://h/d?sslmode=require&sslpassword=hunter22",
     "postgresql+psycopg://h/d?sslmode=require&sslpassword=***"),
    ("postgresql+psycopg://u:hunter22@/d?host=a,b&port=1,2", "postgresql+psycopg://u:***@/d?host=a,b&port=1,2"),
    ("sqlite:////var/lib/pos.db", "sqlite:////var/lib/pos.db"),
])  # fmt: skip
def test_an_address_is_printed_without_its_password(url: str, printed: str) -> None:
    assert without_password(url) == printed
    assert not [secret for secret in secrets_of(url) if secret in printed]
    assert bool(secrets_of(url)) == ("***" in printed)


def test_the_default_database_lies_in_the_state_directory_of_systemd(write: Write) -> None:
    environ = {"STATE_DIRECTORY": "/var/lib/orderbridge:/var/lib/other"}
    assert load(write(), environ=environ).database.url == "sqlite:////var/lib/orderbridge/orderbridge.db"
