"""Writes what the tables and the rules say into the POS reference, and the alarms and metrics into operations.

    .venv/bin/python docs/build.py            # writes pos-reference.md, operations.md and their Turkish twins anew

The pages are written by hand; between `<!-- made by docs/build.py: NAME -->` and `<!-- end -->` stands what is made here.
The tables and constraints come from store/tables.py, the pictures from the rules themselves, which are asked what they
make of each case, the codes from sentences/ and the reader of documents; words.toml says in two languages what each means.
tests/test_guide.py fails when a page says something else.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import CheckConstraint, Column, Table

from orderbridge.actions import ACTIONS, ORDER_ACTIONS
from orderbridge.marketplace import fields, schema
from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome, Stored, Verdict
from orderbridge.observe.metrics import FAMILIES
from orderbridge.order_problems import CONTENTS_OUTDATED, LATE, STATUS_DOUBTFUL, TOTAL_MISMATCH
from orderbridge.rules.lifecycle import Already, Refusal, may_send
from orderbridge.rules.outbox import Directory, View, unsent_end
from orderbridge.rules.problems import Code, Severity
from orderbridge.rules.retry import MOST_RESENDS, Proof, RetryPolicy, decide, is_uncertain, proof
from orderbridge.rules.statuses import ENDS, STATUS_NAMES, Statuses
from orderbridge.store import own_tables, tables
from orderbridge.store.columns import Money, Text, Utc
from orderbridge.texts import SAME, SENTENCES, VERDICTS

HERE = Path(__file__).parent
GUIDES = {"en": HERE / "pos-guide.md", "tr": HERE / "pos-rehberi.md"}  # nothing is made in them
REFERENCES = {"en": HERE / "pos-reference.md", "tr": HERE / "pos-basvuru.md"}
OPERATIONS = {"en": HERE / "operations.md", "tr": HERE / "isletme.md"}
WORDS = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
NEVER_STORED = {"retrying", "not_permitted_ended"}  # other words for a code that is stored
STATUSES = Statuses(needs_payment=17)  # any id that is no other: the service has not told it
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

_MADE = re.compile(r"(<!-- made by docs/build\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADS = {
    "columns": ("| column | type | |\n|---|---|---|", "| sütun | tür | |\n|---|---|---|"),
    "constraints": (
        "| the error names | put right |\n|---|---|",
        "| hata mesajındaki ad | düzeltilecek şey |\n|---|---|",
    ),
    "error_codes": (
        "| `error_code` | what to do |\n|---|---|",
        "| `error_code` | ne yapmalı |\n|---|---|",
    ),
    "not_refused": (
        "| the row | its `error_code` |\n|---|---|",
        "| satır | `error_code` |\n|---|---|",
    ),
    "problems": ("| code | what to do |\n|---|---|", "| kod | ne yapmalı |\n|---|---|"),
    "alarms": ("| code | what is wrong | what to do |\n|---|---|---|", "| kod | sorun | yapılacak |\n|---|---|---|"),
    "metrics": ("| metric | kind | labels |\n|---|---|---|", "| ölçüm | tür | etiketler |\n|---|---|---|"),
    "no_till": ("Tables that no till needs", "Hiçbir kasaya gerekmeyen tablolar"),
    "severe": ("severe", "ağır"),
    "warning": ("warning", "uyarı"),
}

Arrow = tuple[str, str, str]  # from, to, the key of its words or an action


class Language:
    """One of the two, and the words in it."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._index = ("en", "tr").index(code)

    def __call__(self, pair: list[str] | tuple[str, str]) -> str:
        return pair[self._index]


# ---- tables ----------------------------------------------------------------------------------------------------------


def contract() -> list[Table]:
    """The tables of the contract, in the order of the reference."""
    known = dict(own_tables.metadata.tables)
    return [known[name] for name in WORDS["tables"]]


def make_tables(language: Language) -> Iterator[str]:
    for table in contract():
        said = WORDS["tables"][table.name]
        if said.get("no_till"):
            continue
        yield f"\n### {table.name}\n\n{language(said['about'])}\n\n{language(_HEADS['columns'])}"
        for column in table.columns:
            name = f"**`{column.name}`**" if column.name in said.get("POS", ()) else f"`{column.name}`"
            yield f"| {name} | {_type(column, language)} | {language(said['columns'][column.name])} |"
    yield f"\n### {language(_HEADS['no_till'])}\n"
    for table in contract():
        if WORDS["tables"][table.name].get("no_till"):
            yield f"- `{table.name}`: {language(WORDS['tables'][table.name]['about'])}"


def _type(column: Column[object], language: Language) -> str:
    kind = column.type
    if isinstance(kind, Money):
        return language(WORDS["types"]["money"])
    if isinstance(kind, Utc):
        return language(WORDS["types"]["time"])
    length = getattr(kind, "length", None)
    if isinstance(kind, Text) or length is not None:
        return language(WORDS["types"]["text"]) + (f" {length}" if length else "")
    return language(WORDS["types"]["integer"])


def constraints() -> list[str]:
    """The names that a POS can meet in an error, without the table's name, which goes before each."""
    found = [
        str(constraint.name).removeprefix(f"{table.name}_")
        for table in (tables.actions, tables.orders)
        for constraint in sorted(table.constraints, key=lambda one: one._creation_order)  # noqa: SLF001 - as written
        if isinstance(constraint, CheckConstraint)
    ]
    return [*dict.fromkeys(found), "request_id"]


def make_constraints(language: Language) -> Iterator[str]:
    yield language(_HEADS["constraints"])
    for name in constraints():
        yield f"| `{name}` | {language(WORDS['constraints'][name])} |"


# ---- codes -----------------------------------------------------------------------------------------------------------


def error_codes() -> list[str]:
    """Every code that a POS can read in a row."""
    return [code for code in VERDICTS if code not in NEVER_STORED]


def make_error_codes(language: Language) -> Iterator[str]:
    yield language(_HEADS["error_codes"])
    for code in error_codes():
        same = [f"`{other}`" for other, plain in SAME.items() if plain == code]
        names = ", ".join([f"**`{code}`**", *same])
        yield f"| {names} | {language(WORDS['error_codes'][code])} |"


def make_not_refused(language: Language) -> Iterator[str]:
    """What no database refuses at its INSERT."""
    yield language(_HEADS["not_refused"])
    for code, said in WORDS["not_refused"].items():
        yield f"| {language(said)} | `{code}` |"


def problem_codes() -> list[str]:
    """Every code that the reader of documents can write into `problem`, by its source."""
    found = re.findall(r'Unreadable\("(\w+)"\)|note\("(\w+)', _reader())
    return sorted({STATUS_DOUBTFUL, CONTENTS_OUTDATED, LATE, TOTAL_MISMATCH} | {one or other for one, other in found})


def remark_codes() -> list[str]:
    """Those that stand in `remarks` alone."""
    return sorted({*re.findall(r'remark\("(\w+)', _reader())} - {*problem_codes()})


def _reader() -> str:
    return "".join(Path(module.__file__ or "").read_text("utf-8") for module in (schema, fields))


def make_problems(language: Language) -> Iterator[str]:
    yield language(_HEADS["problems"])
    for code, said in WORDS["problems"].items():
        yield f"| `{code}` | {language(said)} |"


# ---- operations ------------------------------------------------------------------------------------------------------


def make_alarms(language: Language) -> Iterator[str]:
    """Every code with its sentences, the severe ones first; a fact in them is an ellipsis."""
    yield language(_HEADS["alarms"])
    for code in sorted(Code, key=lambda one: one.kind.severity != Severity.SEVERE):
        cause, remedy = (re.sub(r"\{\w*\}", "…", said) for said in _sentences(code, language))
        yield f"| `{code}`, {language(_HEADS[code.kind.severity])} | {cause} | {remedy} |"


def _sentences(code: Code, language: Language) -> tuple[str, str]:
    return tuple(SENTENCES[f"health.{code}.{part}"][language.code] for part in ("cause", "remedy"))  # type: ignore[return-value]


def make_metrics(language: Language) -> Iterator[str]:
    yield language(_HEADS["metrics"])
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} |"


# ---- pictures --------------------------------------------------------------------------------------------------------


def _stored(status_id: int | None) -> Stored:
    return Stored("", "", status_id, status_id, 1, None, None, None, None, None)


def order_arrows() -> Iterator[Arrow]:
    """From where to where each action takes an order: from where the rules say that it is not done yet."""
    ids = [*STATUS_NAMES, STATUSES.needs_payment]
    yield "[*]", STATUSES.name(next(iter(STATUS_NAMES))), "new"
    for action in (Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL):
        for status_id in ids:
            shown = proof(
                action,
                (),
                _stored(status_id),
                status_id,
                other_end=False,
                statuses=STATUSES,
            )
            if shown is Proof.NOT_DONE:
                yield STATUSES.name(status_id), STATUSES.name(ACTIONS[action].target), action
    for status_id, ended_by in ENDS.items():
        yield STATUSES.name(status_id), "[*]", f"ended_by = {ended_by}"
    for status_id in ids:
        if status_id in STATUSES.active:
            yield STATUSES.name(status_id), "[*]", "silence"


def action_arrows() -> Iterator[Arrow]:
    """Each state of an outbox row and what brings it to the next, as the rules decide it."""
    yield "[*]", ActionState.PENDING, "insert"
    yield ActionState.PENDING, ActionState.SENDING, "claim"
    yield from _unsent_arrows()
    for outcome in Outcome:
        for action in Action:
            yield ActionState.SENDING, _after(action, [Attempt(outcome)]), str(outcome)
    for outcome in (Outcome.SERVICE_FAILED, Outcome.UNKNOWN):
        for action in Action:
            after = _after(action, [Attempt(outcome)] * (MOST_RESENDS + 1))
            if after != ActionState.SENDING:
                yield ActionState.SENDING, after, "exhausted"
    yield ActionState.FAILED, ActionState.PENDING, "retry"


def _after(action: Action, history: list[Attempt]) -> ActionState:
    decision = decide(action, history, now=NOW, policy=RetryPolicy((2, 10, 60), 30, 0), retry_at=NOW)
    if isinstance(decision, Verdict):
        return decision.state
    return ActionState.SENDING if is_uncertain(history) else ActionState.PENDING


def _unsent_arrows() -> Iterator[Arrow]:
    """What ends a row that waits, and one whose outcome is unknown, without a request."""
    said = {Refusal: (ActionState.REFUSED, "unsent_refused"), Already: (ActionState.DONE, "already")}
    for action in sorted(ORDER_ACTIONS):
        for status_id in (*STATUS_NAMES, None):
            verdict = may_send(action, None if status_id is None else _stored(status_id))
            if verdict is not None:
                yield ActionState.PENDING, *said[type(verdict)]
    for state in (ActionState.PENDING, ActionState.SENDING):
        old = NOW - timedelta(days=1)
        cases = [
            [_row(1, Action.CANCEL, state, withdraw=True)],
            [_row(1, Action.CANCEL, state, created=old)],
            [_row(1, Action.ACCEPT, state), _row(2, Action.CANCEL, ActionState.PENDING)],
        ]
        for rows in cases:
            for number, row in enumerate(rows, start=1):
                if (end := unsent_end(row, rows[number:], _view())) is not None:
                    yield row.state, end.state, end.code or ""


def _row(
    row_id: int, action: Action, state: ActionState, *, withdraw: bool = False, created: datetime = NOW
) -> OutboxRow:
    minutes = 25 if action == Action.ACCEPT else None
    reason = 1 if action == Action.CANCEL else None
    tried = state == ActionState.SENDING
    return OutboxRow(
        row_id, action, state, "key", None, None, None, minutes, reason, None, withdraw, created, None, None, 0, tried
    )


def _view() -> View:
    directory = Directory(accounts=("a",), default="a", by_restaurant={}, complete=True)
    return View(NOW, directory, accept_valid=timedelta(minutes=10), valid=timedelta(hours=2))


def make_picture(arrows: Callable[[], Iterator[Arrow]], language: Language) -> Iterator[str]:
    """A state picture, one arrow for each pair of states with all that leads from one to the other."""
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for start, end, key in arrows():
        words = WORDS["arrows"].get(key)
        labels.setdefault((start, end), {})[language(words) if words else str(key)] = None
    yield "```mermaid\nstateDiagram-v2"
    for (start, end), said in labels.items():
        yield f"    {start} --> {end} : {' / '.join(said)}"
    yield "```"


# ---- the pages -------------------------------------------------------------------------------------------------------

MAKERS: dict[str, Callable[[Language], Iterator[str]]] = {
    "order_picture": lambda language: make_picture(order_arrows, language),
    "action_picture": lambda language: make_picture(action_arrows, language),
    "constraints": make_constraints,
    "error_codes": make_error_codes,
    "not_refused": make_not_refused,
    "problems": make_problems,
    "tables": make_tables,
}
OPERATIONS_MAKERS: dict[str, Callable[[Language], Iterator[str]]] = {"alarms": make_alarms, "metrics": make_metrics}


def built(text: str, code: str) -> str:
    """A page with everything between its marks made anew."""
    language = Language(code)
    return _MADE.sub(
        lambda part: part[1] + "\n".join((MAKERS | OPERATIONS_MAKERS)[part[2]](language)) + "\n" + part[3], text
    )


if __name__ == "__main__":
    for language_code, path in [*REFERENCES.items(), *OPERATIONS.items()]:
        path.write_text(built(path.read_text("utf-8"), language_code), "utf-8")
