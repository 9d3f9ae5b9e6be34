"""The way to the service, step by step, as `orderbridge check` shows it: where it ends, a technician has to begin."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from orderbridge.errors import MarketplaceError, Message, NotSent
from orderbridge.net.connector import connect, look_up, shown_by
from orderbridge.net.http import is_of_the_way, tls_context
from orderbridge.net.proxies import HTTPS_PORT, Proxy, proxy_for

MOST_ADDRESSES = 3


class Step(NamedTuple):
    """`what`: proxy, dns, tls. `error`: it ends here."""

    what: str
    detail: str | Message
    error: MarketplaceError | None = None


async def survey(base_url: str, *, ca_file: Path | None, timeout_s: float) -> AsyncIterator[Step]:
    """Up to a secure connection, over which nothing is asked. Each step is given as long as a request has."""
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
    return Step("dns", f"{host} = {', '.join(addresses[:MOST_ADDRESSES])}")


async def _connected(host: str, port: int, ca_file: Path | None, proxy: Proxy | None, timeout_s: float) -> Step:
    try:
        async with asyncio.timeout(timeout_s):
            connection = await connect(host, port, tls=tls_context(ca_file), proxy=proxy)
    except TimeoutError:
        return Step("tls", "", _of(NotSent("connect_timeout", f"{host}:{port}: {timeout_s:g} s"), proxy))
    except NotSent as error:
        return Step("tls", "", _of(error, proxy))
    tls = connection.transport.get_extra_info("ssl_object")
    secured = Message("check.secured", version=tls.version(), certificate=shown_by(tls))
    connection.close()
    await connection.gone
    return Step("tls", secured)


def _of(error: NotSent, proxy: Proxy | None) -> NotSent:
    """Of a failure on the way to a proxy, which proxy."""
    if proxy is None or not is_of_the_way(error):
        return error
    detail = Message("net.by_proxy", detail=error.detail, proxy=proxy.name)
    return NotSent(error.code, detail, reason="proxy_unreachable")
