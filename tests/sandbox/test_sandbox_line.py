"""Connections: their limits, and simulated faults of the line and the certificate."""

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest
from tests.sandbox.conftest import WITHIN_S, client_of

from orderbridge_sandbox import Sandbox, World
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.server import introduction, is_reachable_by_others, names_of, shown_name

OPTIONS = "/_sandbox/options"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture
def sandbox(directory: Path) -> Iterator[Sandbox]:
    with Sandbox(World.default(report=lambda _: None), directory=directory) as sandbox:
        yield sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with client_of(sandbox) as client:
        yield client


def turn(sandbox: Sandbox, line: str, seconds: float = 0) -> None:
    sandbox.world.set_options(line=line, line_seconds=seconds)
    assert sandbox.world.wait_for(lambda: sandbox.line == line, timeout=WITHIN_S)


@pytest.mark.parametrize("line, error, message", [
    ("refused", httpx.ConnectError, "refused"), ("silent", httpx.ConnectTimeout, "timed out"),
    ("reset", httpx.ConnectError, "reset|EOF"),
    ("garbage", httpx.ConnectError, "WRONG_VERSION_NUMBER|wrong version number|record layer failure"),
    ("expired", httpx.ConnectError, "has expired"), ("not_yet_valid", httpx.ConnectError, "not yet valid"),
    ("wrong_name", httpx.ConnectError, "IP address mismatch"),
    ("untrusted", httpx.ConnectError, "unable to get local issuer|certificate signature failure|self.signed"),
])  # fmt: skip
def test_the_line_is_bad_and_good_again(sandbox, client, line, error, message):
    assert client.get(OPTIONS).status_code == 200  # and keeps its connection, which ends with the good line
    turn(sandbox, line)
    with pytest.raises(error, match=message):
        client.get(OPTIONS, timeout=0.5 if line == "silent" else WITHIN_S)
    turn(sandbox, "good")
    assert client.get(OPTIONS).json()["line"] == "good"


def connected(sandbox: Sandbox) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=sandbox.ca_file)
    plain = socket.create_connection(("127.0.0.1", sandbox.port), timeout=WITHIN_S)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_request_that_does_not_come_whole_in_its_time_ends_the_connection(sandbox):
    sandbox.world.set_options(reading_seconds=0.05)
    for sent in (b"", b"GET / HT", b"POST /auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"):
        with connected(sandbox) as line:
            line.sendall(sent)
            with contextlib.suppress(ssl.SSLEOFError, ConnectionResetError):  # or an end without a word of TLS
                assert line.recv(1) == b""


def test_a_bad_line_ends_by_itself(sandbox, client):
    turn(sandbox, "refused", seconds=0.01)
    assert sandbox.world.wait_for(lambda: sandbox.line is Line.GOOD, timeout=WITHIN_S)
    assert client.get(OPTIONS).status_code == 200


def test_a_connection_that_idles_is_closed_after_the_time_of_the_switch(sandbox, client):
    sandbox.world.set_options(keep_alive_seconds=1234)
    for _ in range(2):  # the second is read after the first is over
        client.get(OPTIONS)
    [connection] = sandbox._server.server_state.connections
    assert connection.timeout_keep_alive == 1234
    sandbox.world.set_options(keep_alive_seconds=0.05)
    with connected(sandbox) as line:
        line.sendall(b"GET /_sandbox/options HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b"".join(iter(lambda: line.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 200")


def test_a_body_beyond_the_limit_is_a_413(sandbox, client):
    sandbox.world.set_options(body_limit_bytes=100)
    for path, headers in (("/auth/login", {"Content-Type": "application/json"}), ("/_sandbox/orders", {})):
        answer = client.post(path, content=b"{" + b" " * 100, headers=headers)
        assert (answer.status_code, answer.headers["connection"]) == (413, "close")
        assert client.post(path, content=b"{" + b" " * 99, headers=headers).status_code != 413


def test_a_head_beyond_the_limit_and_rubbish_are_refused(sandbox):
    sandbox.world.set_options(header_limit_bytes=1000)
    unfinished, whole = b"GET /" + b"x" * 1001, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000 + b"\r\n\r\n"
    for sent, status in ((unfinished, b"431"), (whole, b"431"), (b"speak\r\n\r\n", b"400")):
        with connected(sandbox) as line:
            line.sendall(sent)
            assert line.recv(12) == b"HTTP/1.1 " + status


def test_the_date_of_an_answer_is_the_platforms(sandbox, client):
    client.patch(OPTIONS, json={"clock_offset_seconds": -86400})
    there = parsedate_to_datetime(client.get(OPTIONS).headers["date"])
    assert abs((sandbox.world.clock() - there).total_seconds() - 86400) < WITHIN_S


def test_beyond_loopback_it_warns_and_its_printed_address_is_in_the_certificate(directory):
    names, world = names_of("0.0.0.0", ("pos.lan",)), World.default(report=lambda _: None)
    with Sandbox(world, directory=directory, host="0.0.0.0", names=names) as sandbox:
        careful, certificate, base_url, *_ = introduction(sandbox)
    assert careful[:9] == "WARNING: " and "pos.lan" in certificate
    assert base_url.endswith(f"https://pos.lan:{sandbox.port}")
    for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "pos.lan"):
        assert is_reachable_by_others(host) is (host in {"0.0.0.0", "pos.lan"})
        assert shown_name(host, names_of(host, ())) in names_of(host, ())


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_curl_accepts_the_certificate(sandbox, name):
    address = f"https://{name}:{sandbox.port}{OPTIONS}"
    command = ["curl", "-sS", "--noproxy", "*", "--cacert", str(sandbox.ca_file), address]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert (shown.returncode, shown.stderr, json.loads(shown.stdout)["line"]) == (0, "", "good")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_of_a_certificate_with_a_wrong_name_only_the_name_is_wrong(sandbox, directory):
    turn(sandbox, "wrong_name")
    command = ["openssl", "verify", "-x509_strict", "-CAfile", str(sandbox.ca_file), str(directory / "server.pem")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
