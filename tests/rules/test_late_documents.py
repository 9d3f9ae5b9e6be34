"""What a document means that no poll has just brought, beside what is stored."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.rules.builders import NEEDS_PAYMENT, STATUSES

from orderbridge.model import Stored
from orderbridge.rules.late_documents import (
    STAY,
    Beside,
    Fate,
    Journalled,
    Release,
    of_journalled,
    of_quarantined,
    of_unknown,
)

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def stored(status_id: int | None = 1, digest: str | None = "b", ended_by: str | None = None) -> Stored:
    return Stored("key", "kadikoy", status_id, status_id, 1, digest, None, None, ended_by, None)


CASES = {
    "the very same": (stored(digest="c"), 1, "c", {"b"}, False, True, Fate.KNOWN),
    "what the journal has behind the stored one": (stored(), 1, "c", {"a", "b"}, True, True, Fate.UPDATED),
    "a clock that was ahead brings no status back": (stored(2, "b"), 1, "c", {"b"}, False, True, Fate.NEWER_HERE),
    "our own accept went on since": (stored(2, "c2"), 1, "c", set(), False, True, Fate.NEWER_HERE),
    "changed since, by the clock": (stored(1, "x"), 1, "c", {"b"}, True, True, Fate.NEWER_HERE),
    "not changed since": (stored(1, "x"), 2, "c", {"b"}, False, True, Fate.UPDATED),
    "blanked and not changed since": (stored(1, None), 2, "c", {None}, False, True, Fate.UPDATED),
    "blanked and changed since": (stored(1, None), 2, "c", {None}, True, True, Fate.NEWER_HERE),
    "cancelled since": (stored(6, "b", "cancelled"), 2, "c", {"b"}, False, True, Fate.ENDED_HERE),
    "completed since": (stored(5, "b", "completed"), 2, "c", {"b"}, False, True, Fate.ENDED_HERE),
    "over by silence alone": (stored(1, "b", "silence"), 2, "c", {"b"}, False, True, Fate.UPDATED),
    "of another account": (stored(1, "b"), 2, "c", {"b"}, False, False, Fate.OTHER_ACCOUNT),
    "a status without a name": (stored(2, "b"), 77, "c", {"b"}, False, True, Fate.UPDATED),
    "no status": (stored(None, "b"), None, "c", {"b"}, False, True, Fate.UPDATED),
    "a status without a name after an end": (stored(5, "b"), 77, "c", {"b"}, False, True, Fate.NEWER_HERE),
    "needs payment since": (stored(NEEDS_PAYMENT, "b"), 16, "c", {"b"}, False, True, Fate.NEWER_HERE),
    "needs payment in the journal": (stored(16, "b"), NEEDS_PAYMENT, "c", {"b"}, False, True, Fate.UPDATED),
    "cancelled in the journal": (stored(16, "b"), 6, "c", {"b"}, True, True, Fate.UPDATED),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_order_of_the_journal_that_is_known(case) -> None:
    known, status_id, digest, earlier, has_news, is_ours, fate = case
    document = Journalled("kadikoy" if is_ours else "moda", status_id, digest, earlier)
    beside = Beside(stored=known, has_news=has_news)
    assert fate == of_journalled(document, beside, {"kadikoy", "moda"}, statuses=STATUSES)


def test_an_order_of_the_journal_whose_account_has_left_is_taken_over() -> None:
    document, beside = Journalled("moda", 2, "c", {"b"}), Beside(stored=stored())
    assert of_journalled(document, beside, {"moda"}, statuses=STATUSES) == Fate.UPDATED


@pytest.mark.parametrize(
    "beside, fate",
    [
        (Beside(), Fate.TAKEN_IN_ENDED),
        (Beside(is_held=True), Fate.WAITS),
        (Beside(stored=stored(), is_unresolved=True), Fate.WAITS),
        (Beside(stored=stored(digest="c"), is_unresolved=True), Fate.KNOWN),
    ],
    ids=["not known", "held", "its action has no verdict", "the very same, and its action has no verdict"],
)
def test_a_document_of_the_journal_waits_only_for_what_it_would_write_to(beside: Beside, fate: Fate) -> None:
    document = Journalled("kadikoy", 2, "c", {"b"})
    assert of_journalled(document, beside, {"kadikoy"}, statuses=STATUSES, if_unknown=Fate.TAKEN_IN_ENDED) == fate


@pytest.mark.parametrize(
    "beside, outcome",
    [
        (Beside(), Release.TAKEN_IN),
        (Beside(is_held=True), Release.WAITS),
        (Beside(stored=stored()), Release.TAKEN_IN),
        (Beside(stored=stored(), is_unresolved=True), Release.WAITS),
        (Beside(stored=stored(), has_news=True), Release.SUPERSEDED),
        (Beside(stored=stored(), has_news=True, is_unresolved=True), Release.SUPERSEDED),
        (Beside(stored=replace(stored(), account="moda")), Release.FOREIGN),
        (Beside(stored=replace(stored(), account="moda"), has_news=True, is_unresolved=True), Release.FOREIGN),
    ],
    ids=["new", "held", "known", "unresolved", "news", "news and unresolved", "foreign", "foreign and all of it"],
)
def test_a_document_in_quarantine(beside: Beside, outcome: Release) -> None:
    assert of_quarantined(beside, "kadikoy") == outcome


def test_what_was_taken_in_or_is_superseded_leaves_quarantine() -> None:
    assert set(Release) - STAY == {Release.TAKEN_IN, Release.SUPERSEDED}


@pytest.mark.parametrize(
    "first, last, fate",
    [
        (timedelta(), timedelta(), Fate.TAKEN_IN),
        (DAY * 2, timedelta(hours=1), Fate.TAKEN_IN),
        (DAY * 2, DAY, Fate.TAKEN_IN_ENDED),
        (-DAY, -DAY, Fate.TAKEN_IN),
    ],
    ids=["now", "news of it lately", "long ago", "a clock that was ahead"],
)
def test_an_order_that_is_not_known(first: timedelta, last: timedelta, fate: Fate) -> None:
    assert of_unknown(NOW - first, NOW - last, NOW, DAY) == fate
