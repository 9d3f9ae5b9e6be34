"""Writes open problems and accounts' statuses to tables for the till and other programs, when they change.

This is best effort: an unwritable database is itself a problem, which the log and the alarm command report. A small
file then remembers what was reported (store.problem_rows), so that the next daemon can report the end.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.config import Settings
from orderbridge.errors import Over
from orderbridge.rules.problems import (
    NO_DATABASE,
    OF_THE_DAEMON,
    STARTING,
    AccountStatus,
    Code,
    Key,
    Problem,
    Rank,
    Severity,
    account_statuses,
)
from orderbridge.store import own_tables, problem_rows
from orderbridge.store.database import Database
from orderbridge.store.ddl import as_stored
from orderbridge.store.failures import is_busy
from orderbridge.store.problem_rows import ProblemsFile, Row, RowKey, as_subject
from orderbridge.texts import problem_text, say

SIGN_S = 30.0  # between two signs of life
SILENT = timedelta(seconds=90)  # without a sign of life for this long, no daemon polls
SEVERE_RANK = 100  # added to the level of a severe problem

_log = structlog.get_logger(__name__)

Rows = dict[RowKey, tuple[Any, Row]]  # with the source of each row, which is made again only when its source changes


class ProblemTable:
    """The contents of delivery_problems, delivery_lamps and delivery_daemon."""

    def __init__(self, database: Database, clock: Clock, settings: Settings) -> None:
        self._database = database
        self._clock = clock
        self._language, self._default_account = settings.language, settings.default_account
        self._written: Mapping[Table, Rows] = {}  # empty: not read yet
        self._file = ProblemsFile(database)
        self._in_file: list[Row] | None = None
        self._next_sign = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> list[Problem]:
        """Read the problems that the previous daemon reported to the alarm command.

        The file is preferred to the tables, which may come from an older copy.
        """
        if not self._written:
            rows, statuses = await self._database.read(problem_rows.written)
            with contextlib.suppress(OSError):
                self._in_file = await self._database.access_file(self._file.read)
            self._written = {
                own_tables.problems: {(row["code"], row["subject"]): (None, row) for row in rows},
                own_tables.lamps: {(row["account"],): (None, row) for row in statuses},
            }
        known = self._in_file
        if known is None:
            known = [row for _, row in self._written[own_tables.problems].values()]
        return [_problem(row) for row in known if row["told"] and row["code"] in set(Code)]

    async def store(self, found: Collection[Problem], accounts: Iterable[str], reported: Mapping[Key, Rank]) -> bool:
        """Write the open problems. Returns whether a lock prevented it: no till locks our own tables.

        `reported`: the rank at which each was last reported to the alarm command.
        """
        async with self._one_at_a_time:
            try:
                await self.begin()
                opened = {row_key(one): (one, reported.get(one.key)) for one in found if one.behind is None}
                statuses: dict[RowKey, Any] = {
                    (name,): (name, one) for name, one in account_statuses(accounts, found).items()
                }
                made = {
                    own_tables.problems: self._made(own_tables.problems, opened, self._problem_row),
                    own_tables.lamps: self._made(own_tables.lamps, statuses, self._status_row),
                }
                await self._write(made)
            except (DBAPIError, Over) as error:
                if any(code in NO_DATABASE for code, _ in reported):
                    await self._keep_in_file(
                        [self._problem_row(one, reported[one.key]) for one in found if one.key in reported]
                    )
                return isinstance(error, DBAPIError) and is_busy(error)
            else:  # the file stays until the end is reported
                still = [row for row in self._in_file or () if (row["code"], row["subject"]) in reported]
                await self._keep_in_file(still if any(row["code"] in NO_DATABASE for row in still) else None)
        return False

    async def _keep_in_file(self, rows: list[Row] | None) -> None:
        if rows == self._in_file:
            return
        self._in_file = rows
        try:
            await self._database.access_file(self._file.end if rows is None else partial(self._file.write, rows))
        except OSError as error:
            if rows is not None:
                _log.warning("database.loss_not_noted", error=error.strerror, reason=say("log.end_untold"))

    def _made(self, table: Table, sources: Mapping[RowKey, Any], row: Callable[..., Row]) -> Rows:
        before = self._written[table]
        return {
            key: before[key] if key in before and before[key][0] == source else (source, row(*source))
            for key, source in sources.items()
        }

    async def _write(self, made: Mapping[Table, Rows]) -> None:
        changes = {table: _changes(self._written[table], rows) for table, rows in made.items()}
        now = self._clock.monotonic()
        if any(changes.values()) or now >= self._next_sign:
            await self._database.run(partial(self._rewrite, changes))
            self._next_sign = now + SIGN_S
        self._written = made

    def _rewrite(self, changes: Mapping[Table, Mapping[RowKey, Row | None]], connection: Connection) -> None:
        for table, rows in changes.items():
            problem_rows.rewrite(connection, table, rows)
        words = problem_text(Code.NOT_POLLING, self._language)
        problem_rows.note_alive(connection, SILENT, *words, self._default_account)

    def _problem_row(self, one: Problem, reported: Rank | None) -> Row:
        cause, remedy = problem_text(one.code, self._language, **one.facts)
        return {
            "code": str(one.code),
            "subject": as_subject(one.subject),
            "account": one.account,
            "severity": str(one.severity),
            "level": one.level,
            "since_utc": None if one.since is None else as_stored(one.since),
            "how_many": one.count,
            "cause": cause,
            "remedy": remedy,
            "facts": json.dumps(one.facts, ensure_ascii=False, sort_keys=True),
            "told": 0 if reported is None else reported[0] * SEVERE_RANK + reported[1],
        }

    def _status_row(self, account: str, status: AccountStatus) -> Row:
        code, since, remedy = None, None, None
        if (problem := status.problem) is not None:
            code, since = str(problem.code), problem.since
            sentence, remedy = problem_text(problem.code, self._language, **problem.facts)
        else:
            sentence = say("lamp.starting" if status == STARTING else "lamp.green", self._language)
        row = {"account": account, "lamp": str(status.lamp), "code": code, "sentence": sentence, "remedy": remedy}
        _, before = self._written[own_tables.lamps].get((account,), (None, {}))
        if since is None and all(before.get(name) == value for name, value in row.items()):
            since = before["since_utc"]
        return row | {"since_utc": as_stored(since or self._clock.now())}


def _changes(before: Rows, after: Rows) -> dict[RowKey, Row | None]:
    """The new row by key; None if it is removed."""
    old, new = ({key: row for key, (_, row) in rows.items()} for rows in (before, after))
    return {key: new.get(key) for key in {**old, **new} if new.get(key) != old.get(key)}


def row_key(one: Problem) -> RowKey:
    """The key of the problem's row."""
    return str(one.code), as_subject(one.subject)


def of_the_daemon(connection: Connection) -> tuple[Problem, ...]:
    """The daemon's own problems as it wrote them, for other programs."""
    return tuple(_problem(row) for row in problem_rows.of_codes(connection, sorted(OF_THE_DAEMON)))


def _problem(row: Mapping[str, Any]) -> Problem:
    severe, level = (
        divmod(row["told"], SEVERE_RANK) if row["told"] else (row["severity"] == Severity.SEVERE, row["level"])
    )
    return Problem(
        Code(row["code"]),
        row["subject"],
        row["since_utc"],
        Severity.SEVERE if severe else Severity.WARNING,
        row["how_many"],
        level=level,
        account=row["account"],
        facts=json.loads(row["facts"]),
    )
