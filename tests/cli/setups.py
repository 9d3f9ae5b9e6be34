"""Broken installations: each has one fault, and is correct otherwise.

docs/set-ups.md lists them with cause and remedy; tests/cli/test_setups.py plants them.
"""

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest
from tests.cli.shell import APP, REST
from tests.databases import free_port
from tests.store.samples import hold_open

import orderbridge.cli.check
import orderbridge.cli.service_commands  # noqa: F401 - loaded here, because another user may not be able to
from orderbridge import mounts as system_mounts
from orderbridge.clock import SystemClock
from orderbridge.config import load
from orderbridge.errors import ConfigError
from orderbridge.store.database import open_database
from orderbridge_sandbox import Fault, Sandbox


@dataclass
class Place:
    """A folder with a configuration, its secrets, a database, and a service that runs. `parts` make the configuration."""

    folder: Path
    sandbox: Sandbox
    language: str
    patch: pytest.MonkeyPatch
    template: Path
    stack: ExitStack
    market: dict[str, object] = field(default_factory=dict)
    database: dict[str, object] = field(default_factory=dict)
    accounts: list[tuple[str, str, str]] = field(default_factory=list)
    more: str = ""
    config: Path | None = None
    is_written: bool = False

    def __post_init__(self) -> None:
        self.market = {
            "base_url": self.sandbox.base_url,
            "ca_file": "sandbox-ca.pem",
            "cooldown_seconds": 1,
            "timeout_seconds": 60,
        }
        self.database = {"url": f"sqlite:///{self.folder}/pos.db"}
        self.accounts = [("kadikoy", self.secret("app", APP), self.secret("rest", REST))]
        self.config = self.folder / "orderbridge.toml"
        shutil.copy(self.template, self.file)
        shutil.copy(self.sandbox.ca_file, self.folder / "sandbox-ca.pem")

    @property
    def file(self) -> Path:
        return self.folder / "pos.db"

    def secret(self, name: str, text: str | bytes) -> str:
        path = self.folder / f"{name}.secret"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o600)
        return path.name

    def write(self) -> None:
        """The configuration, unless what was planted is one itself."""
        if self.config is None or self.is_written or self.config.exists():
            return
        tables = [
            ("marketplace", self.market),
            ("database", self.database),
            ("web", {"listen": ""}),
            ("log", {"format": "json"}),
        ]
        lines = [f'language = "{self.language}"', self.more]
        for name, keys in tables:
            if f"[{name}]" not in self.more:
                lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in keys.items())]
        for name, app, rest in self.accounts:
            lines += [
                "[[accounts]]",
                f'name = "{name}"',
                f'app_secret_key_file = "{app}"',
                f'rest_secret_key_file = "{rest}"',
            ]
        self.config.write_text("\n".join([*lines, ""]), "utf-8")
        self.config.chmod(0o600)


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class SetUp:
    """`says`: what check has to name, in English; `log`: what the log has to name, None: nothing of it is there to see."""

    title: str
    plant: Callable[[Place], None]
    says: tuple[str, ...]
    code: int = 1
    log: tuple[str, ...] | None = ()  # empty: the same


SETUPS: list[SetUp] = []


def setup(
    title: str, *says: str, code: int = 1, log: tuple[str, ...] | None = ()
) -> Callable[..., Callable[[Place], None]]:
    def take(plant: Callable[[Place], None]) -> Callable[[Place], None]:
        SETUPS.append(SetUp(title, plant, says, code, log))
        return plant

    return take


# ---- the configuration -----------------------------------------------------------------------------------------------


@setup("no configuration at all", "No configuration file found", "orderbridge init", code=78)
def _(place: Place) -> None:
    place.config = None


@setup("the named file is not there", "there is no such file", "orderbridge init", code=78)
def _(place: Place) -> None:
    place.config = place.folder / "missing.toml"
    place.is_written = True


@setup("the named file is a folder", "is a folder", "Name the file in it", code=78)
def _(place: Place) -> None:
    assert place.config
    place.config.mkdir()


@setup("a line is no TOML", "is not valid TOML", "line 2", "Correct that line", code=78)
def _(place: Place) -> None:
    assert place.config
    place.config.write_text(f'language = "{place.language}"\nbase_url = https://api.example.com\n')


@setup("the file was saved as UTF-16", "is not UTF-8", "Save it as UTF-8", code=78)
def _(place: Place) -> None:
    assert place.config
    place.config.write_text('language = "en"\n', "utf-16")


WRONG_VALUES: list[tuple[str, str, str, dict[str, object]]] = [  # of [marketplace]
    ("a key is misspelt", "marketplace.cooldown_second ", "did you mean cooldown_seconds?", {"cooldown_second": 30}),
    ("a number is in words", "marketplace.timeout_seconds ", "must be a number", {"timeout_seconds": "twenty"}),
    (
        "http:// in base_url",
        "marketplace.base_url ",
        "must begin with https://",
        {"base_url": "http://api.example.com"},
    ),
    ("no scheme in base_url", "marketplace.base_url ", "must begin with https://", {"base_url": "api.example.com"}),
    ("a space in base_url", "marketplace.base_url ", "contains a space", {"base_url": "https://api.example. com"}),
    ("a time zone that is none", "marketplace.timezone ", "Europe/Istanbul", {"timezone": "Türkiye"}),
    (
        "a cooldown that is too short",
        "marketplace.cooldown_seconds ",
        "use 30 or more",
        {"base_url": "https://api.example.com", "cooldown_seconds": 5},
    ),
    (
        "the sandbox has not made its certificate yet",
        "marketplace.ca_file ",
        "start `orderbridge sandbox` first",
        {"ca_file": "sandbox-data/ca.pem"},
    ),
]
for _title, _key, _words, _wrong in WRONG_VALUES:
    setup(_title, _key, _words, code=78)(lambda place, wrong=_wrong: place.market.update(wrong))


@setup("an account's name with a Turkish letter", "accounts[0].name ", "a-z, 0-9", code=78)
def _(place: Place) -> None:
    place.accounts = [("kadıköy", *place.accounts[0][1:])]


@setup("no account", "accounts ", "add an [[accounts]] table", code=78)
def _(place: Place) -> None:
    place.accounts = []


@setup("ca_file is no certificate", "not a readable file of PEM certificates", "BEGIN CERTIFICATE", code=78)
def _(place: Place) -> None:
    (place.folder / "ca.pem").write_text("a menu")
    place.market["ca_file"] = "ca.pem"


@setup(
    "ca_file lies in a folder that the user may not read",
    "marketplace.ca_file",
    "cannot be read (Permission denied)",
    code=78,
)
def _(place: Place) -> None:
    closed = place.folder / "closed"
    closed.mkdir()
    place.market["ca_file"] = shutil.move(place.folder / "sandbox-ca.pem", closed)
    open_for_nobody(place)
    os.chown(closed, 0, 0)
    closed.chmod(0o700)
    as_nobody(place)


@setup(
    "the user may not read the configuration", "cannot be read (Permission denied)", "Check its owner and mode", code=78
)
def _(place: Place) -> None:
    place.write()
    as_nobody(place)


# ---- the secrets -----------------------------------------------------------------------------------------------------


setup("a secret's file is missing", "app.secret cannot be read (No such file", "check app_secret_key_file", code=78)(
    lambda place: (place.folder / "app.secret").unlink()
)
setup("a secret's file is empty", "app_secret_key ", "is empty", code=78)(lambda place: place.secret("app", "\n"))
setup("both secrets in one file", "app_secret_key ", "contains a line break", code=78)(
    lambda place: place.secret("app", f"{APP}\n{REST}\n")
)


@setup("a Turkish letter in a secret", "LATIN SMALL LETTER DOTLESS I")
def _(place: Place) -> None:
    place.accounts = [("kadikoy", place.accounts[0][1], place.secret("rest", "sandbox-kad\u0131koy-secret"))]


@setup("a no-break space in a secret", "NO-BREAK SPACE")
def _(place: Place) -> None:
    place.accounts = [("kadikoy", place.accounts[0][1], place.secret("rest", f"{REST[:4]}\u00a0{REST[4:]}"))]


setup("a secret in quotation marks", "app_secret_key ", "quotation marks", code=78)(
    lambda place: place.secret("app", f'"{APP}"')
)
setup("a secret saved as UTF-16", "app_secret_key ", "not UTF-8", code=78)(
    lambda place: place.secret("app", APP.encode("utf-16"))
)


@setup("everybody may read a secret", "mode 0644", "chmod 0600", code=69, log=("chmod 0600",))
def _(place: Place) -> None:
    (place.folder / "app.secret").chmod(0o644)
    place.market["base_url"] = f"https://127.0.0.1:{free_port()}"


_LOGGED = ("login.refused", "Compare app_secret_key and rest_secret_key")
_LOGIN = ("login_refused", "Compare app_secret_key and rest_secret_key")


setup("a secret is wrong", *_LOGIN, log=_LOGGED)(lambda place: place.secret("rest", "wrong-secret-of-the-test"))


@setup("the secrets are swapped", *_LOGIN, "swapped", log=_LOGGED)
def _(place: Place) -> None:
    name, app, rest = place.accounts[0]
    place.accounts = [(name, rest, app)]


setup("one account is right, one is wrong", "account moda", *_LOGIN, log=_LOGGED)(
    lambda place: place.accounts.append(
        ("moda", place.accounts[0][1], place.secret("moda", "wrong-secret-of-the-test"))
    )
)
setup("two accounts with the same secrets", "'kadikoy' and 'moda' have the same secrets", "remove one", code=78)(
    lambda place: place.accounts.append(("moda", *place.accounts[0][1:]))
)


# ---- the line --------------------------------------------------------------------------------------------------------


setup("the host's name is wrong", "dns_failed", "Check its spelling", code=69)(
    lambda place: _names(place, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
)
setup("no DNS server answers", "dns_silent", "resolv.conf", code=69)(
    lambda place: _names(place, socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
)
setup(
    "the port is wrong, or the service is down",
    "connection_refused",
    "Nothing listens at that address and port",
    code=69,
)(lambda place: place.market.update(base_url=f"https://127.0.0.1:{free_port()}"))


@setup("a firewall swallows everything", "connect_timeout", "the firewall", code=69)
def _(place: Place) -> None:
    silent = place.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    place.market |= {"base_url": f"https://127.0.0.1:{silent.getsockname()[1]}", "timeout_seconds": 0.3}


setup("the proxy is not there", "proxy_unreachable", "from HTTPS_PROXY", "Correct HTTPS_PROXY", code=69)(
    lambda place: place.patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
)


@setup("the proxy wants a password", "proxy_password", "407", "http://user:password@host:port", code=69)
def _(place: Place) -> None:
    port = place.stack.enter_context(_answering(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n"))
    place.patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")


@setup("the proxy wants NTLM or Kerberos", "proxy_scheme", "put a local proxy in between", code=69)
def _(place: Place) -> None:
    answer = b"HTTP/1.1 407 No\r\nproxy-authenticate: NTLM\r\ncontent-length: 0\r\n\r\n"
    place.patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{place.stack.enter_context(_answering(answer))}")


@setup("the proxy does not let us through", "proxy_refused", "403", "Correct HTTPS_PROXY", code=69)
def _(place: Place) -> None:
    port = place.stack.enter_context(_answering(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n"))
    place.patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")


setup("a SOCKS proxy", "proxy_invalid", "http://host:port", code=69)(
    lambda place: place.patch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
)
setup(
    "the certificate's issuer is not trusted",
    "tls_untrusted",
    "issued by CN=orderbridge sandbox CA",
    "marketplace.ca_file",
    code=69,
)(lambda place: place.market.pop("ca_file"))


@setup("the certificate has expired", "tls_expired", "valid from", "has expired", code=69)
def _(place: Place) -> None:
    expired = Sandbox(place.sandbox.world, directory=place.folder / "expired", expired=True)
    running = place.stack.enter_context(expired)
    place.market |= {"base_url": running.base_url, "ca_file": str(running.ca_file)}


@setup("the certificate is for another name", "tls_wrong_name", "for localhost", "is for another name", code=69)
def _(place: Place) -> None:
    real = socket.getaddrinfo
    place.patch.setattr(socket, "getaddrinfo", lambda _, *more, **named: real("127.0.0.1", *more, **named))
    place.market |= {"base_url": place.sandbox.base_url.replace("127.0.0.1", "pos.example"), "cooldown_seconds": 30}


@setup("an http server on that port", "tls_none", "does not speak TLS", code=69)
def _(place: Place) -> None:
    port = place.stack.enter_context(_answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    place.market["base_url"] = f"https://127.0.0.1:{port}"


setup("the path of base_url is wrong", "HTTP 404", "that path is not the marketplace's", code=69)(
    lambda place: place.market.update(base_url=f"{place.sandbox.base_url}/v2")
)


@setup("a sign-in page stands in front of the service", "front_redirects", "in a browser in this network")
def _(place: Place) -> None:
    faults = place.sandbox.world.faults
    place.stack.callback(faults.clear)
    faults.add(Fault.redirect("login", "https://login.example.com/", 302, times=None))


@setup("the clock is wrong by an hour", "+360", "timedatectl", log=None)
def _(place: Place) -> None:
    real = SystemClock.now

    def late(self: SystemClock) -> datetime:
        return real(self) + timedelta(hours=1)

    place.patch.setattr(SystemClock, "now", late)


# ---- the database ----------------------------------------------------------------------------------------------------


@setup("[accounts] in one pair of brackets", "must be a list", "[[accounts]]", code=78)
def _(place: Place) -> None:
    place.write()
    assert place.config
    place.config.write_text(place.config.read_text("utf-8").replace("[[accounts]]", "[accounts]"), "utf-8")


setup("a Windows path", "contains a backslash", "written with slashes", code=78)(
    lambda place: place.database.update(url=r"sqlite:///C:\\pos\\pos.db")
)
setup("~ in a path", "database.url", "may not begin with ~", "write the whole path", code=78)(
    lambda place: place.database.update(url="sqlite:///~/pos.db")
)
setup("a server without a database's name", "names no database", "at the end", code=78)(
    lambda place: place.database.update(url="mysql://pos@127.0.0.1")
)


@setup("a folder for a database", "is a folder, not a SQLite file", "Add the file", code=78)
def _(place: Place) -> None:
    place.file.unlink()
    place.file.mkdir()


setup("the database's folder is missing", "Create the folder", log=("Create the folder",))(
    lambda place: place.database.update(url=f"sqlite:///{place.folder}/missing/pos.db")
)


@setup("the user may not write to the database's folder", "Let this user write", log=("this user write",))
def _(place: Place) -> None:
    open_for_nobody(place)
    place.file.unlink()
    os.chown(place.folder, 0, 0)
    as_nobody(place)


@setup("the user may not write to the database's file", "this user write")
def _(place: Place) -> None:
    open_for_nobody(place)
    os.chown(place.file, 0, 0)
    place.file.chmod(0o640)
    as_nobody(place)


setup("the file is no database", "not a SQLite file", "put a backup in its place")(
    lambda place: place.file.write_bytes(b"a menu, no database" * 100)
)


@setup("the file is damaged", "is damaged", "put a backup in its place", code=78)
def _(place: Place) -> None:
    with closing(sqlite3.connect(place.file)) as pos:
        page = pos.execute("SELECT rootpage FROM sqlite_master WHERE name = 'delivery_orders'").fetchone()[0]
        size = pos.execute("PRAGMA page_size").fetchone()[0]
    with place.file.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"U" * size)


setup("the file has a second name", "has another name (a hard link)", "find / -xdev -samefile", code=78)(
    lambda place: place.file.with_name("copy.db").hardlink_to(place.file)
)


@setup("the file is a link to nowhere", "Create the folder", "/nowhere")
def _(place: Place) -> None:
    place.file.unlink()
    place.file.symlink_to(place.folder / "nowhere/pos.db")


@setup("root's -wal beside the file", "to -wal and -shm beside it", code=78)
def _(place: Place) -> None:
    pos = place.stack.enter_context(closing(sqlite3.connect(place.file)))
    pos.execute("SELECT count(*) FROM delivery_orders").fetchall()
    open_for_nobody(place)
    for suffix in ("-wal", "-shm"):
        os.chown(f"{place.file}{suffix}", 0, 0)
    place.file.with_name("pos.db-wal").chmod(0o600)
    as_nobody(place)


@setup(
    "root's -shm left beside the file",
    "readonly",
    "to -wal and -shm beside it",
    log=("This user cannot write to", "to -wal and -shm beside it"),
)
def _(place: Place) -> None:
    beside = place.file.with_name("pos.db-shm")
    beside.touch()
    open_for_nobody(place)
    os.chown(beside, 0, 0)
    beside.chmod(0o644)
    as_nobody(place)


setup("a column of ours was renamed", "pos_reference", "Restore it", log=None)(
    lambda place: _say_sql(place.file, "ALTER TABLE delivery_orders RENAME COLUMN pos_reference TO pos_ref")
)


@setup(
    "another program holds the file",
    "locked",
    "Another program holds the database",
    "PID",
    log=("Another program holds",),
)
def _(place: Place) -> None:
    place.database["busy_timeout_seconds"] = 0.1
    place.stack.enter_context(program(HOLD, place.file))


@setup("another orderbridge works on it", "PID", log=("Another daemon is working on this database", "PID"))
def _(place: Place) -> None:
    place.market["base_url"] = f"{place.sandbox.base_url}"
    place.secret("rest", "wrong-secret-of-the-test")
    place.stack.enter_context(program(LEAD, place.file))


@setup("the tables are of a newer version", "schema 0099", "Install the newer orderbridge", code=78)
def _(place: Place) -> None:
    hold_open(place.file)
    _say_sql(place.file, "UPDATE delivery_schema_version SET version_num = '0099'")


@setup("the tables are unfinished", "incomplete", "drop them", code=78)
def _(place: Place) -> None:
    place.file.unlink()
    _say_sql(place.file, "CREATE TABLE delivery_orders (payment_key TEXT)")


@setup("the file is gone and its -wal is not", "but its -wal is there", "Put the file back", code=78)
def _(place: Place) -> None:
    place.file.unlink()
    place.file.with_name("pos.db-wal").write_bytes(b"x" * 100)


@setup("a network file system", "network file system (nfs4)", "local disk", code=78)
def _(place: Place) -> None:
    mounts = place.folder / "mountinfo"
    mounts.write_text(f"31 1 0:31 / {place.folder} rw - nfs4 server:/pos rw\n")
    place.patch.setattr(system_mounts, "MOUNTS", mounts)


setup("the database's server is away", "does not answer", "that the server runs")(
    lambda place: place.database.update(url=f"postgresql://pos:hunter22@127.0.0.1:{free_port()}/pos")
)


@setup("the driver is not installed", "The driver for mysql is missing", "-r requirements.lock", code=78)
def _(place: Place) -> None:
    place.patch.setitem(sys.modules, "pymysql", None)
    place.database["url"] = "mysql://pos:hunter22@db.example/pos"


setup("no address of a database", "database.url ", "begin with one of", code=78)(
    lambda place: place.database.update(url="C:/pos/orders.db")
)


@setup("the disk is full", "0 MB free", "Make room", log=None)
def _(place: Place) -> None:
    usage = shutil.disk_usage
    full = usage(place.folder)._replace(free=0)
    place.patch.setattr(shutil, "disk_usage", lambda _: full)


@setup("no inode is left on the disk", "free inodes: 0", "df -i", log=None)
def _(place: Place) -> None:
    real = os.statvfs

    def full(path: str | Path) -> os.statvfs_result:
        return os.statvfs_result([*real(path)[:7], 0, *real(path)[8:]])

    place.patch.setattr(os, "statvfs", full)


@setup("the port of [web] is taken", "Another program uses that address", "change web.listen", log=None)
def _(place: Place) -> None:
    taken = place.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    place.more = f'[web]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n'


@setup(
    "the board's certificate and key do not belong together",
    "must belong together",
    log=("web.certificate_refused", "must belong together"),
)
def _(place: Place) -> None:
    pair = [place.sandbox.ca_file.with_name(name).read_text("utf-8") for name in ("ca.pem", "server.pem")]
    for name, text in zip(("board.pem", "board.key"), pair, strict=True):
        (place.folder / name).write_text(text, "utf-8")
        (place.folder / name).chmod(0o600)
    place.more = f'[web]\nlisten = "127.0.0.1:{free_port()}"\nboard = "beside"\n'
    place.more += 'certificate = "board.pem"\ncertificate_key = "board.key"\n'


# ---- how they are planted --------------------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
till = sqlite3.connect(sys.argv[1], isolation_level=None)
till.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.read()
"""
LEAD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


NOBODY = 65534
# What another user's interpreter may not be able to load.
LATER = (
    "concurrent.futures.thread email.utils orderbridge.cli.probes orderbridge.cli.line orderbridge.service encodings.idna"
    " sqlalchemy.dialects.sqlite orderbridge.store.dialects.sqlite cryptography.x509"
).split()


def _names(place: Place, error: OSError) -> None:
    """As a machine's DNS says it; one that has none may say it only after a while."""

    def look_up(*_: object, **__: object) -> NoReturn:
        raise error

    place.patch.setattr(socket, "getaddrinfo", look_up)
    place.market |= {"base_url": "https://api.example.com", "cooldown_seconds": 30}


@contextmanager
def _answering(answer: bytes) -> Iterator[int]:
    """A server that gives every request the same answer."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with line:
                line.recv(4096)
                line.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@contextmanager
def program(source: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Another program, at it until the end."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin
        assert other.stdout
        other.stdout.readline()
        try:
            yield other
        finally:
            other.stdin.close()


def _say_sql(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as pos, pos:
        pos.execute(statement)
    pos.close()
    file.chmod(0o600)


def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


def open_for_nobody(place: Place) -> None:
    """All but what is planted is his."""
    _needs_root()
    place.write()
    for path in [place.folder, *place.folder.iterdir()]:
        os.chown(path, NOBODY, NOBODY)


def as_nobody(place: Place) -> None:
    _needs_root()
    for name in LATER:
        import_module(name)
    with contextlib.suppress(ConfigError):
        load(place.config, environ={})
    with tempfile.TemporaryDirectory(prefix="obs-") as folder:
        open_database(f"sqlite:///{folder}/pos.db", inline=True).close()
    os.seteuid(NOBODY)
    place.stack.callback(os.seteuid, 0)
