"""Reads the proxy and the trusted authorities from the environment.

The rules are curl's: HTTPS_PROXY, else ALL_PROXY, unless NO_PROXY names the host; a lower-case variable takes
precedence. SSL_CERT_FILE and SSL_CERT_DIR replace the system's authorities.
"""

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit

from orderbridge.errors import Message, NotSent

_PROXIES = ("HTTPS_PROXY", "ALL_PROXY")
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PORTS = {"http": 80, "https": 443}
HTTPS_PORT = 443


@dataclass(slots=True)
class Proxy:
    """A proxy for one tunnel. `authorization`, the header's value, holds a password and is never shown."""

    host: str
    port: int
    is_tls: bool = False
    authorization: str = field(default="", repr=False)
    variable: str = ""
    has_tunnel: bool = False  # it made the tunnel

    @property
    def name(self) -> Message:
        """Its address and the variable that names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Message("net.proxy_from", proxy=f"{host}:{self.port}", variable=self.variable)


def proxy_for(host: str, port: int = HTTPS_PORT, *, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy for a host (without brackets), or None. Raises NotSent, without the value, for an unusable proxy."""
    for name in _PROXIES:
        variable, value = _read(name, environ)
        if value:
            return None if _is_excepted(host.lower(), port, environ) else _proxy(variable, value)
    return None


def authorities(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """SSL_CERT_FILE and SSL_CERT_DIR with their paths, if they are set."""
    return {name: environ[name] for name in _AUTHORITIES if environ.get(name)}


def _read(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    variable = name.lower() if name.lower() in environ else name
    return variable, environ.get(variable, "").strip()


def _proxy(variable: str, value: str) -> Proxy:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # its text may quote a password
        host = port = None
    if not host or port is None or parts.scheme not in _PORTS:
        raise NotSent("proxy_invalid", Message("net.no_proxy", variable=variable))
    return Proxy(host, port, parts.scheme == "https", _authorization(parts), variable)


def _authorization(parts: SplitResult) -> str:
    if not parts.username and not parts.password:
        return ""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode(errors='surrogateescape')).decode()}"


def _is_excepted(host: str, port: int, environ: Mapping[str, str]) -> bool:
    entries = (entry.strip() for entry in _read("NO_PROXY", environ)[1].lower().split(","))
    # Without a scheme, which is always https here.
    return any(_covers(entry.removeprefix("https://").removeprefix("all://"), host, port) for entry in entries)


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY covers the host: a name with its subdomains, `.name` (subdomains), or addresses."""
    if entry == "*":
        return True
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdecimal() and (":" not in name or name.endswith("]")):
        if int(digits) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    if not entry:
        return False
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:  # one of them is a name
        return host == entry or host.endswith(entry if entry.startswith(".") else f".{entry}")
