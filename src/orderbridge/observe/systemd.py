"""Messages to systemd: ready, reloading, stopping, alive, and the level of a log line. Without systemd nothing is sent."""

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
WITHIN_S = 0.5  # for the queue, which takes ten messages: for messages that are sent once; repeated ones do not wait


def hear_reloads() -> None:
    """From now on SIGHUP has a handler; one that has waited since the start (orderbridge/__init__.py) comes at once."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def reloading() -> str:
    """READY has to follow. The time tells systemd (253 and newer) to which reload it belongs."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(message: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send one message to $NOTIFY_SOCKET. False when there is no such socket."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(0 if message.startswith((ALIVE, STATUS)) else WITHIN_S)
            out.sendto(message.encode(), address)
    except OSError:  # a slow or deaf supervisor is no reason to stop taking orders
        return False
    return True


def is_journal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what is written there goes into the journal: $JOURNAL_STREAM names its device and inode."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def with_priority(text: str, level: str, environ: Mapping[str, str] = os.environ) -> str:
    """For stderr: in the journal each line begins with its priority, elsewhere it is what it was."""
    if not is_journal(sys.stderr, environ):
        return text
    return "\n".join(f"<{PRIORITIES[level]}>{line}" for line in text.splitlines())
