"""Splitting a body takes work in proportion to its bytes, whatever it contains: counted, not timed."""

import contextlib
import re
from typing import Any

import pytest
from tests.marketplace.samples import KEY, listing

from orderbridge.errors import MarketplaceError
from orderbridge.marketplace import scan
from orderbridge.marketplace.documents import read_listing, read_order

N = 60_000
GOOD = '{"payment_key": "%s", "status_id": 1}' % KEY
ORDER = '{"payment_key": "%s", "x": %%s}' % KEY


class Work:
    """The splitter's work: characters given to the decoder, and runs of brackets examined one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoded = self.runs = 0
        decode_at, run = scan.decode_at, scan._RUN

        def decoding(text: str, start: int) -> tuple[Any, int]:
            try:
                value, end = decode_at(text, start)
            except scan.BrokenText:
                self.decoded += len(text) - start  # at most
                raise
            self.decoded += end - start
            return value, end

        class Counted:
            @staticmethod
            def match(text: str, start: int) -> re.Match[str] | None:
                self.runs += 1
                return run.match(text, start)

        monkeypatch.setattr(scan, "decode_at", decoding)
        monkeypatch.setattr(scan, "_RUN", Counted)  # the cutter's only loop over single brackets


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


BODIES = {
    "orders": listing(*[GOOD] * (N // 10)),
    "broken orders": listing(*[GOOD.replace('"status_id":', '"status_id";')] * (N // 10)),
    "one broken order before many": listing("{5}", *[GOOD] * (N // 10)),
    "orders larger than the window": listing(*[ORDER % f'"{"x" * 2 * scan.MAX_WINDOW}"'] * 5),
    "brackets that open": listing("[" * 20 * N),
    "brackets that open and close": listing("[]" * 10 * N),
    "brackets of two kinds": listing('[{"":' * N + "}]" * N),
    "brackets of two kinds that never close": listing("[{" * 5 * N),
    "brackets that close another kind": listing("[{" * 2 * N + "]" * 2 * N),
    "closing brackets": listing("]" * 20 * N),
    "many small lists": listing("[%s[]]" % ("[]," * 5 * N)),
    "one key again and again": b'{"status": true, %s "data": []}' % (b'"data": [],' * N),
    "a long name": b'{"status": true, "%s": 1, "data": []}' % (b"x" * 10 * N),
    "quotation marks": listing('"' * 10 * N),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_work_is_in_proportion_to_the_body(work: Work, name: str) -> None:
    body = BODIES[name]
    with contextlib.suppress(MarketplaceError):
        read_listing(body)
    assert work.decoded <= 4 * len(body) + 4 * scan.MAX_WINDOW
    assert work.runs <= len(body)


@pytest.mark.parametrize(
    "inside, reason",
    [
        pytest.param("[" * 99 + "]" * 99, None, id="a hundred deep"),
        pytest.param("[" * 100 + "]" * 100, "not_json", id="deeper"),
        pytest.param("[" * 5000 + "]" * 5000, "not_json", id="far deeper"),
        pytest.param("[%s1]" % ("1," * 99_000), None, id="many values"),
        pytest.param("[%s1]" % ("1," * 100_001), "not_json", id="too many values"),
        pytest.param("[%s[]]" % ("[]," * 60_000), "not_json", id="too many lists"),
        pytest.param('"%s"' % ("[,]" * 300_000), None, id="a long text of brackets and commas"),
    ],
)
@pytest.mark.parametrize("before", [GOOD, "{5}"], ids=["after a good one", "after a broken one"])
def test_what_nobody_means_is_set_aside_alone(before: str, inside: str, reason: str | None) -> None:
    _, document, after = read_listing(listing(before, ORDER % inside, GOOD))
    assert (document.reason, after.reason) == (reason, None)
    assert len(document.raw) == len(ORDER % inside)


@pytest.mark.parametrize("length", [scan.MAX_WINDOW - 200, scan.MAX_WINDOW, scan.MAX_WINDOW + 1, 3 * scan.MAX_WINDOW])
def test_orders_of_any_length_are_cut_alike(length: int) -> None:
    element = ORDER % f'"ş{"x" * length}🌯"'
    documents = read_listing(listing(GOOD, element, GOOD, element))
    assert [document.payload for document in documents] == [GOOD, element, GOOD, element]
    assert [document.payment_key for document in documents] == [KEY] * 4


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\u3000"])
def test_a_key_is_read_as_the_utf8_that_it_is(space: str) -> None:
    (document,) = read_listing(listing('{"payment_key": "%s%s", "status_id": "1\u00a0"}' % (space, KEY)))
    assert (document.payment_key, document.status_id) == (KEY, 1)
    assert read_order(document, payment_codes={}).payment_key == KEY


def test_no_text_of_a_whole_body_is_kept() -> None:
    """A single letter beyond Latin-1 would make two or four bytes of each of its characters."""
    documents = read_listing(listing(*[ORDER % '"🌯"'] * 10))
    assert all(type(document.raw) is bytes and re.search("🌯", document.payload) for document in documents)
