"""The board's devices: a device is paired by a code of eight digits, and then known by a cookie of 256 bits.

Rules of this file:
- Only the SHA-256 of code and cookie is stored. Eight digits could be found from their hash, so a code expires after
  ten minutes, its first use or MOST_TRIES wrong tries, and only one code is valid at a time.
- Each address has five tries for a code (`Guesses`). So other computers in the network cannot void it with a few
  requests, and all together guess one in 100,000 codes.
- Names of devices are unique, because the outbox rows of a device have its name.
"""

import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, select, update

from orderbridge.store.own_tables import devices, pairing

DIGITS = 8
CODE_LIFE = timedelta(minutes=10)
TRIES, MOST_TRIES = 5, 1000  # per code: by one address, and by all
COOKIE_BYTES = 32
LONGEST_NAME = 40
SEEN_EVERY = timedelta(minutes=1)  # the shortest time between two writes of a device's last use
ONLY = 1  # the row of delivery_board_pairing
LOOK, LOOK_CUSTOMERS, ACT = "look", "look_customers", "act"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that was paired and not revoked."""

    id: str
    name: str
    role: str
    seen: datetime

    @property
    def may_act(self) -> bool:
        """Whether the device may write actions."""
        return self.role == ACT

    @property
    def sees_customers(self) -> bool:
        """Whether the device may show a customer's phone number and address."""
        return self.role != LOOK

    def is_due(self, now: datetime) -> bool:
        """Whether to write the device's last use again."""
        return self.seen < now - SEEN_EVERY


class Guesses:
    """The tries of each address for the current code."""

    def __init__(self) -> None:
        self._code: str | None = None  # its hash
        self._counts: Counter[str] = Counter()

    def is_too_many(self, code: str, address: str) -> bool:
        """Count a try of this address for the code with this hash, and return whether it is one too many."""
        if code != self._code:
            self._code, self._counts = code, Counter()
        self._counts[address] += 1
        return self._counts[address] > TRIES


def new_code(connection: Connection, role: str, now: datetime) -> str:
    """Make a code that pairs one device. The previous code becomes invalid."""
    code = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}"
    connection.execute(delete(pairing))
    row = {"code_hash": _hash(code), "role": role, "expires_utc": now + CODE_LIFE, "tries_left": MOST_TRIES}
    connection.execute(insert(pairing).values(id=ONLY, **row))
    return code


def wrong_tries(connection: Connection) -> int | None:
    """The wrong tries for the last code; None if there is none, or it has paired a tablet."""
    left = connection.execute(select(pairing.c.tries_left)).scalar()
    return None if left is None else MOST_TRIES - left


def _is_good(now: datetime) -> list[ColumnElement[bool]]:
    return [
        pairing.c.id == ONLY,
        pairing.c.tries_left > 0,
        pairing.c.expires_utc > now,
        pairing.c.expires_utc <= now + CODE_LIFE,  # else the clock was set back: it would be valid for too long
    ]


def good_code(connection: Connection, now: datetime) -> str | None:
    """The hash of the code that is valid now."""
    return connection.execute(select(pairing.c.code_hash).where(*_is_good(now))).scalar()


def pair(connection: Connection, code: str, name: str, now: datetime) -> str | None:
    """Pair a device and return its cookie; None if the code is wrong, used, too old or tried too often.

    A try is counted, in the database, before the code is compared. So concurrent tries share the limit MOST_TRIES.
    """
    counted = update(pairing).where(*_is_good(now))
    if not connection.execute(counted.values(tries_left=pairing.c.tries_left - 1)).rowcount:
        return None
    row = connection.execute(select(pairing.c.code_hash, pairing.c.role)).one()
    if not secrets.compare_digest(row.code_hash, _hash(code)):
        return None
    connection.execute(delete(pairing))
    cookie = secrets.token_urlsafe(COOKIE_BYTES)
    connection.execute(
        insert(devices).values(
            id=secrets.token_hex(4),
            name=_free(connection, name),
            role=row.role,
            cookie_hash=_hash(cookie),
            paired_utc=now,
            seen_utc=now,
        )
    )
    return cookie


def _free(connection: Connection, name: str) -> str:
    taken = set(connection.execute(select(devices.c.name).where(devices.c.revoked_utc.is_(None))).scalars())
    name, number = name[:LONGEST_NAME], 2
    wanted = name
    while wanted in taken:
        wanted, number = f"{name} {number}", number + 1
    return wanted


def known(connection: Connection, cookie: str) -> Device | None:
    """The device with this cookie."""
    query = select(devices.c.id, devices.c.name, devices.c.role, devices.c.seen_utc).where(
        devices.c.cookie_hash == _hash(cookie), devices.c.revoked_utc.is_(None)
    )
    row = connection.execute(query).first()
    return None if row is None else Device(*row)


def note_seen(connection: Connection, device: str, now: datetime) -> None:
    """Write that the device is in use now."""
    late = devices.c.seen_utc < now - SEEN_EVERY
    connection.execute(update(devices).where(devices.c.id == device, late).values(seen_utc=now))


_PAIRED = select(devices.c.id).where(
    devices.c.id.in_(bindparam("ids", expanding=True)), devices.c.revoked_utc.is_(None)
)


def paired(connection: Connection, ids: Iterable[str]) -> set[str]:
    """Those of these devices that are not revoked."""
    return set(connection.execute(_PAIRED, {"ids": list(ids)}).scalars())


def listed(connection: Connection) -> list[dict[str, Any]]:
    """All devices that are not revoked, without their secrets."""
    shown = (devices.c.id, devices.c.name, devices.c.role, devices.c.paired_utc, devices.c.seen_utc)
    query = select(*shown).where(devices.c.revoked_utc.is_(None)).order_by(devices.c.paired_utc)
    return [dict(row) for row in connection.execute(query).mappings()]


def revoke(connection: Connection, device: str, now: datetime) -> bool:
    """Revoke a device by its id or its name: its cookie becomes invalid."""
    named = (devices.c.id == device) | (devices.c.name == device)
    gone = update(devices).where(named, devices.c.revoked_utc.is_(None)).values(revoked_utc=now)
    return bool(connection.execute(gone).rowcount)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
