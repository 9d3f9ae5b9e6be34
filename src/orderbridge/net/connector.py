"""Opens connections: DNS, TCP, a proxy's tunnel, TLS. Every failure here is NotSent.

`survey` does the same step by step for `orderbridge check`. Errors of the system, of TLS and of DNS are mapped to
reasons, which are keys in sentences/line.toml. Other errors are shown with their own text.
"""

import asyncio
import errno
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from orderbridge.clock import SystemClock
from orderbridge.errors import ConfigError, MarketplaceError, Message, NoThread, NotSent
from orderbridge.net.connection import Connection, Trail, describe
from orderbridge.net.proxies import HTTPS_PORT, Proxy, proxy_for

_TUNNEL_MADE: Final = 2  # any 2xx
_PROXY_ANSWERS: Final = dict.fromkeys((502, 503, 504), "proxy_cannot")
_NEXT_ADDRESS_S: Final = 0.25  # RFC 8305: delay before the next address is tried, too
_MAX_NAMES: Final = 5  # shown of a refused certificate
_MAX_ADDRESSES: Final = 3  # shown by a survey
_UNREACHED: Final = frozenset({"dns_failed", "connection_refused", "connect_timeout", "unreachable"})
_MAX_NAME: Final = 100  # characters of a certificate's name

Address = tuple[Any, ...]  # as socket.getaddrinfo gives it
_asking: dict[tuple[asyncio.AbstractEventLoop, str, int], "asyncio.Future[list[Address]]"] = {}
SYSTEM: Final[Mapping[int, str]] = {
    errno.EMFILE: "here_files",
    errno.ENFILE: "here_files_of_all",
    errno.ENOMEM: "here_memory",
    errno.ENOBUFS: "here_memory",
    errno.ECONNREFUSED: "connection_refused",
    errno.ETIMEDOUT: "connect_timeout",
    errno.EACCES: "here_blocked",
    errno.EPERM: "here_blocked",
    errno.EADDRNOTAVAIL: "here_ports",
    errno.EHOSTUNREACH: "net_host",
    errno.EHOSTDOWN: "net_host",
    errno.ENETUNREACH: "net_none",
    errno.ENETDOWN: "net_none",
}
_RANKS: Final = list(dict.fromkeys(SYSTEM.values()))  # the most telling reason first
_EXHAUSTED: Final = frozenset({"here_files", "here_files_of_all", "here_memory", "here_threads"})
NEEDED: Final = 4  # free file descriptors that SQLite needs at once
NAMES: Final[Mapping[int, str]] = {
    socket.EAI_NONAME: "dns_failed",
    socket.EAI_NODATA: "dns_failed",
    socket.EAI_AGAIN: "dns_silent",
    socket.EAI_FAIL: "dns_refused",
    socket.EAI_MEMORY: "here_memory",
}
# OpenSSL's X509_V_ERR_… numbers, which have no names in Python.
CERTIFICATES: Final[Mapping[int, str]] = {
    9: "tls_not_yet",
    10: "tls_expired",
    18: "tls_self_signed",
    19: "tls_foreign",
    2: "tls_untrusted",
    20: "tls_untrusted",
    21: "tls_untrusted",
    62: "tls_wrong_name",
    64: "tls_wrong_name",
}
TLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"), "tls_none"),
    **dict.fromkeys(("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"), "tls_version"),
    **dict.fromkeys(
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "DH_KEY_TOO_SMALL"), "tls_ciphers"
    ),
    "TLSV1_UNRECOGNIZED_NAME": "tls_no_such_host",
    "UNEXPECTED_EOF_WHILE_READING": "tls_cut",
}


def of_system(error: BaseException) -> str:
    """The reason for an error of the system; empty if unknown."""
    if isinstance(error, NoThread):
        return "here_threads"
    return SYSTEM.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def of_name(error: socket.gaierror) -> str:
    """The reason for a DNS error. Without free files or memory, a name server only seems not to answer."""
    return exhausted() or NAMES.get(error.errno or 0, "")


def exhausted(error: BaseException | None = None) -> str:
    """The reason if files or memory are exhausted, found by the error, its causes or a test; else empty."""
    while error is not None:
        if (reason := of_system(error)) in _EXHAUSTED:
            return reason
        error = error.__cause__ or error.__context__
    tried: list[socket.socket] = []
    try:
        while len(tried) < NEEDED:
            tried.append(socket.socket())
    except OSError as own:
        return reason if (reason := of_system(own)) in _EXHAUSTED else ""
    finally:
        for one in tried:
            one.close()
    return ""


def of_tls(error: Exception) -> str:
    """Why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CERTIFICATES.get(error.verify_code, "tls_refused")
    if isinstance(error, ConnectionError):
        return "tls_cut"
    return TLS.get(getattr(error, "reason", None) or "", "tls_failed")


def of_addresses(errors: Sequence[BaseException]) -> tuple[BaseException | None, str]:
    """The most telling error of several addresses, and its reason."""
    reasons = [
        (error, of_system(error) or ("connect_timeout" if isinstance(error, TimeoutError) else "")) for error in errors
    ]
    known = [(error, reason) for error, reason in reasons if reason]
    last = errors[-1] if errors else None
    return min(known, key=lambda one: _RANKS.index(one[1]), default=(last, ""))


async def connect(host: str, port: int, *, tls: ssl.SSLContext, proxy: Proxy | None) -> Connection:
    """Open a connection. `host` is ASCII; an IPv6 address has no brackets."""
    try:
        return await _connect(host, port, tls, proxy)
    except _NotTrusted as error:  # the failed handshake did not keep the certificate
        other = await _trusting(host, port, proxy)
        shown = "" if other is None else certificate_of(other.transport.get_extra_info("ssl_object"))
        ending = NotSent("tls_failed", shown or error.detail, reason=error.reason)
    except NotSent as error:
        other = await _trusting(host, port, proxy, is_old=True) if error.reason == "tls_cut" else None
        reason = error.reason if other is None else "tls_version"  # some servers just close the connection
        ending = NotSent(error.code, error.detail, reason=reason)
    if other is not None:
        other.close()
    raise ending


class _NotTrusted(NotSent):
    """We refused the server's certificate."""


async def _connect(host: str, port: int, tls: ssl.SSLContext, proxy: Proxy | None) -> Connection:
    sock = await (_reach(proxy.host, proxy.port) if proxy else _reach(host, port))
    try:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, sock=sock)
    except BaseException:
        sock.close()
        raise
    try:
        if proxy is not None:
            if proxy.is_tls:
                connection = await _secured(connection, tls, proxy.host)
            await _ask_for_tunnel(connection, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", proxy)
            proxy.has_tunnel = True
        return await _secured(connection, tls, host, _NotTrusted)
    except BaseException:
        connection.close()
        raise


async def _trusting(host: str, port: int, proxy: Proxy | None, *, is_old: bool = False) -> Connection | None:
    """Make a second handshake to find the cause, with any certificate or with TLS before 1.2. It sends no request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if is_old:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
    try:
        return await _connect(host, port, context, proxy)
    except NotSent:
        return None


async def _secured(
    connection: Connection, tls: ssl.SSLContext, host: str, refused: type[NotSent] = NotSent
) -> Connection:
    """Start TLS separately: asyncio's create_connection leaks the socket if it is cancelled at the start."""
    inner = Connection()
    try:
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(connection.transport, inner, tls, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise refused("tls_failed", describe(error), reason=of_tls(error)) from None
    except (OSError, ValueError) as error:
        raise NotSent("tls_failed", describe(error), reason=of_tls(error)) from None
    if transport is None:  # it was closed meanwhile
        raise NotSent("tls_failed", Message("net.closed_in_handshake"))
    inner.connection_made(transport)
    return inner


async def _ask_for_tunnel(between: Connection, target: str, proxy: Proxy) -> None:
    """Request a tunnel from the proxy. Any failure is NotSent, because the marketplace receives nothing."""
    headers = [(b"Host", target.encode())]
    if proxy.authorization:
        headers.append((b"Proxy-Authorization", proxy.authorization.encode()))
    try:
        status, answered = await between.ask("CONNECT", target.encode(), headers, b"", Trail())
    except MarketplaceError as error:
        raise NotSent("unreachable", Message("net.proxy_failed", detail=error.detail)) from None
    if status // 100 != _TUNNEL_MADE:
        reason = _PROXY_ANSWERS.get(status, "")
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            schemes = [value.split()[0].lower() for name, value in answered if name == b"proxy-authenticate" and value]
            reason = "proxy_wrong_password" if proxy.authorization else "proxy_password"
            reason = reason if b"basic" in schemes or not schemes else "proxy_scheme"
        raise NotSent("proxy_refused", Message("net.proxy_answered", status=status), reason=reason)


# ---- TCP


async def _reach(host: str, port: int) -> socket.socket:
    """Connect to the first address that answers. The next one is tried after a failure or 0.25 s of silence."""
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
                if (failed := task.exception()) is None:
                    reached = task
                    return task.result()
                errors.append(failed)
    finally:
        for task in tries:
            if task is not reached:
                task.cancel()
                task.add_done_callback(_forget)
    error, reason = of_addresses(errors)
    code = reason if reason in {"connection_refused", "connect_timeout"} else "unreachable"
    raise NotSent(code, Message("net.no_address") if error is None else describe(error), reason=reason)


async def look_up(host: str, port: int) -> list[Address]:
    """The addresses of a name, in the order to try them.

    A look-up may hang in a thread for a minute and cannot be cancelled. Later callers wait for the same one.
    """
    loop = asyncio.get_running_loop()
    key = (loop, host, port)
    if (asking := _asking.get(key)) is None:
        asking = asyncio.ensure_future(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        asking.add_done_callback(lambda _: _asking.pop(key))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may be cancelled
        _asking[key] = asking
    try:
        return list(await asyncio.shield(asking))
    except socket.gaierror as error:
        raise NotSent("dns_failed", f"{host}: {describe(error)}", reason=of_name(error)) from None
    except NoThread as error:
        raise NotSent("unreachable", describe(error), reason=of_system(error)) from None
    except (ValueError, OverflowError) as error:  # an impossible name or port
        raise NotSent("bad_request", type(error).__name__) from None


def is_looking_up(host: str, port: int) -> bool:
    """Whether this name is being looked up."""
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
    """Close the socket of a try that succeeded but is not needed."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def certificate_of(tls: ssl.SSLObject | None) -> Message | str:
    """The issuer, names and validity of the server's certificate; empty if it cannot be read."""
    document = None if tls is None else tls.getpeercert(binary_form=True)
    try:
        return "" if document is None else _described(document)
    except Exception:  # noqa: BLE001 - it may be malformed, and is only shown as help
        return ""


def _described(document: bytes) -> Message:
    from cryptography import x509  # noqa: PLC0415 - only needed after a failure

    certificate = x509.load_der_x509_certificate(document)
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(one.value) for one in alternatives]
    except x509.ExtensionNotFound:
        names = [certificate.subject.rfc4514_string()]
    return Message(
        "check.certificate",
        issuer=_plain(certificate.issuer.rfc4514_string()),
        names=", ".join(map(_plain, names[:_MAX_NAMES])),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        now=SystemClock().now(),
    )


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:_MAX_NAME]


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """A context with the system's authorities and those of `ca_file`.

    ssl.create_default_context is not used, because it writes session keys to the file in SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies, the host's name too
    context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise ConfigError("config.no_pem", file=ca_file, reason=describe(error)) from error
    return context


# ---- the survey


class Step(NamedTuple):
    """One step of a survey. `what`: proxy, dns or tls. `error`: the survey ends here."""

    what: str
    detail: str | Message
    error: MarketplaceError | None = None


async def survey(base_url: str, *, ca_file: Path | None, timeout_s: float) -> AsyncIterator[Step]:
    """Make a TLS connection without a request, step by step. Each step has the timeout of a request."""
    parts = urlsplit(base_url)
    host, port = (parts.hostname or "").encode("idna").decode(), parts.port or HTTPS_PORT
    try:
        proxy = proxy_for(host, port)
    except NotSent as error:
        yield Step("proxy", "", error)
        return
    if proxy is not None:
        yield Step("proxy", proxy.name)
    first = (proxy.host, proxy.port) if proxy else (host, port)
    step = await _looked_up(*first, proxy, timeout_s)
    yield step
    if step.error is None:
        yield await _connected(host, port, ca_file, proxy, timeout_s)


async def _looked_up(host: str, port: int, proxy: Proxy | None, timeout_s: float) -> Step:
    try:
        async with asyncio.timeout(timeout_s):
            found = await look_up(host, port)
    except TimeoutError:
        return Step("dns", host, NotSent("dns_failed", host, reason="dns_silent"))
    except NotSent as error:
        return Step("dns", host, _of(error, proxy))
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    return Step("dns", f"{host} = {', '.join(addresses[:_MAX_ADDRESSES])}")


async def _connected(host: str, port: int, ca_file: Path | None, proxy: Proxy | None, timeout_s: float) -> Step:
    try:
        async with asyncio.timeout(timeout_s):
            connection = await connect(host, port, tls=tls_context(ca_file), proxy=proxy)
    except TimeoutError:
        return Step("tls", "", _of(NotSent("connect_timeout", f"{host}:{port}: {timeout_s:g} s"), proxy))
    except NotSent as error:
        return Step("tls", "", _of(error, proxy))
    tls = connection.transport.get_extra_info("ssl_object")
    secured = Message("check.secured", version=tls.version(), certificate=certificate_of(tls))
    connection.close()
    await connection.gone
    return Step("tls", secured)


def _of(error: NotSent, proxy: Proxy | None) -> NotSent:
    """The error with the proxy's name, if nothing was reached through it."""
    named = error if proxy is None else by_proxy(error, proxy)
    return error if named.reason == error.reason else named


def by_proxy(error: NotSent, proxy: Proxy) -> NotSent:
    """The error with the proxy's name. If nothing was reached, `reason` says whether the proxy was."""
    reason = error.reason
    if error.code in _UNREACHED and not reason.startswith("here_"):  # the cause is not on this machine
        reason = "proxy_silent" if proxy.has_tunnel else "proxy_unreachable"
    return NotSent(error.code, Message("net.by_proxy", detail=error.detail, proxy=proxy.name), reason=reason)
