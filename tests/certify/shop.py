"""A till as a process, and a certification of it in this process."""

import json
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from orderbridge_certify.driver import Command, Operator, Terms
from orderbridge_certify.play import Wanted, certify

TILL = Path(__file__).with_name("till.py")
NAME = "X POS 4.2"
# Enable Ctrl-C as at a terminal: a background process may ignore it.
SIGNALS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
PROGRAM = f"{SIGNALS}; from orderbridge.cli import main; main()"
PACE, WITHIN_S = 0.02, 3.0


class Shop:
    """`with Shop(folder, fault) as shop: shop.certify()`. The till is started when certify says so."""

    def __init__(self, folder: Path, fault: str = "none", url: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.printed = folder, list[str]()
        self.url = url or f"sqlite:///{folder}/till.db"
        self.till = [sys.executable, str(TILL), self.url, str(folder / "tickets"), fault]
        self.watch = [*self.till, "watch"]
        self._watching: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.kill()
            self._watching.wait()

    def start(self) -> None:
        self._watching = self._watching or subprocess.Popen(self.watch, stdout=subprocess.DEVNULL)

    def _tell(self, line: str) -> None:
        self.printed.append(line)
        self.start()

    @property
    def operator(self) -> str:
        return shlex.join(self.till)

    def certify(self, *only: str, operator: Operator | None = None, start: str = "", **terms: Any) -> dict[str, Any]:
        wanted = Wanted(
            till=NAME, folder=self.folder, url=self.url, only=only, start=start,
            terms=Terms(**{"pace": PACE, "within_s": WITHIN_S, **terms}),
            operator=operator or Command(self.operator, self.printed.append),
            echo=self.printed.append if start else self._tell,
        )  # fmt: skip
        passed = certify(wanted)
        report = self.report()
        assert passed == (report["verdict"] == "PASS")
        return report

    @contextmanager
    def started(self, *only: str) -> Iterator[subprocess.Popen[str]]:
        names = [word for name in only for word in ("--only", name)]
        terms = ["--pace", str(PACE), "--within", str(WITHIN_S), "--hands", self.operator, "--folder", str(self.folder)]
        command = [sys.executable, "-c", PROGRAM, "certify", "--till", NAME]
        self.start()
        out = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen([*command, *terms, *names], text=True, **out) as running:  # type: ignore[call-overload]
            yield running

    def until_taken(self, orders: int) -> None:
        over = time.monotonic() + 60
        while self.taken() < orders:
            assert time.monotonic() < over
            time.sleep(0.01)

    def taken(self) -> int:
        asked = "SELECT count(*) FROM delivery_open_orders WHERE pos_revision > 0"
        with closing(sqlite3.connect(self.folder / "till.db")) as connection:
            try:
                return int(connection.execute(asked).fetchone()[0])
            except sqlite3.OperationalError:  # not there yet
                return 0

    def kept(self) -> dict[str, Any]:
        return json.loads((self.folder / "certify.json").read_text("utf-8"))

    def canaries(self) -> set[str]:
        """What no report may hold: who ordered, each order's key, and the secrets."""
        with closing(sqlite3.connect(self.folder / "till.db")) as connection:
            columns = ("payment_key", "customer_name", "customer_phone", "address", "pos_reference")
            rows = connection.execute(f"SELECT {', '.join(columns)} FROM delivery_orders").fetchall()
        found = {str(value) for row in rows for value in row if value}
        assert len(found) > len(columns)
        return found | {"sandbox-app-secret", "sandbox-kadikoy-secret"}

    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "report.json").read_text("utf-8"))


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    judged = [(scenario["name"], one) for scenario in report["scenarios"] for one in scenario["criteria"]]
    return {f"{scenario}.{one['name']}": one["verdict"] for scenario, one in judged}


def failed(report: dict[str, Any]) -> set[str]:
    return {name for name, verdict in verdicts(report).items() if verdict == "FAIL"}
