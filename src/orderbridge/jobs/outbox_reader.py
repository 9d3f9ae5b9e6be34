"""Reads the outbox table into the queue: new rows at once, all rows from time to time.

news   the newest waiting rows, rows to be withdrawn, and unresolved rows
all    every unfinished row in pages, the lowest ids first, between other work. This finds rows that were committed
       late, retried by a command, changed or deleted. How often it is done depends on its cost

If there are more new rows than a page holds, a gap remains between the known and the new rows. All rows up to the
*frontier* are known, and the reading of all rows closes the gap. A food's or restaurant's row beyond the frontier waits
for that, so that it does not overtake an older row of its lane. An order's row need not wait: its claim reads its lane.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.jobs.account import Roster
from orderbridge.jobs.context import Context
from orderbridge.model import OutboxRow
from orderbridge.rules.outbox_rows import Directory, View, name_of
from orderbridge.rules.queue import Queue
from orderbridge.rules.retry import longest_wait
from orderbridge.store import reference, unfinished
from orderbridge.store.unfinished import FIRST_PAGE, PAGE, SMALL_PAGE, Found, ServerClock

FLOOR_S = 2.0  # between two readings of all rows, or SHARE times the duration of the last one
IDLE_FLOOR_S = 10.0  # with an empty queue, on databases where each read should be avoided
SHARE = 30
CEILING_S = 60.0
BUSY_SHARE = 8  # while rows are sent, the next page waits for eight times the duration of the last one
MAX_AGAIN = 500  # unresolved rows that are read again with the news
IDLE_SHARE = 10  # after an empty read of news, the next one waits for ten times its duration

Query = Callable[[Connection], Found]


@dataclass(slots=True)
class _Scan:
    """The state of a reading. `whole`: it began with the first row, so rows that it did not find are gone."""

    above: int
    whole: bool
    cost: float = 0.0
    next_page: float = 0.0


class OutboxReader:
    """Reads the outbox into the queue."""

    def __init__(self, queue: Queue, roster: Roster, context: Context) -> None:
        self._queue, self._roster = queue, roster
        self._database, self._clock = context.database, context.clock
        self._default = context.settings.default_account
        self._version = roster.version
        self._followed, self._was_lead = frozenset(roster.at_work), roster.owns(None)
        self._scan: _Scan | None = None
        self._direct({}, complete=False)
        queue.know(0)
        self._top = 0  # the highest id that was ever read
        self._number = 0  # counts the readings of all rows
        self._next_scan = 0.0
        self.has_news = True
        self._next_news = 0.0
        self.server = ServerClock()
        self.unreadable: dict[int, float] = {}  # row ids, and the monotonic time at which each may be refused

    def knows(self, row_id: int) -> bool:
        """Whether the row was read."""
        return row_id in self._queue or row_id in self.unreadable

    def replace(self, row_id: int, rows: Sequence[OutboxRow]) -> None:
        """Replace a row of the queue by the rows that a transaction found. If it is not among them, it is dropped."""
        self._queue.give_back(row_id)
        if all(row.id != row_id for row in rows):
            self._queue.drop(row_id)
        for row in rows:
            self._queue.put(row, self._number)

    def read_all_soon(self) -> None:
        """Read all rows soon, because of a change that the news do not show."""
        self._next_scan = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether the roster has changed since `follow_roster`."""
        return self._roster.version != self._version

    def follow_roster(self) -> None:
        """Begin to read the rows of new accounts, and drop those of accounts that left.

        The rows of a new account are ignored until then: its orphaned rows must be recovered first.
        """
        if not self.is_behind:
            return
        self._version = self._roster.version
        self._followed, self._was_lead = frozenset(self._roster.at_work), self._roster.owns(None)
        self._direct(self._reach, complete=False)
        self._queue.remove_foreign()
        self.read_all_soon()

    @property
    def floor(self) -> float:
        """Seconds between two readings of all rows."""
        is_idle = self._database.dialect.asks_little and not len(self._queue)
        return max(FLOOR_S, IDLE_FLOOR_S) if is_idle else FLOOR_S

    def again_in(self) -> float:
        """Seconds until the next read is due."""
        at = self._next_scan if self._scan is None else self._scan.next_page
        at = min(at, self._next_news) if self.has_news else at
        return max(at - self._clock.monotonic(), 0.0)

    async def everything(self) -> None:
        """Read all rows now."""
        self._scan = None
        self.read_all_soon()
        while not await self.step():
            pass

    async def step(self, *, busy: bool = False) -> bool:
        """Read one page if it is due. Returns True if nothing is left to read."""
        if not self._complete and self._all_known():  # rows may wait for this, or end because of it
            self._direct(await self._database.read(reference.restaurant_accounts), complete=True)
        began = self._clock.monotonic()
        if self._scan is None and not self._begin(began):
            return True
        scan = self._scan
        if scan is None or (busy and began < scan.next_page):
            return False
        page = SMALL_PAGE if busy or scan.above == 0 else PAGE  # a small first page lets rows be sent early
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
        """Begin a reading: of all rows if it is due, else beyond the frontier if there is a gap."""
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
        if self._next_scan > 0:  # else another one was requested meanwhile
            self._next_scan = self._clock.monotonic() + min(max(self.floor, SHARE * scan.cost), CEILING_S)

    async def news(self) -> None:
        """Read new rows and rows that may have changed, if there was a wake-up and it is due."""
        began = self._clock.monotonic()
        if not self.has_news or began < self._next_news:
            return
        self.has_news = False
        again = set(sorted(self._queue.unresolved)[:MAX_AGAIN])
        found, brought = await self._put(lambda tx: unfinished.newest(tx, self.server, self._clock.now()), newest=True)
        if len(found) < FIRST_PAGE:  # these are all waiting rows: others have ended or are gone
            seen = {row.id for row in found.rows}
            if len(self._queue) < PAGE:
                again |= {entry.row.id for entry in self._queue if entry.row.id not in seen}
        else:
            brought |= (await self._put(lambda tx: unfinished.withdrawn(tx, self.server, self._clock.now())))[1]
        again = {row_id for row_id in again if (entry := self._queue.get(row_id)) is not None and entry.is_free}
        if ids := sorted(again)[:MAX_AGAIN]:
            found, new = await self._put(lambda tx: unfinished.these(tx, ids, self.server, self._clock.now()))
            there = {row.id for row in found.rows} | set(found.unreadable) | self._queue.touched
            for row_id in ids:
                if row_id not in there:
                    self._queue.drop(row_id)
            brought |= new
        now = self._clock.monotonic()
        self._next_news = now if brought else now + IDLE_SHARE * (now - began)

    async def _put(self, query: Query, *, newest: bool = False) -> tuple[Found, bool]:
        """Read rows into the queue. Returns them, and whether any is new."""

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
                continue  # a new account's row: with the next reading
            if row.id in self._queue.touched:
                if (entry := self._queue.get(row.id)) is not None:
                    entry.seen = self._number
            else:
                new |= self._queue.put(row, self._number)
        if self._roster.owns(None):  # unreadable rows have no account
            self.unreadable |= {row_id: self.unreadable.get(row_id, 0.0) for row_id in found.unreadable}
        self._top = max(self._top, found.highest or 0)
        return found, new

    def _all_known(self) -> bool:
        """Whether the restaurants of all accounts are known, those of other processes by the table."""
        if self._complete:
            return True
        at_work = self._roster.at_work
        in_table = {name for names in self._reach.values() for name in names} - at_work.keys()
        return all(
            at_work[name].restaurants_known if name in at_work else name in in_table for name in self._roster.known
        )

    def _direct(self, reach: dict[str, list[str]], *, complete: bool) -> None:
        """Update the directory. `complete`: the restaurants of all accounts were known when `reach` was read."""
        self._complete, self._reach = complete, reach
        known, version = self._roster.known.keys(), self._roster.version
        self._queue.direct(Directory(known, self._default, reach, complete, self._answers_for, version))

    def _answers_for(self, account: str | None) -> bool:
        """Whether the account's rows are ours; no longer once it has left. None: rows without an account."""
        if account in self._followed:
            return account in self._roster.at_work
        if not account:
            return self._was_lead and self._roster.owns(None)
        return account not in self._roster.known and self._roster.owns(account)


def view_of(settings: config.Settings) -> View:
    """The view of the rules before the first read."""
    return View(
        now=datetime.fromtimestamp(0, UTC),  # set by the first cycle
        directory=Directory((), None, {}, complete=False),
        validity=settings.actions.validity,
        longest_wait=longest_wait(settings.actions.retry_waits_seconds, settings.marketplace.cooldown_seconds),
    )
