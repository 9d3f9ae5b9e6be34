"""Parses order documents leniently (docs/interface.md, Resources; docs/design.md, Documents).

A kitchen must see every order that can be shown at all. Fields that cannot be parsed become NULL, with a problem code
(fields.py lists them). Only an element that is not an object, or has no usable payment_key, is set aside.

A line without a name or a quantity, an option without a name, and an order without a total are problems, because an
order in an unforeseen format must not be taken for a complete one.

A list repeats the orders that were not acknowledged, and decoding takes nine tenths of the time. So an element with the
same bytes as before is not decoded again (`Seen`). One cache serves all accounts, because the result depends only on
the bytes. It keeps the key, length and digest of a document, not the document.

Payment. An order carries the payment's display name, "as in the payment method list" (docs/interface.md, Order), and
the list may write its names with a remark: `Kredi Kartı (pre-paid)`. So a name matches with or without a remark. Two
different remarks do not match, because after a wrong guess money would not be collected.

Sums. Wrong sums are a problem that a person checks before asking for money. A sum is wrong only if no interpretation of
the interface explains it, and no number is missing. The interface does not define these, so all are accepted:

- Modifiers are added once for the line, or once for each piece. An `operation` other than `+` may mean anything.
- `total` includes the courier's fee and the tip, one of them, or neither.
- A discount has a sign or none, and the total is not below 0.
- The total of a prepaid order may be 0.
- Each amount may be rounded.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import lru_cache, partial
from itertools import product
from operator import attrgetter
from threading import Lock
from typing import Any

from orderbridge.clock import YEARS, local_moment
from orderbridge.document import Facts, Field, Item, Option, ValueKind, fields_of
from orderbridge.errors import Message, UnknownOutcome
from orderbridge.marketplace.answers import judge
from orderbridge.marketplace.fields import UUID, Reader, is_empty
from orderbridge.marketplace.scan import BROKEN, BrokenText, decode, read_members, utf8
from orderbridge.model import CASH, PREPAID, TOTAL_MISMATCH, Differs, Document, Order

_SUCCESS = 2  # any 2xx
_BEGINNING = 1024  # bytes of a body that are tested for the beginning of an object
_COUNTED = {"foods", "foods.option_groups", "foods.option_groups.options"}
_STATUS_ID_LIMIT = 2**31  # the range of INTEGER in a database
MAX_SEEN = 5_000  # documents, about 3 MiB
_NEAR = 4096  # bytes of an element in which its key is searched for
_KEY = re.compile(rb'"payment_key"[ \t\n\r]*:[ \t\n\r]*"([^"\\]{1,64})"')
CENT = Decimal("0.01")
_NOTHING = Decimal(0)
_REMARK = re.compile(r"\s*\([^()]*\)$")


class Seen:
    """A cache of the last documents by the key as sent, with one for each key."""

    def __init__(self, most: int = MAX_SEEN) -> None:
        self._most = most
        self._writing = Lock()  # large lists are read in a thread
        self._known: dict[bytes, tuple[int, str, str | None, int | None, str | None]] = {}

    def again(self, body: bytes, at: int) -> tuple[Document, int] | None:
        """The document that begins at `at`, and its end, if the same bytes were read before."""
        named = _KEY.search(body, at, at + _NEAR)
        known = self._known.get(named[1]) if named else None
        if known is None:
            return None
        length, digest, key, status_id, sent = known
        raw = body[at : at + length]
        if hashlib.sha256(raw).hexdigest() != digest:
            return None
        return Document(raw, digest, key, status_id, service_key=sent), at + length

    def read(self, raw: bytes, value: Any) -> Document:
        """Make a document of an element, and cache it if it is an order."""
        one = _document(raw, value)
        named = _KEY.search(raw, 0, _NEAR)
        if one.reason is None and named is not None:
            with self._writing:
                self._known.pop(named[1], None)
                self._known[named[1]] = len(raw), one.digest, one.payment_key, one.status_id, one.service_key
                if len(self._known) > self._most:
                    del self._known[next(iter(self._known))]
        return one


_SEEN = Seen()
_printed = attrgetter("items", "note", *(one.column for one in fields_of(Facts) if one.kind == ValueKind.MONEY))


def read_listing(body: bytes, *, http_status: int = 200) -> tuple[Document, ...]:
    """The documents in the answer of get-current (docs/interface.md, Endpoints 6), with their bytes as received.

    Raises MarketplaceError for any answer but a success, and UnknownOutcome("malformed_list") for a success whose list
    cannot be parsed.
    """
    members: dict[str, Any] | None = None  # None: not JSON, or without the envelope
    broken: str | Message = ""
    documents: object = None
    try:
        members = read_members(body, cut="data", take=_SEEN.read, again=_SEEN.again)
    except BrokenText as error:
        broken = error.detail
    # Raised outside the except block: a chained error would keep the body and its values in memory.
    if not (broken and http_status // 100 == _SUCCESS and utf8(body[:_BEGINNING]).lstrip()[:1] == "{"):
        documents, broken = judge(http_status, members), Message("net.no_list")
    if not isinstance(documents, tuple):
        raise UnknownOutcome("malformed_list", broken, http_status=http_status)
    return documents


def read_stored(payload: str) -> Document:
    """Make a document of a stored payload."""
    return read_raw(payload.encode("utf-8", "surrogatepass"))


def read_raw(raw: bytes) -> Document:
    """Make a document of the bytes as received."""
    try:
        value = decode(utf8(raw))
    except BrokenText:
        value = BROKEN
    return _document(raw, value)


def differs(order: Order, payload: str | None, *, payment_codes: Mapping[str, str], zone: tzinfo = UTC) -> Differs:
    """Compare an order with the stored payload, as a till sees them. `payload` is None after retention blanked it."""
    before = None if payload is None else read_stored(payload)
    if before is None or before.reason is not None:
        return Differs.PRINT
    facts = read_order(before, payment_codes=payment_codes, zone=zone).facts
    if facts == order.facts:
        return Differs.NOTHING
    return Differs.DETAILS if _printed(facts) == _printed(order.facts) else Differs.PRINT


def _document(raw: bytes, value: Any) -> Document:
    """Make a document of an element's bytes and value (with Latin-1 strings). `read_order` parses the rest later."""
    digest = hashlib.sha256(raw).hexdigest()
    if not isinstance(value, dict):
        reason = "not_json" if value is BROKEN else "not_an_object"
        return Document(raw, digest, payment_key=None, status_id=None, reason=reason)
    named, status = value.get("payment_key"), value.get("status_id")
    if not (str(named).isascii() and str(status).isascii()):
        value = decode(utf8(raw))
        named, status = value.get("payment_key"), value.get("status_id")
    status_id = Reader().integer(status, "status_id")
    if status_id is not None and not -_STATUS_ID_LIMIT <= status_id < _STATUS_ID_LIMIT:
        status_id = None
    sent = named.strip() if isinstance(named, str) else ""
    key = sent.lower()
    if not UUID.fullmatch(key):  # docs/interface.md, Conventions
        reason = "payment_key_missing" if named in (None, "") else "payment_key_invalid"
        return Document(raw, digest, payment_key=None, status_id=status_id, reason=reason)
    return Document(raw, digest, key, status_id, service_key=sent if key != sent else None)


def read_order(document: Document, *, payment_codes: Mapping[str, str], zone: tzinfo = UTC) -> Order:
    """Parse the order of a document whose `reason` is None (docs/interface.md, Order). This never raises.

    `payment_codes`: the code for each name of the payment method list. `zone`: for times without an offset.
    """
    if document.payment_key is None:
        raise ValueError(f"a document set aside is no order: {document.reason}")
    text = document.payload
    value = decode(text)
    read = Reader(text, minor=_MINOR)
    if document.status_id is None:
        read.note("status_unreadable")
    facts = _facts(value, read, payment_codes, zone)
    # With an unreadable line no sum can be right.
    if not any(problem.partition(":")[2] in _COUNTED for problem in read.problems):
        for problem in mismatches(facts):
            read.note(problem)
    return Order(
        payment_key=document.payment_key,
        status_id=document.status_id,
        status_text=read.text(value.get("status_text"), "status_text"),
        facts=facts,
        problems=tuple(read.problems),
        remarks=tuple(read.remarks),
        raw=document.raw,
        digest=document.digest,
        service_key=document.service_key,
    )


Plan = tuple[tuple[str, str, str, Callable[[Reader, Any, str], Any]], ...]
"""For each column: the object with its value ("": the outer one), the name there, its label, and its reader."""

_READERS: Mapping[ValueKind, Callable[[Reader, Any, str], Any]] = {
    ValueKind.WHOLE: Reader.integer,
    ValueKind.MONEY: Reader.amount,
    ValueKind.NAME: Reader.text,
    ValueKind.MOMENT: Reader.moment,
    ValueKind.ID: Reader.identity,
    ValueKind.TEXT: partial(Reader.text, limit=None),
}


def _plan(columns: Iterable[Field], within: str = "") -> Plan:
    read = [(one.path.rpartition("."), _READERS[one.kind]) for one in columns if one.path is not None]
    return tuple((holder, name, f"{within}{holder}{dot}{name}", how) for (holder, dot, name), how in read)


_ORDER = fields_of(Facts)
_COLUMNS = [one.column for one in _ORDER if one.path is not None]
_PLAN = _plan(_ORDER)
_HOLDERS = {"customer": "name", "address": "address"}  # objects, and the member that a plain text is taken for
_ITEM = _plan(fields_of(Item), "foods.")
_OPTION = _plan(fields_of(Option), "foods.option_groups.")
_GROUP_PART = tuple(part for part in _OPTION if not part[0])
_CHOSEN_PART = tuple(part for part in _OPTION if part[0])
_NOT_CHOSEN: list[Any] = [None] * len(_CHOSEN_PART)
_MINOR = {"status_text", "customer"} | {
    f"{within}{one.path}"
    for rows, within in ((Facts, ""), (Item, "foods."), (Option, "foods.option_groups."))
    for one in fields_of(rows)
    if one.minor
}


def _facts(value: Mapping[str, Any], read: Reader, payment_codes: Mapping[str, str], zone: tzinfo) -> Facts:
    """Parse all fields except the status, so that a change of status does not change them."""
    holders = {"": value} | {
        name: read.members(value.get(name), name, text_is=member) for name, member in _HOLDERS.items()
    }
    columns = [how(read, holders[holder].get(name), label) for holder, name, label, how in _PLAN]
    facts = dict(zip(_COLUMNS, columns, strict=True))
    if (sent := facts["scheduled_for"]) is not None:
        wanted, ordered = local_moment(sent, zone), local_moment(facts["ordered_at"], zone)
        if wanted is None:
            read.note("unreadable_time", "scheduled_date")
        if wanted is None or wanted.year not in YEARS or (ordered is not None and wanted <= ordered):
            facts["scheduled_for"] = None  # not a time after that of the order
    total = facts["total"]
    if is_empty(value.get("total")):
        read.note("missing", "total")
    elif total is not None and total < 0:
        read.note("not_positive", "total")
    code = payment_code(facts["payment_method"], payment_codes)
    if is_empty(foods := value.get("foods")):
        read.note("missing", "foods")
    items = tuple([_item(food, read) for food in read.objects(foods, "foods", _is_food)])
    return Facts(**facts, payment_code=code, amount_due=amount_due(total, code), items=items)


def _item(food: Mapping[str, Any], read: Reader) -> Item:
    """One line of the order (docs/interface.md, Order item)."""
    groups = read.objects(food.get("option_groups"), "foods.option_groups", _is_group)
    values: list[Any] = [how(read, food.get(name), label) for _, name, label, how in _ITEM]
    values.append(tuple([option for group in groups for option in _options(group, read)]))
    item = Item(*values)
    name, quantity = food.get("name"), item.quantity
    if is_empty(name) or (item.name is not None and not any(map(str.isalpha, item.name))):
        read.note("missing", "foods.name")
    if is_empty(food.get("quantity")):
        read.note("missing", "foods.quantity")
    elif quantity is not None and quantity <= 0:
        read.note("not_positive", "foods.quantity")
    if item.food_id is not None and item.food_id <= 0:
        read.remark("not_positive", "foods.food_id")
    return item


def _options(group: Mapping[str, Any], read: Reader) -> list[Option]:
    """The options of a group with the group's fields (docs/interface.md, Option group); empty if none was chosen."""
    of_group = [how(read, group.get(name), label) for _, name, label, how in _GROUP_PART]
    chosen = read.objects(group.get("options"), "foods.option_groups.options", _is_option)
    options = [
        Option(*of_group, *[how(read, option.get(name), label) for _, name, label, how in _CHOSEN_PART])
        for option in chosen
    ]
    if any(is_empty(option.option_name) for option in options):
        read.note("missing", "foods.option_groups.options.name")
    if options:
        return options
    if "options" in group and is_empty(group["options"]):
        read.remark("missing", "foods.option_groups.options")
        return []
    if "options" not in group:  # the chosen options may be under another name
        read.note("missing", "foods.option_groups.options")
    return [] if is_empty(group.get("name")) else [Option(*of_group, *_NOT_CHOSEN)]


def _is_food(value: Mapping[str, Any]) -> bool:
    return not (is_empty(value.get("name")) and is_empty(value.get("food_id")))


def _is_group(value: Mapping[str, Any]) -> bool:
    return "options" in value or not is_empty(value.get("name"))


def _is_option(value: Mapping[str, Any]) -> bool:
    return not (is_empty(value.get("name")) and is_empty(value.get("id")))


# ---- amounts ---------------------------------------------------------------------------------------------------------


def payment_code(name: str | None, codes: Mapping[str, str]) -> str | None:
    """The code of a payment method, given by name or code; None if the list has no match. `codes`: name to code."""
    if name is None:
        return None
    exact, bare = _tables(frozenset(codes.items()))
    wanted = _normal(name)
    if wanted in exact:
        return exact[wanted]
    without = _REMARK.sub("", wanted)
    return bare.get(wanted) if without == wanted else exact.get(without)


def amount_due(total: Decimal | None, code: str | None) -> Decimal | None:
    """The amount to collect at the door: the total for cash, 0 for prepaid, None if unknown."""
    if code == CASH:
        return total
    return Decimal(0) if code in PREPAID else None


@lru_cache(maxsize=64)
def _tables(codes: frozenset[tuple[str, str]]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Two tables of codes, without ambiguous entries: by full name or code, and by name without remark."""
    exact = _unambiguous(
        [*((_normal(code), code) for _, code in codes), *((_normal(name), code) for name, code in codes)]
    )
    return exact, _unambiguous((_REMARK.sub("", name), code) for name, code in exact.items())


def _unambiguous(meanings: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for name, code in meanings:
        found.setdefault(name, set()).add(code)
    return {name: codes.pop() for name, codes in found.items() if len(codes) == 1}


def _normal(name: str) -> str:
    """Normalize case and blanks. The two Turkish letters i count as one, because `upper` mixes them up."""
    return " ".join(unicodedata.normalize("NFC", name).replace("İ", "i").replace("ı", "i").casefold().split())


def mismatches(facts: Facts) -> Iterator[str]:
    """The problem codes for the first line that does not add up, and for the order's total."""
    for line_no, item in enumerate(facts.items, start=1):
        if not _line_adds_up(item):
            yield f"{TOTAL_MISMATCH}:line_{line_no}"
            break
    if not _total_adds_up(facts):
        yield f"{TOTAL_MISMATCH}:total"


def _line_adds_up(item: Item) -> bool:
    if item.price is None or item.quantity is None or item.total is None:
        return True
    # Ignore groups without a chosen option.
    options = [one for one in item.options if (one.option_id, one.option_name, one.price) != (None, None, None)]
    prices = [option.price for option in options if option.price is not None]
    if len(prices) < len(options) or any(option.operation not in {None, "", "+"} for option in options):
        return True
    extra = sum(prices, _NOTHING)
    readings = (item.price * item.quantity + extra, (item.price + extra) * item.quantity)
    if item.total in readings:
        return True
    allowed = CENT * max(Decimal(1), abs(item.quantity))  # the price of each piece may be rounded
    return any(abs(item.total - reading) <= allowed for reading in readings)


def _total_adds_up(facts: Facts) -> bool:
    lines = [item.total for item in facts.items if item.total is not None]
    total, discount, fee, tip = facts.total, facts.discount, facts.courier_fee, facts.order_tip
    if not lines or len(lines) < len(facts.items) or total is None or discount is None or fee is None or tip is None:
        return True
    if total == 0 and facts.payment_code != CASH:
        return True
    goods, less = sum(lines, _NOTHING), abs(discount)
    if total == goods - less:
        return True
    allowed = CENT * (len(lines) + 1)
    for with_fee, with_tip in product((_NOTHING, fee), (_NOTHING, tip)):
        more = with_fee + with_tip
        readings = (goods - less + more, max(goods - less, _NOTHING) + more, max(goods - less + more, _NOTHING))
        if any(abs(total - reading) <= allowed for reading in readings):
            return True
    return False
