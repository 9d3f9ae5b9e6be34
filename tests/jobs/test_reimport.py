"""Documents from quarantine or the journal, compared with the stored order."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.rules.builders import NEEDS_PAYMENT, STATUSES

from orderbridge.jobs.reimport import Current, Decision, Newest, decide
from orderbridge.model import Stored

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def stored(status_id: int | None = 1, digest: str | None = "b", ended_by: str | None = None) -> Stored:
    return Stored("key", "kadikoy", status_id, status_id, 1, digest, None, None, ended_by, None)


def newest(status_id: int | None = 1, earlier: frozenset[str | None] = frozenset({"b"})) -> Newest:
    return Newest(status_id, "c", NOW, NOW, earlier)


def fate(document: Newest, current: Current) -> Decision:
    return decide(document, current, statuses=STATUSES, now=NOW, silence=DAY)


CASES = {
    "the very same": (stored(digest="c"), 1, {"b"}, False, Decision.KNOWN),
    "newer than the stored one": (stored(), 1, {"a", "b"}, True, Decision.UPDATED),
    "a clock that was ahead brings no status back": (stored(2, "b"), 1, {"b"}, False, Decision.SUPERSEDED),
    "our own accept went on since": (stored(2, "c2"), 1, set(), False, Decision.SUPERSEDED),
    "changed since, by the clock": (stored(1, "x"), 1, {"b"}, True, Decision.SUPERSEDED),
    "not changed since": (stored(1, "x"), 2, {"b"}, False, Decision.UPDATED),
    "blanked and not changed since": (stored(1, None), 2, {None}, False, Decision.UPDATED),
    "blanked and changed since": (stored(1, None), 2, {None}, True, Decision.SUPERSEDED),
    "cancelled since": (stored(6, "b", "cancelled"), 2, {"b"}, False, Decision.SUPERSEDED),
    "completed since": (stored(5, "b", "completed"), 2, {"b"}, False, Decision.SUPERSEDED),
    "completed since, cancelled by it": (stored(5, "b", "completed"), 6, {"b"}, False, Decision.SUPERSEDED),
    "ended by silence alone": (stored(1, "b", "silence"), 2, {"b"}, False, Decision.UPDATED),
    "a status without a name": (stored(2, "b"), 77, {"b"}, False, Decision.UPDATED),
    "no status": (stored(None, "b"), None, {"b"}, False, Decision.UPDATED),
    "a status without a name after an end": (stored(5, "b"), 77, {"b"}, False, Decision.SUPERSEDED),
    "needs payment since": (stored(NEEDS_PAYMENT, "b"), 16, {"b"}, False, Decision.SUPERSEDED),
    "needs payment in the document": (stored(16, "b"), NEEDS_PAYMENT, {"b"}, False, Decision.UPDATED),
    "cancelled in the document": (stored(16, "b"), 6, {"b"}, True, Decision.UPDATED),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_document_of_an_order_that_is_stored(case) -> None:
    known, status_id, earlier, has_news, expected = case
    assert fate(newest(status_id, frozenset(earlier)), Current(stored=known, has_news=has_news)) == expected


@pytest.mark.parametrize("current, expected", [
    (Current(is_held=True), Decision.WAITS),
    (Current(stored=stored(), is_unresolved=True), Decision.WAITS),
    (Current(stored=stored(digest="c"), is_unresolved=True), Decision.KNOWN),
    (Current(stored=stored(digest="x"), has_news=True, is_unresolved=True), Decision.SUPERSEDED),
], ids=["held", "its action has no verdict", "the very same, and unresolved", "older, and unresolved"])  # fmt: skip
def test_a_document_waits_only_for_what_it_would_write_to(current: Current, expected: Decision) -> None:
    assert fate(newest(2), current) == expected


@pytest.mark.parametrize("first, last, is_due, expected", [
    (timedelta(), timedelta(), True, Decision.TAKEN_IN), (DAY * 2, HOUR, True, Decision.TAKEN_IN),
    (DAY * 2, DAY, True, Decision.TAKEN_IN_ENDED), (DAY * 2, DAY, False, Decision.TAKEN_IN),
    (-DAY, -DAY, True, Decision.TAKEN_IN),
], ids=["now", "news of it lately", "long ago", "scheduled for later", "a clock that was ahead"])  # fmt: skip
def test_an_order_that_is_not_stored(first: timedelta, last: timedelta, is_due: bool, expected: Decision) -> None:
    assert fate(Newest(1, "c", NOW - first, NOW - last, is_due=is_due), Current()) == expected
