"""Older copies of the database: making them, putting them back, and what a technician does then.

Meanwhile the service is stopped, killed, or keeps running, and the till is closed, as docs/operations.md demands. A
file that is overwritten in place under a daemon needs two processes (tests/live).
"""

import asyncio
import shutil
import signal
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, update
from sqlalchemy.exc import DBAPIError
from tests.jobs.shop import text_of
from tests.sim.people import FOODS, RESTAURANTS, Agenda
from tests.sim.plan import Restore

from orderbridge.cli.database_commands import MARGIN
from orderbridge.errors import Unusable
from orderbridge.jobs.context import Context
from orderbridge.jobs.reimport import UNFINISHED, WRITTEN, Reimport, find, replay
from orderbridge.jobs.restore_check import NOTE_EVERY_S, RestoreCheck
from orderbridge.store import accounts, backup, high_water, journal
from orderbridge.store.dialects.sqlite_file import BESIDE
from orderbridge.store.leader import LeaderLock
from orderbridge.store.own_tables import devices

if TYPE_CHECKING:
    from tests.sim.simulation import Sim

AGAIN_S = 5.0
REPLAYED_AFTER_S = 60.0
CLOSED_BEFORE_S = 20.0
ANOTHER_DEVICE = "second"


class Restorer:
    """The technician who makes copies and puts them back."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._agenda = Agenda(sim)
        self._copies: dict[float, Path] = {}  # by their times
        self._now: Restore | None = None  # to be put back once no process runs
        self._tasks: list[asyncio.Task[None]] = []
        self.last: Restore | None = None  # the last one that was put back
        self.events: frozenset[int] = frozenset()  # events that the mark included then
        self.rows: frozenset[str] = frozenset()  # request_ids of the outbox's rows then
        self.sent: dict[str, int] = {}  # the number of their attempts that the mark included then
        self.has_revoked = False  # the mark knew that ANOTHER_DEVICE was revoked
        self.settled_at: float | None = 0.0  # when it was complete or confirmed; None: not yet
        self.is_whole = True  # whether the journal's documents were replayed
        self.takes_file = False  # whether the daemon loses its file, and ends

    @property
    def lag_s(self) -> float:
        """How far the mark may be behind the tables."""
        return high_water.LAG_S if self._sim.plan.slow_disk else NOTE_EVERY_S + 1.0

    def begin(self) -> None:
        for restore in self._sim.plan.restores:
            self._agenda.at(restore.copy_at, partial(self._copy, restore))
            self._agenda.at(restore.copy_at - CLOSED_BEFORE_S, self._close)
            self._agenda.at(restore.at, partial(self._put_back, restore))
        if self._sim.plan.restores:
            self._agenda.at(0.0, self._pair)

    def _copy(self, restore: Restore) -> None:
        self._sim.read("SELECT 1 FROM delivery_orders", ())  # else the daemon has not made the tables yet
        target = self._sim.path.with_name(f"copy-{len(self._copies)}.db")
        if restore.way == "with_its_wal":
            for suffix in ("", *BESIDE):
                shutil.copyfile(f"{self._sim.path}{suffix}", f"{target}{suffix}")
        else:
            backup.copy(self._sim.path, target)
        self._copies[restore.copy_at] = target
        self._sim.trace.note("hand", "copies", way=restore.way)
        self._agenda.after(1.0, self._revoke)

    def _close(self) -> None:
        """A closure whose end the copy has planned."""
        account = self._sim.plan.accounts[0]
        about = {"food_id": FOODS[account], "restaurant_id": RESTAURANTS[account][0]}
        self._sim.till.insert({"action": "deactivate_food"} | about | {"valid_until_minutes": 2})

    def _pair(self) -> None:
        """Two tablets; one of them is revoked after the copy."""
        now = self._sim.clock.now()
        rows: list[dict[str, Any]] = [
            {"id": one, "name": one, "role": "kitchen", "cookie_hash": one, "paired_utc": now, "seen_utc": now}
            for one in ("first", ANOTHER_DEVICE)
        ]
        self._write(lambda tx: tx.execute(insert(devices), rows), self._pair)

    def _revoke(self) -> None:
        revoke = update(devices).where(devices.c.id == ANOTHER_DEVICE).values(revoked_utc=self._sim.clock.now())
        self._write(lambda tx: tx.execute(revoke), self._revoke)

    def _write(self, work: Any, again: Any) -> None:
        self._sim.read("SELECT 1 FROM delivery_board_devices", ())
        with closing(self._sim.technician.database()) as database:
            try:
                database.write_now(work)
            except DBAPIError:  # a till holds the file
                self._agenda.after(AGAIN_S, again)

    def _put_back(self, restore: Restore) -> None:
        life = self._sim.life
        if life is None or not life.alive or not life.started or restore.copy_at not in self._copies:
            self._agenda.after(AGAIN_S, partial(self._put_back, restore))
            return
        self._sim.trace.fault("older_copy", way=restore.way)
        self._sim.disturb("")
        self._now = restore
        if restore.way == "under_the_daemon":
            self.takes_file = True
            self._exchange()
        elif restore.way == "by_command":
            life.down = AGAIN_S
            life.signal(signal.SIGTERM)
        else:
            life.kill("older copy", AGAIN_S)

    def explains(self, ending: str) -> bool:
        """Whether this end was expected: the daemon's file was replaced, or is no database."""
        return (ending == "FileLost" and self.takes_file) or (ending == "Unusable" and self.is_mixed)

    @property
    def is_mixed(self) -> bool:
        """Whether an older file was put beside a newer -wal."""
        return self.last is not None and self.last.way == "beside_a_wal"

    async def between_lives(self, ending: str) -> None:
        """Put the copy back now: no process has the file open."""
        if ending == "Unusable" and self.last is not None:
            self._now = replace(self.last, way="mended")
        if self._now is None and not self.takes_file:
            return
        if self._now is not None:
            self._exchange()
        self.takes_file = False
        if self.last is not None and self.last.replay == "before":
            await self._replay()

    def _exchange(self) -> None:
        restore, self._now = self._now, None
        path, copy = self._sim.path, self._copies[restore.copy_at]
        if restore.way != "mended":
            self._note_what_is_there()
        wal = Path(f"{path}-wal").read_bytes() if restore.way == "beside_a_wal" else b""
        self._sim.close()
        self._sim.till.lose_power()  # the last connection that closes removes the -wal
        if restore.way == "by_command":
            backup.restore(copy, path)
        else:
            for suffix in BESIDE:
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            if wal:
                Path(f"{path}-wal").write_bytes(wal)
            for suffix in ("", *(BESIDE if restore.way == "with_its_wal" else ())):
                new = path.with_name("put-back")
                shutil.copyfile(f"{copy}{suffix}", new)
                new.replace(f"{path}{suffix}")
        self.last, self.settled_at, self.is_whole = restore, None, False
        self._sim.technician.mend_copy()
        if restore.crash:
            self._sim.crash_next_at(restore.crash, NOTE_EVERY_S)
        self._sim.tell("restored")
        if restore.replay == "beside":
            self._agenda.after(REPLAYED_AFTER_S, self._start_replay)
        self._agenda.after(restore.confirmed_after, self._confirm)

    def _note_what_is_there(self) -> None:
        known, read = text_of(self._sim.clock.now() - timedelta(seconds=self.lag_s)), self._sim.read
        events = frozenset(row[0] for row in read("SELECT id FROM delivery_order_events WHERE at_utc < ?", (known,)))
        self.events = events if self.settled_at is not None else events | self.events
        self.sent = sent(self._sim, known)
        self.rows = frozenset(row[0] for row in read("SELECT request_id FROM delivery_actions", ()))
        revoked = "SELECT 1 FROM delivery_board_devices WHERE id = ? AND revoked_utc < ?"
        self.has_revoked = bool(read(revoked, (ANOTHER_DEVICE, known)))

    def _start_replay(self) -> None:
        if self._sim.life is None or not self._sim.life.started or self.takes_file or self._now is not None:
            self._agenda.after(AGAIN_S, self._start_replay)
            return
        self._tasks.append(asyncio.get_running_loop().create_task(self._replay()))

    async def _replay(self) -> None:
        """`orderbridge db replay`"""
        sim = self._sim
        try:
            with closing(sim.technician.database()) as database:
                database.check_intact()
        except Unusable:  # the file is damaged, or no database: see `explains`
            return
        with closing(sim.technician.database()) as database:
            try:
                with closing(LeaderLock(database)) as leader:
                    if leader.take():
                        check = RestoreCheck(Context.of(sim.settings, database, sim.clock), sim.plan.accounts)
                        await check.start()
                        await check.close()
                older = database.read_now(high_water.older)
                since = None if older is None or older.last_known is None else older.last_known - MARGIN
                found = find(journal.files(sim.settings.journal), since)
                sim.tell("replaying")
                done = list(replay(Reimport(database, sim.settings, sim.clock.now()), found))
                left = any(one.fate in UNFINISHED for one in done)
                if older is not None and not left and not database.read_now(accounts.held):
                    database.write_now(high_water.settle)
                    self.settled_at = sim.now()
            except DBAPIError:  # a till holds the file
                self._agenda.after(AGAIN_S, self._start_replay)
                return
        for one in done:
            if one.fate in WRITTEN:
                sim.tell("replayed", one.payment_key)
        sim.trace.note("hand", "db replay", orders=len(done), left=left or None)
        self.is_whole |= not left
        if left:
            self._agenda.after(REPLAYED_AFTER_S, self._start_replay)
        sim.till.notice()

    def _confirm(self) -> None:
        """`orderbridge db confirm-restore`"""
        if self._sim.life is None or not self._sim.life.started or self._now is not None:
            self._agenda.after(AGAIN_S, self._confirm)
            return
        self._write(self._settle, self._confirm)

    def _settle(self, connection: Any) -> None:
        if high_water.older(connection) is not None:  # else it was not found yet, or the replay has settled it
            self.settled_at = self._sim.now()
        high_water.settle(connection)
        accounts.release(connection, self._sim.clock.now())
        self._sim.trace.note("hand", "db confirm-restore")

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(OSError):
            self._sim.path.with_name("put-back").unlink()


def sent(sim: "Sim", before: str) -> dict[str, int]:
    query = (
        "SELECT request_id, count(*) FROM delivery_actions JOIN delivery_action_attempts ON action_id = id"
        " WHERE started_utc < ? GROUP BY request_id"
    )
    return dict(map(tuple, sim.read(query, (before,))))
