"""What happens by itself as time passes: orders that are placed, and orders that the platform moves on."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from . import rules
from .options import Life, Where
from .state import Order

if TYPE_CHECKING:
    from .world import World

MOST_ORDERS_PER_TICK: Final = 100
"""A machine that slept must not wake up to thousands of orders."""

_PLATFORM: Final = "platform"


def place_due(world: "World") -> list[Order]:
    """Place the orders that are due by the clock since the last tick (orders_per_minute, max_orders)."""
    now, rate = world.now(), world.options.orders_per_minute
    where = reachable(world) if world.options.orders_where is Where.LOGGED_IN else set(world.restaurants)
    if not where & world.open_restaurants:
        rate = 0.0  # nobody would see them; what was due meanwhile is not made up for
    due = int((now - world.ticked_at).total_seconds() * rate / 60) if rate > 0 else 0
    if rate <= 0 or due > MOST_ORDERS_PER_TICK:
        world.ticked_at = now
    elif due > 0:
        world.ticked_at += timedelta(seconds=due * 60 / rate)
    if world.options.max_orders is not None:
        due = min(due, world.options.max_orders - world.ticked_orders)
    placed = [world.place_order_in(where) for _ in range(min(due, MOST_ORDERS_PER_TICK))]
    found = [order for order in placed if order is not None]
    world.ticked_orders += len(found)
    return found


def reachable(world: "World") -> set[str]:
    """Return the restaurants whose orders somebody with a valid token can see."""
    now = world.now()
    return {key for token in world.tokens.values() if now < token.expires for key in token.account.restaurant_ids}


def move_on(world: "World") -> None:
    """Do what the platform does by itself: cancel what nobody answers, bring what the restaurant does not bring."""
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
    """Where the platform moves the order now, None when it stays."""
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
