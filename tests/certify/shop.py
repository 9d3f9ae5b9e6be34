"""A till in a process of its own, and a certificate made for it in this one."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from orderbridge.certify.hands import Command, Hands
from orderbridge.certify.play import Wanted, certify
from orderbridge.certify.stage import Terms

TILL = Path(__file__).with_name("till.py")
PACE, WITHIN_S = 0.02, 3.0


class Shop:
    """`with Shop(folder, fault) as shop: shop.certify()`."""

    def __init__(self, folder: Path, fault: str = "none", url: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.said = folder, list[str]()
        self.url = url or f"sqlite:///{folder}/till.db"
        self._till = [sys.executable, str(TILL), self.url, str(folder / "tickets"), fault]

    def __enter__(self) -> Self:
        self._watching = subprocess.Popen([*self._till, "watch"])
        return self

    def __exit__(self, *_: object) -> None:
        self._watching.kill()
        self._watching.wait()

    @property
    def hands(self) -> str:
        return shlex.join(self._till)

    def certify(self, *only: str, hands: Hands | None = None, **terms: Any) -> dict[str, Any]:
        """The report."""
        wanted = Wanted(
            till="X POS 4.2",
            folder=self.folder,
            url=self.url,
            terms=Terms(**{"pace": PACE, "within_s": WITHIN_S, **terms}),
            only=only,
            hands=hands or Command(self.hands, self.said.append),
            tell=self.said.append,
        )
        passed = certify(wanted)
        report = self.report()
        assert passed == (report["verdict"] == "PASS")
        return report

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text("utf-8"))
        return found


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """By scenario and criterion."""
    return {
        f"{scenario['name']}.{one['name']}": one["verdict"]
        for scenario in report["scenarios"]
        for one in scenario["criteria"]
    }


def failed(report: dict[str, Any]) -> set[str]:
    return {name for name, verdict in verdicts(report).items() if verdict == "FAIL"}
