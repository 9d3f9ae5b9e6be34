"""The pages that are served, and to whom. No client can delay anything."""

import asyncio
import errno
import json
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.web.asking import Process, asked, at, rest_of, running, sent, shown, until

from orderbridge.observe.metrics import FAMILIES, POLLS, MetricKind
from orderbridge.rules.problems import Code, Problem, Readiness, Severity
from orderbridge.web import listening as listening_module
from orderbridge.web import server
from orderbridge.web.listening import Listening
from orderbridge.web.routes import Exposition, is_known
from orderbridge_sandbox.tls import make_certificates

pytestmark = pytest.mark.timeout(600)
NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def process() -> Process:
    return Process()


async def test_livez_is_200_until_something_hangs(process: Process):
    async with shown(process) as (_, address):
        assert (await asked(address, "/metrics", body=b"x" * 1000))[0] == 200
        head = b"POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 9000000\r\n\r\n"
        await sent(address, head + b"x" * 9_000_000)
        assert (await asked(address, "/livez"))[::2] == (200, "alive\n")
        process.hangs = "poll kadikoy is overdue by 30 s"
        assert (await asked(address, "/livez"))[::2] == (503, "hung: poll kadikoy is overdue by 30 s\n")


async def test_ready_when_nothing_is_missing_and_severe_problems_are_named_by_code_alone(process: Process):
    needed = {"is_working": True, "database_answers": True, "is_polled": True}
    problems = [Problem(Code.UNANSWERED, subject, NOW, Severity.SEVERE) for subject in ("an-order's-key", "another")]
    problems.append(Problem(Code.NOT_TAKEN_OVER, "", NOW, Severity.SEVERE, 7))
    problems.append(Problem(Code.QUARANTINED, "", NOW, Severity.WARNING, 3))
    async with shown(process) as (_, address):
        for missing in needed:
            process.stands = Readiness(**needed | {missing: False})
            status, _, body = await asked(address, "/readyz")
            assert (status, json.loads(body)["ready"]) == (503, False)
        process.stands = Readiness(**needed, problems=(*problems,))
        status, _, body = await asked(address, "/readyz")
    counts = {"unanswered": 2, "not_taken_over": 7}
    assert (status, json.loads(body)["ready"], json.loads(body)["problems"]) == (200, True, counts)
    assert "an-order" not in body


async def test_metrics_are_in_the_form_that_prometheus_reads(process: Process):
    from prometheus_client.parser import text_string_to_metric_families

    process.metrics.know(["kadikoy", 'a"b\\c\nd'])
    process.metrics.count(POLLS, "kadikoy", "ok", by=3)
    async with shown(process) as (_, address):
        status, head, body = await asked(address, "/metrics")
    assert status == 200 and "content-type: text/plain; version=0.0.4; charset=utf-8" in head
    found = {family.name: family for family in text_string_to_metric_families(body)}
    for family in FAMILIES:
        shown_ = found[family.name.removesuffix("_total")]
        assert (shown_.type, bool(shown_.samples)) == (family.kind, True), family.name
        assert family.name.endswith("_total") == (family.kind == MetricKind.COUNTER)
        if family.kind == MetricKind.HISTOGRAM:
            assert family.name.endswith("_seconds")
            assert list(family.bounds) == sorted(family.bounds)
    assert {one.labels["account"] for one in found["orderbridge_polls"].samples} == {"kadikoy", 'a"b\\c\nd'}
    assert [one.value for one in found["orderbridge_polls"].samples if one.value] == [3]
    assert "process_resident_memory_bytes" in found


async def test_concurrent_scrapes_share_one_rendering(process: Process):
    async with shown(process) as (_, address):
        for _ in range(4):
            answers = await asyncio.gather(*(asked(address, "/metrics") for _ in range(40)))
            assert {status for status, *_ in answers} == {200}
    assert process.measurings < 80  # one a second


async def test_ipv6(process: Process):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        assert error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
        pytest.skip("this machine has no IPv6")
    async with shown(process, "[::1]:0") as (_, address):
        assert (await asked(address, "/livez", host="[::1]:8480"))[0] == 200


async def test_a_foreign_host_name_is_refused_and_a_configured_one_is_not(process: Process):
    async with shown(process, "127.0.0.1:0", "kasa-pc") as (listening, address):
        assert (await asked(address, "/livez", host="evil.example"))[0] == 400
        status, _, body = await asked(address, "/metrics", host="evil.example")
        assert status == 400 and "web.hosts" in body
        assert (await asked(address, "/livez", host="kasa-pc:8480"))[0] == 200
        listening.use(at("127.0.0.1:0"))
        async with asyncio.timeout(60):
            while (await asked(address, "/livez", host="kasa-pc"))[0] != 400:
                pass
        assert listening.addresses == [address]


async def test_odd_requests_find_nothing(process: Process):
    found = []
    async with shown(process) as (_, address):
        for method, path, _ in ODD:
            status, head, body = await asked(address, path, method)
            assert "location:" not in head and "root:" not in body
            found.append((method, path, status))
    assert found == ODD


NOWHERE = ["/", "/livez/", "//evil.example/livez", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "*"]
NOWHERE += ["/metrics/..%2f..%2fetc/passwd", "http://evil.example/livez"]
ODD = [("HEAD", "/livez", 200), ("GET", "/metrics?name[]=x", 200), ("POST", "/livez", 405), ("OPTIONS", "/readyz", 405)]
ODD += [(method, "/metrics", 405) for method in ("DELETE", "TRACE", "BREW")]
ODD += [*(("GET", path, 404) for path in NOWHERE), ("CONNECT", "evil.example:443", 404)]  # no redirect to another host
RUBBISH = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a client that speaks TLS
    b"GET /livez\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000,
    b"POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nrubbish",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n" * 1000 + b"\x00",
]


async def test_garbage_is_refused_and_the_next_request_is_answered(process: Process, caplog: pytest.LogCaptureFixture):
    async with shown(process) as (_, address):
        for raw in RUBBISH:
            answer = await sent(address, raw, only=True)
            assert not answer or answer.split()[1] in {b"400", b"404", b"405"}
            assert (await asked(address, "/livez"))[0] == 200
    assert [record.getMessage() for record in caplog.records if record.name != "asyncio"] == []


PROXIED = b"X-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\nForwarded: host=evil.example\r\n"
UPGRADE = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


async def test_odd_headers_change_nothing(process: Process):
    async with shown(process) as (_, address):
        for head in (
            b"GET /livez HTTP/1.0\r\n",  # without a Host
            b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + PROXIED,
            b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-WebSocket-Version: 13\r\n" + UPGRADE,
        ):
            answer = await sent(address, head + b"\r\n")
            assert (answer.split()[1], answer.endswith(b"\r\n\r\nalive\n")) == (b"200", True)


OURS = ["127.0.0.1", "127.0.0.1:8480", "localhost", "LOCALHOST:8480", "localhost.", "[::1]", "[::1]:8480"]
OURS += ["192.168.1.20:8480", "kasa-pc", "Kasa-PC:8480", None]  # HTTP/1.0: a load balancer's check, and no browser
FOREIGN = ["", "evil.example", "evil.example:8480", "127.0.0.1.evil.example", "localhost.evil.example", "kasa-pc.evil"]
FOREIGN += ["::1]:", "127.0.0.1@evil.example", "[evil.example]:80", "localhost:evil", "a" * 5000, "127.0.0.1:8480:1"]
FOREIGN += ["1", "0x7f.1"]


def test_a_host_is_a_known_name_or_an_address() -> None:
    assert [host for host in [*OURS, *FOREIGN] if is_known(host, {"kasa-pc", "127.0.0.1"})] == OURS


async def hanging(address: tuple[str, int], number: int, body: bytes = b"GET /live"):
    """Connections with an unfinished request."""
    made = [await asyncio.open_connection(*address) for _ in range(number)]
    for _, writer in made:
        writer.write(body)
    return made


async def let_go(made) -> None:
    for _, writer in made:
        writer.transport.abort()
    await asyncio.sleep(0)


async def test_many_open_connections_block_no_client(process: Process, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "LIFE_S", 3600.0)  # so that no time limit ends them
    async with shown(process) as (_, address):
        before = descriptors()
        made = await hanging(address, 3 * server.MAX_CONNECTIONS)
        assert (await asked(address, "/readyz"))[0] == 200
        await until(lambda: descriptors() - before - len(made) <= server.MAX_CONNECTIONS)
        await let_go(made)


async def test_a_connection_has_an_end(process: Process, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "LIFE_S", 0.2)
    async with shown(process) as (_, address):
        before = descriptors()
        made = await hanging(address, 3)
        made += await hanging(address, 3, b"POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n1")
        for reader, _ in made:
            await rest_of(reader)
        await let_go(made)
        await until(lambda: descriptors() <= before)


async def test_a_client_that_reads_nothing_blocks_no_other(process: Process):
    process.metrics.know([f"account-{number}" for number in range(3000)])
    async with shown(process) as (_, address):
        with socket.create_connection(address) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(20):
                deaf.send(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await until(lambda: process.measurings)
            assert (await asked(address, "/livez"))[0] == 200


async def test_a_stop_waits_for_no_client(process: Process, caplog: pytest.LogCaptureFixture, monkeypatch):
    go_on, under_way = asyncio.Event(), []

    async def hang(*_: object) -> bytes:
        under_way.append(1)
        await go_on.wait()
        return b""

    monkeypatch.setattr(Exposition, "text", hang)
    async with shown(process) as (_, address):
        made = await hanging(address, 30)
        made += await hanging(address, 30, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        metrics = await hanging(address, 4, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: len(under_way) == 4)
    for reader, _ in metrics:
        assert await rest_of(reader) == b""
    await asyncio.sleep(0)
    assert [record for record in caplog.records if record.name != "asyncio"] == []
    await let_go(made + metrics)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_client_with_many_idle_connections_uses_only_its_own_places(process, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "HANDSHAKE_S", 3600.0)
    made = make_certificates(tmp_path / "tls")
    files = {"certificate": made.server_file, "certificate_key": made.server_file}
    async with shown(process, **files) as (_, address):
        before, silent = descriptors(), []
        for _ in range(3 * server.MAX_CONNECTIONS):
            silent.append(socket.create_connection(address))
            await asyncio.sleep(0)
        await until(lambda: descriptors() - before - len(silent) <= server.MAX_CONNECTIONS)
        trusting = ssl.create_default_context(cafile=made.ca_file)
        reader, writer = await asyncio.open_connection(*address, ssl=trusting, server_hostname="localhost")
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 ")
        writer.close()
        for one in silent:
            one.close()


async def test_an_address_that_is_taken_is_logged_once_and_tried_again(process: Process, monkeypatch):
    monkeypatch.setattr(listening_module, "AGAIN_S", 0.01)
    tries: list[object] = []
    start = server.Server.start

    async def counted(self, *arguments, **named):
        tries.append(arguments)
        await start(self, *arguments, **named)

    monkeypatch.setattr(server.Server, "start", counted)
    with socket.create_server(("127.0.0.1", 0)) as other, capture_logs() as lines:
        host, port = other.getsockname()
        listening = Listening(process, at(f"{host}:{port}"))
        async with running(listening):
            await until(lambda: len(tries) > 5)
            reported = [line for line in lines if line["event"] == "web.not_listening"]
            assert [(line["log_level"], bool(line["remedy"])) for line in reported] == [("error", True)]
            assert reported[0]["listen"] == f"{host}:{port}"
            other.close()
            await until(lambda: listening.addresses)
            assert (await asked((host, port), "/livez"))[0] == 200


@pytest.mark.parametrize("listen", ["192.0.2.1:8480", "no-such-host.invalid:8480", "[2001:db8::1]:8480", "a fault"])
async def test_an_unusable_address_or_a_crash_of_the_server_ends_no_daemon(process: Process, listen: str, monkeypatch):
    if listen == "a fault":
        monkeypatch.setattr(server.Server, "start", lambda *_: 1 / 0)
    listening = Listening(process, at("127.0.0.1:0" if listen == "a fault" else listen))
    with capture_logs() as lines:
        async with running(listening):
            await until(lambda: [line for line in lines if line["event"] == "web.not_listening"])
            monkeypatch.undo()
            listening.use(at("127.0.0.2:0"))
            await until(lambda: listening.addresses)


async def test_the_same_address_stays_open_and_another_one_replaces_it(process: Process):
    async with shown(process) as (listening, address):
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(3):
            listening.use(at("127.0.0.1:0"))
            writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await reader.readuntil(b"alive\n")).startswith(b"HTTP/1.1 200")
        listening.use(at("localhost:0"))
        await until(lambda: listening.addresses and listening.addresses[0] != address)
        assert (await asked(listening.addresses[0], "/livez"))[0] == 200
        with pytest.raises(ConnectionRefusedError):
            await asked(address, "/livez")
        listening.use(at(""))
        await until(lambda: not listening.addresses)
        writer.close()


def test_without_a_web_address_no_web_module_is_loaded() -> None:
    """That saves megabytes, and a tenth of the start."""
    program = """
import asyncio, sys
import orderbridge.service, orderbridge.cli
from orderbridge import config
from orderbridge.web.listening import Listening

async def main():
    task = asyncio.create_task(Listening(None, config.Web(listen="")).run())
    await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()

asyncio.run(main())
others = {"psycopg", "pymysql", "alembic", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.mysql"}
print((others | {"uvicorn", "starlette", "prometheus_client"}) & set(sys.modules))
import orderbridge.web.server, orderbridge.daemon
print([name for name in sys.modules if "board" in name and "tables" not in name])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout.split(), ran.stderr) == (["set()", "[]"], "")
