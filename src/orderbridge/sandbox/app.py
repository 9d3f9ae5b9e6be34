"""The service over HTTP: docs/interface.md's sixteen paths, and the control interface below /_sandbox/."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import service, wire
from .checks import Call, caller_of
from .control import control_routes
from .faults import Fault, FaultKind, When
from .replies import DROPPED, ConnectionDropped, reply_to, spoiled, substitute
from .rules import ENDPOINTS, Operation
from .state import CallRecord
from .tls import LOCAL_NAMES
from .world import World


class SandboxApp(Starlette):
    """Starlette, able to end a call without a complete answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call, or raise ConnectionDropped.

        Raised out here, because Starlette would answer 500 to whatever is raised further in.
        """
        await super().__call__(scope, receive, send)
        if DROPPED in scope:
            raise ConnectionDropped


def create_app(world: World, *, prefix: str = "", names: Collection[str] = LOCAL_NAMES) -> Starlette:
    """Return the service for the world.

    prefix is the path part of base_url, such as `/integration`; names are the hosts of the control interface.
    """
    endpoint = Endpoint(world)
    routes = [Route(prefix + path, endpoint.of(operation), methods=[method]) for operation, method, path in ENDPOINTS]
    app = SandboxApp(
        routes=[*routes, *control_routes(world, names)],
        exception_handlers={HTTPException: _page},
    )
    app.router.redirect_slashes = False
    return app


class Endpoint:
    """Reads a request, meets the fault that waits for it, and answers."""

    def __init__(self, world: World) -> None:
        """Answer for that world."""
        self._world = world
        self._running: set[asyncio.Task[ASGIApp]] = set()

    def of(self, operation: Operation) -> Callable[[Request], Awaitable[Any]]:
        """Return Starlette's endpoint for the operation."""

        async def endpoint(request: Request) -> ASGIApp:
            call = await _read(operation, request)
            account = caller_of(self._world, call)
            with self._world.lock:  # whoever reads the ledger finds a call with its answer, or not yet
                record = self._world.record(operation, account, call.argument, _kept_body(call))
                fault = self._world.faults.take(operation, account, call.argument)
                if fault is None:
                    answer = service.perform(self._world, call, record)
                    self._close(record, answer.status, answer.error)
                    return reply_to(answer)
            record.fault = fault.kind
            return await self._to_the_end(self._meet(fault, call, record))

        return endpoint

    async def _meet(self, fault: Fault, call: Call, record: CallRecord) -> ASGIApp:
        waits = fault.seconds > 0 and fault.kind is not FaultKind.DRIP  # a drip waits between its pieces
        if waits and fault.when is When.BEFORE:
            await self._world.faults.pause(fault)
        answer = service.perform(self._world, call, record) if fault.has_effect else None
        if waits and fault.when is When.AFTER:
            await self._world.faults.pause(fault)
        if answer is None or fault.hides_answer:
            self._close(record, fault.status if fault.kind is FaultKind.ANSWER else None, "")
            return substitute(fault)
        self._close(record, answer.status, answer.error)
        return spoiled(fault, reply_to(answer))

    def _close(self, record: CallRecord, status: int | None, error: str) -> None:
        with self._world.lock:
            record.http_status, record.error = status, error
            record.answered_at = None if status is None else self._world.clock()
            self._world.lock.notify_all()
        self._world.tell(
            f"call.answered operation={record.operation} account={record.account or '-'} http={status or '-'}"
            + (f" error={error!r}" if error else "")
            + (f" fault={record.fault}" if record.fault else "")
        )

    async def _to_the_end(self, work: Coroutine[Any, Any, ASGIApp]) -> ASGIApp:
        """Finish the work even if the client gives up meanwhile: a real service does not notice."""
        task: asyncio.Task[ASGIApp] = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


async def _read(operation: Operation, request: Request) -> Call:
    body = await request.body()
    # "Headers: Content-Type: application/json": a body under another name is not read, its fields are missing.
    is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    return Call(
        operation=operation,
        token=request.headers.get("access-token"),
        argument=request.path_params.get("id", request.query_params.get("status_id", "")),
        body=wire.decode(body) if is_json else None,
        address=request.client.host if request.client else "",
    )


def _kept_body(call: Call) -> object:
    return None if call.operation is Operation.LOGIN else call.body


async def _page(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method with a page, as the web server before a service does."""
    status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "Error")
    return HTMLResponse(
        f"<html><head><title>{status} {text}</title></head>\n<body><h1>{text}</h1></body></html>\n", status
    )
