"""orderbridge copies a delivery marketplace's orders into the POS's database and sends the POS's actions back."""

import signal
import sys

if sys.argv[0].endswith("/orderbridge") and "run" in sys.argv:  # a SIGHUP during the imports would end the daemon
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until observe.systemd.handle_reloads

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("orderbridge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
