"""The example alarm commands, run as the daemon runs them, with a receiver on this machine."""

import email
import email.policy
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ALARMS = Path(__file__).parents[2] / "deploy" / "alarms"
PROBLEM: dict[str, Any] = {
    "event": "began", "code": "login_refused", "subject": "kadıköy", "since": None, "severity": "severe",
    "cause": 'The marketplace does not accept this account\'s login: "no".',
    "remedy": "Compare the two secrets; run `orderbridge check`.",
}  # fmt: skip

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


class Receiver(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.answers = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/alarms?key=hush"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.heard.append((headers, self.rfile.read(int(headers["content-length"]))))
        self.send_response(self.server.answers)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


def alarm(script: str, event: str = "began", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as jobs.alarms does. One test checks that both agree."""
    command = [ALARMS / script, event, "login_refused", "kadıköy", "2026-11-21T18:02:00Z", "severe", "1"]
    document = json.dumps(PROBLEM | {"event": event}, ensure_ascii=False)
    how = {"env": {"PATH": "/usr/bin:/bin", **environment}, "timeout": 60}
    return subprocess.run(command, input=document, capture_output=True, encoding="utf-8", check=False, **how)


@needs_curl
def test_a_webhook_gets_the_event_and_the_whole_problem(receiver: Receiver):
    for event in ("began", "escalated", "ended"):
        assert alarm("webhook", event, ALARM_URL=receiver.address).returncode == 0
        headers, body = receiver.heard[-1]
        assert headers["content-type"] == "application/json"
        assert json.loads(body) == PROBLEM | {"event": event}


@needs_curl
def test_a_push_message_is_loud_at_the_beginning_and_silent_at_the_end(receiver: Receiver):
    for event in ("began", "ended"):
        assert alarm("ntfy", event, ALARM_URL=receiver.address, ALARM_TOKEN="tk_hush").returncode == 0
    (began, body), (ended, _) = receiver.heard
    assert body.decode().splitlines() == [PROBLEM["cause"], PROBLEM["remedy"]]
    assert began["authorization"] == "Bearer tk_hush"
    assert (began["priority"], ended["priority"]) == ("urgent", "default")
    assert "login_refused" in began["title"]


@pytest.mark.parametrize("script", ["webhook", "ntfy", "mail"])
def test_an_alarm_that_reached_no_one_has_failed(script: str, receiver: Receiver):
    failed = alarm(script)
    assert failed.returncode != 0 and "set ALARM_" in failed.stderr
    receiver.answers = 500
    if script != "mail" and shutil.which("curl") is not None:
        failed = alarm(script, ALARM_URL=receiver.address)
        assert failed.returncode != 0 and "hush" not in failed.stderr


def noting(program: Path) -> Path:
    """A command that records its arguments and its input."""
    folder = program.parent
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >{folder}/arguments\ncat >{folder}/document\n')
    program.chmod(0o755)
    return program


def test_a_mail_has_the_code_in_its_subject_and_the_remedy_in_its_body(tmp_path: Path):
    sendmail = noting(tmp_path / "sendmail")
    sent = alarm("mail", ALARM_TO="chef@example.org", ALARM_FROM="till@example.org", SENDMAIL=str(sendmail))
    assert sent.returncode == 0, sent.stderr
    assert (tmp_path / "arguments").read_text() == "-t|-i|"
    raw = (tmp_path / "document").read_bytes()
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert (mail["To"], mail["From"]) == ("chef@example.org", "till@example.org")
    assert mail["Subject"] == "orderbridge: login_refused kadıköy (began)"
    assert raw.isascii(), "also a mail server of the nineties takes it"
    assert f"remedy: {PROBLEM['remedy']}" in mail.get_content()


def test_the_units_failure_alarm_calls_the_command_as_the_daemon_does(tmp_path: Path):
    (line,) = [one for one in (ALARMS / "orderbridge-alarm.service").read_text().splitlines() if "ExecStart=" in one]
    alarm = noting(tmp_path / "alarm")
    script = line.partition("-c '")[2].removesuffix("'")
    script = script.replace("$$", "$").replace("%%", "%").replace("/etc/orderbridge/alarm", str(alarm))
    subprocess.run(["/bin/sh", "-c", script.replace("\\\\", "\\")], check=True, timeout=60)
    event, code, subject, since, severity, level, _ = (tmp_path / "arguments").read_text().split("|")
    document = json.loads((tmp_path / "document").read_text())
    assert (event, code, subject, severity, level) == ("began", "daemon_failed", "orderbridge", "severe", "1")
    assert [document[name] for name in ("event", "code", "subject", "since")] == [event, code, subject, since]


def test_the_alarm_unit_has_the_same_sandboxing_as_the_service() -> None:
    units = [ALARMS / "orderbridge-alarm.service", ALARMS.parent / "orderbridge.service"]
    ours, theirs = (unit.read_text().partition("NoNewPrivileges=")[2].partition("MemoryMax=")[0] for unit in units)
    assert ours == theirs != ""
