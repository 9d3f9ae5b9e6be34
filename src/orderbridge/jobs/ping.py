"""Requests `[alarms] ping_url` while all is well: a monitor that misses the pings notices a dead machine.

A GET of `[alarms] ping_url` after a good poll while nothing severe is open, of the address with /fail behind its path
when something is. Each by a connection of its own, with a time limit of its own, one at a time; whatever becomes of it
is no problem of the orders'. The address is a secret.
"""

import asyncio
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import structlog

from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.hiding import hide
from orderbridge.net.http import Wire
from orderbridge.texts import say

WELL_EVERY_S = 30.0
FAIL_EVERY_S = 60.0
TIMEOUT_S = 10.0
LEAST_SECRET = 16  # characters of a path that cannot be guessed; a shorter one may be a common word
LINE_BYTES = 200  # of an answer that is not HTTPS: its first line

_log = structlog.get_logger(__name__)


class Ping:
    """Learns of each good poll and of the result of each check of health."""

    def __init__(self, url: str, *, clock: Clock, ca_file: Path | None = None) -> None:
        hide(url)
        self._address = urlsplit(url)
        if len(self._address.path) > LEAST_SECRET:
            hide(self._address.path.strip("/"))
        self._clock = clock
        self._ca_file = ca_file
        self._wire: Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._severe = False
        self._next_well = self._next_fail = float("-inf")
        self._failed = False

    def polled(self) -> None:
        """A poll went well."""
        now = self._clock.monotonic()
        if not self._severe and now >= self._next_well and self._begin(""):
            self._next_well = now + WELL_EVERY_S

    def checked(self, severe: bool) -> None:
        """Whether something severe is open."""
        if severe and not self._severe:
            self._next_fail = float("-inf")
        self._severe = severe
        now = self._clock.monotonic()
        if severe and now >= self._next_fail and self._begin("/fail"):
            self._next_fail = now + FAIL_EVERY_S

    async def close(self) -> None:
        """Nothing is waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._wire is not None:
            await self._wire.close()

    def _begin(self, more: str) -> bool:
        if self._task is not None and not self._task.done():
            return False
        self._task = asyncio.create_task(self._ping(more))
        return True

    async def _ping(self, more: str) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._get(more)
            failure = None if 200 <= status < 300 else f"HTTP {status}"  # noqa: PLR2004
        except MarketplaceError as error:  # without its detail: that names the host
            failure = error.code
        except Exception as error:  # noqa: BLE001 - whatever the other side makes of it, the orders go on
            failure = type(error).__name__
        if failure is not None and not self._failed:
            _log.warning("ping.failed", reason=failure)
        elif failure is None and self._failed:
            _log.info("ping.recovered")
        self._failed = failure is not None

    async def _get(self, more: str) -> int:
        address = self._address
        target = address.path.rstrip("/") + more + (f"?{address.query}" if address.query else "")
        if address.scheme == "http":
            return await _plain(address, target or "/")
        if self._wire is None:
            base_url = f"https://{address.netloc}"
            self._wire = Wire(base_url=base_url, timeout_s=TIMEOUT_S, ca_file=self._ca_file, max_idle=0)
        return (await self._wire.request("GET", target, headers={})).status


async def _plain(address: SplitResult, target: str) -> int:
    """To this machine itself."""
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80, limit=LINE_BYTES)
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode("ascii"))
        await writer.drain()
        return int((await reader.readuntil(b"\r\n")).split()[1])
    except (IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ValueError(say("net.no_http")) from error
    finally:
        writer.close()
