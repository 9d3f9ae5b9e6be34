"""The soak's definition of growth."""

import os

import pytest
from benchmarks.soak import Sample, grown, sample_of


def samples(memory: float = 0.0, descriptors: float = 0.0, threads: float = 0.0, warm_up: float = 0.0) -> list[Sample]:
    """An hour in samples; each thing grows by so much in its second half, and memory by `warm_up` in the first."""
    half = [Sample(minute, 80 + warm_up * minute / 30, 20, 5) for minute in range(30)]
    return half + [
        Sample(
            30 + minute,
            80 + warm_up + memory * minute / 30,
            20 + round(descriptors * minute / 30),
            5 + round(threads * minute / 30),
        )
        for minute in range(31)
    ]


@pytest.mark.parametrize(
    "changes, found",
    [
        pytest.param({}, set(), id="flat"),
        pytest.param({"warm_up": 40.0}, set(), id="what fills at the start"),
        pytest.param({"memory": 10.0}, {"memory_mb"}, id="memory"),
        pytest.param({"memory": 1.0}, set(), id="a little memory"),
        pytest.param({"memory": -20.0}, set(), id="memory given back"),
        pytest.param({"descriptors": 6.0}, {"descriptors"}, id="descriptors"),
        pytest.param({"threads": 2.0}, {"threads"}, id="threads"),
    ],
)
def test_what_grows_after_the_warm_up_is_found(changes: dict[str, float], found: set[str]):
    assert grown(samples(**changes)).keys() == found


def test_one_descriptor_more_for_a_moment_is_no_growth():
    flat = samples()
    flat[-1] = Sample(60, 80, 21, 5)
    assert grown(flat) == {}


def test_a_process_is_measured_from_outside():
    found = sample_of(os.getpid())
    assert found.memory_mb > 1
    assert found.descriptors >= 3
    assert found.threads >= 1
