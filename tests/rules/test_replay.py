"""What a document of the journal means beside what is stored."""

from datetime import UTC, datetime, timedelta

import pytest

from orderbridge.model import Stored
from orderbridge.rules.replay import Fate, of_known, of_unknown

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
    "cancelled in the journal": (stored(16, "b"), 6, "c", {"b"}, True, True, Fate.UPDATED),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_order_that_is_known(case) -> None:
    known, status_id, digest, earlier, changed_since, is_ours, fate = case
    assert fate == of_known(known, status_id, digest, earlier=earlier, changed_since=changed_since, is_ours=is_ours)


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
