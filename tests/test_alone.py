"""An installation without the packages board, fleet and certify: the daemon and its commands work."""

import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
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
PROGRAM = (
    sys.executable,
    "-S",
    "-c",
    "from orderbridge.cli.main import main; main()",
)  # -S: without the paths of other packages
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


def test_an_order_comes_in_and_its_status_is_shown(world: World, configuration: Path) -> None:
    checked = ended(configuration, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    world.place_order(restaurant_id=KADIKOY)
    with subprocess.Popen([*PROGRAM, "run"], env=environment(configuration), stderr=subprocess.DEVNULL) as daemon:
        assert world.wait_for(lambda: daemon.poll() is not None or world.calls("acknowledge"), timeout=WITHIN_S)
        assert daemon.poll() is None
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(WITHIN_S) == 0
    with closing(sqlite3.connect(configuration.with_name("pos.db"))) as connection:
        assert connection.execute("SELECT 1 FROM delivery_orders WHERE acknowledged_utc IS NOT NULL").fetchone()
    shown = ended(configuration, "status")
    assert "kadikoy" in shown.stdout, shown.stderr


def test_a_command_of_a_missing_package_does_not_exist(configuration: Path) -> None:
    here, elsewhere = {"run", "check", "status", "sandbox"}, {"accounts", "board", "certify"}
    assert set(ended(configuration, "--help").stdout.split()) & (here | elsewhere) == here


MORE = {"fleet": f'[fleet]\naccounts = "database"\nmaster_key = "{new_master_key()}"\n', "board": 'board = "beside"\n'}


@pytest.mark.parametrize("name", MORE)
def test_a_configuration_that_needs_a_package_names_it(name: str, configuration: Path) -> None:
    text = configuration.read_text().replace('listen = ""', 'listen = "127.0.0.1:8480"')
    configuration.write_text(text + MORE[name])
    refused = ended(configuration, "run")
    assert refused.returncode == 78 and f"orderbridge_{name}" in refused.stderr, refused.stderr
