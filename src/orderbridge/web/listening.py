"""The address that is listened on, by the configuration: taken, changed and given back while the daemon works.

Rules of this file:
- Orders come first. An address that is taken, or is none of this machine's, is told once and tried again; nothing waits
  for it, and nothing of ours ends because of it.
- With "" nothing is loaded: Starlette, uvicorn and prometheus-client are imported where somebody listens.
- The same address stays open over a reload. Another one is opened when the old one is closed.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import structlog

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.store.workers import detached
from orderbridge.texts import say
from orderbridge.web import tls
from orderbridge.web.watched import Watched

if TYPE_CHECKING:
    from orderbridge.web.server import Server

AGAIN_S = 30.0  # between two tries to get an address

_log = structlog.get_logger(__name__)


class Listening:
    """Shows `watched` at the wanted address."""

    def __init__(self, watched: Watched, wanted: config.Web) -> None:
        self._watched = watched
        self._wanted = wanted
        self._changed = asyncio.Event()
        self._server: Server | None = None
        self._served: tuple[object, ...] | None = None
        self._tls: ssl.SSLContext | None = None
        self._failed: str | None = None  # what was told

    def use(self, wanted: config.Web) -> None:
        """From now on this is the configuration."""
        self._wanted = wanted
        self._changed.set()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens now: host and port."""
        return [] if self._server is None else self._server.addresses

    async def run(self) -> None:
        """Until it is cancelled. Then all connections end, whatever they are at."""
        try:
            while True:
                self._changed.clear()
                is_right = await self._try()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if is_right else AGAIN_S):
                        await self._changed.wait()
        finally:
            self._close()

    async def _try(self) -> bool:
        """Whether we listen as it is wanted. Never raises."""
        try:
            await self._listen()
        except OSError as error:
            self._tell(error.strerror or str(error), of_certificate=isinstance(error, ssl.SSLError))
        except Exception as error:  # noqa: BLE001 - see the head of this file
            _log.exception("web.crashed")
            self._tell(type(error).__name__)
        else:
            return True
        return False

    async def _listen(self) -> None:
        wanted = self._wanted
        if _place(wanted) != self._served:
            self._close()
        is_old = self._server is not None
        if not is_old and wanted.listen:
            loaded = await detached(_load)
            server = loaded(self._watched, wanted)
            host, _, port = wanted.listen.rpartition(":")
            host = host.strip("[]")
            self._tls = await detached(partial(tls.context, wanted))
            await server.start(await _addresses(host, int(port)), int(port), host=host, encrypted=self._tls)
            self._server, self._served, self._failed = server, _place(wanted), None
            _log.info("web.listening", listen=wanted.listen, board=wanted.board)
        if self._server is not None:
            self._server.use(wanted.hosts)
        if self._tls is not None and is_old:  # and perhaps renewed
            await detached(partial(tls.renew, self._tls, wanted))
            self._failed = None
        if self._tls is not None:
            self._tell_end(await detached(partial(tls.ends, wanted)))

    def _tell_end(self, end: datetime | None) -> None:
        """A browser refuses a certificate that has ended: then no tablet shows anything."""
        if end is not None and end - SystemClock().now() < tls.SOON:
            _log.error("web.certificate_ends", ends=f"{end:%Y-%m-%d}", remedy=say("web.certificate_ends"))

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server, self._served, self._tls = None, None, None

    def _tell(self, error: str, *, of_certificate: bool = False) -> None:
        if error != self._failed:
            if of_certificate or self._server is not None:  # which goes on with the certificate that it has
                _log.error("web.certificate_refused", error=error, remedy=say("web.certificate_refused"))
            else:
                _log.error(
                    "web.not_listening", listen=self._wanted.listen, error=error, remedy=say("web.not_listening")
                )
        self._failed = error


async def _addresses(host: str, port: int) -> list[str]:
    """What a name stands for. It is asked in a thread that a stop does not wait for."""
    found = await detached(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _place(wanted: config.Web) -> tuple[object, ...]:
    """What cannot be changed while we listen."""
    return wanted.listen, wanted.board != "off", wanted.certificate is not None


def _load() -> "type[Server]":
    """It takes a fifth of a second: in a thread, for a reload must not hold up orders."""
    from orderbridge.web.server import Server  # noqa: PLC0415 - see the head of this file

    return Server
