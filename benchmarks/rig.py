"""Shared by the benchmarks: a database of their own, the sandbox over TLS, and the real daemon."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import databases

from orderbridge_sandbox import Sandbox
from orderbridge_sandbox.scenery import APP_SECRET

COMMAND = Path(sys.executable).with_name("orderbridge")
REST_SECRET = "sandbox-kadikoy-secret"
LIMIT_S = 120.0
SETTINGS = """
[marketplace]
base_url = "{base_url}"
ca_file = "{ca_file}"
cooldown_seconds = {cooldown_s}
[database]
url = "{url}"
[[accounts]]
name = "kadikoy"
app_secret_key = "{app_secret}"
rest_secret_key = "{rest_secret}"
[web]
listen = "{listen}"
board = "{board}"
"""


def database_urls(urls: list[str] | None) -> list[str]:
    """The requested URLs; by default SQLite and the servers that the environment names."""
    return urls or ["sqlite", *filter(None, [databases.POSTGRES_URL, databases.MARIADB_URL])]


@contextlib.contextmanager
def address(url: str, name: str) -> Iterator[str]:
    """The URL of a new database of this name on the server, dropped at the end; for "sqlite" of a temporary file."""
    if url == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/pos.db"
    else:
        with databases.own_database(url, name) as own:
            yield own


@contextlib.contextmanager
def daemon(url: str, sandbox: Sandbox, folder: Path, cooldown_s: float, listen: str = "") -> Iterator[int]:
    """Run the daemon, and yield its PID. Its log is in `folder`. `listen`: the address of its board."""
    path = folder / "orderbridge.toml"
    path.write_text(
        SETTINGS.format(
            base_url=sandbox.base_url,
            ca_file=sandbox.ca_file,
            cooldown_s=cooldown_s,
            url=url,
            app_secret=APP_SECRET,
            rest_secret=REST_SECRET,
            listen=listen,
            board="beside" if listen else "off",
        )
    )
    path.chmod(0o600)
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([COMMAND, "--config", path, "run"], stderr=log) as started,
    ):
        try:
            yield started.pid
        finally:
            started.terminate()


def until(condition: Callable[[], object], step_s: float = 0.05) -> None:
    """Wait for the condition, for two minutes at most."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("stopped: it took too long")
        time.sleep(step_s)
