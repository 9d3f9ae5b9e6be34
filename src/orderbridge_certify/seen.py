"""The recorded facts of one scenario as plain values, which are all that the judges read.

Times are seconds since the scenario began. Orders are named A, B, C …, without keys, numbers or customers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

# What the operator is asked, where the action has another name.
ACTIONS = {
    "food_on": "activate_food",
    "food_off": "deactivate_food",
    "open": "open_restaurant",
    "close": "close_restaurant",
}
FINAL = frozenset({"done", "refused", "failed", "expired", "superseded", "withdrawn"})


class Verdict(StrEnum):
    """Of a criterion, and of a scenario."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    NOT_SEEN = "NOT SEEN"
    BY_A_PERSON = "BY A PERSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How an order stands at the end of the scenario."""

    letter: str
    visible_s: float | None = None  # since when a till can see it; None: it has not arrived
    taken_s: float | None = None  # when pos_revision left 0
    revision: int = 0
    pos_revision: int = 0
    reference: bool = False
    pos_total: Decimal | None = None
    total: Decimal | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One write into the tables that is not the daemon's."""

    what: str  # insert, update or delete
    table: str
    column: str = ""
    letter: str = ""
    value: int | None = None  # of pos_revision alone
    revision: int | None = None  # that the order had when it was written
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the outbox."""

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
    """One call that reached the platform."""

    operation: str
    letter: str = ""
    http_status: int | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the operator did, or what a person answered."""

    verb: str
    letter: str = ""
    able: bool = True  # False: the operator cannot do it
    by_person: bool = False
    holds: bool | None = None  # of a question: whether it is as it should be
    needs_person: bool = False  # an operator that is no person: this is for eyes
    # What a report may show of it where it does not hold: certify's own words, amounts and numbers.
    shown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All of it."""

    within_s: float = 10.0
    orders: tuple[Order, ...] = ()
    notes: tuple[Note, ...] = ()
    rows: tuple[Row, ...] = ()
    calls: tuple[Call, ...] = ()
    answers: tuple[Answer, ...] = ()
    marks: Mapping[str, float] = field(default_factory=dict)  # moments, and measures, that the scenario itself noted

    def order(self, letter: str) -> Order:
        """The order of that letter."""
        return next(one for one in self.orders if one.letter == letter)

    def rows_of(self, action: str, letter: str = "") -> tuple[Row, ...]:
        """The rows that ask for it, of one order if named."""
        return tuple(row for row in self.rows if row.action == action and letter in ("", row.letter))

    def calls_of(self, operation: str) -> tuple[Call, ...]:
        """The calls of it."""
        return tuple(call for call in self.calls if call.operation == operation)

    def answers_to(self, verb: str) -> tuple[Answer, ...]:
        """What came of asking for it."""
        return tuple(one for one in self.answers if one.verb == verb)


Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """A criterion's verdict, why (a key of the words `certify.why`), and the rows and calls that show it."""

    verdict: Verdict
    why: str = ""
    facts: tuple[Fact, ...] = ()


Judge = Callable[[Seen], Judged]


def fact(one: Order | Note | Row | Call) -> Fact:
    """What a report shows of it; nothing that is empty."""
    names = {
        Order: ("letter", "visible_s", "taken_s"),  # its status may be on the move: another one in each run
        Note: ("what", "table", "letter", "column", "value", "revision", "at_s"),
        Row: ("letter", "action", "state", "error_code", "preparing_time", "reason_id", "food_id", "at_s"),
        Call: ("letter", "operation", "http_status", "at_s"),
    }[type(one)]
    values = {name: getattr(one, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, "")}


def facts(*ones: Order | Note | Row | Call) -> tuple[Fact, ...]:
    """In an order that does not hang on the moments, so that the same run gives the same report."""
    return tuple(sorted((fact(one) for one in ones), key=_without_times))


def _without_times(shown: Fact) -> str:
    return repr([(name, value) for name, value in shown.items() if not name.endswith("_s")])


def worst(verdicts: list[Verdict]) -> Verdict:
    """Of a scenario, by its criteria: a FAIL before all else, then what a person answered, then what was not seen."""
    for verdict in (Verdict.FAIL, Verdict.BY_A_PERSON, Verdict.PASS):
        if verdict in verdicts:
            return verdict
    return Verdict.NOT_SEEN
