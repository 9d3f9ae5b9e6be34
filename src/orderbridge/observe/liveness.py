"""Alive or hung: what systemd's watchdog and `orderbridge healthcheck` go by.

Rules of this file:
- Whatever must keep moving says by when it will be heard of again. A time that passes without a word means: it hangs.
- Only what a restart heals counts. A marketplace that is down for a night, a database's server that is away, a POS that
  holds a lock: each ends in an error in time, and who met it says when it will try again.
- The process answers for itself, over a socket without a file: nothing is left behind by one that died, one that is
  stopped does not answer, and a full or a read-only disk changes nothing. Each network namespace has names of its own,
  so a container sees its own daemon only.
- Whoever comes first has such a name, so the system says whose the process is that answers: ours, root's, the owner's of
  the configuration, or a service that root named orderbridge. Nobody else is believed, and a daemon says who has its name.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from orderbridge.clock import SystemClock
from orderbridge.texts import say

ALIVE = "alive"
STRANGER = "unknown"
ANSWER_S = 5.0  # for an answer, on a busy machine
MOST_ANSWER = 64 * 1024  # bytes
AGAIN_S = 2.0  # between two tries to get a name that another daemon has
LISTED = Path("/proc/net/unix")
OURS = "orderbridge:"
MOST = 100  # bytes of a name; the system takes 107
ROOT = 0
SERVICES = "/system.slice/"  # of the control groups: what root's systemd started


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


class Peer(NamedTuple):
    """Whose the process at the other end of a socket is, as the system says it."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"PID {self.pid}, UID {self.uid}"

    def is_one_of(self, users: Collection[int]) -> bool:
        """Whether it is one of these users', root's, or a service of root's that is named orderbridge."""
        return self.uid in {ROOT, *users} or self._service().startswith("orderbridge")

    def _service(self) -> str:
        """Only root puts a process into a control group of the system's: with DynamicUser= no user is known before."""
        try:
            group = Path(f"/proc/{self.pid}/cgroup").read_text("ascii").strip().rpartition(":")[2]
        except (OSError, ValueError):
            return ""
        return group.rpartition("/")[2] if group.startswith(SERVICES) else ""


def _peer(line: socket.socket) -> Peer:
    pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return Peer(pid, uid)


def ask(name: str, believed: Collection[int] = ()) -> str:
    """What the daemon of that name says of itself: a line that begins with ALIVE, or why not; a second on its health.

    `believed`: the users of which a daemon may be, beside our own and root.
    """
    clock = SystemClock()
    until = clock.monotonic() + ANSWER_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWER_S)
        try:
            line.connect(f"\0{name}")
            if not (peer := _peer(line)).is_one_of({os.geteuid(), *believed}):
                return f"{STRANGER}: {say('liveness.stranger', holder=peer)}"
            answer = b""
            while len(answer) < MOST_ANSWER and (more := line.recv(4096)):
                answer += more
                line.settimeout(max(until - clock.monotonic(), 0.001))
        except (TimeoutError, BlockingIOError):  # the latter: its queue is full
            return f"hung: {say('liveness.no_answer', seconds=f'{ANSWER_S:.0f}')}"
        except ConnectionRefusedError:
            return f"dead: {say('liveness.none')}"
        except OSError as error:
            return f"dead: {error.strerror or error}"
    return answer.decode(errors="replace").strip() or f"dead: {say('liveness.ended')}"


def holder(name: str) -> Peer | None:
    """The process that has this name; None: there is none, or it is not known. Waits for nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as line, contextlib.suppress(OSError):
        line.connect(f"\0{name}")
        return _peer(line)
    return None


async def answer(
    name: str, say: Callable[[], str], *, on_holder: Callable[[Peer | None], None] = lambda _: None
) -> None:
    """Answer with `say()`, for ever. Where another process has the name, it answers until it ends; `on_holder` hears of it."""

    async def tell(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # who asked has gone
            out.write(say().encode())
            await out.drain()
        out.close()

    while True:
        try:
            server = await asyncio.start_unix_server(tell, path=f"\0{name}")
        except OSError as error:  # taken, or a system without such names
            on_holder(holder(name) if error.errno == errno.EADDRINUSE else None)
        else:
            on_holder(None)
            with contextlib.suppress(OSError):
                try:
                    await server.serve_forever()
                finally:
                    server.close()
        await asyncio.sleep(AGAIN_S)
