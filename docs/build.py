"""Writes the tables, codes and pictures of the POS reference, and the alarms and metrics of the operations pages.

    .venv/bin/python docs/build.py            # writes pos-reference.md, operations.md and their Turkish twins anew

The pages are written by hand. This program replaces what stands between `<!-- made by docs/build.py: NAME -->` and
`<!-- end -->`: it reads the tables, the rules, sentences/ and, for the descriptions, words.toml.
tests/test_guide.py and tests/test_operations.py fail when a page is out of date.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from sqlalchemy import CheckConstraint, Column, Table

from orderbridge.actions import ACTIONS
from orderbridge.marketplace import documents, fields
from orderbridge.model import CONTENTS_OUTDATED, LATE, STATUS_DOUBTFUL, TOTAL_MISMATCH, Action, Stored
from orderbridge.observe.metrics import FAMILIES
from orderbridge.rules.lifecycle import ENDS, STATUS_NAMES, Statuses
from orderbridge.rules.problems import Code, Severity
from orderbridge.rules.retry import Proof, proof
from orderbridge.store import own_tables, tables
from orderbridge.store.ddl import Money, Text, Utc
from orderbridge.texts import SAME, SENTENCES, VERDICTS

HERE = Path(__file__).parent
GUIDES = {"en": HERE / "pos-guide.md", "tr": HERE / "pos-rehberi.md"}  # nothing is made in them
REFERENCES = {"en": HERE / "pos-reference.md", "tr": HERE / "pos-basvuru.md"}
OPERATIONS = {"en": HERE / "operations.md", "tr": HERE / "isletme.md"}
WORDS = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
NEVER_STORED = {"retrying", "not_permitted_ended"}  # other words for a code that is stored
STATUSES = Statuses(needs_payment=17)  # any id that is no other: the service has not told it

_MADE = re.compile(r"(<!-- made by docs/build\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADS = {
    "no_till": ("Tables that no till needs", "Hiçbir kasaya gerekmeyen tablolar"),
    "severe": ("**Severe**", "**Ağır**"),
    "warning": ("**Warnings**", "**Uyarılar**"),
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
    """A list of columns for each table; columns with the same description share a line."""
    no_till = []
    for table in contract():
        words = WORDS["tables"][table.name]
        if words.get("no_till"):
            no_till.append(f"`{table.name}`")
            continue
        yield f"\n### {table.name}\n\n{language(words['about'])}\n"
        lines: dict[str, list[tuple[str, str]]] = {}
        for column in table.columns:
            name = f"**`{column.name}`**" if column.name in words.get("POS", ()) else f"`{column.name}`"
            lines.setdefault(language(words["columns"][column.name]), []).append((_type(column, language), name))
        for about, columns in lines.items():
            parts = [
                f"{', '.join(name for _, name in same)} {kind}".strip()
                for kind, same in groupby(columns, itemgetter(0))
            ]
            yield f"- {', '.join(parts)}: {about}"
    yield f"\n### {language(_HEADS['no_till'])}\n\n{', '.join(no_till)}."


def _type(column: Column[object], language: Language) -> str:
    kind = column.type
    if isinstance(kind, Money):
        return language(WORDS["types"]["money"])
    if isinstance(kind, Utc):
        return ""  # its name ends in _utc
    length = getattr(kind, "length", None)
    if isinstance(kind, Text) or length is not None:
        return language(WORDS["types"]["text"]) + (f"({length})" if length else "")
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
    """Constraints with the same remedy share a line."""
    lines: dict[str, list[str]] = {}
    for name in constraints():
        lines.setdefault(language(WORDS["constraints"][name]), []).append(f"`{name}`")
    for about, names in lines.items():
        yield f"- {', '.join(names)}: {about}"


# ---- codes -----------------------------------------------------------------------------------------------------------


def error_codes() -> list[str]:
    """Every code that a POS can read in a row."""
    return [code for code in VERDICTS if code not in NEVER_STORED]


def make_error_codes(language: Language) -> Iterator[str]:
    for code in error_codes():
        same = [f"`{other}`" for other, plain in SAME.items() if plain == code]
        names = ", ".join([f"**`{code}`**", *same])
        yield f"- {names}: {language(WORDS['error_codes'][code])}"


def problem_codes() -> list[str]:
    """Every code that the reader of documents can write into `problem`, by its source."""
    found = re.findall(r'Unreadable\("(\w+)"\)|note\("(\w+)', _reader())
    return sorted({STATUS_DOUBTFUL, CONTENTS_OUTDATED, LATE, TOTAL_MISMATCH} | {one or other for one, other in found})


def remark_codes() -> list[str]:
    """Those that stand in `remarks` alone."""
    return sorted({*re.findall(r'remark\("(\w+)', _reader())} - {*problem_codes()})


def _reader() -> str:
    return "".join(Path(module.__file__ or "").read_text("utf-8") for module in (documents, fields))


def make_problems(language: Language) -> Iterator[str]:
    """Codes with the same remedy share a line."""
    lines: dict[str, list[str]] = {}
    for code, words in WORDS["problems"].items():
        lines.setdefault(language(words), []).append(f"`{code}`")
    for about, codes in lines.items():
        yield f"- {', '.join(codes)}: {about}"


# ---- operations ------------------------------------------------------------------------------------------------------


def make_alarms(language: Language) -> Iterator[str]:
    """The codes of each severity, cause and remedy; an ellipsis stands for a fact."""
    for severity in (Severity.SEVERE, Severity.WARNING):
        yield f"\n{language(_HEADS[severity])}\n"
        for code in Code:
            if code.kind.severity == severity:
                cause, remedy = (re.sub(r"\{\w*\}", "…", sentence) for sentence in _sentences(code, language))
                yield f"- `{code}`: {cause} → {remedy}"


def _sentences(code: Code, language: Language) -> tuple[str, str]:
    cause, remedy = (SENTENCES[f"health.{code}.{part}"][language.code] for part in ("cause", "remedy"))
    return cause, remedy


def make_metrics(_language: Language) -> Iterator[str]:
    """The metrics of each kind, with their labels; on the English page only."""
    for kind in dict.fromkeys(family.kind for family in FAMILIES):
        names = [
            f"`{family.name}`" + (f" ({', '.join(family.labels)})" if family.labels else "")
            for family in FAMILIES
            if family.kind == kind
        ]
        yield f"- {kind.capitalize()}s: {', '.join(names)}"


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
                active=STATUSES.active,
            )
            if shown is Proof.NOT_DONE:
                yield STATUSES.name(status_id), STATUSES.name(ACTIONS[action].target), action
    for status_id, ended_by in ENDS.items():
        yield STATUSES.name(status_id), "[*]", f"ended_by = {ended_by}"


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
    "constraints": make_constraints,
    "error_codes": make_error_codes,
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
