"""Reads request bodies up to a limit, and writes answers, whole or broken by a fault."""

import asyncio
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from . import wire
from .checks import Answer
from .faults import JSON, Fault, FaultKind

TOO_LONG: Final = 413
# Set in the scope by a reply that ends without a complete answer; app.py then drops the connection.
DROPPED: Final = "orderbridge_sandbox.dropped"


class ConnectionDropped(ConnectionResetError):
    """The service closed the connection without a complete answer.

    A client whose transport calls the application directly gets this exception; the server closes the socket instead.
    """


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raises 413 for a longer one."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise HTTPException(TOO_LONG, "Content Too Large")
    return body


def reply_to(answer: Answer) -> Response:
    """Return the answer without a fault."""
    headers = {"Content-Type": JSON, **answer.headers}
    return Response(wire.encode(answer.envelope), status_code=answer.status, headers=headers)


def substitute(fault: Fault) -> ASGIApp:
    """Return the reply that the fault sends instead of the answer."""
    match fault.kind:
        case FaultKind.DROP:
            return Cut(None, keep=0)
        case FaultKind.HANG:
            return hang
        case _:
            # An empty body has no type. A Content-Type among the fault's headers takes precedence.
            kind = {"Content-Type": fault.content_type} if fault.body else {}
            return Response(fault.body, status_code=fault.status, headers=_merged(kind, fault.headers))


def altered_reply(fault: Fault, reply: Response) -> ASGIApp:
    """Return the true answer as the fault changes it."""
    match fault.kind:
        case FaultKind.DRIP:
            return Drip(reply, size=fault.size, seconds=fault.seconds)
        case FaultKind.TRUNCATE:
            return Cut(reply, keep=fault.size)
        case FaultKind.CONTENT_TYPE:
            reply.headers["Content-Type"] = fault.content_type
        case FaultKind.GZIP:
            reply.body = gzip.compress(bytes(reply.body), mtime=0)
            reply.headers["Content-Length"] = str(len(reply.body))
            reply.headers["Content-Encoding"] = "gzip"
        case _:  # a delay does not change the answer
            pass
    reply.headers.update(fault.headers)
    return reply


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    """Never answer: wait until the client or the server gives up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope[DROPPED] = True


@dataclass(frozen=True, slots=True)
class Cut:
    """Sends the first bytes of a reply, or nothing, and ends the connection."""

    reply: Response | None
    keep: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send an incomplete answer."""
        if self.reply is not None:
            await _start(self.reply, send)
            await send({"type": "http.response.body", "body": self.reply.body[: self.keep], "more_body": True})
        scope[DROPPED] = True


@dataclass(frozen=True, slots=True)
class Drip:
    """Sends a reply in small pieces: `size` bytes, wait `seconds`, and so on."""

    reply: Response
    size: int
    seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole answer slowly."""
        await _start(self.reply, send)
        body = bytes(self.reply.body)
        for position in range(0, len(body), self.size):
            piece = body[position : position + self.size]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(self.seconds)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _start(reply: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": reply.status_code, "headers": reply.raw_headers})


def _merged(first: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower() for name in then}
    return {name: value for name, value in first.items() if name.lower() not in given} | dict(then)
