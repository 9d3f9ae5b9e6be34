"""For whom a request is meant: a page that a browser shows must not read from this machine under a name of its own.

A foreign page can have its own name point to 127.0.0.1; its requests then come here with that name as Host. So a name
counts only where it is known. An address is no name, and who sends none at all is no browser. Where the board is, more
is at stake than a page of figures: there an address counts only if it is this machine's own, or known, too.
"""

from collections.abc import Collection
from ipaddress import ip_address

LOCAL = "localhost"


def is_known(host: str | None, names: Collection[str], *, asked_at: str | None = None) -> bool:
    """Whether the Host of a request (None: it has none) is localhost, one of `names`, or an address.

    `asked_at`: the address at which the request came in; given, no address but this one and loopback counts by itself.
    """
    if host is None:
        return asked_at is None
    name = _name_of(host).lower().removesuffix(".")
    if name == LOCAL or name in names:
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return asked_at is None or address.is_loopback or str(address) in {asked_at, *names}


def _name_of(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0][1:]
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) and ":" not in name else host
