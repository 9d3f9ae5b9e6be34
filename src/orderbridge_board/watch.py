"""What the daemon does for the board: it tells when nobody can hear it, and keeps a day's picture of the polls."""

from collections.abc import Mapping

from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.model import Outcome
from orderbridge.observe.metrics import POLLS, Metrics
from orderbridge.rules.problems import Code
from orderbridge.store.database import Database
from orderbridge_board import poll_history, queries
from orderbridge_board.audience import Audience


class BoardWatch:
    """Of one daemon whose board is on."""

    def __init__(
        self, database: Database, clock: Clock, metrics: Metrics, accounts: Mapping[str, Account], audience: Audience
    ) -> None:
        self._database = database
        self._clock = clock
        self._metrics = metrics
        self._accounts = accounts
        self._audience = audience
        self._counted = self._counts()
        self._tokens = {name: account.session.current for name, account in accounts.items()}

    async def look(self, known: DaemonProblems) -> None:
        """Nobody hears: a problem, as long as there is something to hear."""
        if not self._audience.is_deaf(self._clock.monotonic()):
            known.end(Code.BOARD_UNHEARD)
            return
        try:
            closed = await self._database.read(queries.is_closed)
        except DBAPIError:
            return  # that is told by itself
        if closed:
            known.end(Code.BOARD_UNHEARD)
        elif not known.has(Code.BOARD_UNHEARD):
            known.begin(Code.BOARD_UNHEARD)

    async def note(self) -> None:
        """What was counted since the last time goes into the slot of this moment. What fails is lost: it is a picture."""
        now, before = self._counts(), self._counted
        counts: dict[str, dict[str, int]] = {}
        for name, account in self._accounts.items():
            polls, failed = (int(now[name][part] - before.get(name, (0, 0))[part]) for part in (0, 1))
            token = account.session.current
            logins = int(token is not None and token != self._tokens.get(name))
            self._tokens[name] = token
            if polls or logins:
                counts[name] = {"polls": polls, "failed": failed, "logins": logins}
        self._counted, moment = now, self._clock.now()
        if counts:
            await self._database.run(lambda tx: poll_history.add(tx, counts, moment))
        if await self._database.read(lambda tx: queries.has_forgettable(tx, moment)):
            await self._database.run(lambda tx: queries.forget_silenced(tx, moment))

    def _counts(self) -> dict[str, tuple[float, float]]:
        """By account: all polls, and those that failed."""
        found: dict[str, tuple[float, float]] = {}
        for reading in self._metrics.readings(POLLS):
            name, result = reading.labels
            polls, failed = found.get(name, (0.0, 0.0))
            found[name] = polls + reading.value, failed + reading.value * (result != Outcome.OK)
        return found | {name: (0.0, 0.0) for name in self._accounts if name not in found}
