"""./run sim: play one seed and print its trace, or search many."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.sim.invariants import invariants_of
from tests.sim.machine import simulate
from tests.sim.plan import MADE, plan_for
from tests.sim.simulation import Sim


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("--seeds", help="A..B: search these seeds, and print what broke")
    parser.add_argument("--kind", choices=tuple(MADE), default="", help="instead of what the seed would choose")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many seeds at once")
    asked = parser.parse_args()
    if asked.seed is not None:
        sim, took = _play(asked.seed, asked.kind)
        sys.stdout.write(sim.trace.text())
        return _report(sim, took)
    first, _, last = (asked.seeds or "1..20").partition("..")
    return _search(range(int(first), int(last or first) + 1), asked.kind, asked.jobs)


def _play(seed: int, kind: str) -> tuple[Sim, float]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="orderbridge-sim-") as folder:
        sim = simulate(plan_for(seed, kind), Path(folder), invariants_of(plan_for(seed, kind)))
    return sim, time.perf_counter() - began


def _search(seeds: range, kind: str, jobs: int) -> int:
    totals, broken, simulated, began = Counter[str](), 0, 0.0, time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        for seed, found in zip(seeds, pool.map(partial(_summary, kind=kind), seeds), strict=True):
            simulated += found.simulated
            totals += found.faults
            broken += bool(found.violations)
            for violation in found.violations:
                sys.stdout.write(f"seed {seed} ({found.kind}): {violation}\n")
            sys.stdout.flush()
    _tell(len(seeds), simulated, time.perf_counter() - began, totals)
    return 1 if broken else 0


@dataclass(frozen=True)
class Summary:
    """What a search keeps of a seed."""

    kind: str
    simulated: float
    faults: Counter[str]
    violations: list[str]


def _summary(seed: int, kind: str) -> Summary:
    sim, _ = _play(seed, kind)
    return Summary(sim.plan.kind, sim.ended_at, sim.trace.faults, sim.violations)


def _report(sim: Sim, took: float) -> int:
    for violation in sim.violations:
        sys.stderr.write(f"{violation}\n")
    _tell(1, sim.ended_at, took, sim.trace.faults)
    return 1 if sim.violations else 0


def _tell(seeds: int, simulated: float, took: float, faults: Counter[str]) -> None:
    injected = sum(faults.values()) - faults["crash"]
    each = ", ".join(f"{name} {faults[name]}" for name in sorted(faults) if faults[name])
    sys.stderr.write(
        f"{seeds} seeds, {simulated / 3600:.1f} h simulated in {took:.1f} s, "
        f"{injected} faults injected, {faults['crash']} crashes\n  {each}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
