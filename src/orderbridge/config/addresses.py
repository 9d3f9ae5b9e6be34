"""The addresses in a configuration: the service's, the database's, ours. Text only, nothing is contacted."""

import hashlib
import hmac
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, unquote_plus, urlsplit

from orderbridge.hiding import SHORTEST
from orderbridge.texts import say

HIGHEST_PORT = 65535
DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
# Parameters of a database address that no driver takes a password in.
HARMLESS = frozenset(
    """application_name channel_binding charset connect_timeout host hostaddr keepalives keepalives_count keepalives_idle
    keepalives_interval load_balance_hosts local_infile options passfile port read_timeout ssl_ca ssl_capath ssl_cert
    ssl_cipher ssl_disabled ssl_key ssl_verify_cert ssl_verify_identity sslcert sslkey sslmode sslrootcert
    target_session_attrs tcp_user_timeout timeout unix_socket write_timeout""".split()
)
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
NOT_A_HOST = re.compile(r"[\x00-\x20\x7f\\]")
NO_PLAIN_FILE = re.compile(r"^/?$|^[^/]|[?]|:memory:|/file:|\x00")  # what follows sqlite:// and is no file on disk


def https_address(value: str) -> str:
    """The service's address in the one form that fingerprints are made of.

    A ValueError does not show the value: it may hold a password.
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
    """Whether it can only be this machine. Names other than localhost are not resolved."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def host_name(value: str) -> str:
    """A host's name or address, without a port, in its one form."""
    try:
        return str(ip_address(value))
    except ValueError:
        if not HOST_NAME.fullmatch(value):
            raise ValueError(say("config.host_name", value=repr(value))) from None
        return value.lower().removesuffix(".")


def is_private(address: str) -> bool:
    """Whether the way there is encrypted, or ends on this machine."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(address)))
    except ValueError:
        return False


def database_address(value: str) -> str:
    """A SQLAlchemy address with the driver that we ship for it, unless it names one."""
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
    """Several servers, `a:5432,b:5433`, as libpq writes them, where SQLAlchemy takes them: ?host=a,b&port=5432,5433."""
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
    """SQLAlchemy ends a password at its first @, and would show what comes behind that as the host."""
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if rest.count("@") > 1 and "@" in path.partition("?")[0]:
        raise ValueError(say("config.database_at"))
    if at or "@" not in rest:  # else the / is the password's
        _port(host.partition("?")[0])
    return f"{user.replace('@', '%40')}{at}{host}{slash}{path}"


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite address; None for a server's."""
    scheme, _, rest = url.partition(":///")
    return Path(rest) if scheme.partition("+")[0] == "sqlite" and rest else None


def without_password(url: str) -> str:
    """A database address that may be printed. It rather hides too much: a password can hold any character.

    Of the query only what is known to be harmless is shown: each driver has its own names for a password.
    """
    place, question, query = re.sub(r"^([^:]+://[^:/]*:).*@", r"\1***@", url).partition("?")
    shown = [f"{name}=***" if is_hidden else f"{name}{value}" for name, value, is_hidden in _parameters(query)]
    return f"{place}{question}{'&'.join(shown)}"


def secrets_of(url: str) -> list[str]:
    """Everything of a database address that `without_password` hides, as written and as meant, the longest first."""
    passwords = re.findall(r"^[^:]+://[^:/]*:(.*)@", url)
    passwords += [value[1:] for _, value, is_hidden in _parameters(url.partition("?")[2]) if is_hidden]
    forms = {form for one in passwords for form in (one, unquote(one), unquote_plus(one))}
    return sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)


def _parameters(query: str) -> Iterator[tuple[str, str, bool]]:
    """Name, `=value`, and whether the value must not be shown."""
    for parameter in query.split("&"):
        name, equals, value = parameter.partition("=")
        yield name, equals + value, bool(equals) and unquote_plus(name).lower() not in HARMLESS


def listen_address(value: str) -> str:
    """`host:port`, or nothing at all."""
    if value and (not value.rpartition(":")[0] or _port(value) is None):
        raise ValueError(say("config.listen", value=repr(value)))
    return value


def fingerprint(base_url: str, app_secret_key: str, rest_secret_key: str) -> str:
    """What an account is to the service: its address and its secrets, as 64 hex digits that give neither away.

    The cooldown and the stored token hang on it, so it stays the same for ever: another label would forget them.
    """
    key = f"{app_secret_key}\0{rest_secret_key}".encode()
    return hmac.new(key, f"orderbridge account v1\0{base_url}".encode(), hashlib.sha256).hexdigest()


def _port(netloc: str) -> int | None:
    """The port behind a host; None when there is none."""
    digits = netloc.rpartition("]")[2].partition(":")[2]
    if not digits:
        return None
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= HIGHEST_PORT:
        raise ValueError(say("config.port", most=HIGHEST_PORT))
    return int(digits)
