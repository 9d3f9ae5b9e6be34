"""The other end of the benchmarks: HTTPS answers that cost as little as Python allows, and a record of what arrived.

    python benchmarks/other_end.py CERTIFICATE DELAY_MS

It prints its port. A login is good, a list is empty (or what /__list was given), a PUT is answered OK after the delay.
GET /__seen tells {"puts": [[path, ns], ...], "polls": [[token, ns], ...]} since it was last asked; ns is the machine's
monotonic clock.
"""

import asyncio
import json
import ssl
import sys
import time

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def answer(body: bytes) -> bytes:
    return HEAD.format(len(body)).encode() + body


OK, EMPTY = answer(b'{"status":true,"data":"OK"}'), answer(b'{"status":true,"data":[]}')
VARIABLES = answer(b'{"status":true,"data":{"paymentMethod":[],"shippingMethod":[]}}')


class Seen:
    """What arrived, until somebody asks."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, int]] = []
        self.polls: list[tuple[str, int]] = []
        self.listing = EMPTY

    def told(self) -> bytes:
        body = json.dumps({"puts": self.puts, "polls": self.polls}).encode()
        self.puts, self.polls = [], []
        return answer(body)


class Connection(asyncio.Protocol):
    """One client: HTTP/1.1 requests with a Content-Length or without a body."""

    def __init__(self, seen: Seen, delay_s: float) -> None:
        self._seen = seen
        self._delay_s = delay_s
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].decode("latin-1")
            length = next(
                (int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0
            )
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            self._handle(head, body)

    def _handle(self, head: str, body: bytes) -> None:
        method, path, _ = head.split(" ", 2)
        if method == "PUT":
            self._seen.puts.append((path, time.monotonic_ns()))
            if self._delay_s:
                asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, OK)
            else:
                self._transport.write(OK)
        else:
            self._transport.write(self._found(path, head, body))

    def _found(self, path: str, head: str, body: bytes) -> bytes:
        if path.startswith("/orders/get-current"):
            token = next(
                (line[13:].strip() for line in head.split("\r\n") if line.lower().startswith("access-token:")), ""
            )
            self._seen.polls.append((token, time.monotonic_ns()))
            return self._seen.listing
        if path == "/auth/login":
            token = f"token-{json.loads(body)['rest_secret_key']}"
            return answer(json.dumps({"status": True, "data": {"access_token": token, "expiration_date": ""}}).encode())
        if path == "/__seen":
            return self._seen.told()
        if path == "/__list":
            self._seen.listing = answer(body)
            return OK
        return VARIABLES if path == "/orders/variables" else EMPTY


async def serve(certificate: str, delay_s: float) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    seen = Seen()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(seen, delay_s), "127.0.0.1", 0, ssl=context, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2]) / 1000))
