"""The board's tasks in the daemon: it reports that no tablet is audible, and counts polls in slots of ten minutes."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from orderbridge.daemon import RunningDaemon
from orderbridge.model import Outcome
from orderbridge.observe.metrics import POLLS
from orderbridge.rules.problems import Code
from orderbridge.store.own_tables import slots
from orderbridge_board import queries
from orderbridge_board.devices import Device

HEARD_S = 8.0  # a tablet reports every 5 s that it can be heard
SURE_S = 15.0  # after a start, in which tablets connect again by themselves
CHECK_S = 5.0
COUNT_S = 60.0
KEPT = timedelta(days=2)
COUNTED = ("polls", "failed", "logins")


class AudibleTablets:
    """The tablets whose sound is on, by the monotonic clock."""

    def __init__(self, now: float) -> None:
        self._sure_from = now + SURE_S
        self._until: dict[str, float] = {}  # by the name of the tablet, which is unique

    def heard(self, device: Device, now: float, *, audible: bool) -> None:
        """Note a tablet's report. `audible`: it shows the board, and its sound is on."""
        self._until = {one: until for one, until in self._until.items() if until > now}
        if audible:  # otherwise it expires later: another page of the same tablet may be audible
            self._until[device.name] = now + HEARD_S

    def names(self, now: float) -> list[str]:
        """The names of the tablets that can be heard."""
        return sorted(name for name, until in self._until.items() if until > now)

    def is_none_audible(self, now: float) -> bool:
        """Whether it is certain that no tablet can be heard."""
        return now >= self._sure_from and not any(until > now for until in self._until.values())


class BoardWatch:
    """The board's tasks in one daemon."""

    def __init__(self, daemon: RunningDaemon, tablets: AudibleTablets) -> None:
        self._daemon = daemon
        self._tablets = tablets
        self._counted = self._counts()
        self._tokens = {name: account.session.current for name, account in daemon.accounts.items()}

    def begin(self) -> None:
        """Start the periodic tasks."""
        self._daemon.timetable.plan("board_unheard", CHECK_S, self.check)
        self._daemon.timetable.plan("board_polls", COUNT_S, self.count)

    async def check(self) -> float:
        """Report that no tablet can be heard, unless all is closed. Returns the seconds until the next check."""
        database, problems = self._daemon.database, self._daemon.own_problems
        is_none_audible = self._tablets.is_none_audible(self._daemon.clock.monotonic())
        try:
            is_unheard = is_none_audible and not await database.read(queries.is_closed)
        except DBAPIError:
            return CHECK_S  # another problem reports this
        if not is_unheard:
            problems.end(Code.BOARD_UNHEARD)
        elif not problems.has(Code.BOARD_UNHEARD):
            problems.begin(Code.BOARD_UNHEARD)
        return CHECK_S

    async def count(self) -> float:
        """Add the polls since the last call to the current slot. Counts that cannot be written are lost."""
        database, now, before = self._daemon.database, self._counts(), self._counted
        counts: dict[str, dict[str, int]] = {}
        for name, account in self._daemon.accounts.items():
            polls, failed = (int(now[name][part] - before.get(name, (0, 0))[part]) for part in (0, 1))
            token = account.session.current
            logins = int(token is not None and token != self._tokens.get(name))
            self._tokens[name] = token
            if polls or logins:
                counts[name] = {"polls": polls, "failed": failed, "logins": logins}
        self._counted, moment = now, self._daemon.clock.now()
        if counts:
            await database.run(lambda tx: add_polls(tx, counts, moment))
        if await database.read(lambda tx: queries.has_forgettable(tx, moment)):
            await database.run(lambda tx: queries.forget_silenced(tx, moment))
        return COUNT_S

    def _counts(self) -> dict[str, tuple[float, float]]:
        """All polls and failed polls by account."""
        found: dict[str, tuple[float, float]] = {}
        for reading in self._daemon.metrics.readings(POLLS):
            name, result = reading.labels
            polls, failed = found.get(name, (0.0, 0.0))
            found[name] = polls + reading.value, failed + reading.value * (result != Outcome.OK)
        return found | {name: (0.0, 0.0) for name in self._daemon.accounts if name not in found}


# ---- polls, for the technician's chart of a day ----------------------------------------------------------------------


def slot_of(now: datetime) -> datetime:
    """The slot that contains this time."""
    return now.replace(minute=now.minute // 10 * 10, second=0, microsecond=0)


def add_polls(connection: Connection, counts: Mapping[str, Mapping[str, int]], now: datetime) -> None:
    """Add counts by account to the current slot."""
    slot = slot_of(now)
    for account, some in counts.items():
        mine = update(slots).where(slots.c.account == account, slots.c.slot_utc == slot)
        if not connection.execute(mine.values({name: slots.c[name] + some[name] for name in COUNTED})).rowcount:
            connection.execute(insert(slots).values(account=account, slot_utc=slot, **some))
    connection.execute(delete(slots).where(slots.c.slot_utc < now - KEPT))


def polls_since(connection: Connection, moment: datetime) -> list[dict[str, Any]]:
    """All slots since then, by account and time."""
    query = select(slots).where(slots.c.slot_utc >= moment).order_by(slots.c.account, slots.c.slot_utc)
    return [dict(row) for row in connection.execute(query).mappings()]
