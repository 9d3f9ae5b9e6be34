"""The recorded facts of one scenario as plain values, which are all that the judges read.

Times are seconds since the scenario began. Orders are named A, B, C …, without keys, numbers or customers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

# Verbs of the operator whose action has another name.
ACTIONS = {
    "food_on": "activate_food",
    "food_off": "deactivate_food",
    "open": "open_restaurant",
    "close": "close_restaurant",
}
FINAL = frozenset({"done", "refused", "failed", "expired", "superseded", "withdrawn"})


class Verdict(StrEnum):
    """The verdict on a criterion or a scenario."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    NOT_SEEN = "NOT SEEN"
    BY_A_PERSON = "BY A PERSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The state of an order at the end of the scenario."""

    letter: str
    visible_s: float | None = None  # when a till can first see it; None: it has not arrived
    taken_s: float | None = None  # when pos_revision became more than 0
    revision: int = 0
    pos_revision: int = 0
    reference: bool = False
    pos_total: Decimal | None = None
    total: Decimal | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A write to the tables by another program than the daemon."""

    what: str  # insert, update or delete
    table: str
    column: str = ""
    letter: str = ""
    value: int | None = None  # only for pos_revision
    revision: int | None = None  # the order's revision at that time
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the outbox."""

    action: str
    letter: str = ""
    state: str = ""
    error_code: str | None = None
    preparing_time: int | None = None
    reason_id: int | None = None
    food_id: int | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that reached the simulated marketplace."""

    operation: str
    letter: str = ""
    http_status: int | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a request to the operator, or a person's answer."""

    verb: str
    letter: str = ""
    able: bool = True  # False: the operator cannot do it
    by_person: bool = False
    holds: bool | None = None  # for a question: whether the output is right
    needs_person: bool = False  # only a person could have answered, and the operator is none
    # What a report may show of a wrong answer: only certify's own words, amounts and numbers.
    shown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All recorded facts of a scenario."""

    within_s: float = 10.0
    orders: tuple[Order, ...] = ()
    notes: tuple[Note, ...] = ()
    rows: tuple[Row, ...] = ()
    calls: tuple[Call, ...] = ()
    answers: tuple[Answer, ...] = ()
    marks: Mapping[str, float] = field(default_factory=dict)  # times and values that the play recorded

    def order(self, letter: str) -> Order:
        """The order with this letter."""
        return next(one for one in self.orders if one.letter == letter)

    def rows_of(self, action: str, letter: str = "") -> tuple[Row, ...]:
        """The rows of this action, only of one order if its letter is given."""
        return tuple(row for row in self.rows if row.action == action and letter in ("", row.letter))

    def calls_of(self, operation: str) -> tuple[Call, ...]:
        """The calls of this operation."""
        return tuple(call for call in self.calls if call.operation == operation)

    def answers_to(self, verb: str) -> tuple[Answer, ...]:
        """The answers to requests with this verb."""
        return tuple(one for one in self.answers if one.verb == verb)


Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict of a criterion, its reason (a key of `certify.why`), and the facts that show it."""

    verdict: Verdict
    why: str = ""
    facts: tuple[Fact, ...] = ()


Judge = Callable[[Seen], Judged]


def fact(one: Order | Note | Row | Call) -> Fact:
    """The fields that a report shows, without empty ones."""
    names = {
        Order: ("letter", "visible_s", "taken_s"),  # without the status, which may differ in each run
        Note: ("what", "table", "letter", "column", "value", "revision", "at_s"),
        Row: ("letter", "action", "state", "error_code", "preparing_time", "reason_id", "food_id", "at_s"),
        Call: ("letter", "operation", "http_status", "at_s"),
    }[type(one)]
    values = {name: getattr(one, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, "")}


def facts(*ones: Order | Note | Row | Call) -> tuple[Fact, ...]:
    """The facts, sorted independently of times, so that equal runs give equal reports."""
    return tuple(sorted((fact(one) for one in ones), key=_without_times))


def _without_times(shown: Fact) -> str:
    return repr([(name, value) for name, value in shown.items() if not name.endswith("_s")])


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict of a scenario from those of its criteria: FAIL first, then a person's, then "not seen"."""
    for verdict in (Verdict.FAIL, Verdict.BY_A_PERSON, Verdict.PASS):
        if verdict in verdicts:
            return verdict
    return Verdict.NOT_SEEN
