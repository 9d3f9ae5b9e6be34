"""Automatic behaviour, set by the options: places orders, changes their status, and delays or fails calls."""

from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from math import ceil
from typing import TYPE_CHECKING, Final

from . import rules
from .faults import ALL_PERCENT, EVERY_OPERATION, Fault
from .options import Life, RetryAfter, Where
from .state import Order

if TYPE_CHECKING:
    from .world import World

MOST_ORDERS_PER_TICK: Final = 100  # a machine that was suspended must not place thousands of orders

_PLATFORM: Final = "platform"


def due_orders(world: "World") -> tuple[int, set[str]]:
    """Return how many orders are due since the last tick (orders_per_minute, max_orders), and the restaurants."""
    now, rate = world.now(), world.options.orders_per_minute
    where = reachable(world) if world.options.orders_where is Where.LOGGED_IN else set(world.restaurants)
    if not where & world.open_restaurants:
        rate = 0.0  # no client would see the orders; they are not placed later either
    due = int((now - world.ticked_at).total_seconds() * rate / 60) if rate > 0 else 0
    if rate <= 0 or due > MOST_ORDERS_PER_TICK:
        world.ticked_at = now
    elif due > 0:
        world.ticked_at += timedelta(seconds=due * 60 / rate)
    if world.options.max_orders is not None:
        due = min(due, world.options.max_orders - world.ticked_orders)
    return max(min(due, MOST_ORDERS_PER_TICK), 0), where


def reachable(world: "World") -> set[str]:
    """Return the restaurants whose orders can be listed with a valid token."""
    now = world.now()
    return {key for token in world.tokens.values() if now < token.expires for key in token.account.restaurant_ids}


def move_on(world: "World") -> None:
    """Act as the platform: cancel unanswered orders, and deliver orders with its own couriers."""
    if not _is_wanted(world):
        return
    for order in world.orders.values():
        target = _next(world, order)
        if target is not None:
            world.change_status(order.key, target, by=_PLATFORM)


def _is_wanted(world: "World") -> bool:
    options = world.options
    lives = (options.pickup_life, options.platform_courier_life)
    return Life.PLATFORM in lives or options.cancel_unanswered_seconds is not None


def _next(world: "World", order: Order) -> int | None:
    """The status to which the platform moves the order now; None if it does not."""
    options = world.options
    since = (world.now() - order.history[-1].at).total_seconds()
    patience = options.cancel_unanswered_seconds
    if order.status_id == rules.RECEIVED:
        return rules.CANCELED if patience is not None and since >= patience else None
    if since < options.life_seconds:
        return None
    match order.courier_type, order.status_id:
        case "come_get", rules.CONFIRMED if options.pickup_life is Life.PLATFORM:
            return rules.COMPLETE_WITH_PAYMENT
        case "platform_courier", rules.CONFIRMED if options.platform_courier_life is Life.PLATFORM:
            return rules.IN_DELIVERY
        case "platform_courier", rules.IN_DELIVERY if options.platform_courier_life is Life.PLATFORM:
            return rules.COMPLETE_WITH_PAYMENT
        case _:
            return None


# ---- trouble with calls ----------------------------------------------------------------------------------------------


def trouble_of(world: "World", operation: rules.Operation) -> Fault | None:
    """Count the call, and return its fault or None. To be called under the lock."""
    options = world.options
    if options.trouble_operation not in (EVERY_OPERATION, operation):
        return None
    if options.trouble_every > 0:
        world.calls_for_trouble += 1
    each = options.trouble_every > 0 and world.calls_for_trouble % options.trouble_every == 0
    chosen = options.trouble_percent > 0 and world.trouble_random.random() * ALL_PERCENT < options.trouble_percent
    if not (each or chosen or _is_outage(world)):
        return None
    return Fault(
        kind=options.trouble_kind,
        status=options.trouble_status,
        when=options.trouble_when,
        headers=retry_after(world, options.cooldown_seconds),
    )


def _is_outage(world: "World") -> bool:
    every = world.options.outage_every_seconds
    since = (world.now() - world.began).total_seconds()
    return every > 0 and since >= every and since % every < world.options.outage_seconds


def latency_of(world: "World") -> float:
    """Return the delay of this answer in seconds."""
    jitter = world.options.latency_jitter_seconds
    return world.options.latency_seconds + (world.trouble_random.uniform(0, jitter) if jitter > 0 else 0)


def retry_after(world: "World", left: float) -> Mapping[str, str]:
    """Return the header Retry-After if the option is set."""
    fixed = world.options.retry_after_seconds
    seconds = ceil(left if fixed is None else fixed)
    match world.options.retry_after:
        case RetryAfter.NONE:
            return {}
        case RetryAfter.SECONDS:
            return {"Retry-After": str(seconds)}
        case RetryAfter.DATE:
            return {"Retry-After": format_datetime(world.now() + timedelta(seconds=seconds), usegmt=True)}
