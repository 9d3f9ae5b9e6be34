"""Reduces a plan that breaks a promise: fewer faults, events, orders and seconds, while it breaks the same promise.

The plan is printed as Python, for `./run sim --plan`, or for a test:
`simulate(PLAN, tmp_path, judges_of(PLAN)).violations == []`.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from tests.sim.judge import Judge
from tests.sim.machine import simulate
from tests.sim.plan import Plan, plan_for

MINUTES = 3.0  # of processor time
FEW_ORDERS, SHORT_S = (0, 1, 2, 4, 8, 16, 32), (60.0, 120.0, 300.0, 600.0, 1800.0)
_OFF = {one.name: one.default for one in fields(Plan)}
KNOBS = tuple(name for name in _OFF if name not in {"seed", "kind", "seconds", "accounts", "orders"})


class Limit(Judge):
    """A limit of a simulation's processor and real time."""

    def __init__(self, seconds: float, deadline: float, clock: Callable[[], float]) -> None:
        self._seconds, self._deadline, self._clock = seconds, deadline, clock
        self.given_up = False

    def passed(self) -> None:
        self.given_up = self.sim.now() > self._seconds or self._clock() > self._deadline
        if self.given_up:
            self.sim.over.set()


def quiet(seed: int, kind: str) -> Plan:
    """The seed's plan with all faults off and one account, with the same length and number of orders."""
    plan = plan_for(seed, kind)
    return Plan(seed=seed, kind=kind, seconds=plan.seconds, accounts=plan.accounts[:1], orders=plan.orders)


def promise_of(violations: Sequence[str]) -> str:
    """The promise that broke first; empty: none did."""
    return violations[0].partition(":")[0] if violations else ""


class Shrinker:
    """Tries smaller plans until none breaks the promise, or until the time is over."""

    def __init__(self, watchers: Callable[[Plan], list[Judge]], minutes: float = MINUTES) -> None:
        self._watchers = watchers
        self._deadline = time.process_time() + minutes * 60
        self._promise = ""
        self._longest = 0.0
        self.broken = ""  # the violation

    def shrink(self, plan: Plan) -> Plan:
        """The smallest plan that was found; the same one if nothing breaks."""
        self._promise, self._longest = self._breaks(plan, float("inf"))
        if not self._promise:
            return plan
        for smaller in (self._without_knobs, self._with_fewer_events, self._shorter):
            plan = smaller(plan)
        return plan

    def _breaks(self, plan: Plan, longest: float) -> tuple[str, float]:
        """The promise that the plan breaks, and when. A plan that cannot be played breaks none."""
        limit = Limit(longest, self._deadline, time.process_time)
        with tempfile.TemporaryDirectory(prefix="orderbridge-sim-") as folder:
            try:
                sim = simulate(plan, Path(folder), [*self._watchers(plan), limit])
            except Exception:  # noqa: BLE001 - a fault needs another one that is off
                return "", 0.0
        promise = promise_of(sim.violations)
        if promise and promise == (self._promise or promise):
            self.broken = sim.violations[0]
        return promise, sim.ended_at

    def _still_breaks(self, plan: Plan) -> bool:
        if time.process_time() > self._deadline:
            return False
        # It may break later than the larger plan; playing on would cost the whole time.
        promise, at = self._breaks(plan, 2 * self._longest + 300.0)
        if promise == self._promise:
            self._longest = at
        return promise == self._promise

    def _first(self, plan: Plan, *candidates: Plan) -> Plan:
        return next((one for one in candidates if one != plan and self._still_breaks(one)), plan)

    def _without_knobs(self, plan: Plan) -> Plan:
        """Turn off all faults at once, then half of them, and so on: most do not matter."""
        plan = self._first(plan, replace(plan, accounts=plan.accounts[:1]))
        return self._without(plan, list(KNOBS), lambda one, off: replace(one, **{name: _OFF[name] for name in off}))

    def _with_fewer_events(self, plan: Plan) -> Plan:
        for name in KNOBS:
            events = getattr(plan, name)
            if isinstance(events, tuple) and len(events) > 1:

                def left(plan: Plan, gone: Sequence[Any], name: str = name) -> Plan:
                    return replace(plan, **{name: tuple(one for one in getattr(plan, name) if one not in gone)})

                plan = self._without(plan, list(events), left)
        return plan

    def _without(self, plan: Plan, things: list[Any], left: Callable[[Plan, Sequence[Any]], Plan]) -> Plan:
        """Leave out as many of the things as possible, in parts that become smaller."""
        size = len(things)
        while size:
            for start in range(0, len(things), size):
                plan = self._first(plan, left(plan, things[start : start + size]))
            size //= 2
        return plan

    def _shorter(self, plan: Plan) -> Plan:
        plan = self._first(plan, *(replace(plan, orders=count) for count in FEW_ORDERS if count < plan.orders))
        plan = self._first(plan, *(replace(plan, seconds=length) for length in SHORT_S if length < plan.seconds))
        return self._first(plan, _round(plan))


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 1) if value > 1 else value
    if isinstance(value, tuple):
        return tuple(_round(one) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _round(getattr(value, one.name)) for one in fields(value)})
    return value


def as_python(plan: Plan) -> str:
    """The plan as Python: what differs from a quiet one."""
    own = "".join(f"    {name}={getattr(plan, name)!r},\n" for name in knobs_on(plan))
    values = (one for name in _OFF for one in (getattr(plan, name) if isinstance(getattr(plan, name), tuple) else ()))
    names = sorted({type(one).__name__ for one in values if is_dataclass(one)})
    imports = f"from tests.sim.plan import {', '.join(names)}\n" if names else ""
    return (
        f"from dataclasses import replace\n\n{imports}from tests.sim.shrink import quiet\n\n"
        f"PLAN = replace(\n    quiet({plan.seed}, {plan.kind!r}),\n{own})\n"
    )


def knobs_on(plan: Plan) -> list[str]:
    calm = quiet(plan.seed, plan.kind)
    return [name for name in _OFF if getattr(plan, name) != getattr(calm, name)]
