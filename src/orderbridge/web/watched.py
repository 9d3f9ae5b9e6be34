"""What is shown, as whoever shows it sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.problems import Problem
from orderbridge.rules.readiness import Readiness
from orderbridge.store.database import Database
from orderbridge_board.audience import Audience


@dataclass(frozen=True, slots=True)
class AtWork:
    """The daemon at work, as the board needs it."""

    settings: config.Settings
    database: Database
    clock: Clock
    audience: Audience
    problems: Callable[[], Sequence[Problem]]  # of the last look at health
    wake: Callable[[], None]  # the outbox: there is a new row


class Watched(Protocol):
    """The process as a whole: the daemon at work, or one that waits for another. Nothing of it asks the database or waits."""

    def hung(self) -> str | None:
        """What hangs, so that a restart would help; None: nothing does."""

    def readiness(self) -> Readiness:
        """Whether it does its work."""

    def measured(self) -> Metrics:
        """All numbers, those that are read included."""

    def at_work(self) -> AtWork | None:
        """The daemon at work; None: this process waits for another one, or is at its start."""
