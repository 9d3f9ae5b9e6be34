"""The routes /livez, /readyz and /metrics; extensions add their own. None of these reads a body or writes anything.

A request is served only if its Host is a known name or an address. This prevents DNS rebinding: a foreign page can make
its own name point to 127.0.0.1, but its requests then have that name as Host. Where the board is served, the address
must be this machine's own or configured, too.

For /metrics the values are copied on the event loop and formatted in a thread, once for all requests within a second.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from ipaddress import ip_address
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from orderbridge.clock import SystemClock
from orderbridge.observe.liveness import ALIVE
from orderbridge.observe.metrics import FAMILIES, Family, MetricKind, Metrics, Reading
from orderbridge.texts import say
from orderbridge.web.listening import Watched

UNWELL = 503
LOCAL = "localhost"
FRESH_S = 1.0  # scrapes within this time get the same answer
PROBES = frozenset({"/livez", "/readyz", "/metrics"})  # they show no orders and change nothing


def application(
    watched: Watched, names: Callable[[], Collection[str]], more: Sequence[BaseRoute], *, is_strict: bool
) -> ASGIApp:
    """The ASGI application. `names`: the permitted Hosts, beside localhost. `more`: the routes of extensions.

    `is_strict`: an address, too, must be this machine's own or one of the names.
    """
    exposition = Exposition(watched.measured)

    async def livez(_: Request) -> Response:
        hung = watched.hung()
        return PlainTextResponse(f"{ALIVE}\n") if hung is None else PlainTextResponse(f"hung: {hung}\n", UNWELL)

    async def readyz(_: Request) -> Response:
        now = watched.readiness()
        shown = {
            "ready": now.is_ready,
            "working": now.is_working,
            "database": now.database_answers,
            "polled": now.is_polled,
            "problems": now.severe,  # codes only, because no order's key is shown here
        }
        return JSONResponse(shown, 200 if now.is_ready else UNWELL)

    async def metrics(_: Request) -> Response:
        return Response(await exposition.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    routes = [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics), *more]
    inside = Starlette(routes=routes)
    inside.router.redirect_slashes = False  # it would redirect to the Host of the request

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse requests with a foreign Host. A probe without a Host is answered: it comes from no browser."""
        host = Headers(scope=scope).get("host")
        is_probe = host is None and scope["path"] in PROBES
        asked_at = (scope.get("server") or ("",))[0] if is_strict and not is_probe else None
        foreign = None
        if not is_known(host, names(), asked_at=asked_at):
            foreign = PlainTextResponse(say("web.foreign_host") + "\n", 400)
        await (foreign or inside)(scope, receive, send)

    return door


def is_known(host: str | None, names: Collection[str], *, asked_at: str | None = None) -> bool:
    """Whether the Host of a request (None: it has none) is localhost, one of `names`, or an address.

    `asked_at`: the address that received the request. If given, it and loopback are the only permitted addresses that
    are not in `names`.
    """
    if host is None:
        return asked_at is None
    name = _name_of(host).lower().removesuffix(".")
    if name == LOCAL or name in names:
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return asked_at is None or address.is_loopback or str(address) in {asked_at, *names}


def _name_of(host: str) -> str:
    """The Host without its port."""
    if host.startswith("["):
        return host.partition("]")[0][1:]
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdigit() or not port) and ":" not in name else host


class Exposition(Collector):
    """Formats the metrics that `measured` returns, and those of the process itself (memory, processor, files)."""

    def __init__(self, measured: Callable[[], Metrics]) -> None:
        self._measured = measured
        self._clock = SystemClock()
        self._copy: Sequence[tuple[Family, Sequence[Reading]]] = ()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._one = asyncio.Lock()
        self._made: tuple[float, bytes] | None = None

    async def text(self) -> bytes:
        """All series in Prometheus's text format."""
        async with self._one:
            now = self._clock.monotonic()
            if self._made is None or now - self._made[0] >= FRESH_S:
                metrics = self._measured()
                self._copy = [(family, metrics.readings(family)) for family in FAMILIES]
                self._made = (now, await asyncio.to_thread(generate_latest, self._registry))
            return self._made[1]

    def collect(self) -> Iterable[Metric]:
        """The series, for prometheus-client."""
        return [_metric(family, readings) for family, readings in self._copy]


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
