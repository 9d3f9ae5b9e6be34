"""Messages to systemd (ready, reloading, stopping, alive), and the priorities of log lines in its journal."""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import TextIO

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"
STATUS = "STATUS="
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # syslog's, as the journal reads them
WITHIN_S = 0.5  # to wait for a full queue; repeated messages do not wait


def handle_reloads() -> None:
    """Unblock SIGHUP, which was blocked at the start (orderbridge/__init__.py), now that it has a handler."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def reloading() -> str:
    """The message before a reload; READY must follow. The time identifies the reload (systemd 253 and newer)."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(message: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a message to $NOTIFY_SOCKET. Returns False if there is no such socket."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(0 if message.startswith((ALIVE, STATUS)) else WITHIN_S)
            out.sendto(message.encode(), address)
    except OSError:  # a slow supervisor must not stop the daemon
        return False
    return True


def is_journal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream goes to the journal: $JOURNAL_STREAM has its device and inode."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def with_priority(text: str, level: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text for stderr; in the journal each line begins with its priority."""
    if not is_journal(sys.stderr, environ):
        return text
    return "\n".join(f"<{PRIORITIES[level]}>{line}" for line in text.splitlines())
