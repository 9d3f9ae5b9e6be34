"""Defines and counts all metrics; web.routes exports them to Prometheus.

prometheus_client is not used for counting: one of its counters takes about a kilobyte, and ten thousand accounts have
120,000. A daemon without a web server does not load it at all.

Rules of this file:

- Each name, kind and set of labels is defined once, below. A label has few values that are known in advance, such as a
  state or a configured account; never text from the marketplace or a customer.
- Every series exists from the start with 0, because an alarm needs to see the increase from 0.
- Counting is an addition on the event loop.
- The numbers belong to the process and survive a reload.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from orderbridge.model import UNFINISHED, Action, ActionState, Outcome

Labels = tuple[str, ...]

PART = "part"  # a successful request for one status of a list that is too large
NOT_TAKEN_IN = "not_taken_in"  # the list arrived but could not be stored
POLL_RESULTS = (*(one.value for one in Outcome), PART, NOT_TAKEN_IN)
DELIVERIES = ("new", "changed", "unchanged", "withheld", "foreign", "quarantined", "not_stored")
ACKNOWLEDGEMENTS = ("acknowledged", "dropped")
COUNTED = (*DELIVERIES, *ACKNOWLEDGEMENTS)  # of each poll
VERDICTS = tuple(one.value for one in ActionState if one not in UNFINISHED)
UNREADABLE = "unreadable"  # for an invalid action
ACTIONS = (*(one.value for one in Action), UNREADABLE)
OPEN_ROWS = ("waiting", "unresolved")
IN_FLIGHT = ("poll", "action")
WORK = ("read", "write")

SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)


class MetricKind(StrEnum):
    """The kinds of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """The series of one name. `values`: all values of each label; None for accounts and values that are known later."""

    name: str
    kind: MetricKind
    help: str
    labels: Labels = ()
    values: tuple[Sequence[str] | None, ...] = ()
    bounds: tuple[float, ...] = ()


FAMILIES: list[Family] = []  # in the order in which they are shown


def _family(
    kind: MetricKind, name: str, text: str, bounds: tuple[float, ...] = (), /, **labels: Sequence[str] | None
) -> Family:
    FAMILIES.append(Family(name, kind, text, tuple(labels), tuple(labels.values()), bounds))
    return FAMILIES[-1]


_counter = partial(_family, MetricKind.COUNTER)
_gauge = partial(_family, MetricKind.GAUGE)
_histogram = partial(_family, MetricKind.HISTOGRAM)

POLLS = _counter(
    "orderbridge_polls_total", "Requests for orders, by how they ended.", account=None, result=POLL_RESULTS
)
LAST_GOOD_POLL = _gauge(
    "orderbridge_poll_last_success_timestamp_seconds", "Time of the last good poll; 0 before the first.", account=None
)
POLL_SECONDS = _histogram(
    "orderbridge_poll_duration_seconds", "From a poll's turn until its orders are stored and acknowledged.", LONG_S
)
POLL_LATE_SECONDS = _histogram(
    "orderbridge_poll_lateness_seconds", "By how much polls began after their time.", SHORT_S
)
DELIVERED = _counter("orderbridge_deliveries_total", "Delivered orders, by what they were.", result=DELIVERIES)
ACKNOWLEDGED = _counter(
    "orderbridge_acknowledgements_total",
    "Acknowledgements. What is dropped is delivered again by the next poll.",
    result=ACKNOWLEDGEMENTS,
)
ACTIONS_ENDED = _counter(
    "orderbridge_actions_total", "Outbox rows that ended, by their verdict.", action=ACTIONS, verdict=VERDICTS
)
ACTIONS_OPEN = _gauge("orderbridge_actions_open", "Outbox rows without a verdict.", standing=OPEN_ROWS)
ACTION_WAIT_SECONDS = _histogram(
    "orderbridge_action_wait_seconds", "From a till's insert until the first request for it leaves.", SHORT_S
)
REQUESTS = _counter(
    "orderbridge_requests_total",
    "Requests to the marketplace of any kind, by how they ended; rate_limited is 429.",
    outcome=tuple(Outcome),
)
LOGINS = _counter("orderbridge_logins_total", "Logins, by how they ended.", outcome=tuple(Outcome))
TOKEN_EXPIRES = _gauge(
    "orderbridge_token_expiry_timestamp_seconds",
    "Until when the account's token is valid; 0 without one.",
    account=None,
)
REQUESTS_UNDER_WAY = _gauge("orderbridge_requests_in_flight", "Polls and actions that are under way.", kind=IN_FLIGHT)
PROBLEMS = _gauge(
    "orderbridge_problems", "Open problems, as `orderbridge status` shows them.", code=None, severity=None
)
DATABASE_SECONDS = _histogram(
    "orderbridge_database_duration_seconds", "Units of work on the database.", SHORT_S, work=WORK
)
DATABASE_FAILED = _counter("orderbridge_database_failures_total", "Units of work that the database ended.", work=WORK)
WRITES_FENCED = _counter(
    "orderbridge_writes_fenced_total",
    "Units of work that were refused because another replica has the accounts by now.",
)
WORKING = _gauge(
    "orderbridge_working", "1: this process works on the database; 0: it starts, or waits for another one."
)
READY = _gauge("orderbridge_ready", "1: /readyz says yes.")
BUILD = _gauge("orderbridge_build_info", "Always 1; its labels say what runs.", version=None, python=None)

OF_ACCOUNTS = tuple(family for family in FAMILIES if family.labels[:1] == ("account",))


class Histogram:
    """Counts of values up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last: above all bounds
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class Reading:
    """One series at one moment. For a histogram, `counts` are by bound, and `value` is the sum."""

    labels: Labels
    value: float
    counts: tuple[int, ...] = ()


class Metrics:
    """The metrics of one process, used on its event loop only."""

    def __init__(self, *, codes: Iterable[str] = (), severities: Iterable[str] = (), build: Labels = ("", "")) -> None:
        """`codes` and `severities`: those of problems. `build`: the versions of the program and of Python."""
        self._values: dict[str, dict[Labels, float]] = {family.name: {} for family in FAMILIES}
        self.fenced_at: datetime | None = None  # time of the last refused unit of work
        self.good_polls: dict[str, float] = {}  # by account: monotonic time of the last good poll
        self._histograms: dict[str, dict[Labels, Histogram]] = {
            family.name: {labels: Histogram(family.bounds) for labels in _known(family)}
            for family in FAMILIES
            if family.kind == MetricKind.HISTOGRAM
        }
        for family in FAMILIES:
            if family.kind != MetricKind.HISTOGRAM and None not in family.values:
                self._values[family.name] = dict.fromkeys(_known(family), 0.0)
        severities = tuple(severities)
        self._values[PROBLEMS.name] = {(code, severity): 0.0 for code in codes for severity in severities}
        self._values[BUILD.name] = {build: 1.0}

    def know(self, accounts: Collection[str]) -> None:
        """Keep series for exactly these accounts. Those that stay keep their values."""
        for family in OF_ACCOUNTS:
            before = self._values[family.name]
            series = (labels for name in accounts for labels in _known(family, name))
            self._values[family.name] = {labels: before.get(labels, 0.0) for labels in series}

    def count(self, family: Family, *labels: str, by: float = 1) -> None:
        """Add to a counter. Unknown labels are ignored, for example of an account that was just removed."""
        series = self._values[family.name]
        if labels in series:
            series[labels] += by

    def set(self, family: Family, *labels: str, to: float) -> None:
        """Set a gauge."""
        series = self._values[family.name]
        if labels in series:
            series[labels] = to

    def observe(self, family: Family, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        self._histograms[family.name][labels].observe(value)

    def clear(self, family: Family) -> None:
        """Set all gauges of this name to 0."""
        self._values[family.name] = dict.fromkeys(self._values[family.name], 0.0)

    def readings(self, family: Family) -> list[Reading]:
        """A copy of the values, for another thread."""
        if family.kind == MetricKind.HISTOGRAM:
            found = self._histograms[family.name]
            return [Reading(labels, one.total, tuple(one.counts)) for labels, one in found.items()]
        return [Reading(labels, value) for labels, value in self._values[family.name].items()]

    # ---- events ------------------------------------------------------------------------------------------------------

    def polled(self, account: str, result: str, seconds: float, counts: Mapping[str, int]) -> None:
        """Count a finished poll. `counts`: its orders by kind (COUNTED)."""
        self.count(POLLS, account, result)
        self.observe(POLL_SECONDS, seconds)
        for family, names in ((DELIVERED, DELIVERIES), (ACKNOWLEDGED, ACKNOWLEDGEMENTS)):
            for name in names:
                self.count(family, name, by=counts[name])

    def polled_well(self, account: str, now: datetime, monotonic: float) -> None:
        """Note a good poll: a whole list was stored."""
        self.set(LAST_GOOD_POLL, account, to=now.timestamp())
        self.good_polls[account] = monotonic

    def worked(self, work: str, seconds: float, failed: bool) -> None:
        """Count a unit of work on the database."""
        self.observe(DATABASE_SECONDS, seconds, work)
        if failed:
            self.count(DATABASE_FAILED, work)

    def fenced(self, now: datetime) -> None:
        """Note that the fence refused a unit of work. The daemon ends, and the next one of this process reports it."""
        self.count(WRITES_FENCED)
        self.fenced_at = now

    def fenced_lately(self) -> tuple[datetime | None, int]:
        """The time of the last refusal by the fence, and the number of them in this process."""
        return self.fenced_at, int(self._values[WRITES_FENCED.name][()])


def _known(family: Family, account: str = "") -> Iterator[Labels]:
    """All combinations of a family's labels."""
    found: list[Labels] = [()]
    for values in family.values:
        found = [(*labels, str(value)) for labels in found for value in ((account,) if values is None else values)]
    yield from found
