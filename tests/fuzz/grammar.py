"""Random answers: documents and envelopes of docs/interface.md with any value in any place, and broken ones.

Everything is made as JSON text, because much of it no dictionary can hold: a key twice, 1e400, half of a letter.
"""

import copy
import json
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from tests.marketplace import samples

from orderbridge_sandbox import rules

TIMES = int(os.environ.get("ORDERBRIDGE_TEST_FUZZ", "1"))
MISSING = object()


def examples(number: int, **more: Any) -> settings:
    """This number of examples; with ORDERBRIDGE_TEST_FUZZ=N, N times as many. A busy machine fails no property."""
    return settings(deadline=None, max_examples=number * TIMES, **more)


class Raw(str):
    """JSON text that stands as it is."""

    __slots__ = ()


def write(value: Any) -> str:
    """JSON text with all that `Raw` can say; a list of pairs in a tuple is an object that may have a key twice."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{write(key)}: {write(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# ---- values ----------------------------------------------------------------------------------------------------------

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
        "\ufffe", "null", "NaN", "1,234", "1.234,50", "-0", "1e400", "٣", "16", " 16 ", "Infinity",
        "2026-13-45 99:99:99",
    ),
    *("'; DROP TABLE delivery_orders; --", "%s %(x)s :x {0} \\", "]}", '"]}', "ş" * 10_000, "\U0010ffff" * 300),
    *("9" * 5000, "a" + "\u0300\u0316" * 2000, "Nakit", "Kredi Kartı (pre-paid)", "OK", "Open"),
]  # fmt: skip
DEEP = [Raw(opened * 3000 + "1" + closed * 3000) for opened, closed in [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")]]


def quiet(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The same under a short name: hypothesis writes strategies out, and these are long."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return drawn()


texts = quiet(st.sampled_from(TEXTS)) | st.text(max_size=30) | st.text(st.characters(), max_size=10)
numbers = quiet(st.sampled_from(NUMBERS).map(Raw)) | st.integers() | st.floats().map(write).map(Raw)
leaves = texts | numbers | st.none() | st.booleans()
nested = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(texts, inner), max_size=3).map(tuple),
    max_leaves=6,
)
anything = quiet(leaves | nested | st.sampled_from(DEEP))
broken = st.sampled_from(NO_NUMBERS).map(Raw)

# ---- orders ----------------------------------------------------------------------------------------------------------


def _paths(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, the inner ones too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in inner for found in ((*way, key), *_paths(one, (*way, key)))]


PLACES = _paths(samples.order())
KEYS = [f"{number:08x}-6f0d-4c1e-9a55-3d2f8e6a7b10" for number in range(6)]
WRONG_KEYS = ["", " ", KEYS[0].replace("-", ""), f"{{{KEYS[0]}}}", KEYS[0] + "0", f"urn:uuid:{KEYS[0]}", "../orders"]
keys = st.sampled_from(KEYS) | st.sampled_from(KEYS).map(lambda key: f" {key.upper()}")


def put(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Another value in that place, or none; a place that an earlier change has taken away is left alone."""
    inner: Any = document
    for step in place[:-1]:
        try:
            inner = inner[step]
        except (KeyError, IndexError, TypeError):
            return
    last = place[-1]
    if isinstance(inner, list) and isinstance(last, int) and last < len(inner):
        inner[last] = None if value is MISSING else value
    elif isinstance(inner, dict):
        if value is MISSING:
            inner.pop(last, None)
        else:
            inner[last] = value


@st.composite
def orders(draw: st.DrawFn, key: st.SearchStrategy[Any] = keys) -> str:
    """An order with up to five of its fields missing, of another type, huge, nested or twice."""
    document = copy.deepcopy(samples.order(payment_key=draw(key)))
    for place, value in draw(
        st.lists(
            st.tuples(st.sampled_from(PLACES), anything | st.just(MISSING)), max_size=5, unique_by=lambda one: one[0]
        )
    ):
        put(document, place, value)
    twice = draw(st.lists(st.tuples(st.sampled_from([*document, "x"]), anything), max_size=2))
    return write((*document.items(), *twice))


elements = quiet(orders() | orders(st.sampled_from(WRONG_KEYS) | anything) | (anything | broken).map(write))

# ---- answers ---------------------------------------------------------------------------------------------------------

ERRORS = [rules.UNAUTHORIZED, rules.TOO_MANY_REQUESTS, "URL hatalı", "sipariş bulunamadı", "eksik alan", "başka"]
statuses = st.sampled_from([200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 422, 429, 500, 502, 503, 504, 599])
lists = st.lists(elements, max_size=6).map(lambda found: Raw("[" + ",".join(found) + "]"))

login = st.fixed_dictionaries(
    {}, optional={"access_token": st.just("a1b2c3d4e5") | anything, "expiration_date": anything, "x": anything}
)
data = quiet(lists | login | anything)


@st.composite
def envelopes(draw: st.DrawFn, inner: st.SearchStrategy[Any] = data) -> str:
    """docs/interface.md's envelope, its members there or not, of any type, in any order and perhaps twice."""
    members = [
        ("status", draw(st.sampled_from([True, True, True, False, Raw("1"), "true", None, MISSING]) | anything)),
        ("data", draw(inner | st.just(MISSING))),
        ("error", draw(st.just(MISSING) | st.sampled_from(ERRORS) | anything)),
        ("message", draw(st.just(MISSING) | anything)),
        *draw(st.lists(st.tuples(st.sampled_from(["status", "data", "error", "x"]), anything | broken), max_size=1)),
    ]
    return write(tuple(draw(st.permutations([member for member in members if member[1] is not MISSING]))))


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> bytes:
    """A body with a mark before it, something behind it, cut off anywhere, bytes turned over, doubled or put in."""
    body = bytearray(draw(whole).encode("utf-8", "surrogatepass"))
    for what in draw(
        st.lists(st.sampled_from(["mark", "space", "behind", "cut", "turn", "insert", "leave"]), max_size=3)
    ):
        at = draw(st.integers(0, len(body)))
        match what:
            case "mark":
                body[:0] = b"\xef\xbb\xbf"
            case "space":
                body[:0] = b" \r\n\t"
            case "behind":
                body += draw(st.sampled_from([b" ", b"\x00", b"}", b"<!-- ok -->", b'{"status": true}']))
            case "cut":
                del body[at:]
            case "turn" if at < len(body):
                body[at] ^= draw(st.integers(1, 255))
            case "insert":
                body[at:at] = draw(st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\xff", b"\x00"]))
            case "leave":
                del body[at : at + draw(st.integers(1, 20))]
    return bytes(body)


bodies = quiet(damaged(envelopes()) | st.binary(max_size=300))
listings = quiet(damaged(envelopes(lists)) | bodies)
