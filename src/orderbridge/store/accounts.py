"""Stores accounts: the time of the next poll, the state, and the token, encrypted with the account's secrets.

The key of an account is its fingerprint (an HMAC of base_url and both secrets). So a renamed account keeps its cooldown
and its token.
"""

import base64
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, func, insert, literal_column, or_, select, update

from orderbridge.model import AccountState, Token
from orderbridge.store.ddl import time_text
from orderbridge.store.own_tables import ENABLED, HELD, account_settings, fleet
from orderbridge.store.rows import batches
from orderbridge.store.tables import OPEN, accounts, orders, restaurants, tokens

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MINE = accounts.c.fingerprint == bindparam("mine")
_RESERVED = (
    update(accounts)
    .where(or_(accounts.c.next_poll_utc.is_(None), accounts.c.next_poll_utc <= bindparam("now")))
    .values(next_poll_utc=bindparam("until"), last_poll_utc=bindparam("now"))
)
_RESERVE = _RESERVED.where(_MINE)
_RESERVE_SOME = _RESERVED.where(accounts.c.fingerprint.in_(bindparam("some", expanding=True)))
_NOTE = update(accounts).where(_MINE)
_LAST_NOTED = select(func.max(accounts.c.next_poll_utc)).where(accounts.c.last_poll_utc.is_not(None))
_REGISTERED = ("name", "listened_seconds", "polled_in_turn_with", "next_poll_utc", "state")
_KNOWN = select(*accounts.c["fingerprint", *_REGISTERED])
_SHOWN = """name state last_poll_utc last_poll_ok_utc next_poll_utc token_expires_utc last_error menu_read_utc
    menu_error polled_in_turn_with""".split()
_SUCCEEDED = _NOTE.values(
    state=AccountState.OK, last_error=None, listened_seconds=accounts.c.listened_seconds + bindparam("listened")
)

NONCE_BYTES = 12
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """An account as registered at a start. `in_turn_with`: see `note_group`.

    `waits`: no poll may be sent before `first_poll`, even if an earlier time was noted.
    """

    fingerprint: str
    name: str
    in_turn_with: str | None = None
    first_poll: datetime | None = None  # the planned time of the first poll
    waits: bool = False
    anew: bool = False  # shown as new until its first poll, which is far away


def register(connection: Connection, entries: Iterable[Entry]) -> dict[str, datetime | None]:
    """Insert or update the rows of these accounts. Returns the noted times of their next polls.

    Orders refer to an account by name. So an account with new secrets keeps the seconds of listening of the former
    ones.
    """
    rows = {row.fingerprint: row for row in connection.execute(_KNOWN)}
    listened: dict[str, int] = {}
    for row in rows.values():
        listened[row.name] = max(listened.get(row.name, 0), row.listened_seconds)
    new, changed = [], []
    for entry in entries:
        there = rows.get(entry.fingerprint)
        most = max(listened.get(entry.name, 0), there.listened_seconds if there else 0)
        values = {
            "name": entry.name,
            "listened_seconds": most,
            "polled_in_turn_with": entry.in_turn_with,
            "next_poll_utc": _next_poll(entry, there.next_poll_utc if there else None),
            "state": AccountState.NEW if there is None or entry.anew else there.state,
        }
        if there is None:
            new.append({"fingerprint": entry.fingerprint, **values})
        elif any(there._mapping[name] != value for name, value in values.items()):  # noqa: SLF001 - SQLAlchemy's name
            changed.append({"mine": entry.fingerprint, **values})
    if changed:
        connection.execute(_NOTE, changed)
    if new:
        connection.execute(insert(accounts), new)
    return {who: row.next_poll_utc for who, row in rows.items()}


def _next_poll(entry: Entry, noted: datetime | None) -> datetime | None:
    if noted is None or entry.first_poll is None:
        return noted or entry.first_poll
    return max(noted, entry.first_poll) if entry.waits else noted


def reserve_polls(connection: Connection, fingerprints: Sequence[str], *, now: datetime, until: datetime) -> bool:
    """Like `reserve_poll`, for several polls. False: not all may be sent, so the transaction must be rolled back."""
    found = ({"some": some, "now": now, "until": until} for some in batches(fingerprints))
    return sum(connection.execute(_RESERVE_SOME, values).rowcount for values in found) == len(fingerprints)


def reserve_poll(
    connection: Connection, fingerprint: str, *, now: datetime, until: datetime, longest: timedelta
) -> datetime | None:
    """Note a poll before it is sent, so that no other is sent before `until`.

    Returns None, or the time to wait for if it may not be sent. A noted time further away than `longest` is due to a
    clock change, and is shortened.
    """
    if connection.execute(_RESERVE, {"mine": fingerprint, "now": now, "until": until}).rowcount:
        return None
    noted = connection.execute(select(accounts.c.next_poll_utc).where(_MINE), {"mine": fingerprint}).scalar()
    if noted is None or noted > now + longest:
        noted = now + longest
        note_poll(connection, fingerprint, next_poll_utc=noted)
    return noted


def last_noted_poll(connection: Connection) -> datetime | None:
    """The latest noted next poll of accounts that were polled; None if none was."""
    return connection.execute(_LAST_NOTED).scalar()


def note_poll(connection: Connection, fingerprint: str, **values: Any) -> None:
    """Write columns of an account: how a poll failed, or how the request of a menu ended."""
    connection.execute(_NOTE, {"mine": fingerprint, **values})


@dataclass(frozen=True, slots=True)
class Success:
    """A good poll. `listened_s`: whole seconds of listening since the one before it (store.order_times).

    `not_stored`: the number of documents that could not even be quarantined. `not_written`: the number of outbox rows,
    of all accounts, that the database refuses or that another session keeps locked.
    """

    fingerprint: str
    polled: datetime
    next_poll: datetime
    listened_s: int
    not_stored: int = 0
    not_written: int = 0


def note_successes(connection: Connection, polls: Sequence[Success]) -> None:
    """Write good polls of different accounts."""
    rows = [
        {
            "mine": poll.fingerprint,
            "last_poll_ok_utc": poll.polled,
            "next_poll_utc": poll.next_poll,
            "listened": poll.listened_s,
            "not_stored": poll.not_stored,
            "not_written": poll.not_written,
        }
        for poll in polls
    ]
    connection.execute(_SUCCEEDED, rows)


def note_group(connection: Connection, fingerprints: Collection[str], names: str | None) -> None:
    """Note that these accounts are polled in turn. `names`: all their names; None: no longer."""
    for fingerprint in fingerprints:
        connection.execute(_NOTE, {"mine": fingerprint, "polled_in_turn_with": names})


def overview(connection: Connection, fingerprints: Collection[str]) -> list[dict[str, Any]]:
    """These accounts as `status` shows them, without rows of former secrets."""
    query = select(*accounts.c["fingerprint", *_SHOWN]).order_by(accounts.c.name)  # unlike problem_queries.polling
    found = [dict(row) for row in connection.execute(query).mappings()]
    return [row for row in found if row.pop("fingerprint") in fingerprints]


def last_polled(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """These accounts' names by fingerprint, each with the secrets that were polled last."""
    was_polled = accounts.c.last_poll_utc.is_not(None)
    query = select(accounts.c.fingerprint, accounts.c.name).order_by(was_polled, accounts.c.last_poll_utc)
    newest = {row.name: row.fingerprint for row in connection.execute(query) if row.name in names} if names else {}
    return {fingerprint: name for name, fingerprint in newest.items()}


def adopt_orphans(connection: Connection, configured: Collection[str]) -> int:
    """Move open orders of removed accounts to accounts that reach their restaurants. Returns how many."""
    owners = connection.execute(select(orders.c.account).where(literal_column(OPEN)).distinct()).scalars()
    gone = [name for name in owners if name not in configured]
    if not gone:
        return 0
    orphans = (
        select(orders.c.payment_key, restaurants.c.account)
        .join(restaurants, restaurants.c.id == orders.c.restaurant_id)
        .where(literal_column(OPEN), orders.c.account.in_(gone))
    )
    found = {row.payment_key: row.account for row in connection.execute(orphans) if row.account in configured}
    for key, account in found.items():
        orphan = update(orders).where(orders.c.payment_key == key, orders.c.account.in_(gone))
        connection.execute(orphan.values(account=account, silence_from=None))
    return len(found)


def kept_tokens(connection: Connection) -> dict[str, Any]:
    """The rows of stored tokens by fingerprint, to be opened by each account's vault."""
    return {row.fingerprint: row for row in connection.execute(select(tokens))}


class Vault:
    """Encrypts an account's token with a key derived from its secrets, bound to the account and the time of issue.

    The library for AES-GCM is loaded only when needed: about once a day, and not for most commands.
    """

    def __init__(self, fingerprint: str, app_secret_key: str, rest_secret_key: str) -> None:
        self._fingerprint = fingerprint
        self._secret = f"{app_secret_key}\0{rest_secret_key}".encode()

    def save(self, connection: Connection, token: Token) -> None:
        """Store the token for the next start."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, token.access_token.encode(), self._bound_to(token.issued_utc))
        values = {
            "ciphertext": base64.b64encode(nonce + sealed).decode(),
            "issued_utc": token.issued_utc,
            "expires_utc": token.expires_utc,
        }
        mine = tokens.c.fingerprint == self._fingerprint
        if not connection.execute(update(tokens).where(mine).values(**values)).rowcount:
            connection.execute(insert(tokens).values(fingerprint=self._fingerprint, **values))
        note_poll(connection, self._fingerprint, token_expires_utc=token.expires_utc)

    def open(self, row: Any) -> Token | None:
        """The token in a row of `kept_tokens`; None if there is none, or these secrets do not decrypt it."""
        if row is None or row.issued_utc is None or row.expires_utc is None:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see above

        try:
            kept = base64.b64decode(row.ciphertext)
            plain = self._cipher.decrypt(kept[:NONCE_BYTES], kept[NONCE_BYTES:], self._bound_to(row.issued_utc))
        except (ValueError, InvalidTag):
            return None
        return Token(plain.decode(), row.issued_utc, row.expires_utc)

    @cached_property
    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"orderbridge token v1")
        return AESGCM(key.derive(self._secret))

    def _bound_to(self, issued: datetime) -> bytes:
        return f"{self._fingerprint} {time_text(issued)}".encode()


# ---- accounts in the database ----------------------------------------------------------------------------------------
# Only the fleet's package decrypts their secrets. Each change locks the row of delivery_fleet until its commit, so that
# changes are serialized, and raises its version.

ROWS = select(account_settings)
CHANGE = update(account_settings).where(account_settings.c.name == bindparam("mine"))
_ENABLED = select(account_settings.c.fingerprint, account_settings.c.name, account_settings.c.version).where(
    account_settings.c.enabled == ENABLED
)


def versions(connection: Connection) -> dict[str, int]:
    """The version of each account's last change, by name, including removed accounts."""
    rows = connection.execute(select(account_settings.c.name, account_settings.c.version))
    return {row.name: row.version for row in rows}


def enabled(connection: Connection) -> dict[str, str]:
    """The names of enabled accounts by fingerprint."""
    return {row.fingerprint: row.name for row in connection.execute(_ENABLED)}


def is_there(connection: Connection, name: str) -> bool:
    """Whether an account has this name and was not removed."""
    query = ROWS.where(account_settings.c.name == name, account_settings.c.sealed.is_not(None))
    return connection.execute(query).first() is not None


def hold(connection: Connection, mark: Mapping[str, int], above: int, now: datetime) -> tuple[str, ...]:
    """In an older copy, stop polling enabled accounts that changed since, until `release`."""
    version = max(lock_version(connection), above) + 1
    names = sorted(row.name for row in connection.execute(_ENABLED) if mark.get(row.name) != row.version)
    _set_enabled(connection, names, HELD, version, now)
    return tuple(names)


def held(connection: Connection) -> tuple[str, ...]:
    """The accounts that are held until `release`."""
    found = select(account_settings.c.name).where(account_settings.c.enabled == HELD).order_by(account_settings.c.name)
    return tuple(connection.execute(found).scalars())


def release(connection: Connection, now: datetime) -> tuple[str, ...]:
    """Enable the held accounts, after a person has confirmed them."""
    version = lock_version(connection) + 1
    names = held(connection)
    _set_enabled(connection, names, ENABLED, version, now)
    return names


def _set_enabled(connection: Connection, names: Sequence[str], enabled: int, version: int, now: datetime) -> None:
    values = {"enabled": enabled, "version": version, "changed_utc": now}
    write(connection, version, [], [{"mine": name, **values} for name in names])


def lock_version(connection: Connection) -> int:
    """Lock and return the version. No other session can change an account until this transaction ends."""
    found = connection.execute(select(fleet.c.accounts_version).with_for_update()).scalar()
    if found is None:  # the table was emptied by hand
        connection.execute(insert(fleet).values(id=1))
    return found or 0


def write(connection: Connection, version: int, new: Sequence[Any], changed: Sequence[Any]) -> None:
    """Add and change these rows, if any, and raise the version."""
    if not new and not changed:
        return
    if changed:
        connection.execute(CHANGE, changed)
    if new:
        connection.execute(insert(account_settings), new)
    connection.execute(update(fleet).values(accounts_version=version))
