"""The queue is kept like the table: what is new at once, all of it from time to time.

news     the newest waiting rows; what was asked back; what is unresolved
all      every unfinished row, a page at a time between other work, the lowest ids first: finds what was committed late,
         retried by command, changed or deleted, and how often depends on what it costs

Where news is more than a page there is a gap between what is known and what was read: everything up to the *frontier*
is known, and the reading of all closes the gap. A menu's or a restaurant's row beyond the frontier waits for that, so
that none overtakes an older one of its lane. An order's row does not: its claim asks the table for its lane.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.jobs.account import Roster
from orderbridge.jobs.context import Context
from orderbridge.model import OutboxRow
from orderbridge.rules.outbox_rows import Directory, View, is_ours, name_of
from orderbridge.rules.queue import Queue
from orderbridge.rules.retry import longest_wait
from orderbridge.store import reference, unfinished
from orderbridge.store.unfinished import FIRST_PAGE, PAGE, SMALL_PAGE, Found, ServerClock

FLOOR_S = 2.0  # all is read this often, or so seldom that it takes a thirtieth of the time
IDLE_FLOOR_S = 10.0  # where the watch has to ask, too, and little is to be asked
SHARE = 30
CEILING_S = 60.0
BUSY_SHARE = 8  # beside rows that are sent, a page is read when eight times what the last one took is over
MOST_AGAIN = 500  # unresolved rows that are read again with the news
IDLE_SHARE = 10  # after news that was none, the next is read when ten times what that took is over

Query = Callable[[Connection], Found]


@dataclass(slots=True)
class _Scan:
    """How far a reading has come. `whole`: it began with the first row, so who was not seen is gone."""

    above: int
    whole: bool
    cost: float = 0.0
    next_page: float = 0.0


class OutboxReader:
    """Reads the outbox into the queue."""

    def __init__(self, queue: Queue, roster: Roster, context: Context) -> None:
        self._queue = queue
        self._roster = roster
        self._database = context.database
        self._clock = context.clock
        default = context.settings.default_account
        self._default = default.name if default else None
        self._version = roster.version
        self._followed, self._was_lead = frozenset(roster.at_work), roster.owns(None)
        self._scan: _Scan | None = None
        self._direct({}, complete=False)
        queue.know(0)
        self._top = 0  # the highest id that was ever read
        self._number = 0  # of readings of all
        self._next_scan = 0.0
        self.has_news = True
        self._next_news = 0.0
        self.server = ServerClock()
        self.unreadable: dict[int, float] = {}  # rows, and when each may be refused, by the monotonic clock

    def is_ours(self, row: OutboxRow) -> bool:
        """Whether this process answers for the row."""
        return is_ours(row, self._queue.view.directory)

    def knows(self, row_id: int) -> bool:
        """Whether a row was read."""
        return row_id in self._queue or row_id in self.unreadable

    def replace(self, row_id: int, rows: Sequence[OutboxRow]) -> None:
        """A transaction has found these rows in place of the one in the queue. None: it ended, or is gone."""
        self._queue.give_back(row_id)
        if all(row.id != row_id for row in rows):
            self._queue.drop(row_id)
        for row in rows:
            self._queue.put(row, self._number)

    def look_at_all(self) -> None:
        """Something may have changed that no news tells of."""
        self._next_scan = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether accounts have come or left that are not followed yet."""
        return self._roster.version != self._version

    def follow_roster(self) -> None:
        """Accounts have come or left: their rows are read from now on, or forgotten.

        Until then no row of theirs comes in: what was on the wire has to be recovered before anything else is decided.
        """
        if not self.is_behind:
            return
        self._version = self._roster.version
        self._followed, self._was_lead = frozenset(self._roster.at_work), self._roster.owns(None)
        self._direct(self._reach, complete=False)
        self._queue.let_go()
        self.look_at_all()

    @property
    def floor(self) -> float:
        """Seconds after which all is read again, whatever the watch says."""
        is_idle = self._database.dialect.asks_little and not len(self._queue)
        return max(FLOOR_S, IDLE_FLOOR_S) if is_idle else FLOOR_S

    def again_in(self) -> float:
        """Seconds until something is to be read."""
        at = self._next_scan if self._scan is None else self._scan.next_page
        at = min(at, self._next_news) if self.has_news else at
        return max(at - self._clock.monotonic(), 0.0)

    async def everything(self) -> None:
        """All rows, now."""
        self._scan = None
        self.look_at_all()
        while not await self.step():
            pass

    async def step(self, *, busy: bool = False) -> bool:
        """One page of a reading, when it is time. True when nothing is left to read."""
        if not self._complete and self._all_known():  # rows that wait for that, or end by it, need not wait longer
            self._direct(await self._database.read(reference.restaurant_accounts), complete=True)
        began = self._clock.monotonic()
        if self._scan is None and not self._begin(began):
            return True
        scan = self._scan
        if scan is None or (busy and began < scan.next_page):
            return False
        page = SMALL_PAGE if busy or scan.above == 0 else PAGE  # the first rows leave before the others are read
        found, _ = await self._put(lambda tx: unfinished.above(tx, scan.above, self.server, self._clock.now(), page))
        cost = self._clock.monotonic() - began
        scan.cost += cost
        scan.next_page = self._clock.monotonic() + (BUSY_SHARE * cost if busy else 0.0)
        if len(found) < page or found.highest is None:
            self._end(scan)
            return True
        scan.above = found.highest
        if self._queue.frontier is not None:
            self._queue.know(max(self._queue.frontier, scan.above))
        return False

    def _begin(self, now: float) -> bool:
        """Begin with the first row, when it is time; behind what is known, when there is a gap."""
        if now >= self._next_scan:
            self._number += 1
            self._next_scan = now + self.floor
            self._scan = _Scan(0, whole=True)
        elif self._queue.frontier is not None:
            self._scan = _Scan(self._queue.frontier, whole=False)
        return self._scan is not None

    def _end(self, scan: _Scan) -> None:
        self._scan = None
        self._queue.know(None)
        if not scan.whole:
            return
        for entry in [entry for entry in self._queue if entry.seen < self._number and entry.is_free]:
            self._queue.drop(entry.row.id)
        if self._next_scan > 0:  # else another one was asked for meanwhile
            self._next_scan = self._clock.monotonic() + min(max(self.floor, SHARE * scan.cost), CEILING_S)

    async def news(self) -> None:
        """What the POS has written, and what a poll has made of unresolved rows; when there is news and it is time."""
        began = self._clock.monotonic()
        if not self.has_news or began < self._next_news:
            return
        self.has_news = False
        again = set(sorted(self._queue.unresolved)[:MOST_AGAIN])
        found, brought = await self._put(lambda tx: unfinished.newest(tx, self.server, self._clock.now()), newest=True)
        if len(found) < FIRST_PAGE:  # these are all that wait: who is not among them has ended, or is gone
            seen = {row.id for row in found.rows}
            if len(self._queue) < PAGE:
                again |= {entry.row.id for entry in self._queue if entry.row.id not in seen}
        else:
            brought |= (await self._put(lambda tx: unfinished.asked_back(tx, self.server, self._clock.now())))[1]
        again = {row_id for row_id in again if (entry := self._queue.get(row_id)) is not None and entry.is_free}
        if ids := sorted(again)[:MOST_AGAIN]:
            found, new = await self._put(lambda tx: unfinished.these(tx, ids, self.server, self._clock.now()))
            there = {row.id for row in found.rows} | set(found.unreadable) | self._queue.touched
            for row_id in ids:
                if row_id not in there:
                    self._queue.drop(row_id)
            brought |= new
        now = self._clock.monotonic()
        self._next_news = now if brought else now + IDLE_SHARE * (now - began)

    async def _put(self, query: Query, *, newest: bool = False) -> tuple[Found, bool]:
        """Read, and put what was found into the queue. Also whether any of it is news."""

        def work(connection: Connection) -> tuple[Found, dict[str, list[str]] | None, bool]:
            found = query(connection)
            named = any(row.restaurant_id for row in found.rows)
            reach = reference.restaurant_accounts(connection) if named else None
            return found, reach, not found.rows or self._roster.is_current(connection)

        self._queue.touched.clear()
        complete = self._all_known()
        found, reach, is_current = await self._database.read(work)
        if reach is not None:
            self._direct(reach, complete=complete)
        is_more = newest and len(found) >= FIRST_PAGE and all(row.id > self._top for row in found.rows)
        if is_more and self._queue.frontier is None:
            self._queue.know(self._top)
        new, directory = False, self._queue.view.directory
        for row in found.rows:
            self.unreadable.pop(row.id, None)
            if not is_current and name_of(row, directory) not in self._roster.known:
                continue  # an account that has just been added: with the next reading
            if row.id in self._queue.touched:
                if (entry := self._queue.get(row.id)) is not None:
                    entry.seen = self._number
            else:
                new |= self._queue.put(row, self._number)
        if self._roster.owns(None):  # their account cannot be read
            self.unreadable |= {row_id: self.unreadable.get(row_id, 0.0) for row_id in found.unreadable}
        self._top = max(self._top, found.highest or 0)
        return found, new

    def _all_known(self) -> bool:
        """Whether the restaurants of all accounts are known; of one that is at work elsewhere they are in the table."""
        if self._complete:
            return True
        at_work = self._roster.at_work
        in_table = {name for names in self._reach.values() for name in names} - at_work.keys()
        return all(
            at_work[name].restaurants_known if name in at_work else name in in_table for name in self._roster.known
        )

    def _direct(self, reach: dict[str, list[str]], *, complete: bool) -> None:
        """Which account answers for what. `complete`: the restaurants of all accounts were known when that was read."""
        self._complete, self._reach = complete, reach
        known, version = self._roster.known.keys(), self._roster.version
        self._queue.direct(Directory(known, self._default, reach, complete, self._answers_for, version))

    def _answers_for(self, account: str | None) -> bool:
        """Whether an account's rows are ours. What has left is not, as from that moment. None: they name none."""
        if account in self._followed:
            return account in self._roster.at_work
        if not account:
            return self._was_lead and self._roster.owns(None)
        return account not in self._roster.known and self._roster.owns(account)


def view_of(settings: config.Settings) -> View:
    """What the rules know before anything is read."""
    return View(
        now=datetime.fromtimestamp(0, UTC),  # until the first turn
        directory=Directory((), None, {}, complete=False),
        accept_valid=timedelta(minutes=settings.actions.accept_valid_minutes),
        valid=timedelta(minutes=settings.actions.valid_minutes),
        longest_wait=longest_wait(settings.actions.retry_waits_seconds, settings.marketplace.cooldown_seconds),
    )
