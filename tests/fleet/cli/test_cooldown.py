"""`accounts cooldown` finds which accounts share a cooldown, against a simulated service, and loses no order."""

import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.shell import APP, Configure, Run, account, document
from tests.store.samples import rows

from orderbridge import config
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock
from orderbridge_fleet.cli.cooldown import Asked, Scope, judge
from orderbridge_sandbox import Fault, Options, Sandbox, World
from orderbridge_sandbox.scenery import DEFAULT_SCENERY

COOLDOWN_S = 2  # of real time, and no less: three polls have to lie within it on a busy machine
OTHER_APP = "sandbox-other-secret"
# Accounts of one application, and Beşiktaş of another one.
APPS = {"besiktas": OTHER_APP}
ACCOUNTS = [replace(one, app_secret_key=APPS.get(one.name, APP)) for one in DEFAULT_SCENERY.accounts]
SCENERY = replace(DEFAULT_SCENERY, accounts=tuple(ACCOUNTS))
THREE = ("kadikoy", "chain", "besiktas")
Play = Callable[..., Sandbox]


def market(sandbox: Sandbox, **parts: str) -> str:
    lines = f'ca_file = "{sandbox.ca_file}"\ncooldown_seconds = {COOLDOWN_S}\ntimeout_seconds = 20'
    return document(base_url=sandbox.base_url, marketplace=lines, **parts)


@pytest.fixture
def play(tmp_path: Path, configure: Configure):
    running: list[Sandbox] = []

    def play(scope: str, *names: str) -> Sandbox:
        options = Options(cooldown_scope=scope, cooldown_seconds=COOLDOWN_S)
        sandbox = Sandbox(World(SCENERY, options=options), directory=tmp_path)
        sandbox.__enter__()
        running.append(sandbox)
        listed = [account(name, f"sandbox-{name}-secret").replace(APP, APPS.get(name, APP)) for name in names]
        configure(market(sandbox, accounts="".join(listed)))
        return sandbox

    yield play
    for sandbox in running:
        sandbox.__exit__(None, None, None)


@pytest.mark.parametrize("scope, names, found, level", [
    ("credential", THREE, "credential", "ok"), ("application", THREE, "application", "warning"),
    ("address", THREE, "address", "warning"), ("address", ("kadikoy", "besiktas"), "address", "warning"),
    ("application", ("kadikoy", "chain"), "application_or_address", "warning"),
    ("application", ("kadikoy", "besiktas"), "not_address", "ok"),
])  # fmt: skip
def test_the_scope_of_the_cooldown_is_found(run, pos, play, scope, names, found, level):
    play(scope, *names)
    ended = run("accounts", "cooldown", "--json")
    assert (ended.code, [(one["check"], one["level"]) for one in ended.json]) == (0, [(f"cooldown {found}", level)])
    assert bool(ended.json[0]["remedy"]) == (level == "warning")
    assert "takes a minute" in ended.err


def test_the_test_loses_no_order_and_keeps_each_cooldown(run: Run, pos, play: Play):
    world = play("application", *THREE).world
    order = world.place_order()
    assert (run("accounts", "cooldown").code, world.calls("acknowledge")) == (0, [])
    assert not order.acknowledged, "the next poll delivers it again"
    assert rows(pos, "SELECT payment_key FROM delivery_orders") == []
    served = [call for call in world.calls("get_current") if call.http_status == 200]
    for name in THREE:
        times = [call.at for call in served if call.account == name]
        assert all((b - a).total_seconds() >= COOLDOWN_S for a, b in itertools.pairwise(times))
    noted = rows(pos, "SELECT name, next_poll_utc > last_poll_utc AS later FROM delivery_accounts")
    assert {row["name"]: row["later"] for row in noted} == dict.fromkeys(THREE, 1)


def test_the_cooldown_left_by_a_daemon_is_kept(run: Run, pos, play: Play):
    world = play("address", "kadikoy", "besiktas").world
    assert run("accounts", "cooldown", "--json").json[0]["check"] == "cooldown address"
    assert run("accounts", "cooldown", "--json").json[0]["check"] == "cooldown address", "not: a stranger polls"
    assert len(world.calls("get_current")) == 8


def test_another_program_with_the_same_credential_is_no_shared_cooldown(run: Run, pos, play: Play):
    play("credential", "kadikoy", "chain").world.faults.add(Fault.too_many("get_current", times=99))
    ended = run("accounts", "cooldown", "--json")
    assert (ended.code, ended.json[0]["check"]) == (1, "cooldown unknown")
    assert "Stop the other program" in ended.json[0]["remedy"]


def test_nothing_is_tested_beside_a_daemon_without_tables_or_with_one_account(run: Run, pos, play: Play, path: Path):
    world = play("credential", "kadikoy", "chain").world
    with closing(Database(f"sqlite:///{path}", inline=True)) as database, closing(LeaderLock(database)) as daemon:
        assert daemon.take()
        ended = run("accounts", "cooldown", "--json")
    assert ended.code == 1 and "systemctl stop orderbridge" in ended.json[0]["detail"]
    alone = play("credential", "kadikoy").world
    assert "at least two accounts" in run("accounts", "cooldown").out
    pos.close()
    path.unlink()
    path.touch()
    assert run("accounts", "cooldown", "--json").code == 1
    assert world.calls() == alone.calls() == []


def test_a_failed_login_of_one_application_proves_nothing() -> None:
    first, same, other = (
        config.Account(name=name, app_secret_key=application, rest_secret_key=f"{name} secret")
        for name, application in (("b", "y"), ("c", "y"), ("a", "x"))
    )
    assert judge(Asked(first, same, other), ["a"]) == Scope.UNKNOWN
