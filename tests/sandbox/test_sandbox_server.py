"""The sandbox on a real socket: certificates, faults on the line, start and stop."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.sandbox.conftest import WITHIN_S, client_of

from orderbridge_sandbox import CannotListen, Fault, FaultKind, Options, Sandbox, When, World, tls
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.server import introduction, serve
from orderbridge_sandbox.tls import make_certificates

SECRETS = {"app_secret_key": "sandbox-app-secret", "rest_secret_key": "sandbox-kadikoy-secret"}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(World.default(), directory=tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with client_of(sandbox) as client:
        client.headers["Access-Token"] = client.post("/auth/login", json=SECRETS).json()["data"]["access_token"]
        yield client


def test_only_a_client_that_trusts_the_authority_is_served(sandbox, client):
    order = sandbox.world.place_order(restaurant_id=KADIKOY)
    assert client.get("/orders/get-current").json()["data"][0]["payment_key"] == order.key
    assert "server" not in client.get("/orders/variables").headers
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(sandbox.base_url, trust_env=False)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(sandbox.base_url.replace("https", "http"), trust_env=False)


@pytest.mark.interface("Conventions")
def test_the_base_url_can_have_a_path(tmp_path):
    world = World.default(options=Options(orders_per_minute=600, max_orders=2))
    made = Sandbox(world, directory=tmp_path, prefix="/integration/pos")
    with made:
        assert world.wait_for(lambda: len(world.orders) == 2, timeout=WITHIN_S)
    with made as sandbox, client_of(sandbox) as client:  # once more
        assert sandbox.base_url.endswith("/integration/pos")
        assert client.post("/auth/login", json=SECRETS).status_code == 200
        assert client.post(f"{sandbox.origin}/auth/login", json=SECRETS).status_code == 404
        assert client.get(sandbox.control_url).status_code == 200


@pytest.mark.parametrize("fault, status_id, message", [
    (Fault.drop("accept", when=When.BEFORE), 1, "without sending a response"),
    (Fault.drop("accept", when=When.AFTER), 2, "without sending a response"),
    (Fault(operation="accept", kind=FaultKind.TRUNCATE, size=7), 2, "received 7 bytes"),
], ids=["dropped before", "dropped after", "truncated"])  # fmt: skip
def test_a_dropped_connection_has_no_byte_and_a_truncated_one_some(sandbox, client, fault, status_id, message):
    order = sandbox.world.place_order(restaurant_id=KADIKOY)
    sandbox.world.faults.add(fault)
    with pytest.raises(httpx.RemoteProtocolError, match=message):
        client.put(f"/orders/accept/{order.key}", json={"preparing_time": 5})
    assert order.status_id == status_id
    [line] = sandbox.world.calls("accept")
    assert line.fault == fault.kind
    assert fault.kind == "truncate" or (line.http_status, line.answered_at) == (None, None)
    assert client.get("/orders/variables").status_code == 200


ENDLESS = [Fault.hang("get_variables"), Fault.delay("get_variables", 3600)]
ENDLESS.append(Fault(kind=FaultKind.DRIP, operation="get_variables", seconds=3600))


@pytest.mark.parametrize("fault", ENDLESS, ids=lambda fault: fault.kind.value)
def test_stopping_is_quick_while_a_call_is_under_way(tmp_path, fault):
    failures: list[Exception] = []

    def ask() -> None:
        try:
            client.get("/orders/variables", timeout=3600)
        except httpx.TransportError as error:
            failures.append(error)

    sandbox = Sandbox(World.default(), directory=tmp_path)
    sandbox.start()
    with client_of(sandbox) as client:
        sandbox.world.faults.add(fault)
        thread = threading.Thread(target=ask)
        thread.start()
        assert sandbox.world.wait_for(lambda: bool(sandbox.world.calls("get_variables")), timeout=WITHIN_S)
        start = time.monotonic()
        sandbox.stop()
        assert time.monotonic() - start < WITHIN_S
        thread.join(WITHIN_S)
    assert len(failures) == 1


def test_a_taken_port_and_a_foreign_address_are_errors(sandbox, tmp_path):
    with pytest.raises(CannotListen, match=f"127.0.0.1:{sandbox.port} is in use: .*--listen"):
        Sandbox(World.default(), directory=tmp_path, port=sandbox.port).start()
    with pytest.raises(CannotListen, match=r"203\.0\.113\.1:0"):
        Sandbox(World.default(), directory=tmp_path, host="203.0.113.1").start()


def test_the_authority_stays_and_keys_are_private(tmp_path):
    first = make_certificates(tmp_path)
    authority, leaf = first.ca_file.read_bytes(), first.server_file.read_bytes()
    second = make_certificates(tmp_path)
    assert second.ca_file.read_bytes() == authority
    assert second.server_file.read_bytes() != leaf
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "server.pem": 0o600}


@pytest.mark.parametrize("spoil", ["aged", "broken", "of another key"])
def test_an_unusable_authority_is_replaced(tmp_path, spoil):
    old = make_certificates(tmp_path).ca_file.read_bytes()
    other_key = make_certificates(tmp_path / "other").ca_file.with_name("ca-key.pem").read_bytes()
    if spoil == "broken":
        (tmp_path / "ca.pem").write_bytes(b"nonsense")
    if spoil == "of another key":
        (tmp_path / "ca-key.pem").write_bytes(other_key)
    years = timedelta(days=3649) if spoil == "aged" else timedelta()
    new = make_certificates(tmp_path, clock=lambda: datetime.now(UTC) + years).ca_file.read_bytes()
    assert new not in (old, b"nonsense")


@pytest.mark.parametrize("name", ["evil.example", "10.0.0.1", "::2"])
def test_the_authority_cannot_speak_for_anybody_else(name, tmp_path, monkeypatch):
    ca_file = make_certificates(tmp_path).ca_file
    stolen = tls._load_authority(tmp_path, datetime.now(UTC))
    monkeypatch.setattr(tls, "_authority", lambda *_: stolen)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_certificates(tmp_path, names=(name,)).server_file)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        shake_hands(context, ssl.create_default_context(cafile=ca_file), name)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A TLS handshake in memory, until both sides are done or one refuses."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)]
    for side in sides * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()


def test_a_new_name_makes_a_new_authority_that_speaks_for_the_old_ones_too(tmp_path):
    first = make_certificates(tmp_path, names=("pos.lan", "192.168.1.7")).ca_file.read_bytes()
    assert make_certificates(tmp_path).ca_file.read_bytes() == first
    assert make_certificates(tmp_path, names=("127.0.0.9",)).ca_file.read_bytes() == first
    both = make_certificates(tmp_path, names=("till.lan",)).ca_file.read_bytes()
    assert both != first
    assert make_certificates(tmp_path, names=("pos.lan", "192.168.1.7")).ca_file.read_bytes() == both


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_tells_what_is_needed_and_ends_on_a_signal(tmp_path):
    serving = f"import pathlib, orderbridge_sandbox as it; it.serve(directory=pathlib.Path({str(tmp_path)!r}), port=0)"
    command, pipe = [sys.executable, "-c", serving], subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)  # into a pipe, and yet at once
    lines = []
    while not lines or not lines[-1].endswith("/_sandbox/orders\n"):
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
    process.terminate()
    rest, errors = process.communicate(timeout=WITHIN_S)
    wanted = ["base_url        https://127.0.0.1:", f"ca_file         {tmp_path / 'ca.pem'}"]
    wanted += [f"sandbox-{name}-secret" for name in ("app", "kadikoy", "besiktas", "chain")]
    assert [words for words in wanted if words not in "".join(lines)] == []
    assert (rest, errors, process.returncode) == ("The sandbox has stopped.\n", "", 0)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("quiet", [False, True])
def test_the_terminal_says_what_happens_unless_it_is_to_be_quiet(tmp_path, quiet):
    world, message = World.default(), []

    def say(line: str) -> None:
        message.append(line)
        if line.endswith("/_sandbox/orders"):  # the last line of the introduction
            world.place_order(restaurant_id=KADIKOY)
            os.kill(os.getpid(), signal.SIGTERM)

    serve(world, directory=tmp_path, port=0, say=say, quiet=quiet)
    placed = [line for line in message if "order.placed" in line]
    assert len(placed) == (0 if quiet else 1)
    assert quiet or re.fullmatch(r"\d\d:\d\d:\d\d order.placed number=100001 restaurant='Örnek .*' status=1", placed[0])


def test_the_order_command_of_the_introduction_uses_the_first_account(sandbox, client):
    *_, body, address = shlex.split(introduction(sandbox)[-1])
    placed = [client.post(address, json=json.loads(body)).json()[0] for _ in range(8)]
    assert {order["restaurant_id"] for order in placed} == set(sandbox.world.scenery.accounts[0].restaurant_ids)


def test_an_ipv6_address_is_written_in_brackets(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with Sandbox(World.default(), directory=tmp_path, host="::1") as sandbox, client_of(sandbox) as client:
        assert sandbox.base_url.startswith("https://[::1]:")
        assert client.post("/auth/login", json=SECRETS).status_code == 200
