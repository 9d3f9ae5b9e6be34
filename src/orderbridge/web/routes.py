"""What is served, as a list of routes; a board will add its own.

None of them reads a body, a query or a header but Host, and none writes anything.
"""

from collections.abc import Callable, Collection

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orderbridge.observe.liveness import ALIVE
from orderbridge.rules.readiness import Readiness
from orderbridge.texts import say
from orderbridge.web import hosts
from orderbridge.web.exposition import CONTENT_TYPE, Exposition
from orderbridge.web.watched import Watched

UNWELL = 503


def application(watched: Watched, names: Callable[[], Collection[str]]) -> ASGIApp:
    """The ASGI application. `names`: by which a request may call us, beside addresses and localhost."""
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

    routes = [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
    inside = Starlette(routes=routes)
    inside.router.redirect_slashes = False  # it would send who asks to whatever Host says
    return Door(inside, names)


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
    """Lets in what is meant for us."""

    def __init__(self, inside: ASGIApp, names: Callable[[], Collection[str]]) -> None:
        self._inside = inside
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        host = Headers(scope=scope).get("host")
        answer = self._inside
        if not hosts.is_known(host, self._names()):
            answer = PlainTextResponse(say("web.foreign_host") + "\n", 400)
        await answer(scope, receive, send)
