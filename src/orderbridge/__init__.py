"""orderbridge: brings a delivery marketplace's orders into the POS's own database, and back."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("orderbridge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
