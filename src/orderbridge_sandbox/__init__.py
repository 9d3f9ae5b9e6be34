"""A simulated marketplace that follows docs/interface.md exactly, for developers without credentials and for tests.

It imports nothing from the rest of orderbridge, so that the same misunderstanding cannot be in both. `World` and
`Fault` are plain Python; the network modules are loaded on first use.
"""

from importlib import import_module
from typing import Any

from .faults import Fault, FaultKind, When
from .options import Options
from .world import World

__all__ = ["Fault", "FaultKind", "Options", "When", "World"]

_LATER = {
    "CannotListen": ".server",
    "ConnectionDropped": ".replies",
    "Sandbox": ".server",
    "create_app": ".app",
    "serve": ".server",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)
