"""Runs the real daemon and the simulated service as separate processes, and reads their costs from the system."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rig import COMMAND
from tests import databases

from orderbridge_sandbox.tls import make_certificates

HERE = Path(__file__).parent
APP_SECRET = "bench-app-secret"
SERVERS = {
    "PostgreSQL": (databases.POSTGRES_URL, "postgresql+psycopg://postgres@127.0.0.1:5432/postgres", 5432),
    "MariaDB": (databases.MARIADB_URL, "mysql+pymysql://root@127.0.0.1:3306/", 3306),
}


@dataclass(frozen=True, slots=True)
class OtherEnd:
    """The simulated service."""

    base_url: str
    ca_file: Path

    def ask(self, path: str, body: bytes | None = None) -> dict[str, list[tuple[str, int]]]:
        context = ssl.create_default_context(cafile=self.ca_file)
        with urllib.request.urlopen(f"{self.base_url}{path}", body, context=context) as answer:
            return dict(json.load(answer))


@contextlib.contextmanager
def other_end(delay_ms: float = 0.0) -> Iterator[OtherEnd]:
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(Path(folder))
        command = [sys.executable, HERE / "other_end.py", made.server_file, str(delay_ms)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield OtherEnd(f"https://localhost:{process.stdout.readline().strip()}", made.ca_file)
            finally:
                process.terminate()


@contextlib.contextmanager
def daemon(url: str, end: OtherEnd, *, more: str = "", accounts: int = 1) -> Iterator[tuple[int, Path]]:
    """Run the daemon. Yields its process and folder. `more`: further tables of its configuration."""
    listed = "".join(
        f'[[accounts]]\nname = "a{number}"\n'
        f'app_secret_key = "{APP_SECRET}"\nrest_secret_key = "bench-secret-{number}"\n'
        for number in range(accounts)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "orderbridge.toml"
        config.write_text(
            f'[marketplace]\nbase_url = "{end.base_url}"\nca_file = "{end.ca_file}"\n[database]\nurl = "{url}"\n'
            f'[web]\nlisten = ""\n[log]\nlevel = "warning"\n{more}\n{listed}'
        )
        config.chmod(0o600)
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen([COMMAND, "--config", config, "run"], stdout=log, stderr=log) as process,
        ):
            try:
                yield process.pid, folder
            finally:
                process.send_signal(signal.SIGTERM)


def cpu_s(pid: int) -> float:
    """The processor seconds of a process and its threads, as the system counts them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise SystemExit("the program has ended; its log is in the folder of its configuration")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def stores() -> dict[str, str]:
    """SQLite, and each server that can be reached."""
    found = {"SQLite": "sqlite"}
    for name, (named, usual, port) in SERVERS.items():
        with contextlib.suppress(OSError):
            if named is None:
                socket.create_connection(("127.0.0.1", port), 1).close()
            found[name] = named or usual
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def table(head: list[str], rows: list[list[str]]) -> None:
    """The table as Markdown, for RESULTS.md."""
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)
