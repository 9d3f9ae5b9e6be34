"""A POS process that writes to the daemon's database at full speed, and reports its writes at the end.

    python -m tests.live.second_writer URL [--hold SECONDS ...]

It takes each new order over, asks for accept, on_the_way and complete, and writes to a table of its own. Some of
these transactions it keeps open for as long as it was told. It ends when its input ends.
"""

import argparse
import contextlib
import json
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from tests.store.samples import Pos, rows

BETWEEN_HOLDS = 10  # orders
AT_ONCE = 5  # orders in one transaction
RECEIPTS = "CREATE TABLE IF NOT EXISTS pos_receipts (number INTEGER PRIMARY KEY, what VARCHAR(64) NOT NULL)"


@dataclass(slots=True)
class Report:
    """What the POS did, and how long it waited at most for a transaction that it did not hold open itself."""

    receipts: int = 0
    orders: int = 0
    held: int = 0
    longest_s: float = 0.0


@contextlib.contextmanager
def transaction(pos: Pos) -> Iterator[None]:
    """Take orders over as the guide says. A failure ends the program with an exit code."""
    pos.execute("BEGIN IMMEDIATE")
    yield
    pos.execute("COMMIT")


class SecondWriter:
    """One POS at work."""

    def __init__(self, pos: Pos, holds: list[float]) -> None:
        self._pos = pos
        self._holds = holds
        self._hold_at = 0
        self.report = Report()

    def work(self) -> None:
        self._pos.execute(RECEIPTS)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0)[0]:
            self._turn()

    def _turn(self) -> None:
        new = rows(self._pos, f"SELECT payment_key, revision FROM delivery_new_orders LIMIT {AT_ONCE}")
        hold = self._next_hold() if new else 0.0
        began = time.monotonic()
        with transaction(self._pos):
            self._receipt("sale")
            for order in new:
                self._take_over(order["payment_key"], order["revision"])
            time.sleep(hold)
        if hold:
            self.report.held += 1
        else:
            self.report.longest_s = max(self.report.longest_s, time.monotonic() - began)

    def _next_hold(self) -> float:
        if not self._holds or self.report.orders < self._hold_at:
            return 0.0
        self._hold_at = self.report.orders + BETWEEN_HOLDS
        return self._holds.pop(0)

    def _receipt(self, what: str) -> None:
        self.report.receipts += 1
        self._pos.execute("INSERT INTO pos_receipts (number, what) VALUES (?, ?)", (self.report.receipts, what))

    def _take_over(self, key: str, revision: int) -> None:
        self.report.orders += 1
        self._pos.execute(
            "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?",
            (revision, f"A-{self.report.orders}", key),
        )
        self._pos.execute(
            "INSERT INTO delivery_actions (action, payment_key, preparing_time) VALUES ('accept', ?, 25)", (key,)
        )
        for action in ("on_the_way", "complete"):
            self._pos.execute("INSERT INTO delivery_actions (action, payment_key) VALUES (?, ?)", (action, key))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--hold", nargs="*", type=float, default=[], metavar="SECONDS")
    asked = parser.parse_args()
    with Pos.at(asked.url) as pos:
        writer = SecondWriter(pos, asked.hold)
        writer.work()
    sys.stdout.write(json.dumps(asdict(writer.report)))


if __name__ == "__main__":
    main()
