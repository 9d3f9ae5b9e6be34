"""The files beside the database: the journal and the high-water mark, also after a power loss."""

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from tests.sim.judge import Judge
from tests.sim.line import Call

from orderbridge.store import high_water, journal

if TYPE_CHECKING:
    from tests.sim.life import Life


class JournalHolds(Judge):
    """Each document is in the journal before its order is acknowledged, and stays there."""

    promise = "journal"

    def __init__(self) -> None:
        self._acknowledged: dict[tuple[str, str], tuple[int, date]] = {}  # by order and document: request and day
        self._last: dict[str, str] = {}  # by order: its newest document
        self._blank: set[tuple[str, str]] = set()  # orders and documents that the daemon does not write again
        self._today = date.min

    def ended(self, call: Call) -> None:
        if call.operation == "get_current" and call.is_heard:
            self._last |= {key: document.text for key, document in call.documents.items()}

    def leaving(self, call: Call) -> None:
        if call.operation == "acknowledge" and (answer := self.sim.lists.get(call.account)) is not None:
            document = answer.documents.get(call.argument)
            if document is not None and (call.argument, document.text) not in self._blank:
                today = self.sim.clock.now().date()
                self._acknowledged.setdefault((call.argument, document.text), (call.number, today))

    def erased(self) -> None:
        """An erased customer's data is no longer in it."""
        folder = self.sim.settings.journal
        entries = journal.entries(journal.files(folder)) if folder is not None else ()
        blank = {entry.payment_key for entry in entries if entry is not None and entry.digest is None}
        self._acknowledged = {of: told for of, told in self._acknowledged.items() if of[0] not in blank}
        self._blank |= {(key, self._last[key]) for key in blank & self._last.keys()}

    def restarted(self, _: "Life") -> None:
        self.finish()

    def finish(self) -> None:
        folder = self.sim.settings.journal
        if folder is None:
            return
        entries = [entry for entry in journal.entries(journal.files(folder)) if entry is not None]
        held = {(entry.payment_key, journal.document(entry)) for entry in entries}
        self._today = max(
            self._today, self.sim.clock.now().date()
        )  # retention uses the latest time that a clock has shown
        kept = self._today - timedelta(days=self.sim.plan.retention_days)
        for (key, text), (number, day) in self._acknowledged.items():
            if day >= kept and (key, text.encode()) not in held:
                self.broken(f"#{number} acknowledged {key}, whose document is not in the journal")


class MarkIsNeverAhead(Judge):
    """The mark can be read, and is never ahead of the tables: no older copy is reported if none was put back."""

    promise = "mark"

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        if event == "database.older_copy":
            self.broken(f"an older copy is reported, and none was put back: {facts}")

    def restarted(self, _: "Life") -> None:
        path = self.sim.path.with_name(f"{self.sim.path.name}.last-word")
        if path.exists() and high_water.read_mark(path) is None:
            self.broken("the high-water mark cannot be read")
