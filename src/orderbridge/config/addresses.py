"""Checks and normalizes the addresses of the marketplace, the database and our web server. Contacts none of them."""

import hashlib
import hmac
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, unquote_plus, urlsplit

from orderbridge.hiding import SHORTEST
from orderbridge.texts import say

MAX_PORT = 65535
DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
# Parameters of a database address that never hold a password.
HARMLESS = frozenset(
    """application_name channel_binding charset connect_timeout host hostaddr keepalives keepalives_count
    keepalives_idle keepalives_interval load_balance_hosts local_infile options passfile port read_timeout ssl_ca
    ssl_capath ssl_cert ssl_cipher ssl_disabled ssl_key ssl_verify_cert ssl_verify_identity sslcert sslkey sslmode
    sslrootcert target_session_attrs tcp_user_timeout timeout unix_socket write_timeout""".split()
)
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
NOT_A_HOST = re.compile(r"[\x00-\x20\x7f\\]")
NO_PLAIN_FILE = re.compile(r"^/?$|^[^/]|[?]|:memory:|/file:|\x00")  # after sqlite://: not a file on disk


def https_address(value: str) -> str:
    """The marketplace's address in its normal form, which goes into fingerprints.

    A ValueError does not show the value, which may hold a password.
    """
    if NOT_A_HOST.search(value):
        raise ValueError(say("config.address_letters"))
    parts = urlsplit(value)
    if parts.scheme != "https":
        raise ValueError(say("config.address_https"))
    if "@" in parts.netloc:
        raise ValueError(say("config.address_user"))
    if "?" in value or "#" in value:
        raise ValueError(say("config.address_query"))
    if not parts.hostname:
        raise ValueError(say("config.address_host"))
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if _port(parts.netloc) in {None, 443} else f":{_port(parts.netloc)}"
    return f"https://{host}{port}{parts.path.rstrip('/')}"


def is_loopback(address: str) -> bool:
    """Whether the address is surely this machine. Names other than localhost are not resolved."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def host_name(value: str) -> str:
    """A host's name or IP address, without a port, in its normal form."""
    try:
        return str(ip_address(value))
    except ValueError:
        if not HOST_NAME.fullmatch(value):
            raise ValueError(say("config.host_name", value=repr(value))) from None
        return value.lower().removesuffix(".")


def is_private(address: str) -> bool:
    """Whether requests to the address are encrypted or stay on this machine."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(address)))
    except ValueError:
        return False


def database_address(value: str) -> str:
    """A SQLAlchemy address; without a driver, it gets the one that we ship."""
    scheme, separator, rest = value.partition("://")
    back_end, _, driver = scheme.partition("+")
    if not separator or back_end not in DRIVERS:
        known = ", ".join(f"{name}://" for name in DRIVERS)
        raise ValueError(say("config.database_kind", known=known))
    if back_end == "sqlite" and "\\" in rest:
        raise ValueError(say("config.database_windows"))
    if back_end == "sqlite" and NO_PLAIN_FILE.search(rest):
        raise ValueError(say("config.database_file"))
    if back_end in {"mysql", "mariadb"} and "/" not in rest.rstrip("/"):
        raise ValueError(say("config.database_name"))
    rest = _with_servers(rest) if back_end == "postgresql" else rest
    rest = rest if back_end == "sqlite" else _with_escaped_password(rest)
    return f"{scheme if driver else DRIVERS[back_end]}://{rest}"


def _with_servers(rest: str) -> str:
    """Turn libpq's list of servers (`a:5432,b:5433`) into SQLAlchemy's form: ?host=a,b&port=5432,5433."""
    authority, _, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    if "," not in hosts or "?" in hosts or (not at and "@" in rest):
        return rest
    places = [(host, _port(host)) for host in hosts.split(",")]
    names = ",".join(re.sub(r":[0-9]*$", "", host).strip("[]") for host, _ in places)
    ports = ",".join(str(port or "") for _, port in places)
    name, _, query = path.partition("?")
    servers = f"host={names}" if not ports.strip(",") else f"host={names}&port={ports}"
    return f"{user}{at}/{name}?{servers}{'&' if query else ''}{query}"


def _with_escaped_password(rest: str) -> str:
    """Escape each @ of a password: SQLAlchemy would end the password at the first @ and print the rest as the host."""
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if rest.count("@") > 1 and "@" in path.partition("?")[0]:
        raise ValueError(say("config.database_at"))
    if at or "@" not in rest:  # else the / belongs to the password
        _port(host.partition("?")[0])
    return f"{user.replace('@', '%40')}{at}{host}{slash}{path}"


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite address; None for a server's."""
    scheme, _, rest = url.partition(":///")
    return Path(rest) if scheme.partition("+")[0] == "sqlite" and rest else None


def without_password(url: str) -> str:
    """A database address without its password, for output. It may hide more: a password can hold any character.

    The query's values are hidden except the harmless ones, because each driver has its own names for a password.
    """
    place, question, query = re.sub(r"^([^:]+://[^:/]*:).*@", r"\1***@", url).partition("?")
    shown = [f"{name}=***" if is_hidden else f"{name}{value}" for name, value, is_hidden in _parameters(query)]
    return f"{place}{question}{'&'.join(shown)}"


def secrets_of(url: str) -> list[str]:
    """The values that `without_password` hides, as written and decoded, the longest first."""
    passwords = re.findall(r"^[^:]+://[^:/]*:(.*)@", url)
    passwords += [value[1:] for _, value, is_hidden in _parameters(url.partition("?")[2]) if is_hidden]
    forms = {form for one in passwords for form in (one, unquote(one), unquote_plus(one))}
    return sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)


def _parameters(query: str) -> Iterator[tuple[str, str, bool]]:
    """Each parameter as its name, `=value`, and whether the value must be hidden."""
    for parameter in query.split("&"):
        name, equals, value = parameter.partition("=")
        yield name, equals + value, bool(equals) and unquote_plus(name).lower() not in HARMLESS


def listen_address(value: str) -> str:
    """`host:port` or an empty string."""
    if value and (not value.rpartition(":")[0] or _port(value) is None):
        raise ValueError(say("config.listen", value=repr(value)))
    return value


def fingerprint(base_url: str, app_secret_key: str, rest_secret_key: str) -> str:
    """A hash that identifies an account by address and secrets: 64 hex digits that reveal neither.

    The cooldown and the token are stored under it, so its formula must never change.
    """
    key = f"{app_secret_key}\0{rest_secret_key}".encode()
    return hmac.new(key, f"orderbridge account v1\0{base_url}".encode(), hashlib.sha256).hexdigest()


def _port(netloc: str) -> int | None:
    """The port after a host, or None."""
    digits = netloc.rpartition("]")[2].partition(":")[2]
    if not digits:
        return None
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= MAX_PORT:
        raise ValueError(say("config.port", most=MAX_PORT))
    return int(digits)
