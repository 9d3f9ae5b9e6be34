"""Documents that were read before: an element that comes again byte by byte is not decoded again. Pure, but for memory.

A list repeats what was not acknowledged, and decoding is nine tenths of reading it. What an element says hangs on its
bytes alone, whose list it is in or when, so one memory serves all accounts. It keeps no document, only what is needed to
know one again: its key, its length, its digest. An object's bytes say where it ends; so where equal bytes begin, an
equal element ends.
"""

import hashlib
import re
from threading import Lock

from orderbridge.model import Document

MOST = 5_000  # documents, about 3 MiB
_NEAR = 4096  # bytes from an element's beginning within which its key is looked for
_KEY = re.compile(rb'"payment_key"[ \t\n\r]*:[ \t\n\r]*"([^"\\]{1,64})"')


class Seen:
    """The documents that were read last, by the key as sent; of one key the last."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._writing = Lock()  # small lists are read in the loop, large ones beside it
        self._known: dict[bytes, tuple[int, Document]] = {}

    def again(self, body: bytes, at: int) -> tuple[Document, int] | None:
        """The document that begins there, and where it ends, when these bytes were one before."""
        named = _KEY.search(body, at, at + _NEAR)
        known = self._known.get(named[1]) if named else None
        if known is None:
            return None
        length, document = known
        raw = body[at : at + length]
        if hashlib.sha256(raw).hexdigest() != document.digest:
            return None
        return _with_bytes(document, raw), at + length

    def remember(self, document: Document) -> None:
        """Keep what is needed to know an order's document again."""
        named = _KEY.search(document.raw, 0, _NEAR)
        if document.reason is not None or named is None:
            return
        with self._writing:
            self._known.pop(named[1], None)
            self._known[named[1]] = len(document.raw), _with_bytes(document, b"")
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]


def _with_bytes(document: Document, raw: bytes) -> Document:
    return Document(
        raw=raw,
        digest=document.digest,
        payment_key=document.payment_key,
        status_id=document.status_id,
        service_key=document.service_key,
    )
