"""The configuration: `load` finds, merges and checks it; `Settings` is what the rest of the program sees."""

from orderbridge.config.addresses import fingerprint
from orderbridge.config.keys import (
    Account,
    Actions,
    Alarms,
    Database,
    Fleet,
    Log,
    Marketplace,
    Orders,
    RestaurantRule,
    Web,
)
from orderbridge.config.loading import find, load
from orderbridge.config.settings import Settings, Source, shown

__all__ = [
    "Account",
    "Actions",
    "Alarms",
    "Database",
    "Fleet",
    "Log",
    "Marketplace",
    "Orders",
    "RestaurantRule",
    "Settings",
    "Source",
    "Web",
    "find",
    "fingerprint",
    "load",
    "shown",
]
