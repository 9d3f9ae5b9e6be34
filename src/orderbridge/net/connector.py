"""From a name to a connection: look-up, TCP, a proxy's tunnel, TLS. Whatever fails here is NotSent."""

import asyncio
import socket
import ssl
from http import HTTPStatus
from typing import Any, Final

from orderbridge.errors import MarketplaceError, NotSent
from orderbridge.net.certificate import fault, shown_by
from orderbridge.net.connection import Connection, Trail, describe
from orderbridge.net.proxies import Proxy
from orderbridge.texts import say

_TUNNEL_MADE: Final = 2  # any 2xx
_NEXT_ADDRESS_S: Final = 0.25  # RFC 8305: an address that stays silent does not hold up the next one

Address = tuple[Any, ...]  # as socket.getaddrinfo gives it
_asking: dict[tuple[asyncio.AbstractEventLoop, str, int], "asyncio.Future[list[Address]]"] = {}


async def connect(host: str, port: int, *, tls: ssl.SSLContext, proxy: Proxy | None) -> Connection:
    """A connection to ask the service over; `host` in ASCII, an IPv6 address without brackets."""
    try:
        return await _connect(host, port, tls, proxy)
    except _NotTrusted as error:  # the handshake is over by then, and has not kept what was shown
        raise NotSent("tls_failed", await _shown(host, port, proxy) or error.detail, reason=error.reason) from None


class _NotTrusted(NotSent):
    """The service's own certificate was refused by us."""


async def _connect(host: str, port: int, tls: ssl.SSLContext, proxy: Proxy | None) -> Connection:
    connection = await _speak_over(await _reach(proxy.host, proxy.port) if proxy else await _reach(host, port))
    try:
        if proxy is not None:
            if proxy.is_tls:
                connection = await _secured(connection, tls, proxy.host)
            await _ask_for_tunnel(connection, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", proxy)
        return await _secured(connection, tls, host, _NotTrusted)
    except BaseException:
        connection.close()
        raise


async def _shown(host: str, port: int, proxy: Proxy | None) -> str:
    """The certificate that is shown there, for a technician: a second handshake that trusts it, and says nothing."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    try:
        connection = await _connect(host, port, trusting, proxy)
    except NotSent:
        return ""
    said = shown_by(connection.transport.get_extra_info("ssl_object"))
    connection.close()
    return said


async def _speak_over(sock: socket.socket) -> Connection:
    try:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection


async def _secured(
    connection: Connection, tls: ssl.SSLContext, host: str, refused: type[NotSent] = NotSent
) -> Connection:
    """TLS in a step of its own: cancelled right at its start, asyncio's way in one step leaves the socket open."""
    inner = Connection()
    try:
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(connection.transport, inner, tls, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise refused("tls_failed", describe(error), reason=fault(error)) from None
    except (OSError, ValueError) as error:
        raise NotSent("tls_failed", describe(error), reason=fault(error)) from None
    if transport is None:  # it was closed meanwhile
        raise NotSent("tls_failed", say("net.closed_in_handshake"))
    inner.connection_made(transport)
    return inner


async def _ask_for_tunnel(between: Connection, target: str, proxy: Proxy) -> None:
    """CONNECT tells the service nothing, whatever comes of it."""
    headers = [(b"Host", target.encode())]
    if proxy.authorization:
        headers.append((b"Proxy-Authorization", proxy.authorization.encode()))
    try:
        status, _ = await between.ask("CONNECT", target.encode(), headers, b"", Trail())
    except MarketplaceError as error:
        raise NotSent("unreachable", say("net.proxy_failed", detail=error.detail)) from None
    if status // 100 != _TUNNEL_MADE:
        password = "proxy_password" if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED else ""
        raise NotSent("proxy_refused", say("net.proxy_answered", status=status), reason=password)


# ---- TCP


async def _reach(host: str, port: int) -> socket.socket:
    """The first address that answers. The next one is tried when one has failed, or when all are silent for a while."""
    left = await look_up(host, port)
    errors: list[BaseException] = []
    tries: list[asyncio.Task[socket.socket]] = []
    waiting: set[asyncio.Task[socket.socket]] = set()
    reached: asyncio.Task[socket.socket] | None = None
    try:
        while left or waiting:
            if left:
                tries.append(asyncio.create_task(_try(left.pop(0))))
                waiting.add(tries[-1])
            done, waiting = await asyncio.wait(
                waiting, timeout=_NEXT_ADDRESS_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if (error := task.exception()) is None:
                    reached = task
                    return task.result()
                errors.append(error)
    finally:
        for task in tries:
            if task is not reached:
                task.cancel()
                task.add_done_callback(_forget)
    raise _unreached(errors)


async def look_up(host: str, port: int) -> list[Address]:
    """The addresses of a name, in the order in which they are tried.

    It may hang in a thread for a minute, and nobody can end it: who asks meanwhile waits for the same one.
    """
    loop = asyncio.get_running_loop()
    key = (loop, host, port)
    if (asking := _asking.get(key)) is None:
        asking = asyncio.ensure_future(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        asking.add_done_callback(lambda _: _asking.pop(key))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # all who asked may have gone
        _asking[key] = asking
    try:
        return list(await asyncio.shield(asking))
    except socket.gaierror as error:
        silent = "dns_silent" if error.errno == socket.EAI_AGAIN else ""
        raise NotSent("dns_failed", f"{host}: {describe(error)}", reason=silent) from None
    except (ValueError, OverflowError) as error:  # a name or a port that none can have
        raise NotSent("bad_request", type(error).__name__) from None


def is_looking_up(host: str, port: int) -> bool:
    """Whether a look-up of that name is under way."""
    return (asyncio.get_running_loop(), host, port) in _asking


async def _try(address: Address) -> socket.socket:
    family, kind, protocol, _, place = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _forget(task: asyncio.Task[socket.socket]) -> None:
    """Of a try that nobody needs any more: it may have succeeded all the same."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _unreached(errors: list[BaseException]) -> NotSent:
    for code, kind in (("connection_refused", ConnectionRefusedError), ("connect_timeout", TimeoutError)):
        for error in errors:
            if isinstance(error, kind):
                return NotSent(code, describe(error))
    return NotSent("unreachable", describe(errors[-1]) if errors else say("net.no_address"))
