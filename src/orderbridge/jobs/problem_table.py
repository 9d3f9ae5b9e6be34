"""The open problems in the database, for the till and for other programs; written only when something has changed.

It is best effort: where the database takes nothing, that is a problem of its own, and the log and the alarms tell it.
Then a small file remembers what was told (store.lost): the next daemon tells the end.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.errors import Over
from orderbridge.rules.daemon import SILENT
from orderbridge.rules.notify import Rank
from orderbridge.rules.problems import NO_DATABASE, OF_THE_DAEMON, Code, Problem, Severity
from orderbridge.store import problems
from orderbridge.store.columns import as_stored
from orderbridge.store.database import Database
from orderbridge.store.lost import Loss
from orderbridge.store.problems import Key, as_subject
from orderbridge.texts import problem_text, say

SIGN_S = 30.0  # between two signs of life
SEVERE_RANK = 100  # is added to the level
LOST = (Code.DATABASE_LOST, "")

_log = structlog.get_logger(__name__)


class ProblemTable:
    """What stands in delivery_problems."""

    def __init__(self, database: Database, clock: Clock, language: str) -> None:
        self._database = database
        self._clock = clock
        self._language = language
        self._rows: dict[Key, dict[str, Any]] | None = None  # None: not read yet
        self._loss = Loss(database)
        self._told_lost: list[dict[str, Any]] | None = None  # by a daemon that could not write it here
        self._left: list[dict[str, Any]] | None = None  # by this one
        self._kept: dict[tuple[Code, str], tuple[Problem, Rank | None, dict[str, Any]]] = {}  # a thousand cost time
        self._next_sign = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> list[Problem]:
        """What the daemon before this one had told by its alarms, and may be over or not.

        One that could not write knew better than the tables that are there now: they may be a copy of last week.
        """
        if self._rows is None:
            rows = await self._database.read(problems.written)
            with contextlib.suppress(OSError):
                self._told_lost = await self._database.beside(self._loss.read)
            self._rows = {(row["code"], row["subject"]): {**row, "noted_utc": None} for row in rows}
        known = self._rows.values() if self._told_lost is None else self._told_lost
        return [_problem(row) for row in known if row["told"] and row["code"] in set(Code)]

    async def note(self, found: Iterable[Problem], told: Mapping[tuple[Code, str], Rank]) -> None:
        """What is so now. `told`: how bad each was when the alarms last told of it."""
        rows = self._rows_of(found, told)
        async with self._one_at_a_time:
            try:
                await self.begin()
                await self._write({row_key(one): row for one, row in rows})
            except (DBAPIError, Over):
                if any(code in NO_DATABASE for code, _ in told):
                    await self._leave([row for _, row in rows if row["told"]])
            else:
                await self._settle(told)

    async def _leave(self, rows: list[dict[str, Any]]) -> None:
        """To the daemon that works on the database when it can be written again."""
        if rows == self._left:
            return
        self._left = rows
        try:
            await self._database.beside(partial(self._loss.write, rows))
        except OSError as error:
            _log.warning("database.loss_not_noted", error=error.strerror, reason=say("log.end_untold"))

    async def _settle(self, told: Mapping[tuple[Code, str], Rank]) -> None:
        """It can be written: as long as that was not told, what else was told before it stays known."""
        before = self._told_lost
        if before is None:
            if self._left is not None:
                self._left = None
                with contextlib.suppress(OSError):
                    await self._database.beside(self._loss.end)
            return
        self._told_lost = [row for row in before if (row["code"], row["subject"]) in told]
        over = all(row["code"] not in NO_DATABASE for row in self._told_lost)
        if over or len(self._told_lost) < len(before):
            with contextlib.suppress(OSError):
                await self._database.beside(self._loss.end if over else partial(self._loss.write, self._told_lost))
        if over:
            self._told_lost = None

    def _rows_of(
        self, found: Iterable[Problem], told: Mapping[tuple[Code, str], Rank]
    ) -> list[tuple[Problem, dict[str, Any]]]:
        kept, self._kept = self._kept, {}
        for one in found:
            rank = told.get(one.key)
            same = kept.get(one.key)
            row = same[2] if same is not None and same[:2] == (one, rank) else self._row(one, rank)
            self._kept[one.key] = one, rank, row
        return [(one, row) for one, _, row in self._kept.values()]

    async def _write(self, rows: dict[Key, dict[str, Any]]) -> None:
        before = self._rows or {}
        # A key that is new is deleted, too: the writing before this one may have been cancelled, and done all the same.
        changed = [key for key in before | rows if rows.get(key) != before.get(key)]
        now = self._clock.monotonic()
        if changed or now >= self._next_sign:
            await self._database.run(partial(self._note, changed, [rows[key] for key in changed if key in rows]))
            self._rows, self._next_sign = rows, now + SIGN_S

    def _note(self, changed: Sequence[Key], fresh: Sequence[dict[str, Any]], connection: Connection) -> None:
        now = self._clock.now()
        problems.rewrite(connection, changed, [{**row, "noted_utc": now} for row in fresh])
        problems.sign(connection, SILENT, *problem_text(Code.NOT_POLLING, self._language))

    def _row(self, one: Problem, told: Rank | None) -> dict[str, Any]:
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
            "told": 0 if told is None else told[0] * SEVERE_RANK + told[1],
            "noted_utc": None,
        }


def row_key(one: Problem) -> Key:
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
