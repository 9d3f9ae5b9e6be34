"""Reads the facts about problems from the tables, and has rules.health judge them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.errors import Message
from orderbridge.jobs.problem_table import of_the_daemon
from orderbridge.model import AccountState, ActionState
from orderbridge.rules.health import Facts, Polling, Received, Thresholds, all_problems, is_due, late_after, of_row
from orderbridge.rules.problems import NO_DATABASE, Code, Problem, Severity
from orderbridge.store import accounts, order_times, problem_queries, problem_rows, quarantine, reference
from orderbridge.store.dialects import of
from orderbridge.store.dialects.face import TroubleKind as Trouble
from orderbridge.texts import problem_text, sentence

_STATES: Mapping[str, AccountState] = {str(one): one for one in AccountState}


def open_problems(
    connection: Connection,
    settings: config.Settings,
    now: datetime,
    *,
    unsafe: Message | None = None,
    hindrance: Trouble | None = None,
    unattended: bool = False,
) -> list[Problem]:
    """All open problems, for a program other than the daemon, whose own problems are read from the table.

    `unsafe`: why commits may be lost. `hindrance`: why this program, and therefore the daemon, cannot write.
    `unattended`: no daemon works on the database.
    """
    known, names = _from_outside(connection, hindrance), all_names(connection, settings)
    is_silent, is_gone = problem_rows.is_silent(connection), unattended and problem_rows.has_worked(connection)
    found = read_problems(connection, settings, now, unsafe, known, names, is_silent=is_silent, is_gone=is_gone)
    return [one for one in found if one.behind is None]


def _from_outside(connection: Connection, hindrance: Trouble | None) -> tuple[Problem, ...]:
    """The problems that the daemon wrote, and a full or read-only disk, which it could not write."""
    written = of_the_daemon(connection)
    found = of(connection.dialect.name).disk(connection.engine) or hindrance
    if found is None or any(one.code in NO_DATABASE for one in written):
        return written
    return (*written, Problem(Code(f"database_{found}"), "", None, Severity.SEVERE))


def read_problems(
    connection: Connection,
    settings: config.Settings,
    now: datetime,
    unsafe: Message | None,
    known: tuple[Problem, ...],
    names: Mapping[str, str],
    *,
    is_silent: bool = False,
    is_gone: bool = False,
) -> list[Problem]:
    """All problems, including suppressed ones. `known`: the daemon's own; `names`: accounts by fingerprint."""
    limits = thresholds(settings)
    times: dict[str, datetime | int] = {
        "lately": now - problem_queries.REMEMBERED,
        "ahead": now + limits.ahead,
        "new_since": now - (limits.not_taken_over or timedelta()),
        "unacknowledged_since": now - limits.not_acknowledged,
        "unseen_since": now - (limits.cancellation_unseen or timedelta()),
        "undecided_since": now - limits.late,
        "by_board": int(limits.by_board),
    }
    kinds, there = problem_queries.kinds(connection, times), set(names.values())
    chosen = {Code.NOT_TAKEN_OVER: limits.not_taken_over, Code.CANCELLATION_UNSEEN: limits.cancellation_unseen}
    kinds -= {code for code, limit in chosen.items() if limit is None}
    polling = problem_queries.polling(connection, names.keys())
    found = [*known, *_not_started(connection, settings, now), *_closed(connection, settings, there, now)]
    if unsafe is not None:
        found.append(Problem(Code.NOT_DURABLE, "", None, Severity.SEVERE, detail=sentence(unsafe)))
    for code in [code for code in problem_queries.QUERIES if code in kinds]:
        rows = problem_queries.rows(connection, code, times)
        found += [of_row(Code(code), row, there, limits) for row in rows]
    kept = _in_quarantine(connection) if "quarantined" in kinds else []
    listed = {one.key for one in found}
    facts = Facts(
        accounts=tuple(_polling(name, polling.get(fingerprint)) for fingerprint, name in names.items()),
        received=_received(connection, settings, limits, now, times) if "received" in kinds else (),
        found=(*found, *(one for one in kept if one.key not in listed)),
        refused=frozenset(one.subject for one in kept if one.code == Code.CONTENTS_OUTDATED),
        is_silent=is_silent,
        is_gone=is_gone,
    )
    return all_problems(facts, limits, now)


def _in_quarantine(connection: Connection) -> list[Problem]:
    """Quarantined documents: those that are not orders, refused orders, and refused updates of orders."""
    (documents, oldest), (withheld, since), outdated = quarantine.counted(connection)
    found = [Problem(Code.CONTENTS_OUTDATED, key, at, Severity.SEVERE) for key, at in outdated]
    if withheld:
        found.append(Problem(Code.QUARANTINED, "", since, Severity.SEVERE, withheld))
    elif documents:
        facts = {"by": "documents"}
        found.append(Problem(Code.QUARANTINED, "", oldest, Severity.WARNING, documents, facts=facts))
    return found


def _not_started(connection: Connection, settings: config.Settings, now: datetime) -> Iterator[Problem]:
    if minutes := settings.alarms.not_started_minutes:
        for key, since, owner in order_times.not_started(connection, now - timedelta(minutes=minutes)):
            severity, by = Code.NOT_STARTED.kind.severity, {"by": "board"} if settings.web.board == "till" else {}
            yield Problem(Code.NOT_STARTED, key, since, severity, account=owner, facts=by)


def _closed(
    connection: Connection, settings: config.Settings, names: Collection[str], now: datetime
) -> Iterator[Problem]:
    """Closed restaurants of known accounts, at hours with usual orders."""
    if not (minutes := settings.alarms.closed_minutes):
        return
    zone = ZoneInfo(settings.marketplace.timezone)
    for row in reference.closed(connection, now - timedelta(minutes=minutes)):
        if row.account in names and reference.is_usual_hour(connection, row.id, now):
            since, words = row.status_since_utc, {"name": row.name or row.id, "who": row.status_by or ""}
            words["since"] = f"{since.astimezone(zone):%Y-%m-%d %H:%M:%S}"  # as the marketplace writes times
            yield Problem(Code.RESTAURANT_CLOSED, row.id, since, Severity.WARNING, account=row.account, facts=words)


def thresholds(settings: config.Settings) -> Thresholds:
    """The configured limits; 0 minutes is None."""

    def minutes(value: int) -> timedelta | None:
        return timedelta(minutes=value) if value else None

    alarms = settings.alarms
    return Thresholds(
        late=late_after(settings.marketplace.cooldown_seconds),
        unanswered=minutes(alarms.unanswered_minutes),
        not_taken_over=minutes(alarms.not_taken_over_minutes),
        cancellation_unseen=minutes(alarms.cancellation_unseen_minutes),
        by_board=settings.web.board == "till",
    )


def all_names(connection: Connection, settings: config.Settings) -> dict[str, str]:
    """The names of all accounts by fingerprint, including those in the database if it is configured."""
    beside = accounts.enabled(connection) if settings.fleet.from_database else {}
    known = accounts.last_polled(connection, settings.source.without_secrets)
    in_file = {one.fingerprint: one.name for one in settings.accounts if one.name not in known.values()}
    return beside | in_file | known


def _polling(name: str, row: Sequence[Any] | None) -> Polling:
    return Polling(name) if row is None else Polling(name, _STATES.get(row[0]), *row[1:])


def _received(
    connection: Connection, settings: config.Settings, limits: Thresholds, now: datetime, times: problem_queries.Times
) -> tuple[Received, ...]:
    rows = problem_queries.received(connection, times)
    cancelled_since = now - (limits.unanswered or problem_queries.REMEMBERED)
    accepts, old_cancels = problem_queries.newest_answers(
        connection, [row.payment_key for row in rows], cancelled_since
    )
    zone = ZoneInfo(settings.marketplace.timezone)
    return tuple(
        Received(
            row.payment_key,
            row.received_utc,
            taken_over=row.pos_revision > 0,
            is_due=is_due(row.scheduled_for, now, zone) if row.start_utc is None else row.start_utc <= now,
            accept=ActionState(accept.state) if accept else None,
            accept_ended_utc=accept.finished_utc if accept else None,
            accept_was_over_utc=_expiry(accept, settings) if accept else None,
            account=row.account,
            cancel_waits=row.payment_key in old_cancels,
        )
        for row in rows
        for accept in [accepts.get(row.payment_key)]
    )


def _expiry(accept: Any, settings: config.Settings) -> datetime:
    """When the accept expires or expired."""
    valid = settings.actions.validity(accept.action, accept.valid_minutes)
    over: datetime = accept.expires_utc or accept.created_utc + valid
    return over


def described(problem: Problem, language: str) -> dict[str, Any]:
    """A problem as `status --json` shows it."""
    cause, remedy = problem_text(problem.code, language, **problem.facts)
    return {field.name: getattr(problem, field.name) for field in fields(problem)} | {"cause": cause, "remedy": remedy}
