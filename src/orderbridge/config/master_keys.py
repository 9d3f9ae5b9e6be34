"""Master keys as text: 32 bytes in base64, one a line. The first one seals, all of them open."""

import base64
import binascii
import secrets

from orderbridge.texts import say

KEY_BYTES = 32


def new_key() -> str:
    """A line for the file of master keys."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def parsed(text: str) -> tuple[bytes, ...]:
    """The keys in their order, each once. Raises ValueError, which says the line and shows nothing of it."""
    found: dict[bytes, None] = {}
    for number, line in enumerate(text.split(), 1):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise ValueError(say("config.master_key", number=number)) from None
        found[key] = None
    return tuple(found)
