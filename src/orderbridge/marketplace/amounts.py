"""How much is to be collected at the door, and whether an order's amounts add up (docs/interface.md, Resources). Pure.

Payment. An order carries the payment's display name, "as in the payment method list" (docs/interface.md, Order), and the list
may write its names with a remark: `Kredi Kartı (pre-paid)`. So a name counts with or without its remark; two different
remarks are two different things, because a wrong guess here is money not collected.

Sums. No order is refused for them: a till shows the problem, and a person looks before money is asked for. So only what
no reading of the interface explains is called wrong, and nothing is where a number is missing. What the interface leaves
open counts as right either way:
- modifiers are added once for the line, or once for each piece (and an `operation` other than `+` may mean anything);
- `total` holds the courier's fee and the tip, one of them, or neither;
- a discount is written with or without its sign, and does not go below nothing;
- what is prepaid has nothing left to collect.
Each amount may have been rounded.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import product

from orderbridge.document import Facts, Item, Option
from orderbridge.model import CASH, PREPAID, TOTAL_MISMATCH

CENT = Decimal("0.01")
_NOTHING = Decimal(0)
_REMARK = re.compile(r"\s*\([^()]*\)$")


def payment_code(name: str | None, codes: Mapping[str, str]) -> str | None:
    """The code of a payment method by its name or its code; None when the list does not say. `codes`: name to code."""
    if name is None:
        return None
    exact, bare = _tables(frozenset(codes.items()))
    wanted = _normal(name)
    if wanted in exact:
        return exact[wanted]
    without = _REMARK.sub("", wanted)
    return bare.get(wanted) if without == wanted else exact.get(without)


def amount_due(total: Decimal | None, code: str | None) -> Decimal | None:
    """What to collect at the door: all of it in cash, nothing when prepaid, None when the till must ask."""
    if code == CASH:
        return total
    return Decimal(0) if code in PREPAID else None


@lru_cache(maxsize=64)
def _tables(codes: frozenset[tuple[str, str]]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Codes by full name (and by themselves), and by name without remark, each where that fits one code only."""
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
    """Case and blanks do not count. Turkish has two letters i, which a program's upper case mixes up: both are one here."""
    return " ".join(unicodedata.normalize("NFC", name).replace("İ", "i").replace("ı", "i").casefold().split())


def mismatches(facts: Facts) -> Iterator[str]:
    """The problem codes: of the first line that does not add up, and of the order's total."""
    for line_no, item in enumerate(facts.items, start=1):
        if not _line_adds_up(item):
            yield f"{TOTAL_MISMATCH}:line_{line_no}"
            break
    if not _total_adds_up(facts):
        yield f"{TOTAL_MISMATCH}:total"


def _line_adds_up(item: Item) -> bool:
    if item.price is None or item.quantity is None or item.total is None:
        return True
    options = [option for option in item.options if not _is_bare(option)]
    prices = [option.price for option in options if option.price is not None]
    if len(prices) < len(options) or any(option.operation not in {None, "", "+"} for option in options):
        return True
    extra = sum(prices, _NOTHING)
    readings = (item.price * item.quantity + extra, (item.price + extra) * item.quantity)
    if item.total in readings:
        return True
    allowed = CENT * max(Decimal(1), abs(item.quantity))  # each piece's price may have been rounded
    return any(abs(item.total - reading) <= allowed for reading in readings)


def _is_bare(option: Option) -> bool:
    """A group without an option in it."""
    return option.option_id is None and option.option_name is None and option.price is None


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
