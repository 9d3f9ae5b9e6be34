"""Commands run through the program's own entry point, on a configuration and a database in a folder of their own."""

import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from tests.cli.shell import Configure, Ended, Run, document
from tests.store.samples import opened

from orderbridge import texts
from orderbridge.cli import main
from orderbridge.config import loading
from orderbridge.observe import logs
from orderbridge_sandbox import Options, Sandbox, World


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory: no test meets a configuration of the machine's own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setattr(texts, "_spoken", "en")
    monkeypatch.setattr(loading, "SYSTEM_FILE", tmp_path / "etc" / "config.toml")
    for name in [name for name in os.environ if name.startswith("ORDERBRIDGE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the log, which a command that contacts the service configures."""
    root, chatty = logging.getLogger(), [logging.getLogger(name) for name in logs.CHATTY]
    before = root.handlers[:], root.level, [one.level for one in chatty]
    yield
    root.handlers[:], root.level = before[0], before[1]
    for one, level in zip(chatty, before[2], strict=True):
        one.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A service for all tests. A test that adds a fault removes it."""
    world = World.default(options=Options(cooldown_seconds=1))
    with Sandbox(world, directory=tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "orderbridge.toml"


@pytest.fixture
def configure(config_file: Path) -> Configure:
    def configure(text: str | None = None) -> None:
        config_file.write_text(document() if text is None else text, "utf-8")
        config_file.chmod(0o600)

    configure()
    return configure


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `orderbridge` with exactly these arguments, exit code and all, in this process."""
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)  # click would name pytest in its usage

    def command(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["orderbridge", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert left.value.code is None or isinstance(left.value.code, int)
        return Ended(left.value.code or 0, out, err)

    return command


@pytest.fixture
def run(command: Run, configure: Configure, config_file: Path) -> Run:
    return lambda *arguments: command(*arguments, "--config", config_file)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pos.db"


@pytest.fixture
def pos(template: Path, path: Path) -> Iterator[sqlite3.Connection]:
    shutil.copy(template, path)
    with opened(path) as connection:
        yield connection
