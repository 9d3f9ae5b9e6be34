"""What every job of one daemon needs, in one frozen value."""

from dataclasses import dataclass
from random import Random
from typing import Self
from zoneinfo import ZoneInfo

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.statuses import Statuses
from orderbridge.store.database import Database


@dataclass(frozen=True, slots=True)
class Context:
    """One of it is made at the start, and every job is given the same one."""

    settings: config.Settings
    database: Database
    clock: Clock
    random: Random
    metrics: Metrics
    lanes: Lanes
    verdicts: Verdicts

    @classmethod
    def of(
        cls,
        settings: config.Settings,
        database: Database,
        clock: Clock,
        *,
        random: Random | None = None,
        metrics: Metrics | None = None,
    ) -> Self:
        """With lanes in which nothing is under way."""
        metrics = metrics or Metrics()
        verdicts = Verdicts(settings.language, Statuses(settings.marketplace.needs_payment_status_id), metrics)
        random = random or Random()  # noqa: S311 - it spreads waits, it guards nothing
        return cls(settings, database, clock, random, metrics, Lanes(), verdicts)

    @property
    def zone(self) -> ZoneInfo:
        """Of the service's times."""
        return ZoneInfo(self.settings.marketplace.timezone)
