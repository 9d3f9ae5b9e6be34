"""Settings that belong together, by name: `--preset friday`. words.toml says what each is."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .options import CooldownScope, Disallowed, Life, ListOrder, MenuShape, RetryAfter
from .switches import BadOption, unknown

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "quiet": {"orders_per_minute": 0.0},
    "friday": {
        "orders_per_minute": 20.0,
        "latency_seconds": 0.2,
        "latency_jitter_seconds": 1.0,
        "trouble_percent": 2.0,
        "pickup_life": Life.PLATFORM,
        "platform_courier_life": Life.PLATFORM,
        "life_seconds": 120.0,
        "cancel_unanswered_seconds": 600.0,
    },
    "outages": {"outage_every_seconds": 300.0, "outage_seconds": 60.0, "retry_after": RetryAfter.SECONDS},
    "lost_answers": {"trouble_every": 5, "trouble_kind": "drop", "trouble_when": "after"},
    "otherwise": {
        "cooldown_scope": CooldownScope.APPLICATION,
        "cooldown_restarts_on_429": True,
        "cancelled_are_delivered": False,
        "changed_are_listed_again": True,
        "list_order": ListOrder.SHUFFLED,
        "list_limit": 20,
        "menu_shape": MenuShape.BY_CATEGORY,
        "disallowed": Disallowed.NOT_FOUND,
        "complete_from_confirmed": "without_own_courier",
        "new_login_ends_old_token": True,
        "token_errors_stay_401": False,
        "needs_payment_status_id": 17,
        "prepaid_suffix": False,
    },
    "short_days": {"token_seconds": 300.0, "login_limit": 3, "tokens_at_once": 1},
}


def settings_of(names: Iterable[str]) -> dict[str, Any]:
    """Return what the presets set, a later one over an earlier; raises BadOption."""
    settings: dict[str, Any] = {}
    for name in names:
        if name not in PRESETS:
            raise BadOption(unknown("preset", [name], list(PRESETS)))
        settings |= PRESETS[name]
    return settings
