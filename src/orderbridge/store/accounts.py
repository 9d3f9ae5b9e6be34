"""Accounts: when the next poll may leave, how the account does, and its token, which only its own secrets open.

An account is its fingerprint (an HMAC of base_url and both secrets), so a renamed one keeps its cooldown and its token.
"""

import base64
import os
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Connection, bindparam, insert, literal_column, or_, select, update

from orderbridge.model import Token
from orderbridge.store.columns import time_text
from orderbridge.store.tables import OPEN, accounts, orders, restaurants, tokens

_MINE = accounts.c.fingerprint == bindparam("mine")
_RESERVE = (
    update(accounts)
    .where(_MINE, or_(accounts.c.next_poll_utc.is_(None), accounts.c.next_poll_utc <= bindparam("now")))
    .values(next_poll_utc=bindparam("until"), last_poll_utc=bindparam("now"))
)
_NOTE = update(accounts).where(_MINE)

NONCE_BYTES = 12
KEY_BYTES = 32


def register(connection: Connection, fingerprint: str, name: str) -> None:
    """The account's row, made at the first start and renamed when the configuration says so."""
    named = update(accounts).where(accounts.c.fingerprint == fingerprint).values(name=name)
    if not connection.execute(named).rowcount:
        connection.execute(insert(accounts).values(fingerprint=fingerprint, name=name))


def reserve_poll(
    connection: Connection, fingerprint: str, *, now: datetime, until: datetime, longest: timedelta
) -> datetime | None:
    """Note the poll before its request leaves: no other may leave before `until`. None: it may leave now.

    Else the time to wait for. One further away than `longest` comes from a clock that jumped, and is cut to that.
    """
    if connection.execute(_RESERVE, {"mine": fingerprint, "now": now, "until": until}).rowcount:
        return None
    noted = connection.execute(
        select(accounts.c.next_poll_utc).where(accounts.c.fingerprint == fingerprint)
    ).scalar_one_or_none()
    if noted is None or noted > now + longest:
        noted = now + longest
        connection.execute(update(accounts).where(accounts.c.fingerprint == fingerprint).values(next_poll_utc=noted))
    return noted


def note_poll(connection: Connection, fingerprint: str, **values: Any) -> None:
    """What a poll's end says: next_poll_utc, last_poll_ok_utc, state, last_error."""
    connection.execute(_NOTE, {"mine": fingerprint, **values})


def overview(connection: Connection, fingerprints: Collection[str]) -> list[dict[str, Any]]:
    """These accounts as `status` shows them. A former pair of secrets is another account."""
    columns = (
        accounts.c.name,
        accounts.c.state,
        accounts.c.last_poll_utc,
        accounts.c.last_poll_ok_utc,
        accounts.c.next_poll_utc,
        accounts.c.token_expires_utc,
        accounts.c.last_error,
    )
    mine = select(*columns).where(accounts.c.fingerprint.in_(fingerprints)).order_by(accounts.c.name)
    return [dict(row) for row in connection.execute(mine).mappings()]


def adopt_orphans(connection: Connection, configured: Collection[str]) -> int:
    """Open orders whose account left the configuration go to one that reaches their restaurant. Returns how many."""
    orphans = (
        select(orders.c.payment_key, restaurants.c.account)
        .join(restaurants, restaurants.c.id == orders.c.restaurant_id)
        .where(
            literal_column(OPEN),
            orders.c.account.not_in(configured),
            restaurants.c.account.in_(configured),
        )
    )
    found = {row.payment_key: row.account for row in connection.execute(orphans)}
    for key, account in found.items():
        orphan = update(orders).where(orders.c.payment_key == key, orders.c.account.not_in(configured))
        connection.execute(orphan.values(account=account))
    return len(found)


class Vault:
    """Seals one account's token with a key made of its own secrets, bound to the account and the time of issue."""

    def __init__(self, fingerprint: str, app_secret_key: str, rest_secret_key: str) -> None:
        self._fingerprint = fingerprint
        secret = f"{app_secret_key}\0{rest_secret_key}".encode()
        key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"orderbridge token v1").derive(secret)
        self._cipher = AESGCM(key)

    def save(self, connection: Connection, token: Token) -> None:
        """Keep the token for the next start."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, token.access_token.encode(), self._bound_to(token.issued_utc))
        values = {
            "ciphertext": base64.b64encode(sealed).decode(),
            "issued_utc": token.issued_utc,
            "expires_utc": token.expires_utc,
        }
        mine = tokens.c.fingerprint == self._fingerprint
        if not connection.execute(update(tokens).where(mine).values(**values)).rowcount:
            connection.execute(insert(tokens).values(fingerprint=self._fingerprint, **values))
        note_poll(connection, self._fingerprint, token_expires_utc=token.expires_utc)

    def load(self, connection: Connection) -> Token | None:
        """The kept token; None when there is none that these secrets open."""
        row = connection.execute(select(tokens).where(tokens.c.fingerprint == self._fingerprint)).one_or_none()
        if row is None or row.issued_utc is None or row.expires_utc is None:
            return None
        try:
            sealed = base64.b64decode(row.ciphertext)
            nonce, sealed = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
            plain = self._cipher.decrypt(nonce, sealed, self._bound_to(row.issued_utc))
        except (ValueError, InvalidTag):
            return None
        return Token(plain.decode(), row.issued_utc, row.expires_utc)

    def _bound_to(self, issued: datetime) -> bytes:
        return f"{self._fingerprint} {time_text(issued)}".encode()
