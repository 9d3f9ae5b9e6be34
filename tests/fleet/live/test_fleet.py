"""Replicas as processes with a service that records everything: the promises hold whatever happens to them."""

import base64
import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url
from tests import databases
from tests.fleet.live import fleet as rig
from tests.fleet.live.fleet import Fleet
from tests.live.half_open import Line

from orderbridge.jobs.upkeep import HEALTH_S
from orderbridge.texts import say

ACCOUNTS = 12
COOLDOWN_S, TIMEOUT_S = 1.0, 3.0
PAUSE_S = 0.3  # of the till

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def url(postgresql_server: str) -> Iterator[str]:
    """A database of its own: what a replica leaves behind concerns no other test."""
    with databases.own_database(postgresql_server, f"obs_fleet_{os.getpid()}") as url:
        yield url


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    with rig.fleet(url, tmp_path, accounts=ACCOUNTS, cooldown_s=COOLDOWN_S, timeout_s=TIMEOUT_S) as fleet:
        for number in (0, 1):
            fleet.start(number)
        fleet.await_shares(32, 32)
        all_are_polled(fleet, 0.0)
        yield fleet


def all_are_polled(fleet: Fleet, since: float | None = None) -> None:
    """Wait until each account is polled again."""
    moment = time.monotonic() if since is None else since
    fleet.await_polls(fleet.names, moment)
    assert all(fleet.record.after(name, moment) for name in fleet.names)


def nothing_is_wrong(fleet: Fleet) -> None:
    with contextlib.suppress(TimeoutError):
        rig.until(lambda: not fleet.faults().get("left"))
    assert fleet.faults() == {}
    assert fleet.record.acknowledged()


def test_a_killed_replica_is_replaced_and_a_new_one_gets_its_share(fleet: Fleet):
    with rig.till(fleet, PAUSE_S):
        fleet.kill(0)
        all_are_polled(fleet)
        fleet.start(0)
        fleet.await_shares(32, 32)
        all_are_polled(fleet)
    nothing_is_wrong(fleet)


@pytest.mark.slow
def test_each_replica_is_replaced_and_a_stopped_one_continues_nothing_that_it_had_begun(fleet: Fleet):
    with rig.till(fleet, PAUSE_S):
        for number in (0, 1):
            fleet.replicas[number].send_signal(signal.SIGTERM)
            assert fleet.replicas[number].wait(rig.WITHIN_S) == 0
            fleet.start(number)
            fleet.await_shares(32, 32)
        all_are_polled(fleet)
        fleet.replicas[0].send_signal(signal.SIGSTOP)
        all_are_polled(fleet)
        fleet.replicas[0].send_signal(signal.SIGCONT)
        fleet.await_shares(32, 32)
        all_are_polled(fleet)
    nothing_is_wrong(fleet)


def test_a_replica_with_a_wrong_master_key_does_not_start(url: str, tmp_path: Path):
    """It would have its share of the accounts, and poll none of them."""
    with rig.fleet(url, tmp_path, accounts=1, cooldown_s=COOLDOWN_S, timeout_s=TIMEOUT_S) as fleet:
        fleet.key_file = fleet.write("strange", base64.b64encode(secrets.token_bytes(32)).decode())
        fleet.start(0)
        assert fleet.replicas[0].wait(rig.WITHIN_S) == 78
        assert say("fleet.strange_key", "en") in fleet.log(0)
        assert fleet.holders() == {}


@pytest.mark.slow
@pytest.mark.parametrize("damage", [
    "DELETE FROM delivery_buckets", "DELETE FROM delivery_replicas", "UPDATE delivery_buckets SET replica = NULL",
    "UPDATE delivery_replicas SET epoch = epoch + 1", "UPDATE delivery_fleet SET buckets = 128",
])  # fmt: skip
def test_emptied_or_altered_tables_are_restored(damage: str, fleet: Fleet):
    with rig.till(fleet, PAUSE_S):
        fleet.execute(damage)
        rig.until(lambda: sum(fleet.log(number).count("daemon.started") for number in (0, 1)) > 2)
        all_are_polled(fleet)
    nothing_is_wrong(fleet)


@pytest.mark.slow
def test_a_dump_restored_under_a_replica_is_reported(fleet: Fleet):
    """The dump also replaces the replica, whose next daemon must read the tables again."""
    fleet.kill(1)  # it might write more meanwhile than the dump lacks
    with rig.till(fleet, PAUSE_S):
        fleet.await_shares(64)
        before = fleet.rows("SELECT coalesce(max(id), 0) FROM delivery_order_events")[0][0]
        generation = fleet.rows("SELECT generation FROM delivery_books")[0][0]
        rig.until(lambda: fleet.rows(f"SELECT 1 FROM delivery_order_events WHERE id > {before + 9}"))
        all_are_polled(fleet, time.monotonic() + HEALTH_S)  # by then the lead has seen them
        fleet.execute("UPDATE delivery_replicas SET epoch = epoch + 1")
        fleet.execute("UPDATE delivery_accounts SET listened_seconds = 0")
        fleet.execute(f"DELETE FROM delivery_order_events WHERE id > {before}")
        fleet.execute(f"UPDATE delivery_books SET generation = {generation}")
        rig.until(lambda: fleet.rows("SELECT 1 FROM delivery_problems WHERE code = 'database_restored'"))


@pytest.mark.slow
def test_a_replica_that_silently_lost_the_database_is_replaced(url: str, tmp_path: Path):
    address = make_url(url)
    if address.host is None:
        pytest.skip("the server has no port of TCP")
    line = Line(address.host, address.port or (5432 if url.startswith("postgresql") else 3306))
    through = address.set(host="127.0.0.1", port=line.port, query={}).render_as_string(hide_password=False)
    with rig.fleet(url, tmp_path, accounts=ACCOUNTS, cooldown_s=COOLDOWN_S, timeout_s=TIMEOUT_S) as fleet:
        fleet.start(0, url=through)
        fleet.start(1)
        fleet.await_shares(32, 32)
        all_are_polled(fleet, 0.0)
        with rig.till(fleet, PAUSE_S):
            with line.cut():
                fleet.await_shares(64)
                all_are_polled(fleet)
            fleet.await_shares(32, 32)
            all_are_polled(fleet)
        nothing_is_wrong(fleet)
    line.close()


def reloaded(fleet: Fleet, settings: str, word: str) -> None:
    """Reload a replica, and wait for one more log line with this word."""
    before = fleet.log(0).count(word)
    fleet.write("0.toml", settings)
    fleet.replicas[0].send_signal(signal.SIGHUP)
    rig.until(lambda: fleet.log(0).count(word) > before)


def strange_key(fleet: Fleet, settings: str) -> str:
    strange = fleet.write("strange", base64.b64encode(secrets.token_bytes(32)).decode())
    return settings.replace(str(fleet.key_file), str(strange))


BROKEN: dict[str, Callable[[Fleet, str], str]] = {
    "no configuration": lambda _, settings: settings.replace("[marketplace]", "[marketplace"),
    "a strange master key": strange_key,
    "no server there": lambda _, settings: re.sub(r"@[^/\"]*/", "@127.0.0.1:9/", settings),
    "no authority": lambda fleet, settings: settings.replace(str(fleet.end.ca_file), str(fleet.folder / "0.toml")),
}


@pytest.mark.slow
def test_a_replica_that_reads_unusable_accounts_continues_unchanged(fleet: Fleet):
    good, held = (fleet.folder / "0.toml").read_text(), fleet.holders()
    with rig.till(fleet, PAUSE_S):
        for spoil in BROKEN.values():
            reloaded(fleet, spoil(fleet, good), "config.reload_failed")
            all_are_polled(fleet)
        reloaded(fleet, good, "daemon.started")
        all_are_polled(fleet)
    assert (fleet.holders(), fleet.log(0).count("daemon.started")) == (held, 2)
    nothing_is_wrong(fleet)
