"""What every job of one daemon needs, in one frozen value; and what the daemons of one process hand on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Self
from zoneinfo import ZoneInfo

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.lanes import Lanes
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.problems import OpenProblems, Page
from orderbridge.store.accounts import TokenToKeep, save_tokens
from orderbridge.store.database import Database
from orderbridge.store.group_commit import GroupCommit, write_group
from orderbridge.store.high_water import HighWater

MANY_FROM = 200  # accounts: what comes at about the same moment is written together
TOKENS_S = 0.1  # many: for so long a token waits for others that are kept with it


@dataclass(slots=True)
class Kept:
    """What outlives one daemon: after a reload the next one in the process goes on with it.

    `page`: what is served beside the daemon. `begun`: the first polls are under way, or another daemon makes them.
    `name_holder`: the process that answers `orderbridge healthcheck` in place of this one.
    """

    metrics: Metrics = field(default_factory=Metrics)
    page: Callable[[], Page] = Page
    cooldowns: Cooldowns = field(default_factory=Cooldowns)  # a clock that was set cannot shorten them
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    high_water: HighWater | None = None
    history: OpenProblems = field(default_factory=OpenProblems)  # what was reported
    name_holder: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """One of it is made at the start, and every job is given the same one."""

    settings: config.Settings
    database: Database
    clock: Clock
    random: Random
    kept: Kept
    own_problems: DaemonProblems
    lanes: Lanes
    statuses: Statuses
    tokens: GroupCommit[TokenToKeep, None]  # those of many accounts are kept together

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
        """With lanes in which nothing is under way."""
        kept = kept or Kept()
        statuses = Statuses(settings.marketplace.needs_payment_status_id)
        random = random or Random()  # noqa: S311 - it spreads waits, it guards nothing
        tokens: GroupCommit[TokenToKeep, None] = GroupCommit(
            partial(write_group, database, save_tokens, urgent=True), wait_s=TOKENS_S if is_many(settings) else 0.0
        )
        own_problems = DaemonProblems(database, clock, kept)
        return cls(settings, database, clock, random, kept, own_problems, Lanes(), statuses, tokens)

    @property
    def metrics(self) -> Metrics:
        """Of the process."""
        return self.kept.metrics

    @property
    def zone(self) -> ZoneInfo:
        """Of the service's times."""
        return ZoneInfo(self.settings.marketplace.timezone)


def is_many(settings: config.Settings) -> bool:
    """Whether it is worth a wait to do things of several accounts together."""
    return settings.fleet.from_database or len(settings.accounts) >= MANY_FROM
