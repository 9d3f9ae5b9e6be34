"""Which payment method an order's text names, and so how much is to be collected at the door. Pure.

An order carries the payment's display name, "as in the payment method list" (docs/interface.md, Order), and the list
may write its names with a remark: `Kredi Kartı (pre-paid)`. So a name counts with or without its remark; two different
remarks are two different things, because a wrong guess here is money not collected.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

from orderbridge.model import CASH, PREPAID

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
