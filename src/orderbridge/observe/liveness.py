"""Alive or hung: what systemd's watchdog and `orderbridge healthcheck` go by.

Rules of this file:
- Whatever must keep moving says by when it will be heard of again. A time that passes without a word means: it hangs.
- Only what a restart heals counts. A marketplace that is down for a night, a database's server that is away, a POS that
  holds a lock: each ends in an error in time, and who met it says when it will try again.
- The process answers for itself, over a socket without a file: nothing is left behind by one that died, one that is
  stopped does not answer, and a full or a read-only disk changes nothing. Each network namespace has names of its own,
  so a container sees its own daemon only.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from orderbridge.texts import say

ALIVE = "alive"
ANSWER_S = 5.0  # for an answer, on a busy machine
AGAIN_S = 2.0  # between two tries to get a name that another daemon has
LISTED = Path("/proc/net/unix")
OURS = "orderbridge:"
MOST = 100  # bytes of a name; the system takes 107


class Pulse:
    """By when each part of a daemon will be heard of again. Times are the monotonic clock's."""

    def __init__(self) -> None:
        self._by: dict[str, float] = {}
        self._ended = False

    def expect(self, part: str, by: float) -> None:
        """There will be another word of `part` before `by`, or it hangs."""
        self._by[part] = by

    def excuse(self, part: str) -> None:
        """Nothing more is to be heard of `part`."""
        self._by.pop(part, None)

    def end(self) -> None:
        """Nothing at all: it stops, and stopping has limits of its own."""
        self._ended = True

    def hung(self, now: float) -> str | None:
        """What hangs, and for how long it has been overdue; None: nothing does."""
        if self._ended or not self._by:
            return None
        part, by = min(self._by.items(), key=lambda item: item[1])
        return say("liveness.overdue", part=part, seconds=f"{now - by:.0f}") if by < now else None


def name_of(config_file: Path | None) -> str:
    """The name that a daemon with this configuration answers to."""
    path = os.path.normpath(config_file.absolute()) if config_file is not None else ""
    return OURS + os.fsencode(path)[-(MOST - len(OURS)) :].decode(errors="replace")


def daemons() -> list[str]:
    """The names of all that answer here."""
    found = {line.split(None, 7)[-1] for line in LISTED.read_text(errors="replace").splitlines()}
    return sorted(name[1:] for name in found if name.startswith(f"@{OURS}"))


def ask(name: str) -> str:
    """What the daemon of that name says of itself: a line that begins with ALIVE, or why not; a second on its health."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWER_S)
        try:
            line.connect(f"\0{name}")
            said = b""
            while more := line.recv(4096):
                said += more
        except TimeoutError:
            return f"hung: {say('liveness.no_answer', seconds=f'{ANSWER_S:.0f}')}"
        except ConnectionRefusedError:
            return f"dead: {say('liveness.none')}"
        except OSError as error:
            return f"dead: {error.strerror or error}"
    return said.decode(errors="replace").strip() or f"dead: {say('liveness.ended')}"


async def answer(name: str, say: Callable[[], str]) -> None:
    """Answer with `say()`, for ever. Where another daemon has the name, it answers until it ends."""

    async def tell(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # who asked has gone
            out.write(say().encode())
            await out.drain()
        out.close()

    while True:
        with contextlib.suppress(OSError):  # taken, or a system without such names
            server = await asyncio.start_unix_server(tell, path=f"\0{name}")
            try:
                await server.serve_forever()
            finally:
                server.close()
        await asyncio.sleep(AGAIN_S)
