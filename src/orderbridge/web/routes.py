"""What is served, as a list of routes; extensions add their own.

None of these here reads a body, a query or a header but Host, and none writes anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orderbridge.observe.liveness import ALIVE
from orderbridge.rules.account_status import Readiness
from orderbridge.texts import say
from orderbridge.web import hosts
from orderbridge.web.exposition import CONTENT_TYPE, Exposition
from orderbridge.web.watched import Watched

UNWELL = 503
PROBES = frozenset({"/livez", "/readyz", "/metrics"})  # nobody's data, and nothing can be changed there


@dataclass(frozen=True, slots=True)
class Allowed:
    """By which names we may be asked for, beside localhost. `strict`: no address counts but our own and these."""

    names: frozenset[str]
    strict: bool


def application(watched: Watched, allowed: Callable[[], Allowed], more: Sequence[BaseRoute]) -> ASGIApp:
    """The ASGI application. `allowed`: who may be asked for here. `more`: the routes of extensions."""
    exposition = Exposition(watched.measured)

    async def livez(_: Request) -> Response:
        hung = watched.hung()
        said, status = (ALIVE, 200) if hung is None else (f"hung: {hung}", UNWELL)
        return PlainTextResponse(f"{said}\n", status)

    async def readyz(_: Request) -> Response:
        readiness = watched.readiness()
        return JSONResponse(_told(readiness), 200 if readiness.is_ready else UNWELL)

    async def metrics(_: Request) -> Response:
        return Response(await exposition.text(), media_type=CONTENT_TYPE)

    routes = [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics), *more]
    inside = Starlette(routes=routes)
    inside.router.redirect_slashes = False  # it would send who asks to whatever Host says
    return Door(inside, allowed)


def _told(readiness: Readiness) -> dict[str, object]:
    """By code, without whom it concerns: an order's key is nobody's business here."""
    return {
        "ready": readiness.is_ready,
        "working": readiness.is_working,
        "database": readiness.database_answers,
        "polled": readiness.is_polled,
        "problems": readiness.severe,
    }


class Door:
    """Lets in what is meant for us. Who sends no Host is no browser: an old load balancer's probe hears how we are."""

    def __init__(self, inside: ASGIApp, allowed: Callable[[], Allowed]) -> None:
        self._inside = inside
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        host, allowed = Headers(scope=scope).get("host"), self._allowed()
        is_probe = host is None and scope["path"] in PROBES
        asked_at = (scope.get("server") or ("",))[0] if allowed.strict and not is_probe else None
        answer = self._inside
        if not hosts.is_known(host, allowed.names, asked_at=asked_at):
            answer = PlainTextResponse(say("web.foreign_host") + "\n", 400)
        await answer(scope, receive, send)
