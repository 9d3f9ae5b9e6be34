"""Asks the sandbox's application as a server does."""

import httpx
from starlette.types import ASGIApp, Message, Scope


async def served(app: ASGIApp, request: httpx.Request) -> httpx.Response:
    """The service's answer to one request. Bodies are whole; the line cuts and delays them."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 123),
        "root_path": "",
    }
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": request.content, "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    await app(scope, receive, send)
    began, *parts = said
    body = b"".join(part.get("body", b"") for part in parts)
    return httpx.Response(began["status"], headers=began["headers"], content=body)
