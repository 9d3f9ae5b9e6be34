"""Serves the sandbox over HTTPS with uvicorn, in its own thread and event loop, and prints its terminal output."""

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Self

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .app import create_app
from .command import PREFIX
from .line import BAD_CERTIFICATES, TOO_LONG, Bounded, Listener, head_length
from .options import Line, Options
from .replies import ConnectionDropped
from .switches import words
from .tls import LOCAL_NAMES, make_certificates
from .world import World

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8443
DEFAULT_DIRECTORY: Final = Path("sandbox-data")
TICK_SECONDS: Final = 0.2
START_SECONDS: Final = 60.0
LAST_ANSWERS_SECONDS: Final = 0.2  # the time for calls in progress when the sandbox stops


class CannotListen(Exception):
    """The address is in use, or is not this machine's."""


class Sandbox:
    """A running service: `with Sandbox(world, directory=path) as sandbox: sandbox.base_url`."""

    def __init__(
        self,
        world: World,
        *,
        directory: Path,
        host: str = DEFAULT_HOST,
        port: int = 0,
        prefix: str = "",
        names: tuple[str, ...] = LOCAL_NAMES,
        expired: bool = False,
    ) -> None:
        """Port 0 means any free port; prefix is the path of base_url; names and expired are for the certificate."""
        self.world, self.host, self.port = world, host, port
        self.names = names  # the names and addresses that its certificate is for
        self._directory, self._prefix = directory, prefix
        self._certificates = make_certificates(directory, names=names, line=Line.EXPIRED if expired else Line.GOOD)
        self._failure: BaseException | None = None

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that a client must trust."""
        return self._certificates.ca_file

    @property
    def line(self) -> Line:
        """The current state of the line."""
        return self._server.line

    @property
    def origin(self) -> str:
        """Scheme, host and port, with a name of the certificate if there is one."""
        name = shown_name(self.host, self.names)
        return f"https://{f'[{name}]' if ':' in name else name}:{self.port}"

    @property
    def base_url(self) -> str:
        """docs/interface.md's {base_url}."""
        return self.origin + self._prefix

    @property
    def control_url(self) -> str:
        """The URL of the control interface."""
        return f"{self.origin}{PREFIX}/"

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start, and return when calls are answered. Raises CannotListen."""
        listener = self.listen()
        self.port = listener.getsockname()[1]
        app = create_app(self.world, prefix=self._prefix, names=tuple(dict.fromkeys((*self.names, self.host))))
        self._server = _Server(_config(app, self.world, self._certificates.server_file), self)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="sandbox", daemon=True)
        self._thread.start()
        if not self._server.up.wait(START_SECONDS) or self._failure:
            raise CannotListen("the sandbox did not start") from self._failure

    def stop(self) -> None:
        """Stop at once, and end calls that hang."""
        self._server.should_exit = True
        self._thread.join()

    def listen(self) -> Listener:
        """Listen; raises CannotListen."""
        return Listener(_listen(self.host, self.port), self.world)

    def certificate(self, line: Line) -> Path:
        """Create the server's key and certificate for this line."""
        return make_certificates(self._directory, names=self.names, line=line).server_file

    def _run(self, listener: Listener) -> None:
        try:
            asyncio.run(self._server.work(listener))
        except Exception as error:  # noqa: BLE001 - start() raises it
            self._failure = error
        finally:
            self._server.up.set()
            listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        what = (
            "is in use: stop the other program, or choose another port with --listen"
            if error.errno == errno.EADDRINUSE
            else error
        )
        raise CannotListen(f"{host}:{port} {what}") from error


def _config(app: ASGIApp, world: World, server_file: Path) -> uvicorn.Config:
    return uvicorn.Config(
        _closing(app, world),
        http=partial(Bounded, world),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="off",
        ssl_certfile=server_file,
        ssl_keyfile=str(server_file),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
    )


def _closing(app: ASGIApp, world: World) -> Any:
    """Wrap the application so that a dropped call closes the connection, and answers carry the platform's date."""

    async def closing(scope: Scope, receive: Receive, send: Send) -> str | None:
        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start" and all(name != b"date" for name, _ in message["headers"]):
                date = formatdate(world.now().timestamp(), usegmt=True).encode()
                message["headers"] = [*message["headers"], (b"date", date)]
            await send(message)

        try:
            await (app if head_length(scope) <= world.options.header_limit_bytes else _too_long)(scope, receive, dated)
        except ConnectionDropped:
            return "dropped"  # uvicorn closes the connection of an application that returns a value
        return None

    return closing


_too_long = PlainTextResponse("Request Header Fields Too Large", TOO_LONG, {"Connection": "close"})


class _Server(uvicorn.Server):
    """uvicorn, which reports when it listens, stops at once, and can simulate faults of the line."""

    def __init__(self, config: uvicorn.Config, sandbox: Sandbox) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.line = Line.GOOD  # the current state of the line
        self._line_ends: float | None = None
        self._sandbox, self._world = sandbox, sandbox.world

    async def work(self, listener: Listener) -> None:
        """Serve calls and tick the world, until should_exit."""
        ticker = asyncio.create_task(self._tick())
        try:
            await self.serve(sockets=[listener])
        finally:
            ticker.cancel()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._world.tick()
            if self.started:
                self._play_line(loop.time())
            await asyncio.sleep(TICK_SECONDS)

    def _play_line(self, monotonic: float) -> None:
        """Set the line to `options.line`, and back to good when its time is over."""
        if self._line_ends is not None and monotonic >= self._line_ends:
            self._line_ends = None
            self._world.set_options(line=Line.GOOD)
        wanted, seconds = self._world.options.line, self._world.options.line_seconds
        if wanted is self.line or (self.line is Line.REFUSED and not self._listen_again()):
            return
        if self.line in BAD_CERTIFICATES or wanted in BAD_CERTIFICATES:
            assert self.config.ssl is not None  # noqa: S101 - it has a certificate
            self.config.ssl.load_cert_chain(self._sandbox.certificate(wanted))
        if wanted is Line.REFUSED:
            for server in self.servers:
                server.close()
        self._line_ends = monotonic + seconds if wanted is not Line.GOOD and seconds > 0 else None
        if wanted is not Line.GOOD:  # affects the next call; a call in progress is answered first
            for connection in list(self.server_state.connections):
                connection.shutdown()
        with self._world.lock:
            self.line = wanted
            self._world.report(f"line.changed line={wanted}")
            self._world.lock.notify_all()

    def _listen_again(self) -> bool:
        """Listen again. False if another program uses the address."""
        try:
            listener = self._sandbox.listen()
        except CannotListen:
            return False
        self._opening = asyncio.create_task(self._serve_at(listener))
        return True

    async def _serve_at(self, listener: Listener) -> None:
        loop, config = asyncio.get_running_loop(), self.config
        self.servers.append(
            await loop.create_server(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state=self.lifespan.state
                ),
                sock=listener,
                ssl=config.ssl,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_ANSWERS_SECONDS)
        # Aborted, because an idle client need not answer the end of TLS, and the close would wait for it.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        await super().shutdown(sockets)


def _print(line: str) -> None:
    """Print a line at once, also to a file or a pipe. A closed pipe does not stop the service."""
    with suppress(BrokenPipeError):
        print(line, flush=True)  # noqa: T201 - the terminal of the command


def serve(
    world: World | None = None,
    *,
    directory: Path = DEFAULT_DIRECTORY,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    names: tuple[str, ...] = (),
    say: Callable[[str], None] = _print,
    quiet: bool = False,
    over: str = "The sandbox has stopped.",
) -> None:
    """Run the sandbox until SIGINT or SIGTERM (main thread only), and print an introduction and the events.

    `names`: further host names for the certificate; `over`: the last line; `quiet`: print no events. Raises
    CannotListen.
    """
    world = world or World.default()
    world.report = (lambda _: None) if quiet else _timed(world, say)
    sandbox = Sandbox(world, directory=directory, host=host, port=port, names=names_of(host, names))
    with _signals() as ended, sandbox:
        for line in introduction(sandbox):
            say(line)
        ended.wait()
    say(over)


def _timed(world: World, say: Callable[[str], None]) -> Callable[[str], None]:
    """Print events after the platform's local time."""
    return lambda line: say(f"{world.local(world.now()):%H:%M:%S} {line}")


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets. The old handlers are restored at the end."""
    over = threading.Event()
    handlers = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield over
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
DEFAULTS: Final = Options().as_json()
# A reserved address: a socket connected to it shows which address this machine uses; nothing is sent.
_SOMEWHERE: Final = ("192.0.2.1", 9)


def is_reachable_by_others(host: str) -> bool:
    """Return whether other machines can reach the address."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def names_of(host: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return the names for the certificate, including the one that is printed."""
    own = _of_this_machine() if host in EVERYWHERE else (host,)
    return tuple(dict.fromkeys((*LOCAL_NAMES, *given, *own)))


def shown_name(host: str, names: Iterable[str]) -> str:
    """Return the name by which to call the address; for all addresses, the first that other machines can use."""
    if host not in EVERYWHERE:
        return host
    return next((name for name in names if name not in LOCAL_NAMES), LOCAL_NAMES[1])


def _of_this_machine() -> tuple[str, ...]:
    """This machine's address in its network, and its name, if they are known."""
    found = []
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_SOMEWHERE)
            found.append(probe.getsockname()[0])  # first, because not every network resolves the names of its machines
    except OSError:  # no network: no other machine can reach it either
        pass
    name = socket.gethostname()
    if name.isascii() and name.replace("-", "").replace(".", "").isalnum():
        found.append(name.lower())
    return tuple(found)


def introduction(sandbox: Sandbox) -> list[str]:
    """Return the lines that tell a developer how to use the sandbox."""
    accounts = list(sandbox.world.accounts.values())
    first = accounts[0]
    body = f'{{"app_secret_key": "{first.app_secret_key}", "rest_secret_key": "{first.rest_secret_key}"}}'
    lines = [*_warning(sandbox), f"base_url        {sandbox.base_url}", f"ca_file         {sandbox.ca_file}"]
    lines += [f"control         {sandbox.control_url}", f"app_secret_key  {first.app_secret_key}"]
    changed = [f"{name}={value}" for name, value in sandbox.world.options.as_json().items() if value != DEFAULTS[name]]
    if changed:
        lines.insert(-1, f"switches        {' '.join(changed)}")
    for one in accounts:
        reached = ", ".join(sandbox.world.restaurants[key].name for key in one.restaurant_ids)
        lines.append(f"rest_secret_key {one.rest_secret_key}  ({reached})")
    header = "Content-Type: application/json"
    lines.append(f"curl --cacert {sandbox.ca_file} -H '{header}' -d '{body}' {sandbox.base_url}/auth/login")
    # With a restaurant: otherwise the order could go to one that the first account does not reach.
    body = f'{{"restaurant_id": "{first.restaurant_ids[0]}"}}'
    lines.append(f"curl --cacert {sandbox.ca_file} -H '{header}' -d '{body}' {sandbox.control_url}orders")
    return lines


def _warning(sandbox: Sandbox) -> list[str]:
    if not is_reachable_by_others(sandbox.host):
        return []
    facts = {"address": f"{sandbox.host}:{sandbox.port}", "names": ", ".join(sandbox.names)}
    return [line[sandbox.world.options.language].format(**facts) for line in words()["terminal"].values()]
