"""Who may ask for what: a device that was paired; and what is to change something comes from a page of ours.

Rules of this file:
- A request that changes something is a POST with `application/json`, which no foreign page can send unasked. Browsers say
  where it comes from: `Sec-Fetch-Site`, or else `Origin`, which must be of the very authority that is asked, and not
  unencrypted where we are encrypted. Plain HTTP in a local network carries no Fetch metadata, so there `Origin` decides.
  Who sends neither is refused.
- A cookie is worth what its device is: paired, not revoked, and with the role that the request needs.
"""

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orderbridge_board import devices
from orderbridge_board.devices import Device

COOKIE = "orderbridge_board"
COOKIE_DAYS = 400
MOST_BYTES = 4096  # of a request's body
SAFE_SITES = frozenset({"same-origin", "none"})
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}


@cache
def words() -> dict[str, dict[str, str]]:
    """The board's sentences by key, in each language. The page takes all of them, and says them in the chosen one."""
    found = files("orderbridge_board").joinpath("words.toml").read_text("utf-8")
    return tomllib.loads(found)


def word(key: str, language: str) -> str:
    """One of them."""
    return words()[key][language]


class Refused(Exception):
    """A request that is not answered. `word`: the sentence's key."""

    def __init__(self, status: int, key: str) -> None:
        super().__init__(key)
        self.status = status
        self.key = key


def refusal(request: Request, error: Refused) -> Response:
    """In the language that the page asked in."""
    return JSONResponse({"error": error.key, "text": word(error.key, language(request))}, error.status)


def language(request: Request) -> str:
    """Turkish unless English was asked for."""
    return "en" if request.query_params.get("language") == "en" else "tr"


def check_origin(headers: Mapping[str, str], scheme: str) -> None:
    """Raises Refused for what a foreign page could have sent."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "only_json")
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site not in SAFE_SITES:
            raise Refused(403, "foreign_page")
        return
    origin, host = headers.get("origin", "").lower(), headers.get("host", "").lower()
    # Ours may be http behind a proxy that speaks https.
    if not host or origin not in {f"https://{host}", f"{scheme}://{host}"}:
        raise Refused(403, "foreign_page")


async def body(request: Request) -> dict[str, Any]:
    """What was sent. Raises Refused unless it is one small JSON object, and a page of ours sent it."""
    check_origin(request.headers, request.url.scheme)
    came = b""
    async for part in request.stream():
        came += part
        if len(came) > MOST_BYTES:
            raise Refused(413, "too_long")
    try:
        values = json.loads(came)
    except (ValueError, RecursionError):
        raise Refused(400, "only_json") from None
    if not isinstance(values, dict):
        raise Refused(400, "only_json")
    return values


def device(connection: Connection, request: Request, *, acts: bool = False, customers: bool = False) -> Device:
    """Whose request it is. Raises Refused."""
    cookie = request.cookies.get(COOKIE, "")
    found = devices.known(connection, cookie) if cookie else None
    if found is None:
        raise Refused(401, "not_paired")
    if acts and not found.may_act:
        raise Refused(403, "may_only_look")
    if customers and not found.sees_customers:
        raise Refused(403, "no_customers")
    return found


def remember(response: Response, request: Request, cookie: str) -> Response:
    """The browser keeps the cookie, and shows it to no script and to no foreign page."""
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=COOKIE_DAYS * 86400,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response
