"""A package beside the core: its commands, its pages, and what it does while a daemon works.

It is found by an entry point of its name in the group `orderbridge.extensions`, which names a subclass of Extension. One
object of it serves the process. `Settings.extensions` says which of them a configuration needs; no other is imported,
except to list the commands.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from orderbridge.errors import ConfigError

if TYPE_CHECKING:  # a command loads no daemon
    from orderbridge.config import Settings
    from orderbridge.daemon import RunningDaemon
    from orderbridge.jobs.account import Roster
    from orderbridge.web.listening import Pages


class Extension:
    """What a package adds. Each method does nothing unless the package overrides it."""

    commands: ClassVar[Mapping[str, str]] = {}  # by name: the module whose COMMANDS has it
    options: ClassVar[Mapping[str, str]] = {}  # by a command of the core: the module whose OPTIONS it has, too
    probes: ClassVar[str | None] = None  # the module whose PROBES `check` runs on an open database

    def begin(self, daemon: "RunningDaemon") -> None:
        """A daemon is about to run; its timetable takes jobs."""

    def end(self) -> None:
        """It has ended."""

    def roster(self, settings: "Settings") -> "Roster":
        """Which accounts are ours, and the fence of a transaction. Asked of the fleet, where it is configured."""
        raise NotImplementedError

    def pages(self) -> "Pages | None":
        """What it serves at `[web] listen`. Called in a thread, because it loads libraries."""


def installed() -> dict[str, EntryPoint]:
    """All that can be loaded, by name. The entry points stay where a package was taken out of the installation."""
    found = entry_points(group="orderbridge.extensions")
    return {one.name: one for one in found if find_spec(one.module.partition(".")[0]) is not None}


def named(name: str) -> type[Extension]:
    """The one that a configuration needs. Raises ConfigError."""
    found = installed()
    if name not in found:
        raise ConfigError("config.no_extension", name=name)
    loaded: type[Extension] = found[name].load()
    return loaded
