"""The control interface below /_sandbox/, with which developers and tests change the simulated world.

It is not part of docs/interface.md and has no password, so the sandbox should listen on loopback only. Because a web
page on the same machine could reach it, it answers only to its own host names, not to other origins, and accepts only
JSON with that content type. commands.py has the commands.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from . import wire
from .command import PREFIX, BadRequest, Command
from .commands import COMMANDS, Unknown
from .faults import BadFault
from .replies import read_body
from .switches import BadOption
from .tls import LOCAL_NAMES
from .world import CannotOrder, NotAllowed, UnknownOrder, World

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


STATUSES: Final[Mapping[type[Exception], int]] = {
    BadFault: 400,
    BadOption: 400,
    UnknownOrder: 404,
    CannotOrder: 409,
    NotAllowed: 409,
}


def control_routes(world: World, names: Collection[str] = LOCAL_NAMES) -> list[Route]:
    """Return the routes for the world; names are the hosts under which it may be called."""
    routes = [
        Route(f"{PREFIX}{command.path}", _endpoint(world, command, names), methods=[command.method])
        for command in COMMANDS
    ]
    unknown = _endpoint(world, _refusing(routes), names)
    return [*routes, Route(PREFIX, unknown, methods=METHODS), Route(PREFIX + "/{rest:path}", unknown, methods=METHODS)]


def _endpoint(
    world: World, command: Command | Callable[[Request], Any], names: Collection[str]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            _check_caller(request, names)
            if not isinstance(command, Command):
                return _json(command(request), 200)
            body = await _body(request, world.options.body_limit_bytes)
            with world.lock:
                given = command.arguments(body, request.query_params)
                return _json(command.act(world, **request.path_params, **given), 200)
        except Unknown as error:  # an id in the path is not found; one in a body is a bad request
            return _json({"error": str(error)}, 404 if request.path_params else 400)
        except BadRequest as error:
            return _json({"error": str(error)}, error.status)
        except tuple(STATUSES) as error:
            return _json({"error": str(error)}, STATUSES[type(error)])

    return endpoint


def _refusing(routes: list[Route]) -> Callable[[Request], Any]:
    """Refuse an unknown path or method. The error lists the path's methods, or all paths."""

    def refuse(request: Request) -> Any:
        path = request.url.path
        here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        if here:
            methods = ", ".join(sorted({method for route in here for method in route.methods or ()} - {"HEAD"}))
            raise BadRequest(f"{path} takes {methods}, not {request.method}", 405)
        known = ", ".join(dict.fromkeys(f"{PREFIX}{command.path}" for command in COMMANDS))
        raise BadRequest(f"no such path: {path}; known: {known}", 404)

    return refuse


def _check_caller(request: Request, names: Collection[str]) -> None:
    host = request.headers.get("host", "")
    server, _ = request.scope.get("server") or ("", None)  # of this connection: 0.0.0.0 has many
    called = _host(f"//{host}")
    if called not in {name.lower() for name in (*names, server)} and not _is_loopback(called):
        raise BadRequest(f"{host!r} is not a name of this sandbox; its names are {', '.join(names)}", 403)
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() != f"https://{host.lower()}":
        raise BadRequest(f"{origin!r} is the origin of another page; call from a program, or from https://{host}", 403)


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def _body(request: Request, limit: int) -> dict[str, Any]:
    raw = await read_body(request, limit)
    if raw and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest("send JSON, with Content-Type: application/json", 415)
    body = wire.decode(raw, exact=True) if raw else {}
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _json(value: object, status: int) -> Response:
    return Response(wire.encode(value), status, media_type="application/json")
