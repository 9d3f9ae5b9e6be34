"""The marketplace's service itself, played by docs/interface.md to the letter: for developers without credentials, and for tests.

It imports nothing from the rest of orderbridge, so that a wrong idea of the interface cannot agree with itself.
`World` and `Fault` are plain Python; the network parts are loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .faults import Fault, FaultKind, When
from .options import Options
from .world import World

if TYPE_CHECKING:
    from .app import create_app
    from .replies import ConnectionDropped
    from .server import CannotListen, Sandbox, serve

__all__ = [
    "CannotListen",
    "ConnectionDropped",
    "Fault",
    "FaultKind",
    "Options",
    "Sandbox",
    "When",
    "World",
    "create_app",
    "serve",
]

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
