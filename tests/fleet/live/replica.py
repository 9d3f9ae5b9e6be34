"""The membership of a replica as a process without a daemon: beats every second, and prints changes.

    python -m tests.fleet.live.replica URL

Each line of its output is JSON: `held` (how many buckets), `lost` (the server did not answer), `over` (and it ends with 3).
It gives everything back when its input ends, or at SIGTERM.
"""

import json
import os
import signal
import sys
import threading
from functools import partial

from sqlalchemy.exc import DBAPIError

from orderbridge.errors import Fenced
from orderbridge.store.database import Database
from orderbridge_fleet.membership import Membership

BEAT_S = 1.0


def say(**what: object) -> None:
    os.write(sys.stdout.fileno(), f"{json.dumps(what)}\n".encode())  # at once, whatever another thread says


def beat_on(membership: Membership, ended: threading.Event) -> None:
    """Work until it is fenced or told to end. Excess buckets are released with the next beat."""
    excess: frozenset[int] = frozenset()
    reported: object = None
    while not ended.is_set():
        try:
            beat = membership.beat(excess)
        except DBAPIError as error:
            say(lost=type(error.orig).__name__)
        except Fenced as error:
            if not ended.is_set():
                say(over=str(error))
                os._exit(3)
        else:
            excess = beat.excess
            if reported != (reported := (len(beat.held), len(beat.replicas))):
                say(held=len(beat.held), replicas=len(beat.replicas), name=membership.name)
        ended.wait(0.0 if excess else BEAT_S)


def main(url: str) -> None:
    database = Database(url, inline=True)
    membership = Membership(database)
    ended = threading.Event()
    while not membership.take():
        say(waits=True)
        ended.wait(BEAT_S)
    database.fence = membership.fence
    thread = threading.Thread(target=partial(beat_on, membership, ended), daemon=True)
    thread.start()

    def end(*_: object) -> None:
        ended.set()
        membership.close()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    sys.stdin.read()
    end()


if __name__ == "__main__":
    main(sys.argv[1])
