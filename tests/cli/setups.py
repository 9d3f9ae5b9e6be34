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
from datetime import timedelta
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
    """A folder with a configuration (made of `parts`), its secrets and a database, and a running service."""

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
    file: Path = field(init=False)
    config: Path = field(init=False)
    has_config: bool = True  # that the command is given
    is_written: bool = False

    def __post_init__(self) -> None:
        self.market = {"base_url": self.sandbox.base_url, "ca_file": "sandbox-ca.pem"}
        self.market |= {"cooldown_seconds": 1, "timeout_seconds": 60}
        self.file, self.config = self.folder / "pos.db", self.folder / "orderbridge.toml"
        self.database = {"url": f"sqlite:///{self.file}"}
        self.accounts = [("kadikoy", self.secret("app", APP), self.secret("rest", REST))]
        shutil.copy(self.template, self.file)
        shutil.copy(self.sandbox.ca_file, self.folder / "sandbox-ca.pem")

    def secret(self, name: str, text: str | bytes) -> str:
        path = self.folder / f"{name}.secret"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o600)
        return path.name

    def write(self) -> None:
        """Write the configuration, unless the planted fault has written one."""
        if not self.has_config or self.is_written or self.config.exists():
            return
        tables = {"marketplace": self.market, "database": self.database, "web": {"listen": ""}}
        lines = [f'language = "{self.language}"', self.more]
        for name, keys in (tables | {"log": {"format": "json"}}).items():
            if f"[{name}]" not in self.more:
                values = {key: f'"{value}"' if isinstance(value, str) else value for key, value in keys.items()}
                lines += [f"[{name}]", *(f"{key} = {value}" for key, value in values.items())]
        for name, app, rest in self.accounts:
            lines += ["[[accounts]]", f'name = "{name}"']
            lines += [f'app_secret_key_file = "{app}"', f'rest_secret_key_file = "{rest}"']
        self.config.write_text("\n".join([*lines, ""]), "utf-8")
        self.config.chmod(0o600)


@dataclass(frozen=True, slots=True)
class SetUp:
    """A broken installation. `says`: what check must name, in English. `log`: what the log must name; None: nothing."""

    title: str
    plant: Callable[[Place], None]
    says: tuple[str, ...]
    code: int = 1
    log: tuple[str, ...] | None = ()  # empty: the same


SETUPS: list[SetUp] = []


def setup(title: str, *says: str, code: int = 1, log: tuple[str, ...] | None = ()) -> Callable[..., None]:
    return lambda plant: SETUPS.append(SetUp(title, plant, says, code, log))


@setup("no configuration at all", "No configuration file found", "orderbridge init", code=78)
def _(place: Place) -> None:
    place.has_config = False


@setup("the named file is not there", "there is no such file", "orderbridge init", code=78)
def _(place: Place) -> None:
    place.config = place.folder / "missing.toml"
    place.is_written = True


setup("the named file is a folder", "is a folder", "Name the file in it", code=78)(lambda place: place.config.mkdir())
setup("a line is no TOML", "is not valid TOML", "line 2", "Correct that line", code=78)(
    lambda place: place.config.write_text(f'language = "{place.language}"\nbase_url = https://api.example.com\n')
)
setup("the file was saved as UTF-16", "is not UTF-8", "Save it as UTF-8", code=78)(
    lambda place: place.config.write_text('language = "en"\n', "utf-16")
)
API = "https://api.example.com"
WRONG_VALUES: list[tuple[str, str, dict[str, object]]] = [  # of [marketplace]; the last key is named
    ("a key is misspelt", "did you mean cooldown_seconds?", {"cooldown_second": 30}),
    ("a number is in words", "must be a number", {"timeout_seconds": "twenty"}),
    ("http:// in base_url", "must begin with https://", {"base_url": "http://api.example.com"}),
    ("no scheme in base_url", "must begin with https://", {"base_url": "api.example.com"}),
    ("a space in base_url", "contains a space", {"base_url": "https://api.example. com"}),
    ("a time zone that is none", "Europe/Istanbul", {"timezone": "Türkiye"}),
    ("a cooldown that is too short", "use 30 or more", {"base_url": API, "cooldown_seconds": 5}),
    ("the sandbox's certificate is not there", "start `orderbridge sandbox` first", {"ca_file": "sandbox-data/ca.pem"}),
]
for _title, _words, _wrong in WRONG_VALUES:
    _plant = setup(_title, f"marketplace.{[*_wrong][-1]} ", _words, code=78)
    _plant(lambda place, wrong=_wrong: place.market.update(wrong))


@setup("an account's name with a Turkish letter", "accounts[0].name ", "a-z, 0-9", code=78)
def _(place: Place) -> None:
    place.accounts = [("kadıköy", *place.accounts[0][1:])]


setup("no account", "accounts ", "add an [[accounts]] table", code=78)(lambda place: place.accounts.clear())


@setup("ca_file is no certificate", "not a readable file of PEM certificates", "BEGIN CERTIFICATE", code=78)
def _(place: Place) -> None:
    (place.folder / "ca.pem").write_text("a menu")
    place.market["ca_file"] = "ca.pem"


DENIED = "cannot be read (Permission denied)"


@setup("ca_file lies in a folder that the user may not read", "marketplace.ca_file", DENIED, code=78)
def _(place: Place) -> None:
    closed = place.folder / "closed"
    closed.mkdir()
    place.market["ca_file"] = shutil.move(place.folder / "sandbox-ca.pem", closed)
    open_for_nobody(place)
    os.chown(closed, 0, 0)
    closed.chmod(0o700)
    as_nobody(place)


@setup("the user may not read the configuration", DENIED, "Check its owner and mode", code=78)
def _(place: Place) -> None:
    place.write()
    as_nobody(place)


setup("a secret's file is missing", "app.secret cannot be read (No such file", "check app_secret_key_file", code=78)(
    lambda place: (place.folder / "app.secret").unlink()
)
WRONG_SECRETS: list[tuple[str, str, str | bytes]] = [
    ("a secret's file is empty", "is empty", "\n"),
    ("both secrets in one file", "contains a line break", f"{APP}\n{REST}\n"),
    ("a secret in quotation marks", "quotation marks", f'"{APP}"'),
    ("a secret saved as UTF-16", "not UTF-8", APP.encode("utf-16")),
]
for _title, _words, _secret in WRONG_SECRETS:
    _plant = setup(_title, "app_secret_key ", _words, code=78)
    _plant(lambda place, secret=_secret: place.secret("app", secret))
ODD = {"a Turkish letter": "LATIN SMALL LETTER DOTLESS I", "a no-break space": "NO-BREAK SPACE"}
for (_title, _words), _odd in zip(ODD.items(), "\u0131\u00a0", strict=True):
    setup(f"{_title} in a secret", _words)(lambda place, odd=_odd: place.secret("rest", f"{REST[:4]}{odd}{REST[4:]}"))


@setup("everybody may read a secret", "mode 0644", "chmod 0600", code=69, log=("chmod 0600",))
def _(place: Place) -> None:
    (place.folder / "app.secret").chmod(0o644)
    place.market["base_url"] = f"https://127.0.0.1:{free_port()}"


WRONG_SECRET = "wrong-secret-of-the-test"
_LOGGED = ("login.refused", "Compare app_secret_key and rest_secret_key")
_LOGIN = ("login_refused", "Compare app_secret_key and rest_secret_key")


setup("a secret is wrong", *_LOGIN, log=_LOGGED)(lambda place: place.secret("rest", WRONG_SECRET))


@setup("the secrets are swapped", *_LOGIN, "swapped", log=_LOGGED)
def _(place: Place) -> None:
    name, app, rest = place.accounts[0]
    place.accounts = [(name, rest, app)]


setup("one account is right, one is wrong", "account moda", *_LOGIN, log=_LOGGED)(
    lambda place: place.accounts.append(("moda", place.accounts[0][1], place.secret("moda", WRONG_SECRET)))
)
setup("two accounts with the same secrets", "'kadikoy' and 'moda' have the same secrets", "remove one", code=78)(
    lambda place: place.accounts.append(("moda", *place.accounts[0][1:]))
)


setup("the host's name is wrong", "dns_failed", "Check its spelling", code=69)(
    lambda place: _names(place, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
)
setup("no DNS server answers", "dns_silent", "resolv.conf", code=69)(
    lambda place: _names(place, socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
)
NOTHING = ("connection_refused", "Nothing listens at that address and port")
setup("the port is wrong, or the service is down", *NOTHING, code=69)(
    lambda place: place.market.update(base_url=f"https://127.0.0.1:{free_port()}")
)


@setup("a firewall swallows everything", "connect_timeout", "the firewall", code=69)
def _(place: Place) -> None:
    silent = place.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    place.market |= {"base_url": f"https://127.0.0.1:{silent.getsockname()[1]}", "timeout_seconds": 0.3}


setup("the proxy is not there", "proxy_unreachable", "from HTTPS_PROXY", "Correct HTTPS_PROXY", code=69)(
    lambda place: place.patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
)


def behind_proxy(place: Place, answer: str) -> None:
    port = place.stack.enter_context(_answering(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode()))
    place.patch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")


PROXIES: list[tuple[str, ...]] = [
    ("the proxy wants a password", "407 No", "proxy_password", "407", "http://user:password@host:port"),
    ("the proxy wants NTLM", "407 No\r\nproxy-authenticate: NTLM", "proxy_scheme", "put a local proxy in between"),
    ("the proxy does not let us through", "403 No", "proxy_refused", "403", "Correct HTTPS_PROXY"),
]
for _title, _answer, *_says in PROXIES:
    setup(_title, *_says, code=69)(lambda place, answer=_answer: behind_proxy(place, answer))
setup("a SOCKS proxy", "proxy_invalid", "http://host:port", code=69)(
    lambda place: place.patch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
)
UNTRUSTED = ("tls_untrusted", "issued by CN=orderbridge sandbox CA", "marketplace.ca_file")
setup("the certificate's issuer is not trusted", *UNTRUSTED, code=69)(lambda place: place.market.pop("ca_file"))


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
    place.patch.setattr(SystemClock, "now", lambda self: real(self) + timedelta(hours=1))


@setup("[accounts] in one pair of brackets", "must be a list", "[[accounts]]", code=78)
def _(place: Place) -> None:
    place.write()
    place.config.write_text(place.config.read_text("utf-8").replace("[[accounts]]", "[accounts]"), "utf-8")


WRONG_URLS: list[tuple[str, ...]] = [
    ("a Windows path", r"sqlite:///C:\\pos\\pos.db", "contains a backslash", "written with slashes"),
    ("~ in a path", "sqlite:///~/pos.db", "database.url", "may not begin with ~", "write the whole path"),
    ("a server without a database's name", "mysql://pos@127.0.0.1", "names no database", "at the end"),
    ("no address of a database", "C:/pos/orders.db", "database.url ", "begin with one of"),
]
for _title, _url, *_says in WRONG_URLS:
    setup(_title, *_says, code=78)(lambda place, url=_url: place.database.update(url=url))


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


BESIDE = "to -wal and -shm beside it"


@setup("root's -shm left beside the file", "readonly", BESIDE, log=("This user cannot write to", BESIDE))
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


HELD = "Another program holds the database"


@setup("another program holds the file", "locked", HELD, "PID", log=("Another program holds",))
def _(place: Place) -> None:
    place.database["busy_timeout_seconds"] = 0.1
    place.stack.enter_context(program(HOLD, place.file))


@setup("another orderbridge works on it", "PID", log=("Another daemon is working on this database", "PID"))
def _(place: Place) -> None:
    place.secret("rest", WRONG_SECRET)
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


@setup("the disk is full", "0 MB free", "Make room", log=None)
def _(place: Place) -> None:
    full = shutil.disk_usage(place.folder)._replace(free=0)
    place.patch.setattr(shutil, "disk_usage", lambda _: full)


@setup("no inode is left on the disk", "free inodes: 0", "df -i", log=None)
def _(place: Place) -> None:
    real = os.statvfs
    place.patch.setattr(os, "statvfs", lambda path: os.statvfs_result([*real(path)[:7], 0, *real(path)[8:]]))


@setup("the port of [web] is taken", "Another program uses that address", "change web.listen", log=None)
def _(place: Place) -> None:
    taken = place.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    place.more = f'[web]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n'


APART = "must belong together"


@setup("the board's certificate and key do not belong together", APART, log=("web.certificate_refused", APART))
def _(place: Place) -> None:
    pair = [place.sandbox.ca_file.with_name(name).read_text("utf-8") for name in ("ca.pem", "server.pem")]
    for name, text in zip(("board.pem", "board.key"), pair, strict=True):
        (place.folder / name).write_text(text, "utf-8")
        (place.folder / name).chmod(0o600)
    place.more = f'[web]\nlisten = "127.0.0.1:{free_port()}"\nboard = "beside"\n'
    place.more += 'certificate = "board.pem"\ncertificate_key = "board.key"\n'


HOLD = """
import sqlite3, sys
till = sqlite3.connect(sys.argv[1], isolation_level=None)
till.execute("BEGIN IMMEDIATE").fetchall()
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
    "concurrent.futures.thread email.utils orderbridge.cli.probes orderbridge.cli.line orderbridge.service"
    " encodings.idna sqlalchemy.dialects.sqlite orderbridge.store.dialects.sqlite cryptography.x509"
).split()


def _names(place: Place, error: OSError) -> None:
    """The DNS error of this machine. Without a DNS server it may come late."""

    def look_up(*_: object, **__: object) -> NoReturn:
        raise error

    place.patch.setattr(socket, "getaddrinfo", look_up)
    place.market |= {"base_url": "https://api.example.com", "cooldown_seconds": 30}


@contextmanager
def _answering(answer: bytes) -> Iterator[int]:
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
    file.chmod(0o600)


def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


def open_for_nobody(place: Place) -> None:
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
