"""Notifications to systemd."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orderbridge.observe import systemd
from orderbridge.observe.systemd import READY, notify

PATIENT_S = 3600.0


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_message_arrives_at_the_socket(is_abstract: bool, tmp_path: Path) -> None:
    address = f"@orderbridge-test-{tmp_path}" if is_abstract else str(tmp_path / "notify")
    assert not notify(READY, environ={})
    assert not notify(READY, environ={"NOTIFY_SOCKET": address})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(address.replace("@", "\0"))
        assert notify(READY, environ={"NOTIFY_SOCKET": address}) is True
        assert supervisor.recv(100) == b"READY=1"


def test_a_supervisor_that_does_not_read_delays_no_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "WITHIN_S", 0.01)
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(address))
        assert notify(READY, environ={"NOTIFY_SOCKET": str(address)})
        assert any(not notify(READY, environ={"NOTIFY_SOCKET": str(address)}) for _ in range(10_000))
        monkeypatch.setattr(systemd, "WITHIN_S", PATIENT_S)  # a repeated message does not even wait for that
        assert not notify(systemd.ALIVE, environ={"NOTIFY_SOCKET": str(address)})
        assert not notify(f"{systemd.STATUS}green", environ={"NOTIFY_SOCKET": str(address)})


def test_only_a_line_for_the_journal_begins_with_its_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w") as journal:
        monkeypatch.setattr("sys.stderr", journal)
        status = (tmp_path / "journal").stat()
        there = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert systemd.with_priority("wrong:\nthis key", "error", there) == "<3>wrong:\n<3>this key"
        assert systemd.with_priority("wrong", "error", {"JOURNAL_STREAM": "1:1"}) == "wrong"
        assert systemd.with_priority("wrong", "error", {}) == "wrong"


@pytest.mark.parametrize("command, held", [("run", True), ("status", False)])
def test_a_sighup_is_held_back_before_anything_else_is_loaded(command: str, held: bool) -> None:
    script = f"""
import builtins, signal, sys
sys.argv = ["/usr/bin/orderbridge", {command!r}]
real, seen = builtins.__import__, []
def spy(name, *more):
    if name == "importlib.metadata" and not seen:
        seen.append(signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return real(name, *more)
builtins.__import__ = spy
import orderbridge
print(seen)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == f"[{held}]\n"
