"""The HTTP application: the sixteen paths of docs/interface.md, and the control interface below /_sandbox/."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import service, wire
from .advice import advice_on, terminal_line
from .checks import UNKNOWN, Answer, Call, caller_of
from .command import PREFIX
from .control import control_routes
from .faults import Fault, FaultKind, When
from .pace import latency_of, trouble_of
from .replies import DROPPED, TOO_LONG, ConnectionDropped, altered_reply, read_body, reply_to, substitute
from .rules import ENDPOINTS, Operation
from .state import CallRecord
from .tls import LOCAL_NAMES
from .world import World


class SandboxApp(Starlette):
    """Starlette that can end a call without a complete answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call, or raise ConnectionDropped.

        Raised here, because Starlette would answer 500 to an exception of an endpoint.
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
        exception_handlers={HTTPException: endpoint.page},
    )
    app.router.redirect_slashes = False
    return app


class Endpoint:
    """Reads a request, applies the fault that is scripted for it, and answers."""

    def __init__(self, world: World) -> None:
        """Answer for that world."""
        self._world = world
        self._running: set[asyncio.Task[ASGIApp]] = set()

    def of(self, operation: Operation) -> Callable[[Request], Awaitable[Any]]:
        """Return Starlette's endpoint for the operation."""

        async def endpoint(request: Request) -> ASGIApp:
            call = await _read(operation, request, self._world.options.body_limit_bytes)
            account = caller_of(self._world, call)
            with self._world.lock:  # a reader of the ledger finds the call together with its answer, or not at all
                record = self._record(call, account)
                script = self._world.faults.take(operation, account, call.argument)
                fault = script or trouble_of(self._world, operation)
                late = latency_of(self._world)
                if fault is None and not late:
                    answer = service.perform(self._world, call, record)
                    self._close(record, answer.status, answer)
                    return reply_to(answer)
            record.fault = "" if fault is None else fault.kind
            return await self._shielded(self._answer_late(fault, late, call, record))

        return endpoint

    async def page(self, request: Request, error: Exception) -> Response:
        """Answer an unknown path or method with an HTML page, as the web server in front of a service does."""
        status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "Error")
        if not request.url.path.startswith(f"{PREFIX}/"):
            call = _call(UNKNOWN, request)
            with self._world.lock:
                self._close(self._record(call, caller_of(self._world, call)), status, None)
        headers = {"Connection": "close"} if status == TOO_LONG else None
        return HTMLResponse(
            f"<html><head><title>{status} {text}</title></head>\n<body><h1>{text}</h1></body></html>\n", status, headers
        )

    def _record(self, call: Call, account: str) -> CallRecord:
        body = None if call.operation in (Operation.LOGIN, UNKNOWN) else call.body  # no secret is kept
        facts = {"operation": call.operation, "argument": call.argument, "method": call.method, "path": call.path}
        advice = tuple(advice_on(self._world, call))
        return self._world.record(account=account, body=body, advice=advice, **facts)

    async def _answer_late(self, fault: Fault | None, late: float, call: Call, record: CallRecord) -> ASGIApp:
        if fault is None:
            answer = service.perform(self._world, call, record)
            await asyncio.sleep(late)
            self._close(record, answer.status, answer)
            return reply_to(answer)
        waits = fault.seconds > 0 and fault.kind is not FaultKind.DRIP  # a drip waits between its pieces
        if waits and fault.when is When.BEFORE:
            await self._world.faults.pause(fault)
        answered = service.perform(self._world, call, record) if fault.has_effect else None
        if waits and fault.when is When.AFTER:
            await self._world.faults.pause(fault)
        if late:
            await asyncio.sleep(late)
        if answered is None or fault.hides_answer:
            self._close(record, fault.status if fault.kind is FaultKind.ANSWER else None, None)
            return substitute(fault)
        self._close(record, answered.status, answered)
        return altered_reply(fault, reply_to(answered))

    def _close(self, record: CallRecord, status: int | None, answer: Answer | None) -> None:
        with self._world.lock:
            record.http_status = status
            if answer is not None:
                record.error, record.message = answer.error, answer.message
            record.answered_at = None if status is None else self._world.now()
            self._world.lock.notify_all()
        self._world.report(terminal_line(self._world, record))

    async def _shielded(self, work: Coroutine[Any, Any, ASGIApp]) -> ASGIApp:
        """Finish the work even if the client disconnects: a real service does not notice that either."""
        task: asyncio.Task[ASGIApp] = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


async def _read(operation: Operation, request: Request, limit: int) -> Call:
    body = await read_body(request, limit)
    # A body with another Content-Type is not read, so its fields count as missing ("Headers").
    call = _call(operation, request)
    return replace(call, body=wire.decode(body) if call.is_json else None, has_body=bool(body))


def _call(operation: str, request: Request) -> Call:
    query = f"?{request.url.query}" if request.url.query else ""
    return Call(
        operation=operation,
        token=request.headers.get("access-token"),
        argument=request.path_params.get("id", request.query_params.get("status_id", "")),
        address=request.client.host if request.client else "",
        method=request.method,
        path=request.url.path + query,
        is_json=request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json",
    )
