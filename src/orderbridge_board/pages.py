"""The board's routes: pages that hold no data, and JSON for devices that were paired."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orderbridge.daemon import RunningDaemon
from orderbridge.errors import OrderbridgeError
from orderbridge.store.failures import is_busy
from orderbridge_board import Board, acts, devices, door, queries, shell
from orderbridge_board.changes import Changes, Stream
from orderbridge_board.door import Refused, word
from orderbridge_board.snapshot import menu, problem_shown, recall, state
from orderbridge_board.technician import technician

T = TypeVar("T")
TRIES = 4  # to write one tap
AT_ONCE_S = 2.0  # a slower write has waited for a lock; it is not retried, because it would wait again
WITHIN_S = 8.0  # the time limit for the database; shorter than that of the page
HEADERS = tuple((name.encode(), value.encode()) for name, value in door.HEADERS.items())  # of every answer


class BoardPages:
    """The board's routes and streams, while the board is on."""

    headers = HEADERS

    def __init__(self, board: Board) -> None:
        self._board = board
        # Hashes of the cookies of devices that have read the board, for when the database cannot be read.
        self._known: set[bytes] = set()
        self._page = shell.version()
        self._guesses = devices.Guesses()
        self.changes = Changes(lambda: board.daemon, began=time.time_ns() // 1_000_000 % 2**40)  # noqa: TID251

    def routes(self) -> list[Route]:
        """All routes of the board."""
        asked = {"state": self.state, "menu": self.menu, "recall": self.recall, "customer": self.customer}
        asked["technician"] = self.technician
        taps = {"act": self.act, "back": self.take_back, "seen": self.seen, "here": self.here}
        found = [
            *(Route(path, _file(*what)) for path, what in shell.served().items()),
            Route("/board/stream", _guarded(self.stream)),
            Route("/board/pair", _guarded(self.pair), methods=["POST"]),
        ]
        found += [Route(f"/board/{name}", _guarded(answer)) for name, answer in asked.items()]
        return found + [Route(f"/board/{name}", _guarded(answer), methods=["POST"]) for name, answer in taps.items()]

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def state(self, request: Request) -> Response:
        """The state of the board; if the database cannot be read, only the known problems."""
        work = self._work()
        language, number, now = door.language(request), self.changes.number, work.clock.now()
        problems = tuple(work.problems())

        def read(connection: Connection) -> tuple[dict[str, Any], Any]:
            device = door.device(connection, request)
            found = state(connection, work.settings, problems, now, language)
            customers = device.sees_customers and _may_show_customers(request, work)
            shown = found | {"device": device.name, "role": device.role, "customers": customers}
            return shown, queries.version(connection)

        cookie = sha256(request.cookies.get(door.COOKIE, "").encode()).digest()
        try:
            async with asyncio.timeout(WITHIN_S):
                found, version = await work.database.read(read, snapshot=True)
        except Refused:
            self._known.discard(cookie)
            raise
        except (DBAPIError, OrderbridgeError, TimeoutError):  # only devices that have read the board get the problems
            listed = [problem_shown(one, language) for one in problems] if cookie in self._known else []
            text = word("no_database", language)
            return JSONResponse({"error": "no_database", "text": text, "problems": listed}, 503)
        self._known.add(cookie)
        self.changes.shown(version)
        moments = (card[moment] for card in found["orders"] for moment in ("due", "start", "away"))
        self.changes.expect(moments, found["now"])
        found["n"], found["page"] = number, self._page
        return await asyncio.to_thread(JSONResponse, found)

    async def menu(self, request: Request) -> Response:
        """The foods and restaurants that can be switched on and off."""
        work = self._work()
        now, language = work.clock.now(), door.language(request)
        zone = ZoneInfo(work.settings.marketplace.timezone)
        return JSONResponse(await self._read(work, request, lambda tx: menu(tx, now, language, zone)))

    async def recall(self, request: Request) -> Response:
        """The orders that were finished lately."""
        work = self._work()
        now = work.clock.now()
        return JSONResponse({"orders": await self._read(work, request, lambda tx: recall(tx, now))})

    async def technician(self, request: Request) -> Response:
        """The data of the technician's page."""
        work = self._work()
        now, language, problems = work.clock.now(), door.language(request), tuple(work.problems())
        audible = self._board.audible_tablets.names(work.clock.monotonic())

        def read(connection: Connection) -> dict[str, Any]:
            return technician(connection, work.settings, problems, audible, now, language)

        return JSONResponse(await self._read(work, request, read))

    async def customer(self, request: Request) -> Response:
        """The customer and address of an open order, if the connection is encrypted or local."""
        work = self._work()
        if not _may_show_customers(request, work):
            raise Refused(403, "not_encrypted")
        key = request.query_params.get("key", "")

        def read(connection: Connection) -> dict[str, Any] | None:
            return queries.customer(connection, key) if key.isprintable() else None

        found = await self._read(work, request, read, customers=True)
        if found is None:
            raise Refused(404, "order_gone")
        return JSONResponse(found)

    async def stream(self, request: Request) -> Response:
        """The stream of change events."""
        work = self._work()
        device = await work.database.read(lambda tx: door.device(tx, request))
        listener = self.changes.listen(device.id)
        if listener is None:
            raise Refused(503, "too_many")
        return Stream(self.changes, listener)  # type: ignore[return-value]

    async def _read(
        self, work: RunningDaemon, request: Request, read: Callable[[Connection], T], *, customers: bool = False
    ) -> T:
        def once(connection: Connection) -> T:
            door.device(connection, request, customers=customers)
            return read(connection)

        return await work.database.read(once, snapshot=True)

    # ---- writing -----------------------------------------------------------------------------------------------------

    async def pair(self, request: Request) -> Response:
        """Pair a device by its code, and set its cookie."""
        values = await door.body(request)
        work = self._work()
        code, name = values.get("code"), values.get("name")
        if not isinstance(code, str) or not isinstance(name, str) or not (name := _name(name)):
            raise Refused(400, "not_understood")
        digits, now = "".join(filter(str.isdigit, code)), work.clock.now()
        wanted, address = await work.database.read(lambda tx: devices.good_code(tx, now)), request.client
        if wanted is not None and self._guesses.is_too_many(wanted, address.host if address else ""):
            raise Refused(429, "too_many_codes")
        cookie = await work.database.run(lambda tx: devices.pair(tx, digits, name, now))
        if cookie is None:
            raise Refused(403, "wrong_code")
        return door.remember(JSONResponse({}), request, cookie)

    async def act(self, request: Request) -> Response:
        """Write the action of a tapped button."""
        language, zone = door.language(request), ZoneInfo(self._work().settings.marketplace.timezone)
        return await self._tap(
            request, lambda tx, values, device, mode, now: acts.act(tx, values, device, mode, language, now, zone)
        )

    async def take_back(self, request: Request) -> Response:
        """Undo an action, or show a removed card again."""
        return await self._tap(request, lambda tx, values, *_: acts.take_back(tx, values))

    async def seen(self, request: Request) -> Response:
        """Silence alarms that a person has touched."""
        return await self._tap(request, acts.seen, wakes=False)

    async def _tap(self, request: Request, write: Callable[..., dict[str, Any]], *, wakes: bool = True) -> Response:
        values, work = await door.body(request), self._work()
        mode, now = work.settings.web.board, work.clock.now()
        found = await _written(work, lambda tx: write(tx, values, door.device(tx, request, acts=True), mode, now))
        if wakes:
            work.wake()
        self.changes.check_soon()
        return JSONResponse(found)

    async def here(self, request: Request) -> Response:
        """Note that a tablet is in use, and whether it can be heard."""
        values, work = await door.body(request), self._work()
        device = await work.database.read(lambda tx: door.device(tx, request))
        tablets, moment = self._board.audible_tablets, work.clock.monotonic()
        tablets.heard(device, moment, audible=values.get("audible") is True)
        if device.is_due(now := work.clock.now()):
            await work.database.run(lambda tx: devices.note_seen(tx, device.id, now))
        return JSONResponse({"n": self.changes.number, "hear": tablets.names(moment)})

    def close(self) -> None:
        """End all streams."""
        self.changes.close()

    def _work(self) -> RunningDaemon:
        work = self._board.daemon
        if work is None:
            raise Refused(503, "not_working")
        return work


async def _written(work: RunningDaemon, change: Callable[[Connection], T]) -> T:
    """Write one tap. If the server ends it because of a deadlock, try again."""
    for _ in range(TRIES - 1):
        began = work.clock.monotonic()
        try:
            return await work.database.run(change, urgent=True)
        except DBAPIError as error:
            if not is_busy(error) or work.clock.monotonic() - began > AT_ONCE_S:
                raise
    return await work.database.run(change, urgent=True)


def _file(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


def _name(typed: str) -> str:
    """A device's name without unprintable characters, because tables, lists and logs show it."""
    return "".join(filter(str.isprintable, " ".join(typed.split()))).strip()


def _may_show_customers(request: Request, work: RunningDaemon) -> bool:
    """Whether the connection is encrypted or local, or the configuration permits a plain one."""
    web = work.settings.web
    return request.url.scheme == "https" or web.is_local or web.customers_unencrypted


def _guarded(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The same route, with errors as answers in the language of the page."""

    async def guarded(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as error:
            return door.refusal(request, error)
        except (DBAPIError, OrderbridgeError):
            tapped = request.method == "POST"  # nothing was written, and the write is not retried
            return door.refusal(request, Refused(503, "not_written" if tapped else "no_database"))
        except ClientDisconnect:
            return Response(status_code=400)  # the client has disconnected

    return guarded
