"""Whose turn it is: of each account the rows that may leave, in a line by priority and id.

Only the lines of accounts that are open are looked at, and of these only the first row, so that neither a long line nor
a paused account costs the others anything. Who stands in a line and may not leave any more is passed over when it comes
to the front.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping

from orderbridge.actions import ACTIONS, PRIORITIES
from orderbridge.model import OutboxRow
from orderbridge.rules.outbox import Lane
from orderbridge.rules.standing import Standing, standing_of

_HELD = (Standing.ON_THE_WIRE, Standing.PUT_ASIDE, Standing.ENDING, Standing.OVER)

_First = tuple[int, int, int, str]  # priority, rows of the account under way, id, account


class Entry:
    """One row of the queue. `account`: whose line it waits in; None: not known yet."""

    __slots__ = ("account", "expires", "is_next", "lane", "refusal", "row", "seen", "standing")

    def __init__(self, row: OutboxRow, account: str | None, lane: Lane, refusal: str | None, expires: float) -> None:
        self.row = row
        self.account = account
        self.lane = lane
        self.refusal = refusal
        self.expires = expires  # seconds since 1970
        self.standing = standing_of(row)
        self.is_next = False  # it stands first in its lane, and its time has come
        self.seen = 0  # by which reading of the table

    def __lt__(self, other: "Entry") -> bool:
        return self.expires < other.expires

    @property
    def is_free(self) -> bool:
        """Whether nobody has it: it may be decided about."""
        return self.standing not in _HELD

    @property
    def is_over(self) -> bool:
        """Whether it is not in the queue any more."""
        return self.standing is Standing.OVER


class AccountQueues:
    """The lines of all accounts, over the rows of a queue."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        self._entries = entries
        self._lines: dict[str, tuple[list[int], ...]] = {}  # a heap of ids for each priority
        self._blocked: list[Entry] = []  # they had to wait for something else than their time

    def put(self, entry: Entry) -> None:
        """It is next in its lane, and its time has come."""
        account = entry.account or ""
        if account not in self._lines:
            self._lines[account] = tuple([] for _ in range(PRIORITIES))
        heapq.heappush(self._lines[account][ACTIONS[entry.row.action].priority], entry.row.id)

    def accounts(self) -> list[str]:
        """The accounts of which a row may leave."""
        return list(self._lines)

    def rows(self, account: str) -> list[OutboxRow]:
        """The rows of an account whose turn it is."""
        ids = {row_id for heap in self._lines.get(account, ()) for row_id in heap}
        return [entry.row for row_id in sorted(ids) if (entry := self._standing_in(row_id, account)) is not None]

    def take(
        self,
        places: int,
        under_way: Counter[str],
        most: int,
        is_open: Callable[[str], bool],
        may_leave: Callable[[Entry], bool],
    ) -> list[Entry]:
        """The rows that leave now: by priority, then from the account that has the fewest under way, then by id.

        They are on the wire until they are dropped, given back or put aside. `most` of one account at once. `is_open`:
        whether anything of an account can leave. `may_leave`: takes the row's lane, if it is free and nothing else is
        waited for.
        """
        blocked, self._blocked = self._blocked, []
        for entry in blocked:
            if entry.is_next and entry.is_free:
                self.put(entry)
        taken: list[Entry] = []
        firsts: list[_First] = []
        for account in [account for account in self._lines if places > 0 and is_open(account)]:
            self._offer(firsts, account, under_way, most)
        while firsts and len(taken) < places:
            priority, _, row_id, account = heapq.heappop(firsts)
            heapq.heappop(self._lines[account][priority])
            entry = self._entries[row_id]
            if may_leave(entry):
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
        for priority, heap in enumerate(self._lines[account]):
            while heap and self._standing_in(heap[0], account) is None:
                heapq.heappop(heap)
            if heap:
                heapq.heappush(firsts, (priority, under_way[account], heap[0], account))
                return
        del self._lines[account]

    def _standing_in(self, row_id: int, account: str) -> Entry | None:
        entry = self._entries.get(row_id)
        return entry if entry is not None and entry.is_next and entry.is_free and entry.account == account else None
