"""Detects a hung daemon, for systemd's watchdog and `orderbridge healthcheck`.

Rules of this file:

- Each vital part announces by when it will report again. If that time passes, the part is hung.
- Only states that a restart can cure count. If the marketplace or the database is down, or a POS holds a lock, the part
  gets an error in time and announces its next try.
- The process answers over an abstract socket. The socket of a dead process is gone, a stopped one does not answer, and
  a full or read-only disk does not matter. Each network namespace has its own names, so a container sees only its
  daemon.
- Any process can take such a name first. So the kernel is asked whose process answers. It must belong to our user, to
  root, to the owner of the configuration, or to a service that root named orderbridge. A daemon reports another holder
  of its name.
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
MAX_ANSWER = 64 * 1024  # bytes
AGAIN_S = 2.0  # between two tries to take a name that another process holds
LISTED = Path("/proc/net/unix")
OURS = "orderbridge:"
MAX_NAME = 100  # bytes of a name; the system allows 107
ROOT = 0
SERVICES = "/system.slice/"  # the control group of services started by root's systemd


class Pulse:
    """The monotonic times by which the parts of a daemon must report again."""

    def __init__(self) -> None:
        self._by: dict[str, float] = {}
        self._ended = False

    def expect(self, part: str, by: float) -> None:
        """The part must report again before `by`."""
        self._by[part] = by

    def excuse(self, part: str) -> None:
        """The part need not report again."""
        self._by.pop(part, None)

    def end(self) -> None:
        """No part need report again: the daemon stops, which has its own time limits."""
        self._ended = True

    def hung(self, now: float) -> str | None:
        """The part that is most overdue, as a sentence, or None."""
        if self._ended or not self._by:
            return None
        part, by = min(self._by.items(), key=lambda item: item[1])
        return say("liveness.overdue", part=part, seconds=f"{now - by:.0f}") if by < now else None


def name_of(config_file: Path | None) -> str:
    """The socket name of a daemon with this configuration."""
    path = os.path.normpath(config_file.absolute()) if config_file is not None else ""
    return OURS + os.fsencode(path)[-(MAX_NAME - len(OURS)) :].decode(errors="replace")


def daemons() -> list[str]:
    """The socket names of all daemons in this namespace."""
    found = {line.split(None, 7)[-1] for line in LISTED.read_text(errors="replace").splitlines()}
    return sorted(name[1:] for name in found if name.startswith(f"@{OURS}"))


class Peer(NamedTuple):
    """The process at the other end of a socket, as the kernel reports it."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"PID {self.pid}, UID {self.uid}"

    def is_one_of(self, users: Collection[int]) -> bool:
        """Whether it belongs to these users, to root, or to a service named orderbridge."""
        return self.uid in {ROOT, *users} or self._service().startswith("orderbridge")

    def _service(self) -> str:
        """The systemd service of the process.

        With DynamicUser= its user is not known, but only root sets control groups.
        """
        try:
            group = Path(f"/proc/{self.pid}/cgroup").read_text("ascii").strip().rpartition(":")[2]
        except (OSError, ValueError):
            return ""
        return group.rpartition("/")[2] if group.startswith(SERVICES) else ""


def _peer(line: socket.socket) -> Peer:
    pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return Peer(pid, uid)


def ask(name: str, trusted: Collection[int] = ()) -> str:
    """Ask the daemon of this name. The first line begins with ALIVE, or has the reason; the second is about its health.

    `trusted`: users, besides our own and root, whose process is accepted.
    """
    clock = SystemClock()
    until = clock.monotonic() + ANSWER_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWER_S)
        try:
            line.connect(f"\0{name}")
            if not (peer := _peer(line)).is_one_of({os.geteuid(), *trusted}):
                return f"{STRANGER}: {say('liveness.stranger', holder=peer)}"
            answer = b""
            while len(answer) < MAX_ANSWER and (more := line.recv(4096)):
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
    """The process that holds this name, or None. Does not wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as line, contextlib.suppress(OSError):
        line.connect(f"\0{name}")
        return _peer(line)
    return None


async def answer(
    name: str, say: Callable[[], str], *, on_holder: Callable[[Peer | None], None] = lambda _: None
) -> None:
    """Answer requests with `say()` until cancelled. While another process holds the name, call `on_holder` with it."""

    async def reply(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            out.write(say().encode())
            await out.drain()
        out.close()

    while True:
        try:
            server = await asyncio.start_unix_server(reply, path=f"\0{name}")
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
