"""What all jobs of a daemon share (`Context`), and what survives a reload (`Kept`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Self
from zoneinfo import ZoneInfo

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.learned import Learned
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.problems import OpenProblems, Page
from orderbridge.store.database import Database
from orderbridge.store.high_water import HighWater


@dataclass(slots=True)
class Kept:
    """The state that the next daemon of the process continues with after a reload.

    `page`: the state of the web page. `begun`: the first polls are under way, here or in another daemon.
    `name_holder`: another process that answers `orderbridge healthcheck` under our name.
    """

    metrics: Metrics = field(default_factory=Metrics)
    page: Callable[[], Page] = Page
    learned: Learned = field(default_factory=Learned)
    cooldowns: Cooldowns = field(default_factory=Cooldowns)  # a clock that was set cannot shorten them
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    high_water: HighWater | None = None
    holds_rows: bool = False  # no row is sent, because the database refuses to end the rows of an older copy
    history: OpenProblems = field(default_factory=OpenProblems)  # what was reported
    name_holder: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The settings and shared objects of one daemon, passed to every job."""

    settings: config.Settings
    database: Database
    clock: Clock
    random: Random
    kept: Kept
    own_problems: DaemonProblems
    lanes: Lanes
    statuses: Statuses

    @classmethod
    def of(
        cls,
        settings: config.Settings,
        database: Database,
        clock: Clock,
        *,
        random: Random | None = None,
        kept: Kept | None = None,
    ) -> Self:
        """A new context with free lanes."""
        kept = kept or Kept()
        statuses = Statuses(settings.marketplace.needs_payment_status_id)
        random = random or Random()  # noqa: S311 - only for jitter
        own_problems = DaemonProblems(database, clock, kept)
        return cls(settings, database, clock, random, kept, own_problems, Lanes(), statuses)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the process."""
        return self.kept.metrics

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the marketplace's times."""
        return ZoneInfo(self.settings.marketplace.timezone)
