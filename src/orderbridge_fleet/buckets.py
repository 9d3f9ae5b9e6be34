"""Distributes buckets of accounts among replicas.

Each replica decides for itself, by the living replicas and their buckets. Replicas that see the same state divide the
free buckets without conflict; otherwise the server's locks keep them apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

GRACE_S = 5.0  # the holder of an unreleased bucket may be reconnecting to a restarted server


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket. `noted`: its replica in the table; `holder`: the living replica with its lock."""

    noted: str | None = None
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The state at one moment. `alive`: replicas with a session; `known`: the epochs in the table."""

    buckets: Mapping[int, Bucket]
    alive: frozenset[str]
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """What a replica does next. `take`: buckets with their noted replica, or None if it was released."""

    take: Mapping[int, str | None] = field(default_factory=dict)
    excess: frozenset[int] = frozenset()


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of an account's name. `buckets`: their number, a power of two."""
    return crc32(name.encode()) & (buckets - 1)


def quotas(held: Mapping[str, int], buckets: int) -> dict[str, int]:
    """The number of buckets of each living replica. The largest holders get the remainder, so that few buckets move."""
    order = sorted(held, key=lambda replica: (-held[replica], replica))
    least, more = divmod(buckets, len(order)) if order else (0, 0)
    return {replica: least + (place < more) for place, replica in enumerate(order)}


def share(seen: Seen, me: str, unheld: Mapping[int, float]) -> Share:
    """The buckets to take and to release. `unheld`: seconds without a holder, by bucket."""
    held = {replica: _held(seen, replica) for replica in seen.alive | {me}}
    quota = quotas({replica: len(mine) for replica, mine in held.items()}, len(seen.buckets))
    mine, free = held[me], [number for number in sorted(seen.buckets) if _is_free(seen, number, unheld)]
    for replica, most in quota.items():  # in the same order everywhere
        wanted = max(most - len(held[replica]), 0)
        if replica == me:
            noted = {number: seen.buckets[number].noted for number in free[:wanted]}
            # Without our own ones: their locks are taken again with the session.
            return Share({number: by for number, by in noted.items() if by != me}, frozenset(mine[most:]))
        free = free[wanted:]
    return Share()


def _held(seen: Seen, replica: str) -> list[int]:
    return sorted(number for number, one in seen.buckets.items() if one.holder == replica)


def _is_free(seen: Seen, number: int, unheld: Mapping[int, float]) -> bool:
    one = seen.buckets[number]
    if one.holder is not None:
        return False
    return one.noted is None or one.noted not in seen.known or unheld.get(number, 0.0) >= GRACE_S
