"""/metrics: the numbers in the text form that Prometheus reads.

They are copied on the event loop and written in a thread, once for all who ask at the same time: a thousand scrapes cost
what one costs.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orderbridge.clock import SystemClock
from orderbridge.observe.metrics import FAMILIES, Family, MetricKind, Metrics, Reading

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
FRESH_S = 1.0  # who asks again within it is shown the same

_Copy = Sequence[tuple[Family, Sequence[Reading]]]


class Exposition:
    """Writes the numbers that `measured` returns, and those of the process itself (memory, processor, files)."""

    def __init__(self, measured: Callable[[], Metrics]) -> None:
        self._measured = measured
        self._clock = SystemClock()
        self._collector = _Copied()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)
        ProcessCollector(registry=self._registry)
        self._one = asyncio.Lock()
        self._made: tuple[float, bytes] | None = None

    async def text(self) -> bytes:
        """All series."""
        async with self._one:
            now = self._clock.monotonic()
            if self._made is None or now - self._made[0] >= FRESH_S:
                metrics = self._measured()
                self._collector.copy = [(family, metrics.readings(family)) for family in FAMILIES]
                self._made = (now, await asyncio.to_thread(generate_latest, self._registry))
            return self._made[1]


class _Copied(Collector):
    """What prometheus-client asks for the series."""

    copy: _Copy = ()

    def collect(self) -> Iterable[Metric]:
        for family, readings in self.copy:
            yield _metric(family, readings)


def _metric(family: Family, readings: Sequence[Reading]) -> Metric:
    labels = list(family.labels)
    if family.kind == MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=labels)
        for one in readings:
            sums = accumulate(one.counts)
            bounds = [*(format(bound, "g") for bound in family.bounds), "+Inf"]
            histogram.add_metric(
                one.labels, [(bound, float(sum_)) for bound, sum_ in zip(bounds, sums, strict=True)], one.value
            )
        return histogram
    kind = CounterMetricFamily if family.kind == MetricKind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=labels)
    for one in readings:
        metric.add_metric(one.labels, one.value)
    return metric
