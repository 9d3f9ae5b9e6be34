"""Holds the unfinished outbox rows in memory, and decides which may be sent, which end unsent, and when.

Each row belongs to a lane. At most one row of a lane, its head, may be sent:

    the rows of a lane, by id        3 accept (unresolved)   7 on_the_way   9 cancel
    the head                         the row that was sent already, else the lowest id
    the head may be sent             at once, or at its next_attempt_utc
    any row may end unsent           expired, withdrawn, superseded by a later row, refused for its arguments
    the head may end unsent          by its order: unknown, ended, with another courier, or already in the target status

A lane is *changed* when a row of it was put in, given back or dropped, or is due. `ends` reviews only changed lanes, so
that the cost of a row does not depend on the number of waiting rows. A head that may be sent is put into the queue of
its account, sorted by priority and id, from which `accounts.take` takes it. `take` reads only the first rows of
accounts that can send, so that long queues and paused accounts cost nothing. A row that may no longer be sent is
skipped there.

Nothing is decided about a held row (rules.outbox_rows) until it is given back or dropped. The table is authoritative,
and the queue may be older. So a claim reads the row again, and a changed row returns to the queue. All decisions are
made here.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile

from orderbridge.actions import ACTIONS, ORDER_ACTIONS, Subject
from orderbridge.model import ActionState, OutboxRow, Verdict
from orderbridge.rules.closures import waiting_end
from orderbridge.rules.lifecycle import Refusal
from orderbridge.rules.outbox_rows import (
    Directory,
    Lane,
    Standing,
    View,
    account_of,
    argument_problem,
    expiry,
    is_ours,
    lane_of,
    order_end,
    refused_unsent,
    standing_of,
    unsent_end,
)

_MOST_OVER = 1000
_HELD = (Standing.ON_THE_WIRE, Standing.PUT_ASIDE, Standing.ENDING, Standing.OVER)

_Place = tuple[int, int]  # priority, id
_First = tuple[int, int, int, str]  # priority, rows of the account under way, id, account


@dataclass(slots=True, eq=False)
class Entry:
    """One row of the queue.

    `account`: the queue that it waits in; None: not known yet.
    """

    row: OutboxRow
    account: str | None
    lane: Lane
    refusal: str | None
    standing: Standing = Standing.WAITING
    is_next: bool = False  # it is the head of its lane, and due
    seen: int = 0  # the number of the last reading that found it

    @property
    def is_free(self) -> bool:
        """Whether it is not held, so that it may be decided about."""
        return self.standing not in _HELD


class AccountQueues:
    """The rows that may be sent, for each account, sorted by priority and id."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        self._entries = entries
        self._queues: dict[str, list[_Place]] = {}  # a heap for each account
        self._blocked: list[Entry] = []  # due rows that `reserve` refused

    def put(self, entry: Entry) -> None:
        """Add a head that is due."""
        place = ACTIONS[entry.row.action].priority, entry.row.id
        heapq.heappush(self._queues.setdefault(entry.account or "", []), place)

    def names(self) -> list[str]:
        """The accounts with rows that may be sent."""
        return list(self._queues)

    def rows(self, account: str) -> list[Entry]:
        """The rows of an account that may be sent, by id."""
        ids = sorted({row_id for _, row_id in self._queues.get(account, ())})
        return [self._entries[row_id] for row_id in ids if self._is_offered(row_id, account)]

    def take(
        self,
        places: int,
        under_way: Counter[str],
        most: int,
        is_open: Callable[[str], bool],
        reserve: Callable[[Entry], bool],
    ) -> list[Entry]:
        """Take the next rows: by priority, then from the account with the fewest under way, then by id.

        They are ON_THE_WIRE until they are dropped, given back or put aside. `most`: for one account at once.
        `is_open`: whether an account can send. `reserve` takes the row's lane; False if the row must wait.
        """
        blocked, self._blocked = self._blocked, []
        for entry in blocked:
            if entry.is_next and entry.is_free:
                self.put(entry)
        taken: list[Entry] = []
        firsts: list[_First] = []
        for account in [account for account in self._queues if places > 0 and is_open(account)]:
            self._offer(firsts, account, under_way, most)
        while firsts and len(taken) < places:
            _, _, row_id, account = heapq.heappop(firsts)
            heapq.heappop(self._queues[account])
            entry = self._entries[row_id]
            if reserve(entry):
                entry.standing, entry.is_next = Standing.ON_THE_WIRE, False
                under_way[account] += 1
                taken.append(entry)
            else:
                self._blocked.append(entry)
            self._offer(firsts, account, under_way, most)
        return taken

    def _offer(self, firsts: list[_First], account: str, under_way: Counter[str], most: int) -> None:
        if account and under_way[account] >= most:
            return
        queue = self._queues[account]
        while queue and not self._is_offered(queue[0][1], account):
            heapq.heappop(queue)
        if queue:
            priority, row_id = queue[0]
            heapq.heappush(firsts, (priority, under_way[account], row_id, account))
        else:
            del self._queues[account]

    def _is_offered(self, row_id: int, account: str) -> bool:
        entry = self._entries.get(row_id)
        return entry is not None and entry.is_next and entry.is_free and entry.account == account


class Queue:
    """All unfinished rows of this process. Used by the event loop only."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._entries: dict[int, Entry] = {}
        self._lanes: dict[Lane, list[Entry]] = {}
        self._changed: dict[Lane, None] = {}
        self._undirected: set[Lane] = set()  # lanes with a row that was held when the directory changed
        self.accounts = AccountQueues(self._entries)
        self._times: list[tuple[datetime, int]] = []  # a heap: when to review each row again
        self._aside: list[tuple[float, int]] = []  # with the times of their release
        self.frontier: int | None = None  # all rows up to this id are known; None: all rows
        self._beyond: dict[Lane, None] = {}  # lanes whose heads wait until all older rows are known
        self._sizes: Counter[str | None] = Counter()
        self.unresolved: set[int] = set()  # rows that were sent and are not finished
        self.has_orphan = False  # a row was read as sent that this process has not sent
        self.touched: set[int] = set()  # rows dropped or given back since the reader emptied it

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, row_id: int) -> bool:
        return row_id in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, row_id: int) -> Entry | None:
        """The row of this id, if known."""
        return self._entries.get(row_id)

    def size(self, account: str) -> int:
        """The number of the account's unfinished rows."""
        return self._sizes[account]

    def in_flight(self) -> frozenset[int]:
        """The rows in flight, including those whose outcome is not written yet."""
        return frozenset(entry.row.id for entry in self if entry.standing is Standing.ON_THE_WIRE)

    # ---- what happens to rows ----------------------------------------------------------------------------------------

    def put(self, row: OutboxRow, seen: int = 0) -> bool:
        """Add or update a row that was read. Returns False if it is unchanged or held."""
        known = self._entries.get(row.id)
        if known is not None:
            known.seen = seen = max(known.seen, seen)
            if not known.is_free or known.row == row:
                return False
            self._remove(known)
        directory, refusal = self.view.directory, None
        account = account_of(row, directory)
        if isinstance(account, Refusal):
            refusal, account = account.code, row.account or None
        if not directory.is_ours(account):
            return False
        if row.state == ActionState.SENDING and row.next_attempt_utc is None:
            self.has_orphan |= known is None or known.row.state == ActionState.PENDING
        if argument_problem(row):
            refusal = "bad_arguments"
        if row.state != ActionState.PENDING:
            refusal = None  # a sent row ends only by an answer, a poll or its expiry
        lane = self._lane(row, account) if refusal is None else ("refused", str(row.id))
        self._add(Entry(row, account, lane, refusal, seen=seen))
        return True

    def _lane(self, row: OutboxRow, account: str | None) -> Lane:
        """The row's lane, or the former one while a held row of the same lane is still there."""
        lane = lane_of(row, account)
        for former in self._undirected:
            for entry in self._lanes.get(former, ()):
                owner = account_of(entry.row, self.view.directory)
                if not isinstance(owner, Refusal) and lane_of(entry.row, owner) == lane:
                    return former
        return lane

    def drop(self, row_id: int) -> None:
        """Remove a row that ended or is gone."""
        self.touched.add(row_id)
        entry = self._entries.get(row_id)
        if entry is not None:
            self._remove(entry)
            if entry.lane in self._undirected:
                self._direct_lane(entry.lane)

    def give_back(self, row_id: int, **columns: object) -> None:
        """Release a held row; `columns`: its new values."""
        self.touched.add(row_id)
        entry = self._entries.get(row_id)
        if entry is not None:
            if columns:
                entry.row = replace(entry.row, **columns)  # type: ignore[arg-type]  # columns of a row
            self._free(entry)
            if entry.lane in self._undirected:
                self._direct_lane(entry.lane)

    def put_aside(self, row_id: int, until: float) -> None:
        """Hold a row until this time, in the clock of `release_due`."""
        entry = self._entries[row_id]
        entry.is_next = False
        if entry.standing is not Standing.ENDING:
            entry.standing = Standing.PUT_ASIDE
        heapq.heappush(self._aside, (until, row_id))

    def release_due(self, now: float) -> list[int]:
        """Release the rows that were put aside until now, and return their ids."""
        back = []
        while self._aside and self._aside[0][0] <= now:
            back.append(heapq.heappop(self._aside)[1])
        for row_id in back:
            entry = self._entries.get(row_id)
            if entry is None or entry.standing in (Standing.PUT_ASIDE, Standing.ENDING):
                self.give_back(row_id)
        return back

    def next_release(self) -> float | None:
        """When the first row that was put aside is released."""
        return self._aside[0][0] if self._aside else None

    def direct(self, directory: Directory) -> None:
        """Use a new directory, and decide again about rows of restaurants and foods."""
        if directory == self.view.directory:
            return
        self.view.directory = directory
        for lane in [lane for lane in self._lanes if lane[0] != Subject.ORDER]:
            self._direct_lane(lane)

    def _direct_lane(self, lane: Lane) -> None:
        """Move the rows of a lane by the directory, up to a held one, which no later row may overtake."""
        waiting = self._lanes.get(lane, [])
        free = list(takewhile(lambda entry: entry.is_free, waiting))
        self._undirected.discard(lane)
        if len(free) < len(waiting):
            self._undirected.add(lane)
        for entry in free:
            self._remove(entry)
            self.put(entry.row, entry.seen)

    def remove_foreign(self) -> None:
        """Remove rows that are no longer ours, unless they are held."""
        for entry in list(self._entries.values()):
            if entry.is_free and not is_ours(entry.row, self.view.directory):
                self._remove(entry)

    def know(self, frontier: int | None) -> None:
        """Set the frontier: all rows up to this id are known; None: all rows."""
        self.frontier = frontier
        self._changed |= self._beyond
        self._beyond = {}

    def review_all(self) -> None:
        """Review all lanes, because the clock was set."""
        self._times = [(expiry(entry.row, self.view), entry.row.id) for entry in self]
        heapq.heapify(self._times)
        self._changed = dict.fromkeys(self._lanes)

    def _free(self, entry: Entry) -> None:
        entry.standing = standing_of(entry.row)
        if entry.standing is Standing.UNRESOLVED:
            self.unresolved.add(entry.row.id)
        else:
            self.unresolved.discard(entry.row.id)
        self._changed[entry.lane] = None

    def _add(self, entry: Entry) -> None:
        self._entries[entry.row.id] = entry
        self._sizes[entry.account] += 1
        waiting = self._lanes.setdefault(entry.lane, [])
        waiting.append(entry)
        if len(waiting) > 1 and waiting[-2].row.id > entry.row.id:
            waiting.sort(key=lambda one: one.row.id)  # a lower id may be committed later
        heapq.heappush(self._times, (expiry(entry.row, self.view), entry.row.id))
        self._free(entry)

    def _remove(self, entry: Entry) -> None:
        entry.standing = Standing.OVER
        del self._entries[entry.row.id]
        self.unresolved.discard(entry.row.id)
        self._sizes[entry.account] -= 1
        waiting = self._lanes[entry.lane]
        waiting.remove(entry)
        if waiting:
            self._changed[entry.lane] = None
        else:
            del self._lanes[entry.lane]
            self._changed.pop(entry.lane, None)
        if entry.account is None and entry.row.food_id is not None:  # others may wait for it
            self._changed |= {lane: None for lane in self._lanes if lane[1] == entry.lane[1]}
        if len(self._times) > 2 * len(self._entries) + _MOST_OVER:  # without those of rows that are over
            self._times = sorted({time for time in self._times if time[1] in self._entries})

    # ---- rows that end unsent ----------------------------------------------------------------------------------------

    def ends(self) -> list[tuple[OutboxRow, Verdict]]:
        """The rows that end unsent now. They are ENDING until they are dropped or given back."""
        self._collect_due()
        made: list[tuple[OutboxRow, Verdict]] = []
        while self._changed:
            changed, self._changed = self._changed, {}
            for lane in changed:
                if lane in self._lanes:
                    self._review(self._lanes[lane], made)
        return made

    def _collect_due(self) -> None:
        while self._times and self._times[0][0] <= self.view.now:
            entry = self._entries.get(heapq.heappop(self._times)[1])
            if entry is not None:
                self._changed[entry.lane] = None

    def _review(self, waiting: list[Entry], made: list[tuple[OutboxRow, Verdict]]) -> None:
        later: list[OutboxRow] = []
        for entry in reversed(waiting):  # from the newest, to know the later rows of each
            verdict = None
            if entry.is_free and entry.refusal is not None:
                verdict = refused_unsent(entry.row, entry.refusal)
            elif entry.is_free:
                verdict = unsent_end(entry.row, later, self.view)
            if verdict is not None:
                self._begin_end(entry, verdict, made)
            elif entry.standing is not Standing.ENDING:
                later.append(entry.row)
                self._review_at(waiting_end(entry.row), entry.row.id)
        # A sent row goes first: a row with a lower id may have been committed later.
        head = next((entry for entry in waiting if entry.row.state == ActionState.SENDING), waiting[0])
        was_next = head.is_next
        for entry in waiting:
            entry.is_next = False
        if not head.is_free:
            return
        if (verdict := order_end(head.row)) is not None:  # only the head: earlier rows may change the order
            self._begin_end(head, verdict, made)
        elif head.account is not None:  # None: its order or the restaurants are not known yet
            self._enqueue(head, was_next=was_next)

    def _review_at(self, at: datetime | None, row_id: int) -> None:
        if at is not None and at > self.view.now:
            heapq.heappush(self._times, (at, row_id))

    def _begin_end(self, entry: Entry, verdict: Verdict, made: list[tuple[OutboxRow, Verdict]]) -> None:
        """Begin to end a row. It keeps its lane until its end is written, which may have to be postponed."""
        entry.standing, entry.is_next = Standing.ENDING, False
        made.append((entry.row, verdict))

    def _enqueue(self, head: Entry, *, was_next: bool) -> None:
        if self.frontier is not None and head.row.id > self.frontier and head.row.action not in ORDER_ACTIONS:
            self._beyond[head.lane] = None
            return
        if self._may_overtake(head):
            return
        now, at = self.view.now, head.row.next_attempt_utc
        # A later time than any possible wait means that the clock was set back.
        if at is not None and now < at <= now + self.view.longest_wait:
            heapq.heappush(self._times, (at, head.row.id))
        elif at is not None or head.row.state == ActionState.PENDING:
            head.is_next = True
            if not was_next:
                self.accounts.put(head)

    def _may_overtake(self, head: Entry) -> bool:
        """Whether an older row may be about the same food: its account is not known yet, and may be the head's."""
        food = head.row.food_id
        if food is None or not self._sizes[None] or self.view.directory.knows(head.account):
            return False
        unknown = (one.row for one in self if one.account is None and one.refusal is None)
        return any(row.food_id == food and row.id < head.row.id for row in unknown)

    def due(self) -> datetime | None:
        """When the next row is due or expires; None: never."""
        while self._times and self._times[0][1] not in self._entries:
            heapq.heappop(self._times)
        return self._times[0][0] if self._times else None
