"""Our secrets and tokens, taken out of every text before it is logged, stored or shown.

Known to the whole process: what one account's answer quotes may be another account's. A text is searched for all forms
in which a service may quote a secret: in JSON, in an address, in a page, in capitals.
"""

import json
from collections.abc import Iterator
from html import escape
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SHORTEST = 4  # hiding a shorter text would blank half of each line and so give it away
SHORT = 12  # a shorter one may be part of a common word (`poll` of `orders.polled`): it is hidden where it stands alone
FORMER = 3  # tokens of an account that a late answer may still quote

_former: dict[str, tuple[str, ...]] = {}  # by secret: the ones that it replaced, the oldest first
_known: dict[str, dict[str, None]] = {}  # by their first letters: every form of every secret
_lengths: set[int] = set()  # of all forms that there ever were


def hide(secret: str, *, instead_of: str | None = None) -> None:
    """From now on `secret` shows as *** in every text. Of a chain of tokens that replace each other the last few do."""
    if len(secret) < SHORTEST:
        return
    before = _former.get(secret, ())
    if instead_of in _former and instead_of != secret:
        before = (*before, *_former.pop(instead_of), instead_of)
    kept = tuple(one for one in before if one != secret)
    _former[secret] = kept[-FORMER:]
    for gone in kept[:-FORMER]:
        _forget(gone)
    for form in _forms(secret):
        _known.setdefault(form[:SHORTEST], {})[form] = None
        _lengths.add(len(form))


def without_secrets(text: str) -> str:
    """The text with *** for each of them."""
    parts, end = [], 0
    for begin, length in _found(_in_small_letters(text)):
        parts += [text[end:begin], HIDDEN]
        end = begin + length
    return "".join([*parts, text[end:]]) if parts else text


def longest() -> int:
    """Characters of the longest form: how far a text must be read on, so that a cut does not fall into a secret."""
    return max(list(_lengths), default=0)


def forget_all() -> None:
    _former.clear()
    _known.clear()
    _lengths.clear()


def count() -> int:
    """How many forms are searched for."""
    return sum(map(len, _known.values()))


def _found(small: str) -> Iterator[tuple[int, int]]:
    """Where a secret begins and how long it is. The longest form counts: a secret may contain another one."""
    place, last = 0, len(small) - SHORTEST
    while place <= last:
        near = _known.get(small[place : place + SHORTEST])
        if near is None:  # almost everywhere
            place += 1
            continue
        parts = (small[place : place + length] for length in list(_lengths))
        length = max((len(part) for part in parts if part in near), default=0)
        if 0 < length < SHORT and _is_inside_a_word(small, place, place + length):
            length = 0
        if length:
            yield place, length
        place += length or 1


def _is_inside_a_word(text: str, begin: int, end: int) -> bool:
    before, behind = text[begin - 1 : begin], text[end : end + 1]
    return (before.isalnum() and text[begin].isalnum()) or (behind.isalnum() and text[end - 1].isalnum())


def _in_small_letters(text: str) -> str:
    """As long as before, which `lower` alone does not promise."""
    if text.isascii():
        return text.lower()
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _forget(secret: str) -> None:
    for form in _forms(secret):
        _known.get(form[:SHORTEST], {}).pop(form, None)


def _forms(secret: str) -> set[str]:
    """As it is, in Python's and in JSON's quotes, in JSON inside of JSON, in an address, in a page; in small letters."""
    in_json = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    in_json |= {form.replace("/", "\\/") for form in in_json}
    in_json |= {json.dumps(form)[1:-1] for form in in_json}
    in_address = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    return {_in_small_letters(form) for form in {secret, repr(secret)[1:-1], escape(secret), *in_json, *in_address}}
