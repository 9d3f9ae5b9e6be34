"""Random answers: documents and envelopes of docs/interface.md with any value in any place, and broken ones.

Everything is made as JSON text, because a dictionary cannot hold much of it: a repeated key, 1e400, a lone surrogate.
"""

import json
import os
import re
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from tests.marketplace import samples

TIMES = int(os.environ.get("ORDERBRIDGE_TEST_FUZZ", "1"))


def examples(number: int) -> settings:
    """This number of examples; with ORDERBRIDGE_TEST_FUZZ=N, N times as many. A busy machine fails no property."""
    return settings(deadline=None, max_examples=number * TIMES)


NUMBERS = [
    *("0", "-0", "-0.0", "1e400", "-1e400", "1e-400", "1E2", "0.1", "1.00005", "9999999999.99995", "99999999999"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "2147483648"),
    *("1e99999999999999999999", "1e-99999999999999999999", "1e999999999", "NaN", "Infinity", "-Infinity"),
    *("9" * 41, "9" * 5000, "0." + "1" * 5000, "1e18", "1e19", "16.0", "16.5"),
]
NO_NUMBERS = ["01", "+1", ".5", "1.", "0x10", "1_000", "nul", "undefined", "'a'", "TRUE"]
TEXTS = [
    *(
        "", " ", "\x00", "a\x00b", "\ud800", "\udfff\ud800", "\u202egnp.exe\u202c", "👩‍👩‍👧", "e\u0301", "\u2028",
        "\ufeff",
    ),
    *(
        "\ufffe", "null", "NaN", "1,234", "1.234,50", "-0", "1e400", "٣", "16", " 16 ", "2026-13-45 99:99:99", "]}",
        '"]}',
    ),
    *("'; DROP TABLE delivery_orders; --", "%s %(x)s :x {0} \\", "ş" * 10_000, "\U0010ffff" * 300, "9" * 5000),
    *("a" + "\u0300\u0316" * 2000, "Nakit", "Kredi Kartı (pre-paid)", "OK", "Open", "URL hatalı", "yetkisiz erişim"),
]  # fmt: skip
DEEP = ["[" * 3000 + "1" + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, '[{"a":' * 3000 + "1" + "}]" * 3000]


def write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


texts = st.sampled_from(TEXTS) | st.text(max_size=30)
leaves = (
    texts.map(write) | (st.none() | st.booleans() | st.integers() | st.floats()).map(write) | st.sampled_from(NUMBERS)
)


def members(inner: st.SearchStrategy[str], names: st.SearchStrategy[str] = texts) -> st.SearchStrategy[str]:
    """An object whose keys may come twice."""
    pairs = st.tuples(names.map(write), inner).map(": ".join)
    return st.lists(pairs, max_size=3).map(lambda found: "{" + ", ".join(found) + "}")


def elements_of(inner: st.SearchStrategy[str], most: int = 3) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=most).map(lambda found: "[" + ",".join(found) + "]")


nested = st.recursive(leaves, lambda inner: elements_of(inner) | members(inner), max_leaves=6)
anything = leaves | nested | st.sampled_from(DEEP)

KEYS = [f"{number:08x}-6f0d-4c1e-9a55-3d2f8e6a7b10" for number in range(6)]
WRONG_KEYS = ["", " ", KEYS[0].replace("-", ""), f"{{{KEYS[0]}}}", KEYS[0] + "0", f"urn:uuid:{KEYS[0]}", "../orders"]
WHOLE = write(samples.order())
FIELDS = [place.span() for place in re.finditer(r'(?<=": )("[^"]*"|[\d.]+)', WHOLE)]  # the values that hold no other
KEY_AT = WHOLE.index(write(samples.KEY))


@st.composite
def orders(draw: st.DrawFn) -> str:
    """An order with up to five of its fields missing, of another type, huge, nested or twice."""
    changed = draw(st.lists(st.tuples(st.sampled_from(FIELDS), anything), max_size=5, unique_by=lambda one: one[0]))
    places = dict(changed) | {FIELDS[[start for start, _ in FIELDS].index(KEY_AT)]: write(draw(st.sampled_from(KEYS)))}
    written = WHOLE
    for (start, end), value in sorted(places.items(), reverse=True):
        written = written[:start] + value + written[end:]
    twice = draw(st.sampled_from(["", *(f', "{name}": 5' for name in ("foods", "x", "total"))]))
    left_out = draw(st.sampled_from(["", "foods", "total", "customer", "payment_method"]))
    return written[:-1].replace(f'"{left_out}"', '"y"') + twice + "}"


odd = orders().map(lambda one: re.sub('[0-9a-f]{8}-6f0d-[^"]*', WRONG_KEYS[len(one) % len(WRONG_KEYS)], one))
elements = st.sampled_from([*[orders()] * 5, odd, anything, st.sampled_from(NO_NUMBERS)]).flatmap(lambda one: one)

statuses = st.sampled_from([*[200] * 15, 201, 204, 301, 400, 401, 403, 404, 422, 429, 500, 502, 503, 504, 599])
NAMES = ["access_token", "expiration_date", "id", "name", "key", "reason", "paymentMethod", "shippingMethod", "x"]
data = members(anything, st.sampled_from(NAMES))


@st.composite
def envelopes(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    """Envelopes of docs/interface.md whose members may be missing, of any type, in any order, or doubled."""
    found = {
        "status": draw(st.sampled_from([*["true"] * 9, "false", "1", '"true"', "null", "", "[]"])),
        "data": draw(inner), "error": draw(st.just("") | anything), "message": draw(st.just("") | anything),
    }  # fmt: skip
    pairs = [(name, value) for name, value in found.items() if value]
    pairs += draw(st.lists(st.tuples(st.sampled_from(["status", "data", "error", "x"]), anything), max_size=1))
    return "{" + ", ".join(f'"{name}": {value}' for name, value in draw(st.permutations(pairs))) + "}"


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> bytes:
    """A body with bytes before or after it, cut off anywhere, or with bytes changed, inserted or removed."""
    body = draw(whole).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(body)))
        put_in = draw(st.sampled_from([b"", *(bytes([one]) for one in b'"\\{}[],:\xff\x00'), b"<!-- ok -->"]))
        left_out = draw(st.sampled_from([0, 0, 0, 1, 20, len(body)]))
        body = body[:at] + put_in + body[at + left_out :]
    return draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b" \r\n\t"])) + body


bodies = damaged(envelopes(data | elements_of(data) | anything))
listings = damaged(envelopes(elements_of(elements, 6)))
