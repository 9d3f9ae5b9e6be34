"""With a certificate, whoever opens connections and shakes no hand is counted, and cut off in his turn."""

import asyncio
import socket
import ssl
from pathlib import Path

from tests.web.asking import Process, at, until

from orderbridge.web.listening import Listening
from orderbridge.web.server import MOST
from orderbridge_sandbox.tls import make_certificates


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_who_opens_many_and_says_nothing_takes_no_more_than_his_places(tmp_path: Path):
    made = make_certificates(tmp_path / "tls")
    files = {"certificate": made.server_file, "certificate_key": made.server_file}
    listening = Listening(Process(), at("127.0.0.1:0").model_copy(update=files))
    at_work = asyncio.create_task(listening.run())
    await until(lambda: listening.addresses)
    address = "127.0.0.1", listening.addresses[0][1]
    before = descriptors()
    silent = []
    for _ in range(3 * MOST):
        silent.append(socket.create_connection(address))
        await asyncio.sleep(0)
    await until(lambda: descriptors() - before - len(silent) <= MOST)
    trusting = ssl.create_default_context(cafile=made.ca_file)
    reader, writer = await asyncio.open_connection(*address, ssl=trusting, server_hostname="localhost")
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    writer.close()
    for one in silent:
        one.close()
    at_work.cancel()
    await asyncio.gather(at_work, return_exceptions=True)
