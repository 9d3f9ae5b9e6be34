"""Judges what happens after an older copy was put back: it is reported, and nothing is sent or acknowledged again."""

from typing import Any

from tests.sim.about_orders import StoredBeforeAcknowledged
from tests.sim.judge import Judge
from tests.sim.line import ACTIONS, Call
from tests.sim.plan import LOUD_HEALTH_S
from tests.sim.restoring import ANOTHER_DEVICE, sent
from tests.sim.simulation import TICK_S

REPORTED_S = LOUD_HEALTH_S + TICK_S  # a slow disk, and the judge's own interval
CODE = "database_restored"
STORED = "SELECT payment_key, payload FROM delivery_orders"


class OlderCopyIsReported(Judge):
    """An older copy is reported until it is confirmed, and nothing is repeated. Without one nothing is reported."""

    promise = "restore"

    def __init__(self) -> None:
        self._lacks: bool | None = None  # entries that the mark knew; None: not checked yet
        self._since = 0.0  # when the daemon started
        self._by_hand: dict[int, float] = {}  # retried rows, and when
        self._stored: dict[str, str] = {}  # by order: its document when a replay began
        self._acknowledged: dict[str, str] = {}  # by order: its last acknowledged document
        self._sent_since: set[str] = set()  # rows that left after the copy was made
        self._holds_rows = False  # the database has not let the daemon end the copy's rows

    def restored(self) -> None:
        self._lacks, last = None, self.sim.restorer.last
        self._by_hand = {row: at for row, at in self._by_hand.items() if last is not None and at < last.copy_at}

    def retried(self, row: int) -> None:
        self._by_hand[row] = self.sim.now()

    def replaying(self) -> None:
        self._stored = dict(map(tuple, self.rows(STORED)))

    def replayed(self, key: str) -> None:
        """A replay stores newer documents, never one older than the stored or the last acknowledged one."""
        lists = [call.documents[key].text for call in self.sim.calls if call.is_heard and key in call.documents]
        when = {text: number for number, text in enumerate(lists)}
        before, after = when.get(self._stored.get(key, ""), -1), when.get(dict(map(tuple, self.rows(STORED)))[key], -1)
        if after < max(before, when.get(self._acknowledged.get(key, ""), -1)):
            self.broken(f"a replay stored an older document of order {key}")

    def _compare(self) -> None:
        if self.sim.restorer.last is not None and self._lacks is None:
            there = {row[0] for row in self.rows("SELECT id FROM delivery_order_events")}
            self._lacks = not self.sim.restorer.events <= there
            in_copy = sent(self.sim, "~")
            self._sent_since = {key for key, times in self.sim.restorer.sent.items() if times > in_copy.get(key, 0)}

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        if event == "database.older_copy" and self.sim.restorer.last is None:
            self.broken(f"an older copy is reported, and none was put back: {facts}")
        if event == "database.older_copy":
            if self._holds_rows:  # they have ended by now, and a person must look at them
                self.sim.restorer.settled_at = None
            self._holds_rows = facts["rows_not_sent"] is None
        if event == "daemon.started":
            self._since = self.sim.now()
            self._check_file()
            self._compare()  # before the start the file may be no database
            admitted = "SELECT 1 FROM delivery_board_devices WHERE id = ? AND revoked_utc IS NULL"
            if self._lacks and self.sim.restorer.has_revoked and self.rows(admitted, ANOTHER_DEVICE):
                self.broken("a revoked tablet is admitted again")

    def _check_file(self) -> None:
        self.rows("PRAGMA ignore_check_constraints = ON")  # a till wrote rows without these checks
        (damage,) = self.rows("PRAGMA integrity_check(1)")
        if damage[0] != "ok":
            self.broken(f"the daemon started on a damaged file: {damage[0]}")

    def committed(self, name: str) -> None:
        """Newer rows of its restaurant or food may be lost."""
        is_open = self._lacks and self.sim.restorer.settled_at is None
        if name == "Closures.carry_out" and is_open and self.wrote("INSERT INTO delivery_actions"):
            self.broken("a closure of an older copy is ended")

    def tick(self) -> None:
        life = self.sim.life
        if not self._lacks or life is None or not life.started or self.sim.restorer.takes_file:
            return
        border = self.sim.now() - REPORTED_S
        if max(self._since, *self.sim.disturbed.values()) > border:
            return
        settled_at, is_open = self.sim.restorer.settled_at, CODE in {code for code, _ in self.sim.problems}
        if settled_at is None and not is_open:
            self.broken("an older copy was put back, and no problem says so")
        if settled_at is not None and settled_at < border and is_open:
            self.broken("the older copy was confirmed, and the problem is still open")

    def leaving(self, call: Call) -> None:
        answer = self.sim.lists.get(call.account) if call.operation == "acknowledge" else None
        if answer is not None and call.argument in answer.documents:
            self._acknowledged[call.argument] = answer.documents[call.argument].text
        if call.operation not in ACTIONS:
            return
        withheld = self._sent_since | (self.sim.restorer.rows if self._lacks else frozenset())
        for row in self.rows("SELECT id, request_id FROM delivery_actions WHERE state = 'sending'"):
            if row["id"] in self._by_hand or row["request_id"].startswith(("auto:", "until:")):
                continue  # an order that comes as a new one is accepted again; a closure ends again once it is confirmed
            if row["request_id"] in withheld:
                self.broken(f"#{call.number} leaves, and row {row['id']} of an older copy is sent again")


class StoredAgain(StoredBeforeAcknowledged):
    """What was acknowledged is stored; after an older copy, once the journal was replayed."""

    def finish(self) -> None:
        if self.sim.restorer.is_whole:
            super().finish()

    restarted = finish
