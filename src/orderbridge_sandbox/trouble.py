"""Trouble that the switches ask for, again and again: percent of the calls, each n-th, outages by the clock, latency."""

from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from math import ceil

from .faults import EVERY_OPERATION, Fault
from .options import RetryAfter
from .rules import Operation
from .world import World

_ALL = 100.0


def trouble_of(world: World, operation: Operation) -> Fault | None:
    """Count the call and return the fault that it meets, None when it passes. To be called under the lock."""
    options = world.options
    if options.trouble_operation not in (EVERY_OPERATION, operation):
        return None
    if options.trouble_every > 0:
        world.calls_for_trouble += 1
    each = options.trouble_every > 0 and world.calls_for_trouble % options.trouble_every == 0
    chosen = options.trouble_percent > 0 and world.trouble_random.random() * _ALL < options.trouble_percent
    if not (each or chosen or _is_outage(world)):
        return None
    return Fault(
        kind=options.trouble_kind,
        status=options.trouble_status,
        when=options.trouble_when,
        headers=retry_after(world, options.cooldown_seconds),
    )


def _is_outage(world: World) -> bool:
    every = world.options.outage_every_seconds
    since = (world.now() - world.began).total_seconds()
    return every > 0 and since >= every and since % every < world.options.outage_seconds


def latency_of(world: World) -> float:
    """Return how many seconds late this answer comes."""
    jitter = world.options.latency_jitter_seconds
    return world.options.latency_seconds + (world.trouble_random.uniform(0, jitter) if jitter > 0 else 0)


def retry_after(world: World, left: float) -> Mapping[str, str]:
    """Return the header that says when to come back, when the switch wants it."""
    said = world.options.retry_after_seconds
    seconds = ceil(left if said is None else said)
    match world.options.retry_after:
        case RetryAfter.NONE:
            return {}
        case RetryAfter.SECONDS:
            return {"Retry-After": str(seconds)}
        case RetryAfter.DATE:
            return {"Retry-After": format_datetime(world.now() + timedelta(seconds=seconds), usegmt=True)}
