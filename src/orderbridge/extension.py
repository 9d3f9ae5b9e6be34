"""The interface of packages beside the core: their commands, their pages, and their work in a running daemon.

An entry point in the group `orderbridge.extensions` names a package's subclass of Extension. There is one instance in
the process. `Settings.extensions` lists those that a configuration needs. Others are only imported to list commands.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from orderbridge.errors import ConfigError

if TYPE_CHECKING:  # commands must not load the daemon
    from orderbridge.config import Settings
    from orderbridge.daemon import RunningDaemon
    from orderbridge.jobs.account import Roster
    from orderbridge.web.listening import Pages


class Extension:
    """What a package adds to the core. The defaults do nothing."""

    commands: ClassVar[Mapping[str, str]] = {}  # command: the module whose COMMANDS holds it
    options: ClassVar[Mapping[str, str]] = {}  # command of the core: the module whose OPTIONS it gets
    probes: ClassVar[str | None] = None  # the module whose PROBES `check` runs on an open database

    def begin(self, daemon: "RunningDaemon") -> None:
        """Called before a daemon runs; its timetable accepts jobs."""

    def end(self) -> None:
        """Called after the daemon has ended."""

    def roster(self, settings: "Settings") -> "Roster":
        """The accounts of this process, and the fence of its transactions. Only the fleet has one."""
        raise NotImplementedError

    def pages(self) -> "Pages | None":
        """The pages at `[web] listen`. Called in a thread, because it loads libraries."""


def installed() -> dict[str, EntryPoint]:
    """The loadable extensions by name. An entry point may remain after its package was removed."""
    found = entry_points(group="orderbridge.extensions")
    return {one.name: one for one in found if find_spec(one.module.partition(".")[0]) is not None}


def named(name: str) -> type[Extension]:
    """Load an extension. Raises ConfigError if it is not installed."""
    found = installed()
    if name not in found:
        raise ConfigError("config.no_extension", name=name)
    loaded: type[Extension] = found[name].load()
    return loaded
