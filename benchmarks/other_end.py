"""Plays the marketplace for the benchmarks: a small, fast HTTPS server that records the requests that arrive.

    python benchmarks/other_end.py CERTIFICATE DELAY_MS [POLL_DELAY_MS]

It prints its port. A login succeeds, a list is empty (or the body of the last POST /__list), and a PUT takes effect at
once and is answered OK after the delay.
GET /__seen returns {"puts": [[path, ns], ...], "polls": [[token, ns], ...], "answers": [[token, ns], ...], "logins":
[[secret, ns], ...]} since the last such request; ns is the machine's monotonic clock. "answers" has the answers to
polls whose client was still connected.

POST /__orders {"document": {...}, "every": 3}: from then on each account gets an order of its own with every third
poll. The order is delivered until it is acknowledged, and after an accept again until that status is acknowledged. Then
the account may get the next one.

POST /__ill "token": from then on polls with that token are not answered.
"""

import asyncio
import json
import ssl
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def answer(body: bytes) -> bytes:
    return HEAD.format(len(body)).encode() + body


OK, EMPTY = answer(b'{"status":true,"data":"OK"}'), answer(b'{"status":true,"data":[]}')
VARIABLES = answer(b'{"status":true,"data":{"paymentMethod":[],"shippingMethod":[]}}')


class Orders:
    """The state of the accounts. Each has one order at a time."""

    def __init__(self, document: dict[str, Any], every: int) -> None:
        self._document, self._every = document, every
        self._polls: Counter[str] = Counter()
        self._numbers = count(1)
        self._open: dict[str, dict[str, Any]] = {}  # by token
        self._by_key: dict[str, tuple[str, dict[str, Any]]] = {}
        self._acknowledged: dict[str, int] = {}  # for which status

    def listing(self, token: str) -> bytes:
        self._polls[token] += 1
        order = self._open.get(token)
        if order is None and self._polls[token] % self._every == 0:
            order = {**self._document, "id": next(self._numbers), "payment_key": str(uuid.uuid4())}
            self._open[token] = order
            self._by_key[order["payment_key"]] = token, order
        if order is None or self._acknowledged.get(order["payment_key"]) == order["status_id"]:
            return EMPTY
        return answer(json.dumps({"status": True, "data": [order]}).encode())

    def put(self, path: str) -> None:
        operation, _, key = path.rpartition("/")
        token, order = self._by_key.get(key, ("", {}))
        if order and operation == "/orders/accept":
            order |= {"status_id": 2, "status_text": "Onaylandı"}
        elif order and operation == "/orders/success":
            self._acknowledged[key] = order["status_id"]
            if order["status_id"] != 1 and self._open.get(token) is order:
                del self._open[token]


class Seen:
    """Records the requests until they are read."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, int]] = []
        self.polls: list[tuple[str, int]] = []
        self.answers: list[tuple[str, int]] = []
        self.logins: list[tuple[str, int]] = []
        self.listing = EMPTY
        self.orders: Orders | None = None
        self.restaurants: dict[str, str] = {}
        self.ill = ""

    def take(self) -> bytes:
        seen = {"puts": self.puts, "polls": self.polls, "answers": self.answers, "logins": self.logins}
        body = json.dumps(seen).encode()
        self.puts, self.polls, self.answers, self.logins = [], [], [], []
        return answer(body)

    def put(self, path: str) -> None:
        self.puts.append((path, time.monotonic_ns()))
        if path.startswith("/restaurants/status/"):
            *_, done, restaurant = path.split("/")
            self.restaurants[restaurant] = "Open" if done == "open" else "Closed"
        elif self.orders is not None:
            self.orders.put(path)

    def status(self, restaurant: str) -> bytes:
        return answer(json.dumps({"status": True, "data": self.restaurants.get(restaurant, "Open")}).encode())


class Connection(asyncio.Protocol):
    """One client: HTTP/1.1 requests with a Content-Length or without a body."""

    def __init__(self, seen: Seen, delay_s: float, poll_delay_s: float) -> None:
        self._seen = seen
        self._delay_s = delay_s
        self._poll_delay_s = poll_delay_s
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
            self._seen.put(path)
            self._after(self._delay_s, lambda: self._transport.write(OK))
        elif path.startswith("/orders/get-current"):
            lines = head.split("\r\n")
            token = next((line[13:].strip() for line in lines if line.lower().startswith("access-token:")), "")
            self._seen.polls.append((token, time.monotonic_ns()))
            orders = self._seen.orders
            listing = self._seen.listing if orders is None else orders.listing(token)
            self._after(self._poll_delay_s, lambda: self._deliver(token, listing))
        else:
            self._transport.write(self._found(path, body))

    def _after(self, delay_s: float, answer_it: Callable[[], None]) -> None:
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, answer_it)
        else:
            answer_it()

    def _deliver(self, token: str, listing: bytes) -> None:
        if not self._transport.is_closing() and token != self._seen.ill:
            self._transport.write(listing)
            self._seen.answers.append((token, time.monotonic_ns()))

    def _found(self, path: str, body: bytes) -> bytes:
        if path == "/auth/login":
            secret = json.loads(body)["rest_secret_key"]
            self._seen.logins.append((secret, time.monotonic_ns()))
            token = f"token-{secret}"
            return answer(json.dumps({"status": True, "data": {"access_token": token, "expiration_date": ""}}).encode())
        if path == "/__seen":
            return self._seen.take()
        if path == "/__list":
            self._seen.listing = answer(body)
            return OK
        if path == "/__ill":
            self._seen.ill = json.loads(body)
            return OK
        if path == "/__orders":
            self._seen.orders = Orders(**json.loads(body))
            return OK
        if path.startswith("/restaurants/status/get/"):
            return self._seen.status(path.rpartition("/")[2])
        return VARIABLES if path == "/orders/variables" else EMPTY


async def serve(certificate: str, delay_s: float, poll_delay_s: float) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    seen = Seen()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(seen, delay_s, poll_delay_s), "127.0.0.1", 0, ssl=context, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], *(float(given) / 1000 for given in (*sys.argv[2:], "0")[:2])))
