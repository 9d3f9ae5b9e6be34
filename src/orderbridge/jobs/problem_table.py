"""Open problems and the status of each account, as the till and other programs read them; written only when they change.

This is best effort: a database that takes nothing is a problem of its own, which the log and the alarm command report.
A small file then remembers what the command has heard (store.problems): the next daemon reports its end.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.errors import Over
from orderbridge.rules.account_status import STARTING, AccountStatus, account_statuses
from orderbridge.rules.notify import Key, Rank
from orderbridge.rules.problems import NO_DATABASE, OF_THE_DAEMON, Code, Problem, Severity
from orderbridge.store import own_tables, problems
from orderbridge.store.columns import as_stored
from orderbridge.store.database import Database
from orderbridge.store.problems import HeardFile, Row, as_subject
from orderbridge.texts import problem_text, say

SIGN_S = 30.0  # between two signs of life
SILENT = timedelta(seconds=90)  # without a sign of life for so long, nobody polls
SEVERE_RANK = 100  # is added to the level

_log = structlog.get_logger(__name__)


class _Rows:
    """The rows of one table. A row is made anew only when its source changes: a thousand sentences take time."""

    def __init__(self, written: Mapping[tuple[str, ...], Row]) -> None:
        self.written = written
        self._made: dict[tuple[str, ...], tuple[object, Row]] = {}

    def make(self, sources: Mapping[tuple[str, ...], Any], row: Callable[[Any], Row]) -> dict[tuple[str, ...], Row]:
        before = self._made
        self._made = {
            key: before[key] if key in before and before[key][0] == source else (source, row(source))
            for key, source in sources.items()
        }
        return {key: made for key, (_, made) in self._made.items()}

    def changed(self, rows: Mapping[tuple[str, ...], Row]) -> list[tuple[str, ...]]:
        return [key for key in {**self.written, **rows} if rows.get(key) != self.written.get(key)]


class ProblemTable:
    """What stands in delivery_problems, delivery_lamps and delivery_daemon."""

    def __init__(self, database: Database, clock: Clock, language: str) -> None:
        self._database = database
        self._clock = clock
        self._language = language
        self._problems, self._statuses = _Rows({}), _Rows({})
        self._is_read = False
        self._file = HeardFile(database)
        self._in_file: list[Row] | None = None
        self._next_sign = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> list[Problem]:
        """What the alarm command has heard from the daemon before this one; it may be over by now.

        A daemon that could not write knew better than the tables that are there now: they may be a copy of last week.
        """
        if not self._is_read:
            rows, statuses = await self._database.read(problems.written)
            with contextlib.suppress(OSError):
                self._in_file = await self._database.beside(self._file.read)
            self._problems = _Rows({(row["code"], row["subject"]): {**row, "noted_utc": None} for row in rows})
            self._statuses = _Rows({(row["account"],): row for row in statuses})
            self._is_read = True
        known = self._problems.written.values() if self._in_file is None else self._in_file
        return [_problem(row) for row in known if row["told"] and row["code"] in set(Code)]

    async def store(self, found: Collection[Problem], accounts: Iterable[str], heard: Mapping[Key, Rank]) -> None:
        """What is so now. `heard`: how bad each problem was when the alarm command last heard of it."""
        is_heard_lost = any(code in NO_DATABASE for code, _ in heard)
        async with self._one_at_a_time:
            try:
                await self.begin()
                await self._write(
                    [one for one in found if one.behind is None], account_statuses(accounts, found), heard
                )
            except (DBAPIError, Over):
                if is_heard_lost:
                    rows = [self._problem_row((one, heard[one.key])) for one in found if one.key in heard]
                    await self._keep_in_file(rows)
            else:  # as long as the command has not heard of the end, the file stays
                still = [row for row in self._in_file or () if (row["code"], row["subject"]) in heard]
                await self._keep_in_file(still if any(row["code"] in NO_DATABASE for row in still) else None)

    async def _keep_in_file(self, rows: list[Row] | None) -> None:
        if rows == self._in_file:
            return
        self._in_file = rows
        try:
            await self._database.beside(self._file.end if rows is None else partial(self._file.write, rows))
        except OSError as error:
            if rows is not None:
                _log.warning("database.loss_not_noted", error=error.strerror, reason=say("log.end_untold"))

    async def _write(
        self, found: Iterable[Problem], statuses: Mapping[str, AccountStatus], heard: Mapping[Key, Rank]
    ) -> None:
        open_rows = self._problems.make({row_key(one): (one, heard.get(one.key)) for one in found}, self._problem_row)
        status_rows = self._statuses.make({(name,): (name, one) for name, one in statuses.items()}, self._status_row)
        # A key that is new is deleted, too: the write before this one may have been cancelled, and done all the same.
        changed, lit = self._problems.changed(open_rows), self._statuses.changed(status_rows)
        now = self._clock.monotonic()
        if changed or lit or now >= self._next_sign:
            await self._database.run(
                lambda tx: self._rewrite(
                    tx,
                    {key: open_rows.get(key) for key in changed},
                    {key: status_rows.get(key) for key in lit},
                )
            )
            self._problems.written, self._statuses.written = open_rows, status_rows
            self._next_sign = now + SIGN_S

    def _rewrite(
        self,
        connection: Connection,
        changed: Mapping[tuple[str, ...], Row | None],
        lit: Mapping[tuple[str, ...], Row | None],
    ) -> None:
        now = self._clock.now()
        fresh = [{**row, "noted_utc": now} for row in changed.values() if row is not None]
        problems.rewrite(connection, own_tables.problems, changed, fresh)
        problems.rewrite(connection, own_tables.lamps, lit, [row for row in lit.values() if row is not None])
        problems.sign(connection, SILENT, *problem_text(Code.NOT_POLLING, self._language))

    def _problem_row(self, source: tuple[Problem, Rank | None]) -> Row:
        one, heard = source
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
            "told": 0 if heard is None else heard[0] * SEVERE_RANK + heard[1],
            "noted_utc": None,
        }

    def _status_row(self, source: tuple[str, AccountStatus]) -> Row:
        account, status = source
        problem = status.problem
        if problem is None:
            code, remedy = None, None
            sentence = say("lamp.starting" if status == STARTING else "lamp.green", self._language)
        else:
            code = str(problem.code)
            sentence, remedy = problem_text(problem.code, self._language, **problem.facts)
        row = {"account": account, "lamp": str(status.lamp), "code": code, "sentence": sentence, "remedy": remedy}
        before = self._statuses.written.get((account,), {})
        since = before.get("since_utc") if all(before.get(name) == value for name, value in row.items()) else None
        if problem is not None and problem.since is not None:
            since = problem.since
        return row | {"since_utc": as_stored(since or self._clock.now())}


def row_key(one: Problem) -> tuple[str, str]:
    """The key of its row."""
    return str(one.code), as_subject(one.subject)


def of_the_daemon(connection: Connection) -> tuple[Problem, ...]:
    """What only the daemon knows, as it has written it down: for other programs."""
    return tuple(_problem(row) for row in problems.of_codes(connection, sorted(OF_THE_DAEMON)))


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
