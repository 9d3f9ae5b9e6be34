"""`init` against a simulated service: interactive or by options, tested, and written completely or not at all."""

import io
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.cli.shell import APP, REST, Run
from tests.databases import free_port

from orderbridge import config
from orderbridge.cli import init
from orderbridge_sandbox import Sandbox

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")


@pytest.fixture
def given(running: Sandbox, tmp_path: Path) -> list[str]:
    """All options that are required without a terminal, and the secrets' files."""
    (tmp_path / "app").write_text(f"\ufeff{APP}\r\n")
    (tmp_path / "rest").write_text(f"{REST}\n")
    secrets = ["--app-secret-file", f"{tmp_path}/app", "--rest-secret-file", f"{tmp_path}/rest"]
    return ["--base-url", running.base_url, "--ca-file", str(running.ca_file), "--account", "kadikoy", *secrets]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "here" / "orderbridge.toml"


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_init_with_options_writes_a_valid_configuration(command, given, file, monkeypatch):
    ended = command("init", "--yes", "--language", "en", *given)
    assert ended.code == 0, ended.err
    assert sorted(files(file.parent)) == ["kadikoy.app_secret_key", "kadikoy.rest_secret_key", "orderbridge.toml"]
    assert set(files(file.parent).values()) == {0o600}
    text = file.read_text()
    assert [secret for secret in (APP, REST) if secret in text + ended.out + ended.err] == []
    assert text.startswith("# The configuration of orderbridge")
    settings = config.load(file)
    assert (settings.accounts[0].app_secret_key.get_secret_value(), settings.source.warnings) == (APP, ())
    assert "Örnek Lokanta Kadıköy" in ended.err
    monkeypatch.setenv("ORDERBRIDGE_WEB__LISTEN", f"127.0.0.1:{free_port()}")  # the usual port may be another program's
    assert command("check", "--config", file).code == 0


def test_secrets_come_from_standard_input(command, given, file, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{APP}\n{REST}\n"))
    secrets = ("--app-secret-file", "-", "--rest-secret-file", "-")
    assert command("init", "--yes", "--language", "tr", *given[:6], *secrets).code == 0
    assert all(words in file.read_text() for words in ("# orderbridge ayarları.", 'language = "tr"'))
    assert config.load(file).accounts[0].rest_secret_key.get_secret_value() == REST


def test_without_a_terminal_what_is_missing_is_named(command, given, file):
    ended = command("init", "--yes", *given[2:6])
    assert ended.code == 2 and "Missing: --base-url, --app-secret-file, --rest-secret-file." in ended.err
    assert not file.exists()


@pytest.mark.parametrize("there", ["orderbridge.toml", "kadikoy.rest_secret_key"])
def test_existing_files_are_not_overwritten(there, command, given, file):
    other = file.with_name(there)
    other.write_text("mine")
    ended = command("init", "--yes", *given)
    assert ended.code == 78 and other.read_text() == "mine" and "already exists" in ended.err
    assert list(files(file.parent)) == [there]


def test_a_configuration_that_is_created_meanwhile_wins(command, given, file, monkeypatch):
    write = init.Draft.write

    def late(self: init.Draft) -> None:
        file.write_text("mine")
        write(self)

    monkeypatch.setattr(init.Draft, "write", late)
    assert (command("init", "--yes", *given).code, list(files(file.parent))) == (78, [file.name])
    assert file.read_text() == "mine"


@pytest.mark.parametrize("option, value, code, remedy", [
    ("--base-url", "http://api.example.com", 78, "must begin with https://"),
    ("--base-url", "https://127.0.0.1:1", 69, "Nothing listens at that address and port"),
    ("--account", "Kadıköy", 78, "is not an account name"),
    ("--database", "pos.db", 78, "is not a known database address"),
    ("--database", "sqlite:////nowhere/of/all/pos.db", 1, "Create the folder"),
    ("--ca-file", "nothing.pem", 78, "cannot be read"),
    ("--app-secret-file", "/nowhere", 78, "Check its name, owner and mode"),
    ("--rest-secret-file", "WRONG", 1, "login_refused"),
    ("--owner", "nobody-of-this-name", 2, "Name the service's user"),
])  # fmt: skip
def test_a_failed_test_is_reported_and_nothing_is_written(option, value, code, remedy, command, given, file, tmp_path):
    (tmp_path / "wrong").write_text("wrong-secret-of-the-test")
    value = value.replace("WRONG", f"{tmp_path}/wrong")
    ended = command("init", "--yes", *given, option, value)
    assert ended.code == code, ended.err
    assert remedy in ended.err and "wrong-secret" not in ended.err and files(file.parent) == {}


def test_without_tests_the_configuration_is_written_anyway(command, given, file):
    ended = command("init", "--yes", "--untested", *given, "--base-url", "https://127.0.0.1:1")
    assert ended.code == 0 and "This does not work yet" in ended.err and file.exists(), ended.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def typed(*lines: str, hidden: list[str]) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))
        monkeypatch.setattr(click.termui, "hidden_prompt_func", lambda _: hidden.pop(0))

    return typed


def test_init_asks_tests_and_lets_a_person_correct(command: Run, typed, running, file, closed_port):
    lines = ["en", "http://x", "-"]  # the address and the name are refused at once, and asked again
    lines += [f"https://127.0.0.1:{closed_port}", "-", "y", running.base_url, str(running.ca_file)]
    typed(*lines, "Kadıköy", "kadikoy", "y", "", hidden=[APP, "wrong", APP, REST])
    ended = command("init")
    assert ended.code == 0 and APP not in ended.err + ended.out, ended.err
    printed = (
        "must begin with https://",
        "Nothing listens",
        "'Kadıköy' is not an account name",
        "Compare app_secret_key",
    )
    assert [words for words in printed if words not in ended.err] == []
    assert config.load(file).marketplace.base_url == running.base_url


@root
def test_the_files_belong_to_the_services_user(command, given, file):
    assert command("init", "--yes", *given, "--owner", "nobody").code == 0
    assert {path.stat().st_uid for path in file.parent.iterdir()} == {pwd.getpwnam("nobody").pw_uid}
    assert set(files(file.parent).values()) == {0o600}


@root
def test_for_the_unit_secrets_are_systemd_credentials(command, given, tmp_path, monkeypatch):
    folder, units = tmp_path / "etc", tmp_path / "units"
    folder.mkdir()
    units.mkdir()
    monkeypatch.setattr(init, "SYSTEM_FILE", folder / "config.toml")
    monkeypatch.setattr(init, "UNITS", units)
    ended = command("init", "--yes", *given, "--config", folder / "config.toml")
    assert ended.code == 0, ended.err  # although /var/lib/orderbridge does not exist yet
    assert 'url = "sqlite:////var/lib/orderbridge/orderbridge.db"' in (folder / "config.toml").read_text()
    assert files(folder) == {"config.toml": 0o644, "secrets": 0o700}
    assert set(files(folder / "secrets").values()) == {0o600}
    names = ("kadikoy.app_secret_key", "kadikoy.rest_secret_key")
    credentials = [f"LoadCredential={name}:{folder}/secrets/{name}" for name in names]
    assert (units / "orderbridge.service.d/credentials.conf").read_text().splitlines() == ["[Service]", *credentials]
    assert "systemctl daemon-reload" in ended.out
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder / "secrets"))
    assert config.load(folder / "config.toml").accounts[0].rest_secret_key.get_secret_value() == REST
