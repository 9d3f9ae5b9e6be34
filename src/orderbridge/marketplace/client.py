"""The operations of SPEC.md, one short method each. What they raise is in orderbridge.errors; data is in the model.

A 401 is met once, here: one new token, one repeat. Two rules hang on it. The poll is never repeated, because a call
inside its cooldown costs another cooldown. And a login that fails in between is never the action's own end: the
action was answered 401, so it was not carried out.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

import structlog

from orderbridge.errors import MarketplaceError, NotSent, Refused, Unauthorized, UnknownOutcome
from orderbridge.marketplace.answers import body_text, is_success, read_envelope
from orderbridge.marketplace.http import Answer, Wire
from orderbridge.marketplace.reference import (
    read_cancel_reasons,
    read_grant,
    read_restaurant_status,
    read_restaurants,
    read_variables,
)
from orderbridge.marketplace.schema import read_listing
from orderbridge.marketplace.session import Session
from orderbridge.model import CancelReason, Document, Grant, Restaurant, Token, Variables

SHORTEST_SECRET = 8  # blanking a shorter word would blank the answer's own
ACKNOWLEDGE_TIMEOUT_S = 5.0  # DESIGN.md, promise 2: for the call and its one repeat together

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")


async def login(wire: Wire, *, app_secret_key: str, rest_secret_key: str) -> Grant:
    """A new access token (SPEC.md, Endpoints 1). Needs no session: the session is made of these."""
    secrets = {"app_secret_key": app_secret_key, "rest_secret_key": rest_secret_key}
    answer = await wire.request("POST", "/auth/login", headers={}, json=secrets)
    return _unquoted(_reading(read_grant), answer, app_secret_key, rest_secret_key)


class Client:
    """One account's calls."""

    def __init__(self, wire: Wire, session: Session) -> None:
        self._wire = wire
        self._session = session
        self._surprised: set[str] = set()

    async def restaurants(self) -> tuple[Restaurant, ...]:
        """Every restaurant that the token reaches (SPEC.md, Endpoints 2)."""
        return await self._call("GET", "/restaurants/get", _reading(read_restaurants))

    async def restaurant_status(self, rest_id: str) -> str:
        """`Open` or `Closed` (SPEC.md, Endpoints 3)."""
        return await self._call("GET", f"/restaurants/status/get/{_in_path(rest_id)}", _reading(read_restaurant_status))

    async def open_restaurant(self, rest_id: str) -> None:
        """SPEC.md, Endpoints 4."""
        await self._act("open_restaurant", f"/restaurants/status/open/{_in_path(rest_id)}")

    async def close_restaurant(self, rest_id: str) -> None:
        """SPEC.md, Endpoints 5."""
        await self._act("close_restaurant", f"/restaurants/status/close/{_in_path(rest_id)}")

    async def current_orders(self, status_id: int | None = None) -> tuple[Document, ...]:
        """The active orders that are not acknowledged (SPEC.md, Endpoints 6). Sent once, whatever the answer is.

        On a 401 it logs in, so that the next slot's call has a good token, and raises Unauthorized all the same.
        """
        token = await self._token()
        params = None if status_id is None else {"status_id": str(status_id)}
        answer = await self._send("GET", "/orders/get-current", token, params=params)
        try:
            return _unquoted(_listing, answer, token.access_token)
        except Unauthorized as refusal:
            _log.info("client.unauthorized", operation="get-current", code=refusal.code)
            try:
                await self._session.replace(token)
            except MarketplaceError as failure:  # the poll was answered, so its cooldown runs: never NotSent
                raise Unauthorized(refusal.code, f"login: {failure.code}", http_status=refusal.http_status) from failure
            raise

    async def acknowledge(self, payment_key: str, timeout_s: float = ACKNOWLEDGE_TIMEOUT_S) -> None:
        """Marks the order as received for its current status (SPEC.md, Endpoints 7). `timeout_s` bounds all of it."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        await self._act("acknowledge", f"/orders/success/{_in_path(payment_key)}", deadline=deadline)

    async def accept(self, payment_key: str, *, preparing_time: int) -> None:
        """RECEIVED to CONFIRMED; `preparing_time` in minutes (SPEC.md, Endpoints 8)."""
        await self._act("accept", f"/orders/accept/{_in_path(payment_key)}", {"preparing_time": preparing_time})

    async def on_the_way(self, payment_key: str) -> None:
        """CONFIRMED to IN_DELIVERY (SPEC.md, Endpoints 9)."""
        await self._act("on_the_way", f"/orders/ontheway/{_in_path(payment_key)}")

    async def complete(self, payment_key: str) -> None:
        """IN_DELIVERY to COMPLETE_WITH_PAYMENT (SPEC.md, Endpoints 10)."""
        await self._act("complete", f"/orders/complete/{_in_path(payment_key)}")

    async def cancel(self, payment_key: str, *, reason_id: int) -> None:
        """To CANCELED, for one of the eight reasons (SPEC.md, Endpoints 11)."""
        await self._act("cancel", f"/orders/cancel/{_in_path(payment_key)}", {"reason_id": reason_id})

    async def cancel_reasons(self) -> tuple[CancelReason, ...]:
        """SPEC.md, Endpoints 12."""
        return await self._call("GET", "/orders/cancel-reasons", _reading(read_cancel_reasons))

    async def variables(self) -> Variables:
        """Payment and shipping methods (SPEC.md, Endpoints 13)."""
        return await self._call("GET", "/orders/variables", _reading(read_variables))

    async def deactivate_food(self, food_id: int) -> None:
        """SPEC.md, Endpoints 14."""
        await self._act("deactivate_food", f"/foods/status-passive/{food_id:d}")

    async def activate_food(self, food_id: int) -> None:
        """SPEC.md, Endpoints 15."""
        await self._act("activate_food", f"/foods/status-active/{food_id:d}")

    async def foods(self) -> str:
        """The menu list as it came (SPEC.md, Menu listing: its shape is not shown, so any 2xx text will do)."""
        return await self._call("GET", "/foods/get-foods", _menu_text)

    async def _act(
        self,
        operation: str,
        path: str,
        body: Mapping[str, int] | None = None,
        *,
        deadline: float | None = None,
    ) -> None:
        """A PUT. Success with unexpected data is a success (DESIGN.md, section 4), worth one line in the log."""
        data = await self._call("PUT", path, _data, json=body, deadline=deadline)
        if data != "OK" and operation not in self._surprised:
            self._surprised.add(operation)
            _log.warning("client.unexpected_data", operation=operation, type=type(data).__name__)

    async def _call(
        self,
        method: str,
        path: str,
        read: Callable[[Answer], _Result],
        *,
        json: Mapping[str, int] | None = None,
        deadline: float | None = None,
    ) -> _Result:
        """One request; after a 401 a new token and one repeat. `deadline` is the event loop's time."""
        token = await self._token(deadline=deadline)
        try:
            answer = await self._send(method, path, token, json=json, deadline=deadline)
            return _unquoted(read, answer, token.access_token)
        except Unauthorized as refusal:
            _log.info("client.unauthorized", path=path, code=refusal.code)
        token = await self._token(refused=token, deadline=deadline)
        try:
            answer = await self._send(method, path, token, json=json, deadline=deadline)
            return _unquoted(read, answer, token.access_token)
        except Unauthorized as again:
            raise Unauthorized("unauthorized_again", again.detail, http_status=again.http_status) from again

    async def _token(self, *, refused: Token | None = None, deadline: float | None = None) -> Token:
        """A token, or NotSent: whatever a login ends in, the call that wanted it was not carried out."""
        try:
            async with asyncio.timeout_at(deadline):
                return await (self._session.token() if refused is None else self._session.replace(refused))
        except NotSent:
            raise
        except MarketplaceError as error:
            raise NotSent("login_failed", f"login: {error}") from error
        except TimeoutError as error:
            raise NotSent("login_timeout") from error

    async def _send(
        self,
        method: str,
        path: str,
        token: Token,
        *,
        json: Mapping[str, int] | None = None,
        params: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> Answer:
        remaining = None if deadline is None else deadline - asyncio.get_running_loop().time()
        headers = {"Access-Token": token.access_token}
        return await self._wire.request(method, path, headers=headers, json=json, params=params, timeout_s=remaining)


def _unquoted(read: Callable[[Answer], _Result], answer: Answer, *secrets: str) -> _Result:
    """What `read` makes of the answer. An error whose answer quotes a secret that was sent is told without it.

    An error's words reach the log and columns that everybody reads.
    """
    try:
        return read(answer)
    except MarketplaceError:
        body = answer.body
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                for form in (secret, secret.replace("/", "\\/")):  # JSON may escape it, and some services do
                    body = body.replace(form.encode(errors="replace"), b"***")
        if body == answer.body:
            raise
    return read(replace(answer, body=body))


def _reading(read: Callable[[Any], _Result]) -> Callable[[Answer], _Result]:
    """From a reader of `data` to a reader of answers; its errors know the HTTP status too."""

    def of_answer(answer: Answer) -> _Result:
        data = _data(answer)
        try:
            return read(data)
        except UnknownOutcome as error:
            error.http_status = answer.status
            raise

    return of_answer


def _listing(answer: Answer) -> tuple[Document, ...]:
    return read_listing(answer.body, http_status=answer.status)


def _data(answer: Answer) -> Any:
    return read_envelope(answer.status, answer.body)


def _menu_text(answer: Answer) -> str:
    try:
        _data(answer)
    except UnknownOutcome:
        if not is_success(answer.status):
            raise
    return body_text(answer.body)


def _in_path(key: str) -> str:
    """An id as one segment of the path, whatever it holds; a dot too, because `..` would climb."""
    if not key:
        raise Refused("bad_url_id", "the id is empty")
    return quote(key, safe="", errors="replace").replace(".", "%2E")
