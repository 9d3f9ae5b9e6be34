"""Whether an order's amounts add up (docs/interface.md, Resources). Pure.

Nobody is refused for it: a till shows the problem, and a person looks before money is asked for. So only what no reading
of the interface explains is called wrong, and nothing is where a number is missing.

What the interface leaves open, and so counts as right either way:
- modifiers are added once for the line, or once for each piece (and an `operation` other than `+` may mean anything);
- `total` holds the courier's fee and the tip, one of them, or neither;
- a discount is written with or without its sign, and does not go below nothing;
- what is prepaid has nothing left to collect.
Each amount may have been rounded.
"""

from collections.abc import Iterator
from decimal import Decimal
from itertools import product

from orderbridge.document import Facts, Item, Option
from orderbridge.model import CASH
from orderbridge.order_problems import TOTAL_MISMATCH

CENT = Decimal("0.01")
_NOTHING = Decimal(0)


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
