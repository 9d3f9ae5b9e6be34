"""The rare states that a search has reached: a table of cells, and how many seeds must fill each.

A cell is a group and a name, such as `end` and `failed service_error poll`. `POSSIBLE` has what the rules can produce.
A search prints the empty cells first.
"""

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.plan import RESTORES

from orderbridge.model import Action, EndedBy, LastChange, Outcome
from orderbridge.rules.outbox_rows import ENDS
from orderbridge.rules.problems import Code
from orderbridge.rules.retry import MAX_RESENDS

if TYPE_CHECKING:
    from tests.sim.simulation import Sim

Cell = tuple[str, str]

# Problems that no simulation has, because their subject is not simulated.
NOT_SIMULATED = {
    # No name lookup, certificate or proxy: the line is simulated above the socket.
    *(Code.LINE_DNS, Code.LINE_TLS, Code.LINE_PROXY, Code.CLOCK_WRONG),
    # No page at an address, no alarm command, and no status file.
    *(Code.PAGE_NOT_SERVED, Code.CERTIFICATE_REFUSED, Code.CERTIFICATE_ENDS),
    *(Code.ALARM_FAILING, Code.LAST_WORD_NOT_WRITTEN, Code.LOG_NOT_READ, Code.HEALTHCHECK_TAKEN),
    # The disk has room and can be written; so can the journal.
    *(Code.NOT_DURABLE, Code.DATABASE_FULL, Code.DATABASE_READ_ONLY, Code.DATABASE_SLOW),
    *(Code.WAL_LARGE, Code.VIEW_BROKEN, Code.JOURNAL_NOT_WRITTEN, Code.ACCOUNT_UNREADABLE),
    Code.NO_RESTAURANT,  # each account has one
}
# How a row ends: state, code, known_by. First the ends without a request, then those by an answer, a status or a poll.
# The daemon sends only ids that it has read, so that missing_field and bad_url_id cannot be answered.
_ENDS = {(end.state.value, end.code or "-", "-") for end in ENDS.values()} | {
    *(("refused", code, "-") for code in ("order_unknown", "order_cancelled", "order_completed")),
    *(("refused", code, "-") for code in ("courier_not_restaurant", "account_needed", "restaurant_unknown")),
    *(("expired", code, "-") for code in ("account_missing", "not_permitted")),
    ("done", "already", "poll"),
    *(("done", "-", known_by) for known_by in ("answer", "poll", "status", "refusal")),
    *(("refused", code, "answer") for code in ("refused", "order_not_found", "food_not_found", "restaurant_not_found")),
    *(("refused", code, "poll") for code in ("refused", "order_not_found", "order_cancelled")),
    *(("failed", "service_error", known_by) for known_by in ("-", "poll", "status")),
    *(("failed", "outcome_unknown", known_by) for known_by in ("-", "poll")),
}
COMMANDS = (
    "accounts, actions retry, actions withdraw, board pair, copies, db confirm-restore, db replay, erase,"
    " quarantine retry, replay"
).split(", ")
BY_PEOPLE = {"hand": "hand", "tap": "tap", "way": "older copy put back"}
RESTARTS = {"crash": "after a crash", "stop": "after a stop", "power_lost": "after a loss of power"}

POSSIBLE: tuple[Cell, ...] = (
    *(("end", " ".join(end)) for end in sorted(_ENDS)),
    *(("attempt", outcome.value) for outcome in Outcome),
    *(("attempts of a row", str(count)) for count in range(MAX_RESENDS + 2)),
    *(("quarantine", reason) for reason in ("database_refused", "payment_key_invalid", "payment_key_missing")),
    *(("order ended by", end.value) for end in EndedBy),
    *(("last change", change.value) for change in LastChange),
    *(("problem", code.value) for code in Code if code not in NOT_SIMULATED),
    *(("restart", name) for name in RESTARTS.values()),
    ("restart", "take-over by the one that waited"),
    *(("older copy put back", way) for way in RESTORES),
    ("older copy put back", "noticed"),
    ("closure", "ended"),
    *(("hand", name) for name in COMMANDS),
    *(("tap", action.value) for action in Action),
)
# Measured: with this number of seeds of a kind, a cell stays empty by chance in one of ten million searches. A plan of
# the kind restore has one or two of the five ways, a plan of the kind power three losses or more.
# The table has for each kind and number of seeds what they must reach.
_WITHIN = Path(__file__).with_name("reached.txt").read_text()


def _within(text: str) -> dict[str, dict[int, tuple[Cell, ...]]]:
    """By kind and number of seeds: the cells of the lines that follow."""
    made: dict[str, dict[int, tuple[Cell, ...]]] = {}
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            kind, seeds = line.split()[0], int(line.split()[1])
            made.setdefault(kind, {})[seeds] = ()
        else:
            groups = [group.partition(": ") for group in line.strip().split("; ")]
            made[kind][seeds] += tuple((group, name) for group, _, names in groups for name in names.split(", "))
    return made


WITHIN = _within(_WITHIN)
# A storm has the faults of a squall and more orders, a day ten times its orders.
_squall = WITHIN["squall"]
WITHIN |= {"storm": dict(zip((50, 100, 200, 500, 1000), _squall.values(), strict=False)), "day": {20: _squall[20]}}
_LINE = re.compile(
    r" *[\d.]+ (?:log +\w+ (?P<event>[\w.]+)(?: code=(?P<code>\w+))?"
    r"|hand +(?P<hand>accounts|copies|erase|replay|\w+ [\w-]+)"
    r"|tablet +(?P<tap>\w+) tablet="
    r"|fault +older_copy way=(?P<way>\w+))"
)


def cells_of(sim: "Sim") -> Counter[Cell]:
    cells = Counter(_in_the_trace(sim.trace.lines))
    for fault, name in RESTARTS.items():
        if sim.trace.faults[fault] and sim.lives > 1:
            cells["restart", name] += 1
    with contextlib.closing(sqlite3.connect(sim.path)) as connection, contextlib.suppress(sqlite3.OperationalError):
        cells += Counter(_in_the_tables(connection))  # if a promise broke at once, there may be no tables yet
    return cells


def _in_the_trace(lines: list[str]) -> Iterator[Cell]:
    waiting = False
    for found in filter(None, map(_LINE.match, lines)):
        event, code = found["event"], found["code"]
        if event is None:
            kind = str(found.lastgroup)
            yield BY_PEOPLE[kind], found[kind]
        elif event == "problem.began":
            yield "problem", code
            if code == Code.DATABASE_RESTORED:
                yield "older copy put back", "noticed"
        elif event == "daemon.waiting":
            waiting = True
        elif event == "daemon.started" and waiting:
            waiting = False
            yield "restart", "take-over by the one that waited"
        elif event == "closure.ended":
            yield "closure", "ended"


def _in_the_tables(connection: sqlite3.Connection) -> Iterator[Cell]:
    for group, what in {
        "end": "SELECT state, error_code, known_by FROM delivery_actions WHERE finished_utc IS NOT NULL",
        "attempt": "SELECT outcome FROM delivery_action_attempts WHERE outcome IS NOT NULL",
        "attempts of a row": "SELECT attempts FROM delivery_actions",
        "quarantine": "SELECT reason FROM delivery_quarantine",
        "order ended by": "SELECT ended_by FROM delivery_orders WHERE ended_by IS NOT NULL",
        "last change": "SELECT last_change FROM delivery_orders",
    }.items():
        for row in connection.execute(what):
            yield group, " ".join(str("-" if value is None else value) for value in row)


def table(cells: Counter[Cell]) -> str:
    """Lines for a reader: the empty cells, then the reached ones with counts."""

    def lines(title: str, some: list[Cell]) -> list[str]:
        names: dict[str, list[str]] = {}
        for group, name in some:
            names.setdefault(group, []).append(name)
        return [f"{title}:\n", *(f"  {group}: {', '.join(names[group])}\n" for group in names)]

    empty = [cell for cell in POSSIBLE if not cells[cell]]
    filled = [(group, f"{name} {times}") for (group, name), times in sorted(cells.items())]
    return "".join([*(lines("empty", empty) if empty else ()), *lines("reached", filled)])


def missing(kind: str, seeds: int, cells: Counter[Cell]) -> list[str]:
    return [
        f"{group}: {name} (a {kind} of {within} reaches it)"
        for within, names in WITHIN.get(kind, {}).items()
        for group, name in names
        if seeds >= within and not cells[group, name]
    ]
