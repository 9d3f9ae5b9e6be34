"""The operations of docs/interface.md, one short method each. They raise what orderbridge.errors has.

After a 401 a call obtains a new token and is repeated once; the session decides what a second 401 means. Two
exceptions:
- The poll is never repeated, because a call inside its cooldown costs another cooldown.
- A login that fails in between ends the call as NotSent: a call that was answered 401 was not carried out.

Only this file reports to the session how each request ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import structlog

from orderbridge.actions import ACTIONS
from orderbridge.errors import (
    LoginRefused,
    MarketplaceError,
    Message,
    NotSent,
    Refused,
    Unauthorized,
    UnknownOutcome,
    reading,
)
from orderbridge.marketplace.answers import (
    read_cancel_reasons,
    read_envelope,
    read_grant,
    read_restaurant_status,
    read_restaurants,
    read_variables,
)
from orderbridge.marketplace.documents import read_listing
from orderbridge.marketplace.session import Session
from orderbridge.model import Action, CancelReason, Document, Grant, Restaurant, Token, Variables
from orderbridge.net.http import Answer, Importance, Wire

SMALL_BODY = 64 * 1024  # bytes; taken apart in a millisecond or two, and most lists are empty
LIST = "/orders/get-current"
ACKNOWLEDGE_TIMEOUT_S = 5.0  # README.md, What is promised, 2: for the call and its one repeat together

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")
_Apart = Callable[[Callable[[], Any]], Awaitable[Any]]  # reads a large answer outside the event loop
_Read = Callable[[int, bytes], _Result]  # what is made of an answer's status and body


async def login(wire: Wire, *, app_secret_key: str, rest_secret_key: str) -> Grant:
    """A new access token (docs/interface.md, Endpoints 1). Needs no session: the session is made of these."""
    secrets = {"app_secret_key": app_secret_key, "rest_secret_key": rest_secret_key}
    async with wire.login():
        answer = await wire.request("POST", "/auth/login", headers={}, json=secrets)
    return _read(lambda status, body: read_grant(read_envelope(status, body)), answer)


class Client:
    """One account's calls."""

    def __init__(self, wire: Wire, session: Session, *, apart: _Apart | None = None) -> None:
        self._wire, self._session, self._apart = wire, session, apart
        self._surprised: set[str] = set()

    async def restaurants(self) -> tuple[Restaurant, ...]:
        """Every restaurant that the token reaches (docs/interface.md, Endpoints 2)."""
        return await self._get("/restaurants/get", read_restaurants)

    async def restaurant_status(self, rest_id: str) -> str:
        """`Open` or `Closed` (docs/interface.md, Endpoints 3)."""
        return await self._get(f"/restaurants/status/get/{_in_path(rest_id)}", read_restaurant_status)

    async def be_ready(self) -> None:
        """Obtain a token for the next poll. Raises what a login ends in."""
        await self._session.token_for_poll()

    async def current_orders(self, status_id: int | None = None) -> tuple[Document, ...]:
        """The active orders that are not acknowledged (docs/interface.md, Endpoints 6). Sent once, whatever the answer is.

        It leaves at once. Before the caller notes the poll, it obtains a token (`be_ready`) and waits for its turn
        (`Wire.poll_turn`). Without a token, which another call may have lost meanwhile, nothing is sent (NotSent).
        After a 401, raised as Unauthorized, the next call logs in. Its code is login_refused when the token came from a
        login that has just succeeded.
        """
        token = self._session.current
        if token is None:
            raise NotSent("login_failed", Message("net.login_waits"))
        params = None if status_id is None else {"status_id": str(status_id)}
        try:
            return await self._ask(
                "GET", LIST, lambda status, body: read_listing(body, http_status=status), token, params=params
            )
        except Unauthorized as refusal:
            _log.info("client.unauthorized", operation="get-current", code=refusal.code)
            try:
                self._session.drop(token, LIST)
            except LoginRefused as own:  # the poll was answered, so its cooldown runs: never NotSent
                raise Unauthorized(own.code, http_status=refusal.http_status) from own
            raise

    async def acknowledge(self, payment_key: str, timeout_s: float = ACKNOWLEDGE_TIMEOUT_S) -> None:
        """Marks the order as received for its current status (docs/interface.md, Endpoints 7). `timeout_s` bounds all of it."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await self._put("acknowledge", f"/orders/success/{_in_path(payment_key)}", deadline=deadline)

    async def act(self, action: Action, key: str, argument: int | None = None) -> None:
        """What a POS asks for, done to an order, a restaurant or a food (docs/interface.md, Endpoints 4, 5, 8 to 11, 14, 15)."""
        kind = ACTIONS[action]
        body = None if kind.argument is None else {kind.argument.column: argument}
        await self._put(action, f"{kind.path}/{_in_path(key)}", body)

    async def cancel_reasons(self) -> tuple[CancelReason, ...]:
        """docs/interface.md, Endpoints 12."""
        return await self._get("/orders/cancel-reasons", read_cancel_reasons)

    async def variables(self) -> Variables:
        """Payment and shipping methods (docs/interface.md, Endpoints 13)."""
        return await self._get("/orders/variables", read_variables)

    async def _get(self, path: str, read: Callable[[Any], _Result]) -> _Result:
        return await self._call("GET", path, lambda status, body: read(read_envelope(status, body)), Importance.LIST)

    async def _put(
        self, operation: str, path: str, body: Mapping[str, int | None] | None = None, deadline: float | None = None
    ) -> None:
        """A PUT. Success with unexpected data is a success (docs/design.md, Behaviour), worth one line in the log."""
        data = await self._call("PUT", path, read_envelope, Importance.ACTION, json=body, deadline=deadline)
        if data != "OK" and operation not in self._surprised:
            self._surprised.add(operation)
            _log.warning("client.unexpected_data", operation=operation, type=type(data).__name__)

    async def _call(
        self,
        method: str,
        path: str,
        read: _Read[_Result],
        importance: Importance,
        *,
        json: Mapping[str, int | None] | None = None,
        deadline: float | None = None,
    ) -> _Result:
        """One request; after a 401 a new token and one repeat. `deadline` is the event loop's time."""
        ask = partial(self._ask, method, path, read, importance=importance, json=json, deadline=deadline)
        token = await _in_time(self._session.token(), deadline)
        try:
            return await ask(token)
        except Unauthorized as refusal:
            _log.info("client.unauthorized", path=path, code=refusal.code)
            try:
                token = await _in_time(self._session.replace(token, path), deadline)
            except Unauthorized as own:  # there is no use in another token
                raise Unauthorized(own.code, refusal.detail, http_status=refusal.http_status) from refusal
        try:
            return await ask(token)
        except Unauthorized as again:
            raise Unauthorized("not_permitted", again.detail, http_status=again.http_status) from again

    async def _ask(
        self,
        method: str,
        path: str,
        read: _Read[_Result],
        token: Token,
        *,
        importance: Importance | None = None,
        json: Mapping[str, int | None] | None = None,
        params: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> _Result:
        """One request, and what `read` makes of its answer. However it ends, it is reported to the session.

        `importance`: by which it waits for its turn; None: it leaves at once.
        """
        time = asyncio.get_running_loop().time
        if importance is not None:  # a turn that does not come in time is not reported: the line is well
            await self._wire.pace.admit(importance, time() + self._wire.timeout_s if deadline is None else deadline)
        remaining = None if deadline is None else deadline - time()
        headers = {"Access-Token": token.access_token}
        try:
            answer = await self._wire.request(
                method, path, headers=headers, json=json, params=params, timeout_s=remaining
            )
            call = partial(_read, read, answer)
            is_small = len(answer.body) <= SMALL_BODY
            result = call() if self._apart is None or is_small else await self._apart(call)
        except MarketplaceError as error:
            self._session.record_outcome(error, token, path)
            raise
        self._session.record_outcome(None, token, path)
        return result


async def _in_time(token: Awaitable[Token], deadline: float | None) -> Token:
    """The token. A login that fails means that the call was not carried out."""
    try:
        async with asyncio.timeout_at(deadline):
            return await token
    except (NotSent, Unauthorized):
        raise
    except MarketplaceError as error:
        failed = NotSent("login_failed", Message("net.login_failed", error=error), reason=error.reason)
        raise failed from error
    except TimeoutError as error:
        raise NotSent("login_timeout") from error


def _read(read: _Read[_Result], answer: Answer) -> _Result:
    """What `read` makes of an answer. Its errors know the HTTP status."""
    try:
        with reading(answer.status):
            return read(answer.status, answer.body)
    except UnknownOutcome as error:
        error.http_status = answer.status
        raise


def _in_path(key: str) -> str:
    """An id as one segment of the path, whatever it holds; a dot too, because `..` would climb."""
    if not key:
        raise Refused("bad_url_id", Message("net.no_id"))
    return quote(key, safe="", errors="replace").replace(".", "%2E")
