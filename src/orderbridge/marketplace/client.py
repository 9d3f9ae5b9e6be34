"""The marketplace's operations, one method for each (docs/interface.md). They raise MarketplaceError.

After a 401 a call obtains a new token and is repeated once; the session decides what a second 401 means. Two
exceptions:
- The poll is never repeated, because a call inside its cooldown costs another cooldown.
- If the login in between fails, the call ends as NotSent, since a request that is answered 401 has no effect.

Only this module reports the outcome of each request to the session.
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
from orderbridge.marketplace.menu import read_menu
from orderbridge.marketplace.session import Session
from orderbridge.model import Action, Document, Grant, Menu, Restaurant, Token, Variables
from orderbridge.net.http import Answer, Importance, Wire

SMALL_BODY = 64 * 1024  # bytes; parsed in a millisecond or two; larger ones are parsed in a thread
LIST = "/orders/get-current"
MENU_TIMEOUT_S = 60.0  # it may be large, and nothing waits for it
ACKNOWLEDGE_TIMEOUT_S = 5.0  # for the call and its repeat together (README.md, promise 2)

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")
_Thread = Callable[[Callable[[], Any]], Awaitable[Any]]  # parses a large answer in a thread
_Body = Mapping[str, int | None] | None
# Takes the path without its id, the error, the request's body, and whether its token was replaced meanwhile.
OnFailed = Callable[[str, MarketplaceError, _Body, bool], None]
_Read = Callable[[int, bytes], _Result]  # parses an answer's status and body


async def login(wire: Wire, *, app_secret_key: str, rest_secret_key: str) -> Grant:
    """Request a new access token (docs/interface.md, Endpoints 1)."""
    secrets = {"app_secret_key": app_secret_key, "rest_secret_key": rest_secret_key}
    async with wire.login():
        answer = await wire.request("POST", "/auth/login", headers={}, json=secrets)
    return _read(lambda status, body: read_grant(read_envelope(status, body)), answer)


class Client:
    """The operations of one account."""

    def __init__(
        self,
        wire: Wire,
        session: Session,
        *,
        thread: _Thread | None = None,
        own_thread: _Thread | None = None,
        on_failed: OnFailed | None = None,
    ) -> None:
        """`own_thread`: for the menu, so that no list waits for it. `on_failed` is called for each failed request."""
        self._wire, self._session, self._on_failed = wire, session, on_failed
        self._thread, self._own_thread = thread, own_thread
        self._unexpected: set[str] = set()

    async def restaurants(self) -> tuple[Restaurant, ...]:
        """All restaurants of the token (docs/interface.md, Endpoints 2)."""
        return await self._get("/restaurants/get", read_restaurants)

    async def restaurant_status(self, rest_id: str) -> str:
        """`Open` or `Closed` (docs/interface.md, Endpoints 3)."""
        return await self._get(f"/restaurants/status/get/{_in_path(rest_id)}", read_restaurant_status)

    async def current_orders(self, status_id: int | None = None) -> tuple[Document, ...]:
        """The active orders that are not acknowledged (docs/interface.md, Endpoints 6). Sent once, whatever the answer.

        The request is sent at once: the caller has obtained a token (`token_for_poll`) and waited for the rate limit
        (`Wire.wait_for_poll`) before noting the poll. If another call has lost the token meanwhile, this raises
        NotSent. A 401 raises Unauthorized, and the next call logs in. If the token is from a login that has just
        succeeded, the code is login_refused.
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
            except LoginRefused as own:  # not NotSent: the poll was answered, so its cooldown runs
                raise Unauthorized(own.code, http_status=refusal.http_status) from own
            raise

    async def acknowledge(self, payment_key: str, timeout_s: float = ACKNOWLEDGE_TIMEOUT_S) -> None:
        """Mark the order's current status as received (docs/interface.md, Endpoints 7), within `timeout_s` in all."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await self._put("acknowledge", f"/orders/success/{_in_path(payment_key)}", deadline=deadline)

    async def act(self, action: Action, key: str, argument: int | None = None) -> None:
        """Execute an action of the outbox (docs/interface.md, Endpoints 4, 5, 8 to 11, 14, 15)."""
        kind = ACTIONS[action]
        body = None if kind.argument is None else {kind.argument.column: argument}
        await self._put(action, f"{kind.path}/{_in_path(key)}", body)

    async def cancel_reasons(self) -> dict[int, str]:
        """docs/interface.md, Endpoints 12."""
        return await self._get("/orders/cancel-reasons", read_cancel_reasons)

    async def variables(self) -> Variables:
        """Payment and shipping methods (docs/interface.md, Endpoints 13)."""
        return await self._get("/orders/variables", read_variables)

    async def menu(self) -> Menu:
        """All foods of the account (docs/interface.md, Menu listing)."""
        deadline = asyncio.get_running_loop().time() + MENU_TIMEOUT_S
        return await self._call(
            "GET", "/foods/get-foods", read_menu, Importance.LIST, deadline=deadline, thread=self._own_thread
        )

    async def _get(self, path: str, read: Callable[[Any], _Result]) -> _Result:
        return await self._call("GET", path, lambda status, body: read(read_envelope(status, body)), Importance.LIST)

    async def _put(self, operation: str, path: str, body: _Body = None, deadline: float | None = None) -> None:
        """Send a PUT. A success with unexpected data is logged once (docs/design.md, Behaviour)."""
        data = await self._call("PUT", path, read_envelope, Importance.ACTION, json=body, deadline=deadline)
        if data != "OK" and operation not in self._unexpected:
            self._unexpected.add(operation)
            _log.warning("client.unexpected_data", operation=operation, type=type(data).__name__)

    async def _call(
        self,
        method: str,
        path: str,
        read: _Read[_Result],
        importance: Importance,
        *,
        json: _Body = None,
        deadline: float | None = None,
        thread: _Thread | None = None,
    ) -> _Result:
        """Send a request; after a 401, obtain a new token and repeat it once.

        `deadline` is in the event loop's time.
        """
        ask = partial(self._ask, method, path, read, importance=importance, json=json, deadline=deadline, thread=thread)
        token = await _in_time(self._session.token(), deadline)
        try:
            return await ask(token)
        except Unauthorized as refusal:
            _log.info("client.unauthorized", path=path, code=refusal.code)
            try:
                token = await _in_time(self._session.replace(token, path), deadline)
            except Unauthorized as own:  # another token would not help
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
        json: _Body = None,
        params: Mapping[str, str] | None = None,
        deadline: float | None = None,
        thread: _Thread | None = None,
    ) -> _Result:
        """Send a request, parse its answer with `read`, and report the outcome to the session.

        `importance`: its priority at the rate limit; None: it is sent at once.
        """
        time = asyncio.get_running_loop().time
        if importance is not None:  # a timeout here is not reported: the network is fine
            await self._wire.pace.admit(importance, time() + self._wire.timeout_s if deadline is None else deadline)
        remaining = None if deadline is None else deadline - time()
        headers = {"Access-Token": token.access_token}
        try:
            answer = await self._wire.request(
                method, path, headers=headers, json=json, params=params, timeout_s=remaining
            )
            call = partial(_read, read, answer)
            is_small = len(answer.body) <= SMALL_BODY
            thread = thread or self._thread
            result = call() if thread is None or is_small else await thread(call)
        except MarketplaceError as error:
            if self._on_failed is not None:
                is_replaced = self._session.current not in {None, token}
                self._on_failed(_without_id(method, path), error, json, is_replaced)
            self._session.record_outcome(error, token, path)
            raise
        self._session.record_outcome(None, token, path)
        return result


async def _in_time(token: Awaitable[Token], deadline: float | None) -> Token:
    """The token. If the login fails, the call raises NotSent."""
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
    """Parse an answer with `read`, and add the HTTP status to its errors."""
    try:
        with reading(answer.status):
            return read(answer.status, answer.body)
    except UnknownOutcome as error:
        error.http_status = answer.status
        raise


def _without_id(method: str, path: str) -> str:
    return path.rpartition("/")[0] if method == "PUT" or path.startswith("/restaurants/status/") else path


def _in_path(key: str) -> str:
    """Quote an id as one path segment, including dots, because `..` would lead out of the path."""
    if not key:
        raise Refused("bad_url_id", Message("net.no_id"))
    return quote(key, safe="", errors="replace").replace(".", "%2E")
