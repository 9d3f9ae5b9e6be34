"""Counts how often the alarm command runs in an evening, by the sandbox's presets and the till's behaviour.

    python benchmarks/alarms.py [--minutes 20] [quiet | busy | absent | still]...

quiet: no order comes. busy: preset `friday`, and a till that takes each order over and answers it within 20 to 160 s.
absent: the same, but the till answers nothing from the fifth minute on. still: the till reads nothing from then on.
All run at the same time, each with its own sandbox, daemon and database, at the marketplace's cooldown of 30 s.
"""

import argparse
import contextlib
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from rig import COMMAND, REST_SECRET, SETTINGS

from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.options import PRESETS
from orderbridge_sandbox.scenery import APP_SECRET, DEFAULT_SCENERY

EVENINGS = {"quiet": "quiet", "busy": "friday", "absent": "friday", "still": "friday"}
BREAKS_AFTER_S = 300.0
SOONEST_S, LATEST_S = 20.0, 160.0
ALARMS = '[alarms]\ncommand = ["/bin/sh", "-c", "echo \\"$@\\" >> {calls}", "sh"]\n'


class Till:
    """A till that takes orders over, answers each after a while, and marks it as on the way."""

    def __init__(self, path: Path, evening: str) -> None:
        self._till = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._evening = evening
        self._random = Random(1)
        self._began = time.monotonic()
        self._due: list[tuple[float, str, str]] = []
        self.answered = 0

    def read_and_answer(self) -> None:
        broken = time.monotonic() - self._began > BREAKS_AFTER_S
        if broken and self._evening == "still":
            return
        for key, is_new, revision in self._till.execute(
            "SELECT payment_key, 1, revision FROM delivery_new_orders"
            " UNION ALL SELECT payment_key, 0, revision FROM delivery_changed_orders"
        ).fetchall():
            self._till.execute("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?", (revision, key))
            if is_new:
                wait = self._random.uniform(SOONEST_S, LATEST_S)
                answer = "cancel" if self._random.random() < 0.03 else "accept"  # noqa: PLR2004
                self._due.append((time.monotonic() + wait, answer, key))
        if broken and self._evening == "absent":
            return
        now = time.monotonic()
        ready, self._due = [one for one in self._due if one[0] <= now], [one for one in self._due if one[0] > now]
        for _, action, key in ready:
            column, value = {"accept": ("preparing_time", 25), "cancel": ("reason_id", 1)}[action]
            self._till.execute(
                f"INSERT INTO delivery_actions (action, payment_key, {column}) VALUES (?, ?, ?)", (action, key, value)
            )
            self.answered += 1


def spend(evening: str, minutes: float, results: dict[str, list[str]]) -> None:
    """Play one evening."""
    one = replace(DEFAULT_SCENERY, accounts=DEFAULT_SCENERY.accounts[:1], restaurants=DEFAULT_SCENERY.restaurants[:1])
    world = World(one, options=Options(**PRESETS[EVENINGS[evening]]))
    with tempfile.TemporaryDirectory() as name, Sandbox(world, directory=Path(name)) as sandbox:
        folder, calls = Path(name), Path(name) / "calls"
        settings = folder / "orderbridge.toml"
        calls.touch()
        settings.write_text(
            SETTINGS.format(
                base_url=sandbox.base_url,
                ca_file=sandbox.ca_file,
                cooldown_s=30,
                url=f"sqlite:///{folder}/pos.db",
                app_secret=APP_SECRET,
                rest_secret=REST_SECRET,
                listen="",
                board="off",
            )
            + ALARMS.format(calls=calls)
        )
        settings.chmod(0o600)
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen([COMMAND, "--config", settings, "run"], stderr=log) as started,
        ):
            try:
                while not (folder / "pos.db").exists() or not _is_ready(folder / "pos.db"):
                    time.sleep(0.5)
                till = Till(folder / "pos.db", evening)
                over = time.monotonic() + 60 * minutes
                while time.monotonic() < over:
                    till.read_and_answer()
                    time.sleep(1.0)
            finally:
                started.terminate()
        results[evening] = [str(till.answered), *calls.read_text().splitlines()]


def _is_ready(path: Path) -> bool:
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'delivery_new_orders'").fetchone())
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("evenings", nargs="*", default=list(EVENINGS), metavar="|".join(EVENINGS))
    chosen = parser.parse_args()
    results: dict[str, list[str]] = {}
    threads = [threading.Thread(target=spend, args=(evening, chosen.minutes, results)) for evening in chosen.evenings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"| {chosen.minutes:g} minutes | orders answered | the alarm command ran | of what |\n|---|---|---|---|")
    for evening, (answered, *runs) in sorted(results.items()):
        codes = Counter(" ".join(line.split()[:2]) for line in runs)
        print(f"| {evening} | {answered} | {len(runs)} | {', '.join(f'{n} {code}' for code, n in codes.items())} |")


main()
