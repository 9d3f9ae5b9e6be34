"""Which replica works for which accounts: accounts lie in buckets, and each bucket is one replica's.

Every replica decides for itself, from what it sees: who is alive and who holds what. Two that see the same divide the
free buckets without meeting. Two that do not are kept apart by the server's locks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

GRACE_S = 5.0  # the holder of a bucket that was not given back may be on its way back to a server that was restarted


@dataclass(frozen=True, slots=True)
class Bucket:
    """One share of the accounts. `noted`: the replica whose it is by the table; `holder`: the living one with its lock."""

    noted: str | None = None
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """All buckets at one moment. `alive`: the replicas that have a session; `known`: the epoch of each of the table."""

    buckets: Mapping[int, Bucket]
    alive: frozenset[str]
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """What a replica does next. `take`: by whom each is noted now, None for one that was given back."""

    take: Mapping[int, str | None] = field(default_factory=dict)
    excess: frozenset[int] = frozenset()


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of an account's name. `buckets`: how many there are, a power of two."""
    return crc32(name.encode()) & (buckets - 1)


def quotas(held: Mapping[str, int], buckets: int) -> dict[str, int]:
    """How many each may have, of those that are alive: who has most gets what does not divide, so that little moves."""
    order = sorted(held, key=lambda replica: (-held[replica], replica))
    least, more = divmod(buckets, len(order)) if order else (0, 0)
    return {replica: least + (place < more) for place, replica in enumerate(order)}


def share(seen: Seen, me: str, unheld: Mapping[int, float]) -> Share:
    """What is to be taken and what given back. `unheld`: of each bucket without a holder, for how many seconds."""
    held = {replica: _held(seen, replica) for replica in seen.alive | {me}}
    quota = quotas({replica: len(mine) for replica, mine in held.items()}, len(seen.buckets))
    mine, free = held[me], [number for number in sorted(seen.buckets) if _is_free(seen, number, unheld)]
    for replica, most in quota.items():  # in the same order everywhere
        wanted = max(most - len(held[replica]), 0)
        if replica == me:
            noted = {number: seen.buckets[number].noted for number in free[:wanted]}
            # Our own is no news: its lock is taken again with the session.
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
