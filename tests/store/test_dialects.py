"""One file for each database: each says everything, and nobody else in store names one."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

import orderbridge.store
from orderbridge.config.addresses import DRIVERS
from orderbridge.store.dialects import FAMILIES, of
from orderbridge.store.dialects.face import Dialect
from orderbridge.store.failures import is_broken, is_busy, is_denied, is_refusal, remedy

STORE = Path(orderbridge.store.__file__).parent
NAMED = re.compile(r"(?<![\w./])(sqlite|postgresql|mysql|mariadb|mssql)(?!\w|://)")


@pytest.mark.parametrize("name", DRIVERS)
def test_each_database_of_the_configuration_has_its_file(name: str):
    assert of(name) in [of(family) for family in FAMILIES]


REQUIRED = [one.name for one in fields(Dialect) if one.default is MISSING and one.default_factory is MISSING]


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_file_that_leaves_something_out_cannot_be_loaded(missing: str):
    whole = {field.name: getattr(of("mssql"), field.name) for field in fields(Dialect)}
    assert Dialect(**whole) == of("mssql")
    del whole[missing]
    with pytest.raises(TypeError, match=missing):
        Dialect(**whole)


def test_nobody_else_in_store_names_a_database():
    found = {
        f"{path.name}: {line}"
        for path in STORE.glob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if NAMED.search(line)
    }
    assert found == set()


class Refused(Exception):
    """A server's error; PostgreSQL's has an SQLSTATE, the others' have their number first."""

    def __init__(self, code: object, text: str) -> None:
        super().__init__(*([text] if isinstance(code, str) else [code, text]))
        self.sqlstate = code if isinstance(code, str) else None


@pytest.mark.parametrize(
    "code, text, words",
    [
        ("53100", 'could not extend file "base/1": No space left on device', "make room"),
        (1114, "The table 'delivery_orders' is full", "make room"),
        (1021, "Disk full (/tmp/x); waiting for someone to free some space", "make room"),
        ("53300", "sorry, too many clients already", "max_connections"),
        (1040, "Too many connections", "max_connections"),
        # What PostgreSQL says to who connects has no SQLSTATE at the driver.
        (0, "FATAL:  sorry, too many clients already", "max_connections"),
        (0, "FATAL:  remaining connection slots are reserved for non-replication superuser", "max_connections"),
        (0, 'FATAL:  too many connections for role "pos"', "max_connections"),
        ("25006", "cannot execute INSERT in a read-only transaction", "standby"),
        (1290, "The server is running with the --read-only option", "standby"),
        (0, "attempt to write a readonly database", "write to the file"),
        (0, "database or disk is full", "make room"),
    ],
)
def test_what_a_server_lacks_is_said_and_is_no_refusal_of_the_work(code: object, text: str, words: str):
    error = OperationalError("INSERT", {}, Refused(code, text))
    assert words in remedy(error)
    assert not any(means(error) for means in (is_refusal, is_busy, is_denied, is_broken))


@pytest.mark.parametrize(
    "code, text, words",
    [
        ("42703", 'column "pos_reference" does not exist', "Put it back"),
        (1054, "Unknown column 'pos_reference' in 'field list'", "Put it back"),
        (0, "no such table: delivery_new_orders", "Put it back"),
        (0, 'FATAL:  database "pos" does not exist', "CREATE DATABASE"),
        (20009, "Unable to connect: TDS server is unavailable or does not exist", "that the server runs"),
    ],
)
def test_what_is_not_there_is_told_from_a_server_that_is_away(code: object, text: str, words: str):
    assert words in remedy(OperationalError("SELECT", {}, Refused(code, text)))
