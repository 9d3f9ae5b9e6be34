"""The sandbox on a real socket: HTTPS by uvicorn, in a thread and an event loop of its own."""

import asyncio
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import create_app
from .control import PREFIX
from .replies import ConnectionDropped
from .tls import LOCAL_NAMES, make_certificates
from .world import World

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8443
DEFAULT_DIRECTORY: Final = Path("sandbox-data")
TICK_SECONDS: Final = 0.2
START_SECONDS: Final = 60.0
LAST_ANSWERS_SECONDS: Final = 0.2
"""What calls under way are given when the sandbox stops."""

# Broken answers are played on purpose here: uvicorn's complaints about them are no news.
_quiet = logging.getLogger("orderbridge.sandbox.http")
_quiet.setLevel(logging.CRITICAL + 1)


class CannotListen(Exception):
    """The address is taken, or is not ours."""


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
        """Port 0 takes a free one; prefix is the path of base_url; names and expired shape the certificate."""
        self.world = world
        self._certificates = make_certificates(directory, names=names, expired=expired)
        self._address = (host, port)
        self._prefix = prefix
        self._names = tuple(dict.fromkeys((*names, host)))
        self._failure: BaseException | None = None

    @property
    def ca_file(self) -> Path:
        """What a client must trust."""
        return self._certificates.ca_file

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._address[1]

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host, port = self._address
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    @property
    def base_url(self) -> str:
        """docs/interface.md's {base_url}."""
        return self.origin + self._prefix

    @property
    def control_url(self) -> str:
        """Where the control interface is."""
        return f"{self.origin}{PREFIX}/"

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Listen, and return when calls are answered; raises CannotListen."""
        listener = _listen(*self._address)
        self._address = (self._address[0], listener.getsockname()[1])
        app = create_app(self.world, prefix=self._prefix, names=self._names)
        self._server = _Server(_config(app, self._certificates.server_file))
        self._thread = threading.Thread(target=self._run, args=(listener,), name="sandbox", daemon=True)
        self._thread.start()
        if not self._server.up.wait(START_SECONDS) or self._failure:
            raise CannotListen("the sandbox did not start") from self._failure

    def stop(self) -> None:
        """End at once, also calls that hang."""
        self._server.should_exit = True
        self._thread.join()

    def _run(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listener))
        except Exception as error:  # noqa: BLE001 - told to whoever started us
            self._failure = error
        finally:
            self._server.up.set()
            listener.close()

    async def _serve(self, listener: socket.socket) -> None:
        ticker = asyncio.create_task(_tick(self.world))
        try:
            await self._server.serve(sockets=[listener])
        finally:
            ticker.cancel()


async def _tick(world: World) -> None:
    while True:
        world.tick()
        await asyncio.sleep(TICK_SECONDS)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        what = (
            "is taken: end the other program, or name another port with --listen"
            if error.errno == errno.EADDRINUSE
            else error
        )
        raise CannotListen(f"{host}:{port} {what}") from error


def _config(app: ASGIApp, server_file: Path) -> uvicorn.Config:
    return uvicorn.Config(
        _closing(app),
        http=_Protocol,
        ws="none",
        lifespan="off",
        ssl_certfile=server_file,
        ssl_keyfile=str(server_file),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


def _closing(app: ASGIApp) -> Any:
    """Wrap the application so that a dropped call closes the connection."""

    async def closing(scope: Scope, receive: Receive, send: Send) -> str | None:
        try:
            await app(scope, receive, send)
        except ConnectionDropped:
            return "dropped"  # uvicorn closes the connection of an application that returns a value
        return None

    return closing


class _Protocol(H11Protocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _quiet


class _Server(uvicorn.Server):
    """uvicorn, telling when it is up and leaving at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_ANSWERS_SECONDS)
        # A connection that idles would be waited for: its client need not answer a polite end of TLS.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        await super().shutdown(sockets)


_print = partial(print, flush=True)  # else a file or a pipe shows nothing for a while


def serve(
    world: World | None = None,
    *,
    directory: Path = DEFAULT_DIRECTORY,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    names: tuple[str, ...] = (),
    say: Callable[[str], None] = _print,
    over: str = "The sandbox has stopped.",
) -> None:
    """Run the sandbox until SIGINT or SIGTERM (main thread only), telling a developer what is needed to use it.

    `names` are further host names for the certificate, `over` the last words. Raises CannotListen.
    """
    world = world or World.default(tell=say)
    own_name = (host,) if host not in (*LOCAL_NAMES, "0.0.0.0", "::") else ()  # noqa: S104 - compared, not bound
    sandbox = Sandbox(world, directory=directory, host=host, port=port, names=LOCAL_NAMES + own_name + names)
    with _signals() as ended, sandbox:
        for line in introduction(sandbox):
            say(line)
        ended.wait()
    say(over)


def introduction(sandbox: Sandbox) -> list[str]:
    """Return what a developer needs to know, line by line."""
    first = sandbox.world.scenery.accounts[0]
    body = f'{{"app_secret_key": "{first.app_secret_key}", "rest_secret_key": "{first.rest_secret_key}"}}'
    lines = [f"base_url        {sandbox.base_url}", f"ca_file         {sandbox.ca_file}"]
    lines += [f"control         {sandbox.control_url}", f"app_secret_key  {first.app_secret_key}"]
    for account in sandbox.world.scenery.accounts:
        names = ", ".join(sandbox.world.restaurants[key].name for key in account.restaurant_ids)
        lines.append(f"rest_secret_key {account.rest_secret_key}  ({names})")
    header = "Content-Type: application/json"
    lines.append(f"curl --cacert {sandbox.ca_file} -H '{header}' -d '{body}' {sandbox.base_url}/auth/login")
    # Without a restaurant the order may go to one that the example configuration does not reach, and is never seen.
    body = f'{{"restaurant_id": "{first.restaurant_ids[0]}"}}'
    lines.append(f"curl --cacert {sandbox.ca_file} -H '{header}' -d '{body}' {sandbox.origin}{PREFIX}/orders")
    return lines


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Give an event that SIGINT or SIGTERM sets; the old handlers come back at the end."""
    over = threading.Event()
    handlers = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield over
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
