"""A separate program that constantly writes small transactions to a SQLite file.

    python -m orderbridge_certify.noise FILE

It is a process, because a thread would pause whenever certify works. It ends with its parent.
"""

import os
import sqlite3
import sys
import threading
from contextlib import closing

TABLE = "certify_noise"
STATEMENT = f"UPDATE {TABLE} SET times = times + 1"  # noqa: S608 - a name of ours
PAUSE_S = 0.002
PATIENT_S = 120.0


def main(file: str) -> None:
    """Write until the parent has ended."""
    parent, pause = os.getppid(), threading.Event()
    with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENT_S)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # for as many commits as possible
        while os.getppid() == parent:
            connection.execute(STATEMENT)
            pause.wait(PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1])
