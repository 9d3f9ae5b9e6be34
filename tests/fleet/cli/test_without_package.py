"""An installation without the fleet's package: the core works, and a fleet's configuration ends with its name."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.shell import Configure, Run, document

from orderbridge import extension
from orderbridge.config.master_keys import new_key

FLEET = f'[fleet]\naccounts = "database"\nmaster_key = "{new_key()}"\n'


@pytest.fixture(autouse=True)
def without_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> ModuleSpec | None:
        return None if name == "orderbridge_fleet" else find_spec(name)

    monkeypatch.setattr(extension, "find_spec", found)


@pytest.mark.usefixtures("pos")
def test_status_works_and_has_no_branches(run: Run):
    assert "kadikoy" in run("status").out
    assert run("status", "--branches").code == 2


def test_its_command_is_not_there(run: Run):
    assert run("accounts", "list").code == 2
    assert "accounts" not in run("--help").out.split()


def test_a_fleets_configuration_is_refused_and_the_package_is_named(run: Run, configure: Configure, path: Path):
    configure(document(more=FLEET, accounts=" "))
    ended = run("run")
    assert (ended.code, "fleet" in ended.err) == (78, True)
    assert not path.exists()
