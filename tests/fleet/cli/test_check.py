"""`check` and `accounts cooldown` in a fleet, with accounts in the database."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, update
from tests import databases
from tests.cli.shell import APP, Configure, Ended, Run, account
from tests.fleet.cli.test_cooldown import COOLDOWN_S, OTHER_APP, SCENERY, market

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.config.keys import new_master_key, parsed
from orderbridge.store import accounts, schema
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock
from orderbridge.store.own_tables import account_settings
from orderbridge_fleet import account_changes
from orderbridge_fleet.account_settings import MasterKeys
from orderbridge_fleet.membership import Membership
from orderbridge_sandbox import Options, Sandbox, World

MASTER = new_master_key()
NAMES = ("besiktas", "chain", "kadikoy")
WITHIN_S = 60.0
SHARED, FAILED = (0, [("cooldown application", "warning")]), (1, [("cooldown", "failed")])


@pytest.fixture(params=databases.KINDS[:2])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(kind: str, path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    if kind == databases.SQLITE:
        with closing(Database(f"sqlite:///{path}", inline=True)) as database:
            database.write_now(schema.upgrade)
            yield database
    else:
        with databases.made(request.getfixturevalue(f"{kind}_server"), f"obs_cooldown_{os.getpid()}") as database:
            yield database


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Sandbox]:
    """Accounts of one application share a cooldown; Beşiktaş is of another one."""
    options = Options(cooldown_scope="application", cooldown_seconds=COOLDOWN_S)
    with Sandbox(World(SCENERY, options=options), directory=tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
def play(world: Sandbox, database: Database, configure: Configure, tmp_path: Path) -> Callable[..., World]:
    """A fleet whose database has these accounts, and whose file has what `in_file` says."""

    def play(*names: str, in_file: str = " ") -> World:
        (tmp_path / "master.key").write_text(MASTER)
        (tmp_path / "master.key").chmod(0o600)
        url = database.engine.url.render_as_string(hide_password=False)
        fleet = '[fleet]\naccounts = "database"\nmaster_key_file = "master.key"\n'
        listed = [made(name).at(world.base_url) for name in names]
        database.write_now(lambda tx: account_changes.put(tx, keys(), listed, SystemClock().now()))
        configure(market(world, database=f'url = "{url}"', more=fleet, accounts=in_file))
        return world.world

    return play


def keys() -> MasterKeys:
    return MasterKeys(parsed(MASTER))


def made(name: str) -> config.Account:
    app = OTHER_APP if name == "besiktas" else APP
    return config.Account(name=name, app_secret_key=app, rest_secret_key=f"sandbox-{name}-secret")


def found(ended: Ended) -> tuple[int, list[tuple[str, str]]]:
    return ended.code, [(one["check"], one["level"]) for one in ended.json]


def asked(world: World) -> list[str]:
    return [call.account for call in world.calls("get_current")]


def right_to_work(database: Database) -> LeaderLock | Membership:
    return LeaderLock(database) if database.file is not None else Membership(database)


def test_accounts_of_the_database_are_asked_while_a_replica_waits(run: Run, play, world: Sandbox, database: Database):
    """A planned first poll does not count. A replica that is stopped during a long start leaves such notes."""
    service, world = world, play(*NAMES)
    plan = SystemClock().now() + timedelta(hours=1)
    listed = [made(name).at(service.base_url) for name in NAMES]
    planned = [accounts.Entry(one.fingerprint, one.name, first_poll=plan) for one in listed]
    database.write_now(lambda tx: accounts.register(tx, planned))
    with closing(right_to_work(database)) as replica, ThreadPoolExecutor(1) as beside:
        checked = beside.submit(run, "accounts", "cooldown", "--json")
        assert world.wait_for(lambda: bool(world.calls("get_current")), timeout=WITHIN_S)
        assert not replica.take()
        assert found(checked.result(WITHIN_S)) == SHARED
        while not replica.take():
            pass
    assert asked(world) == ["chain", "kadikoy", "besiktas", "kadikoy", "chain"]
    noted = database.read_now(lambda tx: tx.exec_driver_sql("SELECT name FROM delivery_accounts ORDER BY name").all())
    assert [name for (name,) in noted] == list(NAMES)


def test_the_cooldown_test_refuses_to_run_beside_a_replica(run: Run, play, database: Database):
    world = play(*NAMES)
    with closing(right_to_work(database)) as replica:
        assert replica.take()
        ended = run("accounts", "cooldown", "--json")
    assert (found(ended), world.calls()) == (FAILED, [])
    assert "in a fleet every replica" in ended.json[0]["detail"]


@databases.only(databases.SQLITE)
def test_an_account_that_moves_is_asked_once_and_as_the_file_has_it(run: Run, play):
    world = play("besiktas", "kadikoy", in_file=account())
    assert found(run("accounts", "cooldown", "--json")) == (0, [("cooldown not_address", "ok")])
    assert asked(world) == ["kadikoy", "besiktas"]


@databases.only(databases.SQLITE)
def test_accounts_that_are_refused_or_disabled_are_named_and_not_asked(run: Run, play):
    world = play(*NAMES)
    world.refuse_account("chain")
    assert found(run("accounts", "cooldown", "--json")) == (1, [("account chain", "failed")])
    run("accounts", "disable", "chain", "besiktas")
    before = len(world.calls())
    ended = run("accounts", "cooldown", "--json")
    assert (found(ended), len(world.calls())) == (FAILED, before)
    assert "of a fleet, into the database" in ended.json[0]["remedy"]


@databases.only(databases.SQLITE)
def test_a_row_that_does_not_open_is_named_unless_none_opens(run: Run, play, database: Database, tmp_path: Path):
    world = play(*NAMES)
    spoil = update(account_settings).where(account_settings.c.name == "besiktas").values(sealed="x")
    database.write_now(lambda tx: tx.execute(spoil))
    ended = run("accounts", "cooldown", "--json")
    assert found(ended) == (0, [("account_settings", "warning"), ("cooldown application_or_address", "warning")])
    assert ended.json[0]["detail"] == "1: besiktas"
    assert set(asked(world)) == {"chain", "kadikoy"}
    before = len(world.calls())
    (tmp_path / "master.key").write_text(new_master_key())
    ended = run("accounts", "cooldown", "--json")
    assert (found(ended), len(world.calls())) == (FAILED, before)
    assert "decrypts none of the accounts" in ended.json[0]["detail"]


@databases.only(databases.SQLITE)
def test_of_thousands_only_those_that_are_needed_are_opened(run: Run, play, database: Database):
    """Otherwise the rows after them would fail to decrypt, unnoticed."""
    play(*NAMES)
    row = {"sealed": "x", "key_id": keys().ids[0], "enabled": 1, "version": 1, "changed_utc": SystemClock().now()}
    rows = [{"name": f"z{number}", "fingerprint": str(number), **row} for number in range(10_000)]
    database.write_now(lambda tx: tx.execute(insert(account_settings), rows))
    assert found(run("accounts", "cooldown", "--json")) == SHARED


@databases.only(databases.SERVERS[0])
def test_each_replica_is_named_with_its_share(run: Run, play, database: Database):
    play(*NAMES)
    with closing(right_to_work(database)) as one, closing(right_to_work(database)) as other:
        assert (one.take(), other.take()) == (True, True)
        one.beat()
        other.beat()
        one.beat(one.beat().excess)
        other.beat()
        message = next(line["detail"] for line in run("check", "--json").json if line["check"] == "worker")
    assert [part.rpartition(": ")[2] for part in message.split("; ")] == ["32/64", "32/64"]
    assert f", PID {os.getpid()}: " in message
