"""Settings that belong together, by name: `--preset friday`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .options import (
    BadOption,
    CooldownScope,
    Disallowed,
    Life,
    ListOrder,
    MenuShape,
    RetryAfter,
)
from .switches import unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A few switches, and what they are together."""

    about: Mapping[str, str]
    settings: Mapping[str, Any]


PRESETS: Final[Mapping[str, Preset]] = {
    "quiet": Preset(
        about={
            "en": "No order comes by itself: for a tester who places each one.",
            "tr": "Kendiliğinden sipariş gelmez: her siparişi kendisi veren için.",
        },
        settings={"orders_per_minute": 0.0},
    ),
    "friday": Preset(
        about={
            "en": "Friday evening: twenty orders a minute, slow answers, one call in fifty fails; couriers and pickup customers come by themselves, and what nobody accepts within ten minutes is cancelled.",
            "tr": "Cuma akşamı: dakikada yirmi sipariş, ağır yanıtlar, elli istekten biri hata alır; kuryeler ve gel al müşterileri kendiliğinden gelir, on dakikada kabul edilmeyen sipariş iptal edilir.",
        },
        settings={
            "orders_per_minute": 20.0,
            "latency_seconds": 0.2,
            "latency_jitter_seconds": 1.0,
            "trouble_percent": 2.0,
            "pickup_life": Life.PLATFORM,
            "platform_courier_life": Life.PLATFORM,
            "life_seconds": 120.0,
            "cancel_unanswered_seconds": 600.0,
        },
    ),
    "outages": Preset(
        about={
            "en": "Every five minutes the service is away for one: 503 with Retry-After.",
            "tr": "Platform beş dakikada bir, bir dakika yanıt vermez: Retry-After ile 503.",
        },
        settings={"outage_every_seconds": 300.0, "outage_seconds": 60.0, "retry_after": RetryAfter.SECONDS},
    ),
    "lost_answers": Preset(
        about={
            "en": "Each fifth call is done and its answer never comes.",
            "tr": "Her beşinci istek yapılır ama yanıtı hiç gelmez.",
        },
        settings={"trouble_every": 5, "trouble_kind": "drop", "trouble_when": "after"},
    ),
    "otherwise": Preset(
        about={
            "en": "What the interface leaves open, each thing the other way round: a till that is right does not notice.",
            "tr": "Arayüzün açık bıraktığı her şey ters yönde: doğru yazılmış bir kasa bunu fark etmez.",
        },
        settings={
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
    ),
    "short_days": Preset(
        about={
            "en": "What takes a day takes minutes: tokens end after five, a login more than three times a minute is refused.",
            "tr": "Bir gün süren şey dakikalar sürer: anahtarlar beş dakikada biter, dakikada üçten çok giriş reddedilir.",
        },
        settings={"token_seconds": 300.0, "login_limit": 3, "tokens_at_once": 1},
    ),
}


def settings_of(names: Iterable[str]) -> dict[str, Any]:
    """Return what the presets set, a later one over an earlier; raises BadOption."""
    settings: dict[str, Any] = {}
    for name in names:
        if name not in PRESETS:
            raise BadOption(unknown("preset", [name], list(PRESETS)))
        settings |= PRESETS[name].settings
    return settings
