"""What the terminal says first: where the sandbox is, what a client needs, and what it means to be seen by others."""

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from .options import Options
from .tls import LOCAL_NAMES
from .words import words

if TYPE_CHECKING:
    from .server import Sandbox

EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
DEFAULTS: Final = Options().as_json()
# A reserved address: a socket connected to it shows which address this machine uses; nothing is sent.
_SOMEWHERE: Final = ("192.0.2.1", 9)


def is_beyond(host: str) -> bool:
    """Return whether others than this machine can reach the address."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def names_of(host: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return what the certificate has to be for: what is printed is among it."""
    own = _of_this_machine() if host in EVERYWHERE else (host,)
    return tuple(dict.fromkeys((*LOCAL_NAMES, *given, *own)))


def shown_name(host: str, names: Iterable[str]) -> str:
    """Return under which name to call what listens at the address: at all addresses, the first that others can use."""
    if host not in EVERYWHERE:
        return host
    return next((name for name in names if name not in LOCAL_NAMES), LOCAL_NAMES[1])


def _of_this_machine() -> tuple[str, ...]:
    """The address by which it speaks to others and its name, as far as they are known."""
    found = []
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect(_SOMEWHERE)
            found.append(asking.getsockname()[0])  # first: not every network knows the names of its machines
    except OSError:  # no network: no other machine can reach it either
        pass
    name = socket.gethostname()
    if name.isascii() and name.replace("-", "").replace(".", "").isalnum():
        found.append(name.lower())
    return tuple(found)


def introduction(sandbox: "Sandbox") -> list[str]:
    """Return what a developer needs to know, line by line."""
    accounts = list(sandbox.world.accounts.values())
    first = accounts[0]
    body = f'{{"app_secret_key": "{first.app_secret_key}", "rest_secret_key": "{first.rest_secret_key}"}}'
    lines = [*_warning(sandbox), f"base_url        {sandbox.base_url}", f"ca_file         {sandbox.ca_file}"]
    lines += [f"control         {sandbox.control_url}", f"app_secret_key  {first.app_secret_key}"]
    turned = [f"{name}={value}" for name, value in sandbox.world.options.as_json().items() if value != DEFAULTS[name]]
    if turned:
        lines.insert(-1, f"switches        {' '.join(turned)}")
    for one in accounts:
        reached = ", ".join(sandbox.world.restaurants[key].name for key in one.restaurant_ids)
        lines.append(f"rest_secret_key {one.rest_secret_key}  ({reached})")
    header = "Content-Type: application/json"
    lines.append(f"curl --cacert {sandbox.ca_file} -H '{header}' -d '{body}' {sandbox.base_url}/auth/login")
    # Without a restaurant the order may go to one that the caller's configuration does not reach, and is never seen.
    body = f'{{"restaurant_id": "{first.restaurant_ids[0]}"}}'
    lines.append(f"curl --cacert {sandbox.ca_file} -H '{header}' -d '{body}' {sandbox.control_url}orders")
    return lines


def _warning(sandbox: "Sandbox") -> list[str]:
    if not is_beyond(sandbox.host):
        return []
    facts = {"address": f"{sandbox.host}:{sandbox.port}", "names": ", ".join(sandbox.names)}
    return [line[sandbox.world.options.language].format(**facts) for line in words()["terminal"].values()]
