"""The distribution of accounts among replicas: fair shares, and few moves."""

from collections import Counter
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbridge_fleet.buckets import GRACE_S, Bucket, Seen, Share, bucket_of, quotas, share


@st.composite
def surveys(draw: st.DrawFn) -> Seen:
    """Some replicas hold some buckets. The other buckets were released, or their holder has vanished."""
    alive = draw(st.sets(st.sampled_from("abcdef"), min_size=1))
    gone = sorted({"x", "y", "z"} - draw(st.sets(st.sampled_from("xyz"))))
    hands = [
        Bucket(),
        *(Bucket(one, one) for one in sorted(alive)),
        *(Bucket(one) for one in (*gone, *sorted(alive))),
        *(Bucket(None, one) for one in sorted(alive)),  # just being taken
    ]
    count = draw(st.sampled_from([1, 2, 8, 64]))
    buckets = dict(enumerate(draw(st.lists(st.sampled_from(hands), min_size=count, max_size=count))))
    return Seen(buckets, frozenset(alive), dict.fromkeys([*alive, *gone], 0))


def held(seen: Seen) -> Counter[str]:
    return Counter(dict.fromkeys(seen.alive, 0)) + Counter(one.holder for one in seen.buckets.values() if one.holder)


def waited(seen: Seen) -> dict[int, float]:
    return {number: GRACE_S for number, one in seen.buckets.items() if one.holder is None}


def everybody(seen: Seen, unheld: dict[int, float]) -> dict[str, Share]:
    return {one: share(seen, one, unheld) for one in seen.alive}


def after(seen: Seen, done: dict[str, Share]) -> Seen:
    """The state after these shares were carried out. Each replica has also locked its own buckets again."""
    buckets = dict(seen.buckets)
    for number, one in seen.buckets.items():
        if one.holder is None:
            buckets[number] = Bucket(one.noted, one.noted if one.noted in seen.alive else None)
    for who, one in done.items():
        buckets |= {number: Bucket(who, who) for number in one.take}
        buckets |= dict.fromkeys(one.excess, Bucket())
    return replace(seen, buckets=buckets)


@given(surveys())
def test_shares_become_fair_and_stable(seen: Seen):
    for _ in range(3):  # their own are locked again; the excess is given; it is taken
        seen = after(seen, everybody(seen, waited(seen)))
    counted = [held(seen)[one] for one in seen.alive]
    assert sum(counted) == len(seen.buckets)
    assert max(counted) - min(counted) <= 1
    assert all(one == Share() for one in everybody(seen, waited(seen)).values())


@given(surveys())
def test_no_bucket_is_taken_from_a_holder_and_moves_are_minimal(seen: Seen):
    """A replica with its share or less keeps all; one with more releases the excess from the end, one by one."""
    done = everybody(seen, waited(seen))
    taken = [number for one in done.values() for number in one.take]
    assert len(taken) == len(set(taken))
    assert all(seen.buckets[number].holder is None for number in taken)
    mine, least = held(seen), len(seen.buckets) // len(seen.alive)
    most = least + (len(seen.buckets) % len(seen.alive) > 0)
    for who, one in done.items():
        assert len(one.excess) <= max(mine[who] - least, 0)
        assert mine[who] - len(one.excess) <= most
        assert not (one.take and one.excess)
        if len(one.excess) > 1:
            first = max(one.excess)
            seen_then = replace(seen, buckets={**seen.buckets, first: Bucket()})
            assert share(seen_then, who, {}).excess == one.excess - {first}


@pytest.mark.parametrize("bucket, seconds, taken", [
    (Bucket(None), 0.0, True), (Bucket("forgotten"), 0.0, True), (Bucket("me"), GRACE_S, False),
    (Bucket("gone"), GRACE_S - 0.1, False), (Bucket("gone"), GRACE_S, True), (Bucket("gone", "alive"), GRACE_S, False),
    (Bucket("alive"), GRACE_S - 0.1, False), (Bucket("alive"), GRACE_S, True), (Bucket(None, "alive"), GRACE_S, False),
])  # fmt: skip
def test_a_bucket_is_free_once_released_or_after_the_grace_period(bucket: Bucket, seconds: float, taken: bool):
    seen = Seen({0: bucket}, frozenset({"me", "alive"}), {"gone": 3, "alive": 1, "me": 0})
    found = share(replace(seen, alive=frozenset({"me"})), "me", {0: seconds})
    assert found.take == ({0: bucket.noted} if taken else {})


def test_the_larger_shares_go_to_the_replicas_with_most_buckets():
    assert quotas({"a": 0, "b": 30, "c": 34}, 64) == {"c": 22, "a": 21, "b": 21}
    assert quotas(dict.fromkeys("abcdef", 0), 64) == dict.fromkeys("abcd", 11) | dict.fromkeys("ef", 10)
    assert quotas({}, 64) == {}


def test_the_bucket_of_a_name_is_stable():
    names = ("kadikoy", "moda", "a", "şişli")
    assert [bucket_of(name, 64) for name in names[:3]] == [43, 50, 0xE8B7BE43 % 64]
    assert all(bucket_of(name, 8) == crc32(name.encode()) % 8 for name in names)
