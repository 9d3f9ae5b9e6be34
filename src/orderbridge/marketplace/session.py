"""One account's access token: shared by all calls, obtained once however many ask at the same moment."""

import asyncio
from collections.abc import Awaitable, Callable

from orderbridge.errors import NotSent
from orderbridge.model import Token


class Session:
    """Holds the current token. `obtain` logs in; whatever it raises goes to everybody who waits for it.

    The login runs in a task of its own: a caller that gives up does not take the others' login with it.
    """

    def __init__(self, obtain: Callable[[], Awaitable[Token]], *, token: Token | None = None) -> None:
        self._obtain = obtain
        self._current = token
        self._login: asyncio.Task[Token] | None = None

    @property
    def current(self) -> Token | None:
        return self._current

    async def token(self) -> Token:
        """The current token; a login when there is none."""
        return self._current or await self._joined_login()

    async def replace(self, refused: Token) -> Token:
        """A token other than the one that the service has just refused; a login unless there is one already."""
        current = self._current
        if current is not None and current.access_token != refused.access_token:
            return current
        self._current = None  # it is known to be bad: nobody else shall be refused with it
        return await self._joined_login()

    async def renew(self) -> Token:
        """A fresh token by a login now; the old one stays in use until then."""
        return await self._joined_login()

    def forget(self) -> None:
        """Drops the current token; the next call logs in."""
        self._current = None

    async def close(self) -> None:
        """Ends a login that is still under way."""
        if self._login is not None:
            self._login.cancel()
            await asyncio.wait([self._login])

    async def _joined_login(self) -> Token:
        login = self._login
        if login is None:
            login = self._login = asyncio.create_task(self._log_in())
            login.add_done_callback(self._ended)
        try:
            return await asyncio.shield(login)
        except asyncio.CancelledError:
            if login.cancelled() and not _cancelling():
                raise NotSent("login_stopped") from None  # the login was ended, not this caller
            raise

    async def _log_in(self) -> Token:
        token = await self._obtain()
        self._current = token
        return token

    def _ended(self, task: asyncio.Task[Token]) -> None:
        self._login = None
        if not task.cancelled():
            task.exception()  # looked at: it is no news when all who asked have gone


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
