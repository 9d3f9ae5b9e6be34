"""./run sim: play one seed and print its trace, or search many."""

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice, takewhile
from pathlib import Path

from tests.sim import reached
from tests.sim.judges import judges_of
from tests.sim.machine import simulate
from tests.sim.plan import MADE, MIX, Plan, plan_for
from tests.sim.shrink import MINUTES, Limit, Shrinker, as_python, promise_of

Seed = tuple[int, str]  # with the kind, if it is not the seed's own


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("--seeds", help="A..B: search these seeds; print what broke, and which states were reached")
    parser.add_argument(
        "--minutes", type=float, help="search for this time; without --seeds from a seed that the commit chooses"
    )
    parser.add_argument("--shrink", type=int, metavar="SEED", help="print a small plan that breaks the same promise")
    parser.add_argument("--plan", metavar="FILE", help="replay the PLAN of this file and print its trace")
    parser.add_argument("--kind", choices=tuple(MADE), default="", help="instead of what the seed would choose")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many seeds at once")
    parser.add_argument("--bugs", nargs="*", metavar="NAME", help="find these planted bugs; without a name, all")
    asked = parser.parse_args()
    if asked.plan is not None:
        return _replay(runpy.run_path(asked.plan)["PLAN"])
    if asked.bugs is not None:
        from tests.sim import bugs, planted_search

        return 1 if planted_search.search(asked.bugs or bugs.BUGS) else 0
    if asked.seed is not None:
        return _replay(plan_for(asked.seed, asked.kind))
    if asked.shrink is not None:
        return _shrink(plan_for(asked.shrink, asked.kind), Shrinker(judges_of))
    deadline = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")
    if asked.minutes and not asked.seeds:
        return _search(_of_the_commit(asked.kind), asked.jobs, deadline)
    first, _, last = (asked.seeds or "1..20").partition("..")
    seeds = [(seed, asked.kind) for seed in range(int(first), int(last or first) + 1)]
    if not seeds:
        parser.error(f"--seeds {asked.seeds} names no seed: both numbers are whole ones")
    return _search(seeds, asked.jobs, deadline)


def _replay(plan: Plan) -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="orderbridge-sim-") as folder:
        sim = simulate(plan, Path(folder), judges_of(plan))
    sys.stdout.write(sim.trace.text())
    for violation in sim.violations:
        sys.stderr.write(f"{violation}\n")
    _tell(1, sim.ended_at, time.perf_counter() - began, sim.trace.faults)
    sys.stderr.write(f"  the program's {sim.transactions} transactions took {sim.transactions_took:.1f} s of it\n")
    return 1 if sim.violations else 0


def _shrink(plan: Plan, shrinker: Shrinker) -> int:
    small = shrinker.shrink(plan)
    if not shrinker.broken:
        sys.stderr.write(f"seed {plan.seed} ({plan.kind}) breaks no promise\n")
        return 0
    sys.stdout.write(f"# {shrinker.broken}\n{as_python(small)}")
    return 1


def _of_the_commit(kind: str) -> Iterator[Seed]:
    """New seeds that the commit chooses, or without a git history the day, from the first kind of MIX on."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        first = int(asked.stdout[:7], 16)
    except (OSError, subprocess.CalledProcessError):
        first = datetime.now(UTC).toordinal() * 1000
    return ((seed, kind) for seed in count(first // len(MIX) * len(MIX)))


@dataclass(frozen=True)
class Summary:
    """What a search keeps of a seed."""

    seed: int
    kind: str
    simulated: float
    faults: Counter[str]
    violations: list[str]
    reached: Counter[reached.Cell]


def _summary(seed: Seed, deadline: float) -> Summary | None:
    if time.monotonic() > deadline:
        return None
    plan, limit = plan_for(*seed), Limit(float("inf"), deadline, time.monotonic)
    with tempfile.TemporaryDirectory(prefix="orderbridge-sim-") as folder:
        try:
            sim = simulate(plan, Path(folder), [*judges_of(plan), limit])
        except Exception as error:
            error.add_note(f"seed {plan.seed} ({plan.kind})")
            raise
        if limit.given_up and not sim.violations:
            return None
        return Summary(
            plan.seed, seed[1] or plan.kind, sim.ended_at, sim.trace.faults, sim.violations, reached.cells_of(sim)
        )


def _search(seeds: Iterable[Seed], jobs: int, deadline: float = float("inf")) -> int:
    totals, played, simulated, began = Counter[str](), Counter[str](), 0.0, time.perf_counter()
    cells: dict[str, Counter[reached.Cell]] = {kind: Counter() for kind in MADE}
    broken: dict[str, Summary] = {}  # the first one of each promise
    for found in _played(seeds, jobs, deadline):
        simulated += found.simulated
        totals += found.faults
        played[found.kind] += 1
        cells[found.kind] += found.reached
        for violation in found.violations:
            sys.stdout.write(f"seed {found.seed} ({found.kind}): {violation}\n")
        if found.violations:
            broken.setdefault(promise_of(found.violations), found)
        sys.stdout.flush()
    _tell(played.total(), simulated, time.perf_counter() - began, totals)
    sys.stderr.write(reached.table(sum(cells.values(), Counter[reached.Cell]())))
    missing = [line for kind in MADE for line in reached.missing(kind, played[kind], cells[kind])]
    sys.stderr.write("".join(f"not reached: {line}\n" for line in missing))
    sys.stderr.flush()
    left = time.process_time() + MINUTES * 60
    for summary in broken.values():
        sys.stdout.write(f"\n# seed {summary.seed} ({summary.kind}), made small:\n")
        _shrink(plan_for(summary.seed, summary.kind), Shrinker(judges_of, (left - time.process_time()) / 60))
    return 1 if broken or missing else 0


def _played(seeds: Iterable[Seed], jobs: int, deadline: float) -> Iterator[Summary]:
    play = partial(_summary, deadline=deadline)
    if jobs == 1:  # in this process, so that its end ends all
        yield from takewhile(bool, map(play, seeds))
        return
    rest = iter(seeds)
    with ProcessPoolExecutor(jobs) as pool:
        while some := list(islice(rest, 4 * jobs)):  # the seeds may be endless
            yield from filter(None, pool.map(play, some))
            if time.monotonic() > deadline:
                return


def _tell(seeds: int, simulated: float, took: float, faults: Counter[str]) -> None:
    injected = sum(faults.values()) - faults["crash"]
    each = ", ".join(f"{name} {faults[name]}" for name in sorted(faults) if faults[name])
    sys.stderr.write(
        f"{seeds} seeds, {simulated / 3600:.1f} h simulated in {took:.1f} s, "
        f"{injected} faults injected, {faults['crash']} crashes\n  {each}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
