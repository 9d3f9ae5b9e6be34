"""An installation without the packages board, fleet and certify: the daemon and its commands work."""

import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orderbridge.config.keys import new_master_key
from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.demo import CONFIGURATION
from orderbridge_sandbox.scenery import KADIKOY

ROOT = Path(__file__).parents[1]
KEPT = ("orderbridge", "orderbridge_sandbox")
PROGRAM = (sys.executable, "-S", "-c", "from orderbridge.cli.main import main; main()")  # -S: no other packages' paths
WITHIN_S = 120.0


@pytest.fixture
def world() -> World:
    return World.default(seed=1, options=Options(cooldown_seconds=2.0))


@pytest.fixture
def configuration(world: World, tmp_path: Path) -> Iterator[Path]:
    site = tmp_path / "site"
    site.mkdir()
    for name in KEPT:
        (site / name).symlink_to(ROOT / "src" / name)
    (tmp_path / "migrations").symlink_to(ROOT / "migrations")
    with Sandbox(world, directory=tmp_path / "sandbox") as sandbox:
        addresses = {"base_url": sandbox.base_url, "ca_file": sandbox.ca_file}
        addresses["database"] = f'"sqlite:///{tmp_path}/pos.db"'
        file = tmp_path / "orderbridge.toml"
        file.write_text(CONFIGURATION.format(language="en", cooldown=2.0, **addresses))
        file.chmod(0o600)
        yield file


def environment(configuration: Path) -> dict[str, str]:
    paths = f"{configuration.parent / 'site'}{os.pathsep}{sysconfig.get_path('purelib')}"
    return os.environ | {"PYTHONPATH": paths, "ORDERBRIDGE_CONFIG": str(configuration)}


def ended(configuration: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command, env = [*PROGRAM, *words], environment(configuration)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def acknowledged(database: Path) -> bool:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        found = connection.execute("SELECT count(*) FROM delivery_orders WHERE acknowledged_utc IS NOT NULL")
        return bool(found.fetchone()[0])


def test_an_order_comes_in_and_its_status_is_shown(world: World, configuration: Path) -> None:
    checked = ended(configuration, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    world.place_order(restaurant_id=KADIKOY)
    database = configuration.with_name("pos.db")
    with subprocess.Popen([*PROGRAM, "run"], env=environment(configuration), stderr=subprocess.DEVNULL) as daemon:
        until = time.monotonic() + WITHIN_S
        while not (database.exists() and database.stat().st_size and world.calls("acknowledge")):
            assert daemon.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(WITHIN_S) == 0
    assert acknowledged(database)
    shown = ended(configuration, "status")
    assert "kadikoy" in shown.stdout, shown.stderr


def test_a_command_of_a_missing_package_does_not_exist(configuration: Path) -> None:
    words = ended(configuration, "--help").stdout.split()
    assert {"run", "check", "status", "sandbox"} <= set(words)
    assert {"accounts", "board", "certify"} & set(words) == set()


MORE = {"fleet": f'[fleet]\naccounts = "database"\nmaster_key = "{new_master_key()}"\n', "board": 'board = "beside"\n'}


@pytest.mark.parametrize("name", MORE)
def test_a_configuration_that_needs_a_package_names_it(name: str, configuration: Path) -> None:
    text = configuration.read_text().replace('listen = ""', 'listen = "127.0.0.1:8480"')
    configuration.write_text(text + MORE[name])
    refused = ended(configuration, "run")
    assert (refused.returncode, f"orderbridge_{name}" in refused.stderr) == (78, True), refused.stderr
