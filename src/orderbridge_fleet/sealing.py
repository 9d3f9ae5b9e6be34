"""Accounts' settings as sealed text, by the master keys of the configuration.

Rules of this file:
- AES-GCM with a nonce by chance. The key of the cipher is derived from a master key once, not for each row.
- A text is bound to its account's name: in another account's row it does not open.
- What does not open is a Fault, a value; nothing of it is shown.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
CIPHER_KEY_BYTES = 32
ID_DIGITS = 16


class Fault(StrEnum):
    """Why an account's row cannot be used. `accounts.fault` has the sentences."""

    KEY_UNKNOWN = "key_unknown"  # sealed by a master key that is none of ours
    DAMAGED = "damaged"  # cut, altered, or another account's
    WRONG = "wrong"  # it opens, and is no account
    SAME_SECRETS = "same_secrets"  # as another account's, which is read first


class MasterKeys:
    """The first one seals, all of them open."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._ciphers: dict[str, AESGCM] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """By what they are known, in their order; this gives none of them away."""
        return tuple(self._keys)

    def seal(self, name: str, plain: bytes) -> tuple[str, str]:
        """The sealed text, and the id of the key that sealed it."""
        first = next(iter(self._keys))
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher(first).encrypt(nonce, plain, _bound_to(name))
        return base64.b64encode(nonce + sealed).decode(), first

    def open(self, name: str, sealed: str | None, by: str | None) -> bytes | Fault:
        """What was sealed for the account of this name by the key of this id."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see store.accounts.Vault

        if by not in self._keys:
            return Fault.KEY_UNKNOWN
        try:
            kept = base64.b64decode(sealed or "", validate=True)
            return self._cipher(by).decrypt(kept[:NONCE_BYTES], kept[NONCE_BYTES:], _bound_to(name))
        except (binascii.Error, ValueError, InvalidTag):
            return Fault.DAMAGED

    def _cipher(self, chosen: str) -> "AESGCM":
        if chosen not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
            from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

            derived = HKDF(algorithm=SHA256(), length=CIPHER_KEY_BYTES, salt=None, info=b"orderbridge accounts v1")
            self._ciphers[chosen] = AESGCM(derived.derive(self._keys[chosen]))
        return self._ciphers[chosen]


def key_id(key: bytes) -> str:
    """By what a master key is known."""
    return hashlib.sha256(b"orderbridge master key v1\0" + key).hexdigest()[:ID_DIGITS]


def _bound_to(name: str) -> bytes:
    return f"orderbridge account settings v1\0{name}".encode()
