"""For whom a request is meant: a page that a browser shows must not read from this machine under a name of its own.

A foreign page can have its own name point to 127.0.0.1; its requests then come here with that name as Host. So a name
counts only where it is known. An address is no name, and who sends none at all is no browser.
"""

from collections.abc import Collection
from ipaddress import ip_address

LOCAL = "localhost"


def is_known(host: str | None, names: Collection[str]) -> bool:
    """Whether the Host of a request (None: it has none) is an address, localhost, or one of `names`."""
    if host is None:
        return True
    name = _name_of(host).lower().removesuffix(".")
    return name == LOCAL or name in names or _is_address(name)


def _name_of(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0][1:]
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) and ":" not in name else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
