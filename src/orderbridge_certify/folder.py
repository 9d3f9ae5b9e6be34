"""The folder of a certificate: what has been played is kept there after each scenario, so that a kill loses one at most."""

import json
import os
from pathlib import Path
from typing import Any

from orderbridge.errors import ConfigError

STATE = "certify.json"

Played = dict[str, Any]
"""A scenario's result as JSON: verdict, took_s and the criteria."""


class State:
    """What stands in the file: the terms, how often each scenario was begun, and the results."""

    def __init__(self, folder: Path, terms: dict[str, Any]) -> None:
        """Go on where the file says, or begin. Raises ConfigError when it is about something else."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / STATE
        self.is_new = not self._file.exists()
        self._kept: dict[str, Any] = {"terms": terms, "begun": {}, "results": {}}
        if not self.is_new:
            self._kept = json.loads(self._file.read_text("utf-8"))
            if other := sorted(name for name in terms if self._kept["terms"].get(name) != terms[name]):
                raise ConfigError("certify.other_terms", folder=folder, names=", ".join(other))

    @property
    def results(self) -> dict[str, Played]:
        """By the scenario's name."""
        found: dict[str, Played] = self._kept["results"]
        return found

    def begin(self, name: str) -> int:
        """A scenario begins; return how often it had begun before."""
        before: int = self._kept["begun"].get(name, 0)
        self._kept["begun"][name] = before + 1
        self.write()
        return before

    def end(self, name: str, result: Played) -> None:
        """A scenario has ended."""
        self.results[name] = result
        self.write()

    def write(self) -> None:
        """All at once, or not at all."""
        fresh = self._file.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as out:
            json.dump(self._kept, out, ensure_ascii=False, indent=1)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._file)
