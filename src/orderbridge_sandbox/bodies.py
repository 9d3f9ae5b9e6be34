"""Bodies of requests, up to a limit."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

TOO_LONG: Final = 413


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raises 413 for a longer one."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise HTTPException(TOO_LONG, "Content Too Large")
    return body
