"""Opens and closes the web server at `[web] listen`, also after a reload, with the board's certificate.

- An address that cannot be opened is logged once and tried again; the daemon does not wait for it.
- Starlette, uvicorn and prometheus-client are imported only if an address is configured.
- An unchanged address stays open during a reload. A new one is opened after the old one is closed.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.net.connector import exhausted
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.problems import Code, Page, Readiness
from orderbridge.store.workers import detached
from orderbridge.texts import problem_text, spoken

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from orderbridge.web.server import Server

AGAIN_S = 30.0  # between two tries to get an address

_log = structlog.get_logger(__name__)


class Pages(Protocol):
    """The routes that an extension adds."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Headers that the server adds to every answer."""

    def routes(self) -> "Sequence[BaseRoute]":
        """The routes."""

    def close(self) -> None:
        """End all streams, because the server closes."""


class Watched(Protocol):
    """The state of the process for the web server. No method waits or uses the database."""

    def hung(self) -> str | None:
        """The part that hangs, so that a restart would help; None if none does."""

    def readiness(self) -> Readiness:
        """Whether the process does its work."""

    def measured(self) -> Metrics:
        """All metrics, including those that are read from elsewhere."""

    def pages(self) -> Sequence[Pages]:
        """The pages of the configured extensions. Called in a thread, because it loads libraries."""


class Listening:
    """Serves the state of `watched` at the configured address."""

    def __init__(self, watched: Watched, wanted: config.Web) -> None:
        self._watched = watched
        self._wanted = wanted
        self._changed = asyncio.Event()
        self._server: Server | None = None
        self._served: tuple[object, ...] | None = None
        self._tls: ssl.SSLContext | None = None
        self.page = Page()  # its state, for the health check

    def use(self, wanted: config.Web) -> None:
        """Use a new configuration."""
        self._wanted = wanted
        self._changed.set()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket that is open now."""
        return [] if self._server is None else self._server.addresses

    async def run(self) -> None:
        """Runs until it is cancelled; then all connections end."""
        try:
            while True:
                self._changed.clear()
                again_s: float | None = AGAIN_S
                try:
                    await self._listen()
                    again_s = None
                except OSError as error:
                    is_tls = isinstance(error, BadCertificate)
                    self._fail(error.strerror or str(error), of_certificate=is_tls, reason=exhausted(error))
                except Exception as error:  # noqa: BLE001 - see the head of this file
                    _log.exception("web.crashed")
                    self._fail(type(error).__name__)
                with suppress(TimeoutError):
                    async with asyncio.timeout(again_s):
                        await self._changed.wait()
        finally:
            self._close()

    async def _listen(self) -> None:
        wanted = self._wanted
        if _place(wanted) != self._served:
            self._close()
        is_old = self._server is not None
        if not is_old and wanted.listen:
            server = await detached(partial(_load, self._watched))
            host, _, port = wanted.listen.rpartition(":")
            host = host.strip("[]")
            self._tls = await detached(partial(tls_context, wanted))
            await server.start(await _addresses(host, int(port)), int(port), host=host, encrypted=self._tls)
            self._server, self._served = server, _place(wanted)
            _log.info("web.listening", listen=wanted.listen, board=wanted.board)
        if self._server is not None:
            self._server.use(wanted.hosts)
        if self._tls is not None and is_old:  # the files may have been renewed
            await detached(partial(renew_tls, self._tls, wanted))
        ends = None if self._tls is None else await detached(partial(certificate_end, wanted))
        self.page = Page(self._server is not None, wanted.board != "off", ends)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server, self._served, self._tls = None, None, None

    def _fail(self, error: str, *, of_certificate: bool = False, reason: str = "") -> None:
        """Log a failure once. A server that already runs keeps its certificate."""
        is_served, has_board, before = self._server is not None, self._wanted.board != "off", self.page
        code = Code.CERTIFICATE_REFUSED if of_certificate or is_served else Code.PAGE_NOT_SERVED
        since = before.since or SystemClock().now()
        self.page = Page(is_served, has_board, before.ends, failed=code, since=since, error=error, reason=reason)
        if (code, error) != (before.failed, before.error):
            event = "web.certificate_refused" if code == Code.CERTIFICATE_REFUSED else "web.not_listening"
            remedy = problem_text(code, spoken(), error=error, reason=reason)[1]
            _log.error(event, listen=self._wanted.listen, error=error, remedy=remedy)


async def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a name, looked up in a thread that a stop does not wait for."""
    found = await detached(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _place(wanted: config.Web) -> tuple[object, ...]:
    """The settings that need a new server."""
    return wanted.listen, wanted.board != "off", wanted.certificate is not None


def _load(watched: Watched) -> "Server":
    """Import and make the server. It takes 0.2 s, so it runs in a thread: a reload must not delay orders."""
    from orderbridge.web.server import Server  # noqa: PLC0415 - see the head of this file

    return Server(watched, watched.pages())


class BadCertificate(OSError):
    """A certificate and a key that cannot be read, or do not belong together. Its text says which."""


def tls_context(wanted: config.Web) -> ssl.SSLContext | None:
    """The TLS settings of the configured certificate; None if there is none. Raises BadCertificate."""
    if wanted.certificate is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_pair(made, wanted)
    return made


def renew_tls(used: ssl.SSLContext, wanted: config.Web) -> None:
    """Use the current certificate files for new connections. On BadCertificate the old ones stay in use."""
    if wanted.certificate is not None:
        tls_context(wanted)  # checks the pair first: a mismatch would leave `used` a certificate without a key
        _load_pair(used, wanted)


def _load_pair(into: ssl.SSLContext, wanted: config.Web) -> None:
    try:
        into.load_cert_chain(str(wanted.certificate), wanted.certificate_key, password="")
    except OSError as error:  # including ssl.SSLError
        raise BadCertificate(error.strerror or str(error)) from error


def certificate_end(wanted: config.Web) -> datetime | None:
    """The expiry of the certificate; None if there is none, or it is unreadable."""
    from cryptography import x509  # noqa: PLC0415 - only where there is a certificate

    if wanted.certificate is None:
        return None
    try:
        return x509.load_pem_x509_certificate(wanted.certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None
