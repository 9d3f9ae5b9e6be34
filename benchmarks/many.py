"""Runs many accounts in one process, each polled every 30 s: cold start, cost, lateness, evenness and memory.

The lateness of a poll is measured at the server, from 30 s after the account's previous poll arrived. Evenness is the
number of polls in the fullest second, divided by the mean.
"""

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from beside import OtherEnd, cpu_s, daemon, other_end, percentile, rss_mib, stores, table
from rig import address

COOLDOWN_S = 30.0
LEAST_S = 92.0  # the shortest measurement: three rounds
MOST_START_S = 900.0
HEAD = [
    "accounts",
    "database",
    "cold start, s",
    "logins in a second",
    "processor ms a poll",
    "late p50 ms",
    "late p99 ms",
    "late at most",
    "early",
    "fullest second / mean",
    "resident MiB",
]


@dataclass
class Seen:
    """The requests that arrived at the service. Times are seconds of the machine's monotonic clock."""

    end: OtherEnd
    logins: list[float] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    late: list[float] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)
    ill: str = ""  # a token whose polls do not count

    def take(self) -> None:
        found = self.end.ask("/__seen")
        self.logins += [at / 1e9 for _, at in found["logins"]]
        for token, at in sorted(found["polls"], key=lambda one: one[1]):
            moment = at / 1e9
            if token == self.ill:
                continue
            if token in self.last:
                self.late.append(moment - self.last[token] - COOLDOWN_S)
            self.first.setdefault(token, moment)
            self.last[token] = moment
            self.polls.append(moment)

    def forget(self) -> None:
        self.late, self.polls = [], []


def accounts(asked: argparse.Namespace) -> None:
    """Measure many accounts in one process. In the second row one gets no answers, and is not counted."""
    rows = []
    for name, url in stores().items():
        for number in asked.accounts if name in (asked.store or stores()) else ():
            with other_end() as end, address(url, f"obs_bench_{os.getpid()}") as own:
                for what, row in _measured(own, end, number, max(asked.seconds, LEAST_S)):
                    rows.append([f"{number:,}{what}", name, *row])
    table(HEAD, rows)


def fullest(moments: list[float]) -> int:
    """The largest number of events within one second of the clock."""
    return max(Counter(map(int, moments)).values(), default=0)


def _measured(url: str, end: OtherEnd, number: int, seconds: float) -> Iterator[tuple[str, list[str]]]:
    began, seen = time.monotonic(), Seen(end)
    with daemon(url, end, accounts=number) as (pid, _):
        while len(seen.last) < number and time.monotonic() - began < MOST_START_S:
            time.sleep(1)
            seen.take()
            cpu_s(pid)  # raises if the process has ended
        cold = max(seen.first.values()) - began
        if len(seen.last) < number:
            raise SystemExit(f"stopped: {len(seen.last)} of {number} accounts were polled in {MOST_START_S:.0f} s")
        time.sleep(COOLDOWN_S)  # until the work of the start is done
        yield "", [f"{cold:.1f}", f"{fullest(seen.logins)}", *_window(seen, pid, seconds)]
        seen.ill = f"token-bench-secret-{number // 2}"
        end.ask("/__ill", json.dumps(seen.ill).encode())
        yield ", one of them ill", ["", "", *_window(seen, pid, seconds)]


def _window(seen: Seen, pid: int, seconds: float) -> list[str]:
    """Measure for this number of seconds."""
    seen.take()
    seen.forget()
    before, since = cpu_s(pid), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(5)
        seen.take()
    spent, took = cpu_s(pid) - before, time.monotonic() - since
    inside = [at for at in seen.polls if int(since) < int(at) < int(since + took)]  # whole seconds
    mean = len(inside) / (int(since + took) - int(since) - 1)
    return [
        f"{spent / len(seen.polls) * 1000:.2f}",
        *(f"{one * 1000:.0f}" for one in (percentile(seen.late, 0.5), percentile(seen.late, 0.99), max(seen.late))),
        str(sum(one < 0 for one in seen.late)),
        f"{fullest(inside) / mean:.2f}",
        f"{rss_mib(pid):.0f}",
    ]
