"""The service's documents, read leniently (docs/interface.md, Resources; docs/design.md, Documents). Pure.

A kitchen must see an order that can be shown at all: whatever can be read is read, the rest is NULL and a problem
code (the table is in fields.py). Only what is no object, or has no usable payment_key, is set aside.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from orderbridge.document import Facts, Field, Item, Option, ValueKind, fields_of
from orderbridge.errors import UnknownOutcome
from orderbridge.marketplace.answers import is_success, judge
from orderbridge.marketplace.fields import UUID, Reader, Unreadable, parse_integer
from orderbridge.marketplace.payment import amount_due, payment_code
from orderbridge.marketplace.scan import BROKEN, BrokenText, decode, read_members, utf8
from orderbridge.marketplace.seen import Seen
from orderbridge.marketplace.sums import mismatches
from orderbridge.model import Differs, Document, Order
from orderbridge.texts import say

_BEGINNING = 1024  # bytes of a body that tell whether it begins an object
_COUNTED = {"foods", "foods.option_groups", "foods.option_groups.options"}
_STATUS_ID_LIMIT = 2**31  # what a database's INTEGER holds; no service means more
_SEEN = Seen()
_printed = attrgetter("items", "note", *(one.column for one in fields_of(Facts) if one.kind == ValueKind.MONEY))


def read_listing(body: bytes, *, http_status: int = 200) -> tuple[Document, ...]:
    """The documents in the answer of get-current (docs/interface.md, Endpoints 6), each cut out as it was received.

    Raises the MarketplaceError that the answer amounts to; UnknownOutcome("malformed_list") when it is a success
    whose list cannot be taken apart: then nothing of it counts.
    """
    members: dict[str, Any] | None = None  # somebody else's page, or an error without the envelope
    broken = ""
    try:
        members = read_members(body, cut="data", take=_listed, again=_SEEN.again)
    except BrokenText as error:
        broken = str(error)
    # Raised out here: an error that knew of the other one would keep the body, and all that was made of it.
    if broken and is_success(http_status) and utf8(body[:_BEGINNING]).lstrip()[:1] == "{":
        raise _malformed_list(broken, http_status)
    documents = judge(http_status, members)
    if not isinstance(documents, tuple):
        raise _malformed_list(say("net.no_list"), http_status)
    return documents


def read_stored(payload: str) -> Document:
    """A document that was kept as text, as the element of a list that it was."""
    return read_raw(payload.encode("utf-8", "surrogatepass"))


def read_raw(raw: bytes) -> Document:
    """The same of the bytes that were received."""
    try:
        value = decode(utf8(raw))
    except BrokenText:
        value = BROKEN
    return _document(raw, value)


def differs(order: Order, payload: str | None, *, payment_codes: Mapping[str, str]) -> Differs:
    """In what a till sees another order than in the stored document, which is read as the new one was.

    `payload`: None when retention has blanked it.
    """
    before = None if payload is None else read_stored(payload)
    if before is None or before.reason is not None:
        return Differs.PRINT
    facts = read_order(before, payment_codes=payment_codes).facts
    if facts == order.facts:
        return Differs.NOTHING
    return Differs.DETAILS if _printed(facts) == _printed(order.facts) else Differs.PRINT


def _malformed_list(detail: str, http_status: int) -> UnknownOutcome:
    return UnknownOutcome("malformed_list", detail, http_status=http_status)


def _listed(raw: bytes, value: Any) -> Document:
    document = _document(raw, value)
    _SEEN.remember(document)
    return document


def _document(raw: bytes, value: Any) -> Document:
    """`value`: what the bytes say, its strings still Latin-1. The order itself is read when it is needed: read_order."""
    digest = hashlib.sha256(raw).hexdigest()
    if not isinstance(value, dict):
        reason = "not_json" if value is BROKEN else "not_an_object"
        return Document(raw=raw, digest=digest, payment_key=None, status_id=None, reason=reason)
    named, status_id = value.get("payment_key"), value.get("status_id")
    if not (str(named).isascii() and str(status_id).isascii()):
        value = decode(utf8(raw))
        named, status_id = value.get("payment_key"), value.get("status_id")
    key, reason_or_none = _payment_key(named)
    sent = str(named).strip()
    return Document(
        raw=raw,
        digest=digest,
        payment_key=key,
        status_id=_status_id(status_id),
        reason=reason_or_none,
        service_key=sent if key not in {None, sent} else None,
    )


def _payment_key(value: object) -> tuple[str | None, str | None]:
    """The key in lower case, or the reason why there is none (docs/interface.md, Conventions)."""
    if value is None or value == "":
        return None, "payment_key_missing"
    key = value.strip().lower() if isinstance(value, str) else ""
    if UUID.fullmatch(key) is None:
        return None, "payment_key_invalid"
    return key, None


def _status_id(value: object) -> int | None:
    try:
        number = parse_integer(value)
    except Unreadable:
        return None
    return number if number is not None and -_STATUS_ID_LIMIT <= number < _STATUS_ID_LIMIT else None


def read_order(document: Document, *, payment_codes: Mapping[str, str]) -> Order:
    """The order in a document whose `reason` is None (docs/interface.md, Order). Never raises for such a document.

    `payment_codes` gives the code for each name of the payment method list, as GET orders/variables told them.
    """
    if document.payment_key is None:
        raise ValueError(f"a document set aside is no order: {document.reason}")
    text = document.payload
    value = decode(text)
    read = Reader(plain="\\u" not in text and "\0" not in text)
    if document.status_id is None:
        read.note("status_unreadable")
    facts = _facts(value, read, payment_codes)
    # A line that could not be read is missing from every sum.
    if not any(problem.partition(":")[2] in _COUNTED for problem in read.problems):
        for problem in mismatches(facts):
            read.note(problem)
    return Order(
        payment_key=document.payment_key,
        status_id=document.status_id,
        status_text=read.text(value.get("status_text"), "status_text"),
        facts=facts,
        problems=read.problems,
        raw=document.raw,
        digest=document.digest,
        service_key=document.service_key,
    )


Plan = tuple[tuple[str, str, str, Callable[[Reader, Any, str], Any]], ...]
"""For each column: the object that its value stands in ("": the one that is read), its name there, its label, its reader."""

_READERS: Mapping[ValueKind, Callable[[Reader, Any, str], Any]] = {
    ValueKind.WHOLE: Reader.integer,
    ValueKind.MONEY: Reader.amount,
    ValueKind.NAME: Reader.text,
    ValueKind.MOMENT: Reader.moment,
    ValueKind.ID: Reader.identity,
    ValueKind.TEXT: Reader.long_text,
}


def _plan(columns: Iterable[Field], within: str = "") -> Plan:
    read = [(one.path.rpartition("."), _READERS[one.kind]) for one in columns if one.path is not None]
    return tuple((holder, name, f"{within}{holder}{dot}{name}", how) for (holder, dot, name), how in read)


_ORDER = fields_of(Facts)
_COLUMNS = [one.column for one in _ORDER if one.path is not None]
_PLAN = _plan(_ORDER)
_HOLDERS = [*dict.fromkeys(holder for holder, *_ in _PLAN if holder)]
_ITEM = _plan(fields_of(Item), "foods.")
_OPTION = _plan(fields_of(Option), "foods.option_groups.")
_GROUP_PART = tuple(part for part in _OPTION if not part[0])
_CHOSEN_PART = tuple(part for part in _OPTION if part[0])


def _facts(value: Mapping[str, Any], read: Reader, payment_codes: Mapping[str, str]) -> Facts:
    """All fields but the status, so that a change of status alone leaves them equal."""
    holders = {"": value} | {name: read.members(value.get(name), name) for name in _HOLDERS}
    columns = [how(read, holders[holder].get(name), label) for holder, name, label, how in _PLAN]
    said = dict(zip(_COLUMNS, columns, strict=True))
    code = payment_code(said["payment_method"], payment_codes)
    due = amount_due(said["total"], code)
    return Facts(**said, payment_code=code, amount_due=due, items=_items(value, read))


def _items(value: Mapping[str, Any], read: Reader) -> tuple[Item, ...]:
    foods = value.get("foods")
    if foods in (None, []):  # null and an empty list leave a kitchen with as little as no field does
        read.note("missing:foods")
    return tuple([_item(food, read) for food in read.objects(foods, "foods")])


def _item(food: Mapping[str, Any], read: Reader) -> Item:
    """One line of the order (docs/interface.md, Order item)."""
    groups = read.objects(food.get("option_groups"), "foods.option_groups")
    values: list[Any] = [how(read, food.get(name), label) for _, name, label, how in _ITEM]
    values.append(tuple([option for group in groups for option in _options(group, read)]))
    return Item(*values)


def _options(group: Mapping[str, Any], read: Reader) -> list[Option]:
    """A group and its options (docs/interface.md, Option group), flat; a group without options still shows its name."""
    of_group = [how(read, group.get(name), label) for _, name, label, how in _GROUP_PART]
    options = read.objects(group.get("options"), "foods.option_groups.options")
    return [
        Option(*of_group, *[how(read, option.get(name), label) for _, name, label, how in _CHOSEN_PART])
        for option in options or [{}]
    ]
