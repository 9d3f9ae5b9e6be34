"""The differences between databases, and the statements that SQLAlchemy compiles once for each."""

import importlib
import pkgutil
from types import SimpleNamespace

import pytest
from sqlalchemy import CompoundSelect, Delete, Insert, Select, Update, make_url
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from orderbridge import store
from orderbridge.store.dialects import of, postgresql_sessions, servers
from orderbridge.store.failures import is_broken, is_busy, is_denied, is_refusal, remedy
from orderbridge.store.tables import changed, contents_ended_utc
from orderbridge.texts import sentence


class Refused(Exception):
    """A server's error; PostgreSQL's has an SQLSTATE, the others' have their number first."""

    def __init__(self, code: object, text: str) -> None:
        super().__init__(*([text] if isinstance(code, str) else [code, text]))
        self.sqlstate = code if isinstance(code, str) else None


@pytest.mark.parametrize("code, text, words", [
    ("53100", 'could not extend file "base/1": No space left on device', "make room"),
    (1114, "The table 'delivery_orders' is full", "make room"),
    (1021, "Disk full (/tmp/x); waiting for someone to free some space", "make room"),
    ("53300", "sorry, too many clients already", "max_connections"),
    (1040, "Too many connections", "max_connections"),
    # PostgreSQL's errors during a connect have no SQLSTATE in the driver.
    (0, "FATAL:  sorry, too many clients already", "max_connections"),
    (0, "FATAL:  remaining connection slots are reserved for non-replication superuser", "max_connections"),
    (0, 'FATAL:  too many connections for role "pos"', "CONNECTION LIMIT"),
    (1226, "User 'pos' has exceeded the 'max_queries_per_hour' resource", "MAX_QUERIES_PER_HOUR"),
    (1203, "User pos already has more than 'max_user_connections' active connections", "MAX_USER_CONNECTIONS"),
    ("57014", "canceling statement due to statement timeout", "statement_timeout"),
    ("25P03", "terminating connection due to idle-in-transaction timeout", "idle_in_transaction_session_timeout"),
    (1969, "Query execution was interrupted (max_statement_time exceeded)", "max_statement_time"),
    ("26000", 'prepared statement "_pg3_0" does not exist', "pool_mode = session"),
    ("42P05", 'prepared statement "_pg3_0" already exists', "pool_mode = session"),
    ("25006", "cannot execute INSERT in a read-only transaction", "standby"),
    (1290, "The server is running with the --read-only option", "standby"),
    (0, "attempt to write a readonly database", "write to the file"),
    (0, "database or disk is full", "make room"),
    ("42703", 'column "pos_reference" does not exist', "Restore it"),
    (1054, "Unknown column 'pos_reference' in 'field list'", "Restore it"),
    (0, "no such table: delivery_new_orders", "Restore it"),
    (0, "table delivery_orders has no column named building_no", "Restore it"),
    (0, 'FATAL:  database "pos" does not exist', "CREATE DATABASE"),
])  # fmt: skip
def test_a_missing_server_feature_is_named_and_does_not_refuse_the_work(code: object, text: str, words: str):
    error = OperationalError("INSERT", {}, Refused(code, text))
    assert words in sentence(remedy(error))
    is_ours = words == "Restore it"  # a table or column is missing, which is handled elsewhere
    assert is_ours or not any(means(error) for means in (is_refusal, is_busy, is_denied, is_broken))


def test_a_session_that_is_ended_again_and_again_is_logged_once_a_minute(monkeypatch):
    """As by idle_session_timeout. While the session is lost, nothing more is logged."""
    losses, times = servers.Losses("wake.listening_again"), iter([0.0, 0.0, 1.0, 61.0, 61.0])
    monkeypatch.setattr(losses, "_clock", SimpleNamespace(monotonic=lambda: next(times)))
    with capture_logs() as logs:
        for is_back in (True, True, False, False, True):
            losses.lost(ConnectionError())
            if is_back:
                losses.recovered()
    assert [line["event"] for line in logs] == ["wake.lost", "wake.listening_again"] * 2


@pytest.mark.parametrize("address, printed", [
    (":hunter22@h:5433/d", "host=h&port=5433"), ("@/d?host=/run/pg&port=5433", "host=%2Frun%2Fpg&port=5433"),
    (":hunter22@/d?host=a,b&port=1,2&sslmode=require", "host=a%2Cb&port=1%2C2&sslmode=require&{any}"),
    ("@/d?host=a:1&host=b:2", "host=a%2Cb&port=1%2C2&{any}"),
])  # fmt: skip
def test_the_dump_command_names_every_server_and_no_password(address: str, printed: str):
    """A tool would take a password of asterisks for the real one."""
    commands = of("postgresql").dump(make_url(f"postgresql+psycopg://u{address}"), "file", ())
    assert commands is not None
    for command in commands:
        assert f"postgresql://u@/d?{printed.format(any='target_session_attrs=read-write')}" in command
        assert "*" not in command.replace("'delivery_*'", "")


def test_of_several_servers_the_writable_one_is_used():
    for address, attributes in {
        "@h/d": None,
        "@/d?host=/run/pg": None,
        "@/d?host=a,b&port=1,2": "read-write",
        "@/d?host=a:1&host=b:2": "read-write",
        "@/d?host=a,b&target_session_attrs=primary": None,  # the address says it
    }.items():
        options = of("postgresql").options(make_url(f"postgresql+psycopg://u{address}"), 5.0)
        assert options["connect_args"].get("target_session_attrs") == attributes


def test_a_session_tries_the_last_used_server_first():
    addresses = {"host": "x,y", "hostaddr": "10.0.0.1,10.0.0.2"}
    for host in ({"host": "un,deux"}, {"host": "alone", "port": "5433"}, addresses):
        assert postgresql_sessions.arranged(host).get("host") == host["host"]
    asked = {"host": "one,two,three", "port": "1,2,3", "user": "u"}
    assert postgresql_sessions.arranged(asked) == asked
    postgresql_sessions.note_server(asked, SimpleNamespace(info=SimpleNamespace(host="two", port=2)))
    arranged = postgresql_sessions.arranged(asked)
    assert (arranged["host"], arranged["port"], arranged["user"]) == ("two,three,one", "2,3,1", "u")
    postgresql_sessions.note_server(arranged, None)  # no server answered in time
    assert postgresql_sessions.arranged(asked)["host"] == "three,one,two"


def test_module_level_statements_are_compiled_once():
    modules = [importlib.import_module(f"orderbridge.store.{one.name}") for one in pkgutil.iter_modules(store.__path__)]
    named = {f"{module.__name__}.{name}": value for module in modules for name, value in vars(module).items()}
    kinds = CompoundSelect | Delete | Insert | Select | Update
    statements = {name: value for name, value in named.items() if isinstance(value, kinds)}
    assert len(statements) > 50
    assert [name for name, statement in statements.items() if statement._generate_cache_key() is None] == []


def test_dialect_specific_clauses_have_distinct_cache_keys():
    assert changed._generate_cache_key() != contents_ended_utc._generate_cache_key()
