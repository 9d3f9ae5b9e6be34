"""The configuration: `load` finds, merges and checks it; the rest of the program uses `Settings`."""

from orderbridge.config.addresses import fingerprint
from orderbridge.config.keys import Account, Actions, Alarms, Database, Marketplace, Orders, RestaurantRule, Web
from orderbridge.config.loading import load
from orderbridge.config.settings import Settings, shown

__all__ = [
    "Account",
    "Actions",
    "Alarms",
    "Database",
    "Marketplace",
    "Orders",
    "RestaurantRule",
    "Settings",
    "Web",
    "fingerprint",
    "load",
    "shown",
]
