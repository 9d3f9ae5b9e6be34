"""Authorizes requests: each needs a paired device, and one that changes something must come from the board's page.

Rules of this file:
- A request that changes something is a POST with `application/json`, which a foreign page cannot send without a
  preflight. Its header `Sec-Fetch-Site` must not show a foreign page. Over plain HTTP browsers do not send it, so there
  `Origin` must name the requested host and port, and must not be http where the board has https. A request with neither
  header is refused.
- A cookie is valid if its device is paired, not revoked, and has the role that the request needs.
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
MOST_BYTES = 4096  # in the body of a request
SAFE_SITES = frozenset({"same-origin", "none"})
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}


@cache
def words() -> dict[str, dict[str, str]]:
    """The board's sentences by key, in each language. The page loads all, and shows the chosen language."""
    found = files("orderbridge_board").joinpath("words.toml").read_text("utf-8")
    return tomllib.loads(found)


def word(key: str, language: str) -> str:
    """The sentence of a key."""
    return words()[key][language]


class Refused(Exception):
    """A request that is refused. `word`: the key of the reason."""

    def __init__(self, status: int, key: str) -> None:
        super().__init__(key)
        self.status = status
        self.key = key


def refusal(request: Request, error: Refused) -> Response:
    """The answer to a refused request, in the language of the page."""
    return JSONResponse({"error": error.key, "text": word(error.key, language(request))}, error.status)


def language(request: Request) -> str:
    """The language of the page: Turkish, unless it asks for English."""
    return "en" if request.query_params.get("language") == "en" else "tr"


def check_origin(headers: Mapping[str, str], scheme: str) -> None:
    """Raise Refused for a request that a foreign page could have sent."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "only_json")
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site not in SAFE_SITES:
            raise Refused(403, "foreign_page")
        return
    origin, host = headers.get("origin", "").lower(), headers.get("host", "").lower()
    # Behind a proxy that serves https, our scheme is http.
    if not host or origin not in {f"https://{host}", f"{scheme}://{host}"}:
        raise Refused(403, "foreign_page")


async def body(request: Request) -> dict[str, Any]:
    """The body. Raises Refused unless it is one small JSON object that the board's own page sent."""
    check_origin(request.headers, request.url.scheme)
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise Refused(413, "too_long")
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused(400, "only_json") from None
    if not isinstance(values, dict):
        raise Refused(400, "only_json")
    return values


def device(connection: Connection, request: Request, *, acts: bool = False, customers: bool = False) -> Device:
    """The device of a request. Raises Refused."""
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
    """Set the cookie of the device, which no script can read and no foreign page can send."""
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=COOKIE_DAYS * 86400,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response
