"""Whole certificates of the good till and of the eleven bad ones, on one kind of database:

    python -m tests.certify [sqlite|postgresql|mariadb] [FAULT …]

Each bad till must fail at its own criterion and nowhere else. It takes half a minute for each till, and six minutes
for the one that holds a lock; `holds_lock:3` is quicker.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests import databases
from tests.certify.faults import OWN
from tests.certify.shop import Shop, failed, verdicts


def main() -> int:
    kind, faults = (sys.argv[1:] or ["sqlite"])[0], sys.argv[2:] or ["none", *OWN]
    wrong = 0
    for fault in faults:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="certify-")))
            url = None
            if kind != databases.SQLITE:
                server = databases.POSTGRES_URL if kind == databases.POSTGRESQL else databases.MARIADB_URL
                url = stack.enter_context(databases.own_database(server or "", f"certify_{fault.partition(':')[0]}"))
            began = time.monotonic()
            with Shop(folder, fault, url) as shop:
                report = shop.certify()
            found, expected = failed(report), _expected(fault, kind)
            wrong += found != expected
            took = time.monotonic() - began
            sys.stdout.write(
                f"{kind} {fault}: {took:.0f} s, {report['counts']}, {sorted(found)}, not seen: {_not_seen(report)}"
                f"{'' if found == expected else f' EXPECTED {sorted(expected)}'}\n"
            )
            sys.stdout.flush()
    return 1 if wrong else 0


def _not_seen(report: dict[str, Any]) -> list[str]:
    return [name for name, verdict in verdicts(report).items() if verdict == "NOT SEEN"]


def _expected(fault: str, kind: str) -> set[str]:
    if fault == "deferred_begin" and kind != databases.SQLITE:
        return set()  # an ordinary transaction there
    return OWN.get(fault.partition(":")[0], set())


if __name__ == "__main__":
    sys.exit(main())
