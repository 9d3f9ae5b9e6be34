"""Health: the facts are read, rules.health decides, and the log hears of the beginning and the end of each problem."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import structlog
from sqlalchemy import Connection

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.model import ActionState
from orderbridge.rules.health import (
    BY_TIME_ALONE,
    Code,
    Facts,
    Pile,
    Polling,
    Problem,
    Received,
    Severity,
    Thresholds,
    is_due,
    late_after,
    problems,
)
from orderbridge.store import health
from orderbridge.store.database import Database
from orderbridge.texts import problem_text, say

CLOCK_JUMP_S = 2.0
MOST_ALIKE = 5  # of one kind that begin or end at the same look: that many are told one by one, and named

_log = structlog.get_logger(__name__)


def open_problems(
    connection: Connection, settings: config.Settings, now: datetime, *, unsafe: str | None = None
) -> list[Problem]:
    """Everything that is wrong now. `unsafe`: why a commit is not on disk, as the database says it."""
    limits = thresholds(settings)
    return problems(_facts(connection, settings, limits, now, unsafe), limits, now)


def thresholds(settings: config.Settings) -> Thresholds:
    """The configured minutes; 0 turns one off."""

    def minutes(value: int) -> timedelta | None:
        return timedelta(minutes=value) if value else None

    alarms = settings.alarms
    return Thresholds(
        late=late_after(settings.marketplace.cooldown_seconds),
        unanswered=minutes(alarms.unanswered_minutes),
        not_taken_over=minutes(alarms.not_taken_over_minutes),
        cancellation_unseen=minutes(alarms.cancellation_unseen_minutes),
    )


def _facts(
    connection: Connection, settings: config.Settings, limits: Thresholds, now: datetime, unsafe: str | None
) -> Facts:
    names = {account.fingerprint: account.name for account in settings.accounts}
    known = health.polling(connection, names.keys())
    late, unseen = limits.not_taken_over, limits.cancellation_unseen
    return Facts(
        accounts=tuple(Polling(name, *known.get(fingerprint, ())) for fingerprint, name in names.items()),
        received=_received(connection, now, ZoneInfo(settings.marketplace.timezone)),
        not_taken_over=Pile() if late is None else Pile(*health.not_taken_over(connection, now - late)),
        unseen_cancellations=()
        if unseen is None
        else tuple(health.unseen_cancellations(connection, now - unseen, now)),
        outdated=tuple(health.outdated(connection, now)),
        unknown_outcomes=tuple(health.unknown_outcomes(connection, now)),
        quarantined=Pile(*health.quarantined(connection)),
        unsafe=unsafe,
    )


def _received(connection: Connection, now: datetime, zone: ZoneInfo) -> tuple[Received, ...]:
    rows = health.received(connection, now)
    accepts = health.newest_accepts(connection, [row.payment_key for row in rows])
    local_now = f"{now.astimezone(zone):%Y-%m-%d %H:%M:%S}"
    return tuple(
        Received(
            row.payment_key,
            row.received_utc,
            taken_over=row.pos_revision > 0,
            is_due=is_due(row.scheduled_for, local_now),
            accept=ActionState(accept.state) if accept else None,
            accept_ended_utc=accept.finished_utc if accept else None,
        )
        for row in rows
        for accept in [accepts.get(row.payment_key)]
    )


def described(problem: Problem, language: str) -> dict[str, Any]:
    """A problem as `status --json` shows it."""
    cause, remedy = problem_text(problem.code, language)
    return {field.name: getattr(problem, field.name) for field in fields(problem)} | {"cause": cause, "remedy": remedy}


def headline(found: Sequence[Problem], accounts: int, zone: ZoneInfo, language: str) -> str:
    """All of it in one line, the worst by name: what `systemctl status` shows."""
    if not found:
        return say("status.green", language, count=accounts)
    first = found[0]
    light = say("status.red" if first.severity == Severity.SEVERE else "status.yellow", language)
    since = "" if first.since is None else say("status.since", language, time=first.since.astimezone(zone))
    subject = f": {first.subject}" if first.subject else ""
    more = f" (+{len(found) - 1})" if len(found) > 1 else ""
    return f"{light}: {first.code.replace('_', ' ')}{subject}{since}{more}"


class Watch:
    """What is open while the daemon runs. Each problem is told when it begins, when it becomes severe, and at its end."""

    def __init__(self, language: str, most_alike: int = MOST_ALIKE) -> None:
        self._language = language
        self._most_alike = most_alike
        self._began: dict[tuple[Code, str], float] = {}  # by the monotonic clock: the other one may have been set
        self.open: dict[tuple[Code, str], Problem] = {}

    def see(self, found: Iterable[Problem], monotonic: float) -> None:
        """Tell what is new and what is over since the last time; what many have in common in one line."""
        seen = {(one.code, one.subject): one for one in found}
        new = [one for key, one in seen.items() if _is_news(self.open.get(key), one)]
        over = [one for key, one in self.open.items() if key not in seen]
        self.open = seen
        for key in seen:
            self._began.setdefault(key, monotonic)
        for alike, facts in self._lines(new):
            self._tell(alike[0], facts)
        for alike, facts in self._lines(over):
            began = min(self._began.pop((one.code, one.subject)) for one in alike)
            _log.info("problem.ended", code=alike[0].code, **facts, seconds=round(monotonic - began))

    def _lines(self, found: Sequence[Problem]) -> Iterator[tuple[Sequence[Problem], dict[str, Any]]]:
        kinds: dict[tuple[Code, Severity], list[Problem]] = {}
        for one in found:
            kinds.setdefault((one.code, one.severity), []).append(one)
        for alike in kinds.values():
            if len(alike) > self._most_alike:
                yield alike, {"subjects": [one.subject for one in alike[:MOST_ALIKE]], "count": len(alike)}
            else:
                yield from (([one], {"subject": one.subject, "count": one.count}) for one in alike)

    def _tell(self, problem: Problem, facts: dict[str, Any]) -> None:
        told = _log.error if problem.severity == Severity.SEVERE else _log.warning
        since = None if problem.since is None else problem.since.isoformat()
        cause, remedy = problem_text(problem.code, self._language)
        # Its detail is not for the log: an answer's own words may hold a customer's name.
        told(
            "problem.began",
            code=problem.code,
            **facts,
            since=since,
            cause=cause,
            remedy=remedy,
        )


def _is_news(before: Problem | None, problem: Problem) -> bool:
    return before is None or (before.severity, problem.severity) == (Severity.WARNING, Severity.SEVERE)


class Checkup:
    """What is wrong, asked again and again while the daemon runs."""

    def __init__(self, settings: config.Settings, database: Database, clock: Clock) -> None:
        self.watch = Watch(settings.language)
        self._settings = settings
        self._database = database
        self._clock = clock
        self._unsure_until = self._ahead = 0.0

    def be_unsure(self) -> None:
        """After a start, or when the clock was set: how long ago the last good poll was says nothing for a while."""
        late = late_after(self._settings.marketplace.cooldown_seconds)
        self._unsure_until = self._clock.monotonic() + late.total_seconds()
        self._ahead = self._wall_ahead()

    def _wall_ahead(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    async def look(self) -> list[Problem]:
        """One look, and what has changed is told. Returns what is wrong."""
        now = self._clock.now()
        unsafe = self._database.durability.remedy
        found = await self._database.read(lambda tx: open_problems(tx, self._settings, now, unsafe=unsafe))
        if abs(self._wall_ahead() - self._ahead) > CLOCK_JUMP_S:  # only now: it may have been set while we read
            self.be_unsure()
        if self._clock.monotonic() < self._unsure_until:
            found = [one for one in found if one.code not in BY_TIME_ALONE]
        self.watch.see(found, self._clock.monotonic())
        return found
