"""The configuration: `load` finds, merges and checks it; the rest of the program uses `Settings`."""

from orderbridge.config.addresses import fingerprint
from orderbridge.config.keys import Account, Alarms, Database, Marketplace, Web
from orderbridge.config.loading import load
from orderbridge.config.settings import Settings, shown

__all__ = ["Account", "Alarms", "Database", "Marketplace", "Settings", "Web", "fingerprint", "load", "shown"]
