"""Removes our secrets and tokens from texts before they are logged, stored or shown.

The list of secrets is global, because an answer to one account may quote the secret of another. All forms in which an
answer may quote a secret are found: in JSON, in a URL, in HTML, in capitals.
"""

import json
from collections.abc import Iterator
from html import escape
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SHORTEST = 4  # shorter texts are not hidden: *** in many common words would reveal them
SHORT = 12  # shorter ones are hidden only as whole words (`poll` is part of `orders.polled`)
FORMER = 3  # old tokens of an account, which a late answer may still quote

_former: dict[str, tuple[str, ...]] = {}  # by secret: those it replaced, the oldest first
_known: dict[str, dict[str, None]] = {}  # all forms of all secrets, by their first SHORTEST letters
_lengths: set[int] = set()  # of all forms so far


def hide(secret: str, *, instead_of: str | None = None) -> None:
    """Hide `secret` from now on. `instead_of` is the token that it replaces; the last FORMER of them stay hidden."""
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
    """The text with *** in place of each secret."""
    parts, end = [], 0
    for begin, length in _found(_in_small_letters(text)):
        parts += [text[end:begin], HIDDEN]
        end = begin + length
    return "".join([*parts, text[end:]]) if parts else text


def longest() -> int:
    """The length of the longest form. A text that is to be cut must be read that much further."""
    return max(list(_lengths), default=0)


def _found(small: str) -> Iterator[tuple[int, int]]:
    """The position and length of each secret; of several at one position, the longest."""
    place, last = 0, len(small) - SHORTEST
    while place <= last:
        near = _known.get(small[place : place + SHORTEST])
        if near is None:  # the usual case
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
    """Lower case of the same length, unlike `lower`."""
    if text.isascii():
        return text.lower()
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _forget(secret: str) -> None:
    for form in _forms(secret):
        _known.get(form[:SHORTEST], {}).pop(form, None)


def _forms(secret: str) -> set[str]:
    """Lower-case forms of a secret: plain, in Python and JSON strings, in JSON within JSON, in a URL, in HTML."""
    in_json = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    in_json |= {form.replace("/", "\\/") for form in in_json}
    in_json |= {json.dumps(form)[1:-1] for form in in_json}
    in_address = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    return {_in_small_letters(form) for form in {secret, repr(secret)[1:-1], escape(secret), *in_json, *in_address}}
