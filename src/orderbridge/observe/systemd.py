"""A word to systemd: ready, stopping, still alive. Without systemd it does nothing."""

import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
RELOADING = "RELOADING=1"
ALIVE = "WATCHDOG=1"


def notify(message: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send one message to $NOTIFY_SOCKET. False when there is nobody to tell."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(message.encode(), address)
    except OSError:  # a deaf supervisor is no reason to stop taking orders
        return False
    return True
