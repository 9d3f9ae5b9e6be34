"""How it stands, at a glance: a lamp for each account in the database, for the till, and one line for `systemctl status`.

The lamps are decided in rules.account_status, and written only when one has changed.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from orderbridge.clock import Clock
from orderbridge.rules.account_status import STARTING, Shown, lamp_of, lamps
from orderbridge.rules.problems import Problem
from orderbridge.store import problems
from orderbridge.store.columns import as_stored
from orderbridge.store.database import Database
from orderbridge.texts import problem_text, say


def headline(found: Sequence[Problem], accounts: int, zone: ZoneInfo, language: str) -> str:
    """All of it in one line, the worst by name: what `systemctl status` shows."""
    if not found:
        return say("status.green", language, count=accounts)
    first = found[0]
    light = say(f"status.{lamp_of(first)}", language)
    since = "" if first.since is None else say("status.since", language, time=first.since.astimezone(zone))
    cause, _ = problem_text(first.code, language, **first.facts)
    subject = f"{first.subject}: " if first.subject else ""
    more = f"+{len(found) - 1}" if len(found) > 1 else ""
    beside = ", ".join(filter(None, (since, more)))
    return f"{light}: {subject}{cause}{f' ({beside})' if beside else ''}"


class Lamps:
    """What stands in delivery_lamps: one row for each account that is configured."""

    def __init__(self, database: Database, clock: Clock, language: str) -> None:
        self._database = database
        self._clock = clock
        self._language = language
        self._shown: dict[str, Shown] | None = None  # None: nothing was written yet
        self._rows: dict[str, dict[str, Any]] = {}

    async def show(self, accounts: Iterable[str], found: Iterable[Problem]) -> None:
        """What is so now of these accounts. Raises DBAPIError or Over where nothing can be written: the next look tries again."""
        shown = lamps(accounts, found)
        if shown == self._shown:
            return
        before, is_first = self._shown or {}, self._shown is None
        if is_first:
            self._rows = await self._database.read(problems.lamps)
        rows = {
            account: self._rows[account] if one == before.get(account) else self._row(account, one)
            for account, one in shown.items()
        }
        changed = [account for account, row in rows.items() if is_first or row != self._rows.get(account)]
        left = self._rows.keys() - rows.keys()
        if changed or left or is_first:  # first of all of them: an account may have left the configuration
            gone = None if is_first else [*changed, *left]
            await self._database.run(lambda tx: problems.light(tx, gone, [rows[account] for account in changed]))
        self._shown, self._rows = shown, rows

    def _row(self, account: str, shown: Shown) -> dict[str, Any]:
        sentence, remedy = self._words(shown)
        row = {
            "account": account,
            "lamp": str(shown.lamp),
            "code": None if shown.problem is None else str(shown.problem.code),
            "sentence": sentence,
            "remedy": remedy,
        }
        before = self._rows.get(account, {})
        if shown.problem is not None and shown.problem.since is not None:
            since = as_stored(shown.problem.since)
        elif all(before.get(name) == value for name, value in row.items()):
            since = before["since_utc"]
        else:
            since = as_stored(self._clock.now())
        return row | {"since_utc": since}

    def _words(self, shown: Shown) -> tuple[str, str | None]:
        if shown.problem is not None:
            return problem_text(shown.problem.code, self._language, **shown.problem.facts)
        return say("lamp.starting" if shown == STARTING else "lamp.green", self._language), None
