"""Warnings that do not prevent a start: an alarm that cannot be sent, a journal that cannot be written."""

import os
import threading
from pathlib import Path

import pytest
from tests.config.documents import Write, account, document

from orderbridge import mounts
from orderbridge.config import load, settings


def warned(write: Write, text: str) -> str:
    return "\n".join(load(write(f"{document()}\n{text}\n"), environ={}).source.warnings)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "alarm"
    file.write_text("#!/bin/sh\ntrue\n")
    file.chmod(0o755)
    return file


def test_an_alarm_command_that_cannot_be_run(write: Write, script: Path, tmp_path: Path) -> None:
    assert warned(write, f'[alarms]\ncommand = ["{script}"]') == ""
    assert warned(write, '[alarms]\ncommand = ["sh", "-c", "true"]') == ""
    for name in (tmp_path / "missing", "no-such-program"):
        error = warned(write, f'[alarms]\ncommand = ["{name}"]')
        assert "does not exist" in error and "deploy/alarms" in error
    script.chmod(0o644)
    assert f"chmod 0755 {script}" in warned(write, f'[alarms]\ncommand = ["{script}"]')
    assert "cannot be run" in warned(write, f'[alarms]\ncommand = ["{tmp_path}"]')


def test_a_command_with_a_windows_path(write: Write, script: Path) -> None:
    script.write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    error = warned(write, f'[alarms]\ncommand = ["{script}"]')
    assert "(#!/bin/sh)" in error and "sed -i" in error


def test_a_journal_folder_that_does_not_exist(write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing" / "deeper", tmp_path / "file"):
        assert f"may not write to the folder {folder}" in warned(write, f'[orders]\njournal = "{folder}"')
    assert warned(write, f'[orders]\njournal = "{tmp_path}/new"') == ""


def test_the_key_of_the_boards_certificate_is_a_secret(write: Write, tmp_path: Path) -> None:
    for name in ("board.pem", "board.key"):
        (tmp_path / name).touch(0o644)
    error = warned(write, '[web]\ncertificate = "board.pem"\ncertificate_key = "board.key"')
    assert f"chmod 0600 {tmp_path}/board.key" in error and "board.pem" not in error


@pytest.mark.parametrize("character, name", [
    ("\u0131", "LATIN SMALL LETTER DOTLESS I"), ("\u00a0", "NO-BREAK SPACE"), ("\u200b", "ZERO WIDTH SPACE"),
])  # fmt: skip
def test_a_secret_with_an_invisible_character(write: Write, character: str, name: str) -> None:
    warnings = load(write(document(accounts=account(rest=f"secret{character}key"))), environ={}).source.warnings
    assert warnings[-1].startswith(f"accounts.kadikoy.rest_secret_key: character 7 is not ASCII ({name})")


def test_a_configuration_that_is_mounted_alone(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(document())
    for place, wanted in ((file.parent, False), (file, True)):
        (tmp_path / "mountinfo").write_text(f"30 1 0:1 / {place} rw - ext4 disk rw\n")
        monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
        assert ("is mounted as a single file" in "\n".join(load(file, environ={}).source.warnings)) is wanted


def test_a_hanging_journal_delays_no_start(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(settings, "TEST_S", 0.01)
    monkeypatch.setattr(os.path, "lexists", lambda path: answers.wait() if path == tmp_path else Path(path).exists())
    assert f"may not write to the folder {tmp_path}" in warned(write, f'[orders]\njournal = "{tmp_path}"')
    answers.set()
