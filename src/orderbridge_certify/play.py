"""Plays the scenarios one after the other, keeps each result, and writes the report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, make_url

from orderbridge.clock import SystemClock
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.errors import ConfigError
from orderbridge.observe import logs
from orderbridge.store import schema
from orderbridge.store.database import Database, open_database
from orderbridge.texts import say, spoken
from orderbridge_certify import judging, notes, report
from orderbridge_certify.folder import Played, State
from orderbridge_certify.hands import Hands
from orderbridge_certify.house import House, house
from orderbridge_certify.scenarios import FIRST, SCENARIOS, Scenario
from orderbridge_certify.seen import Judged, Verdict, worst
from orderbridge_certify.stage import Stage, Terms
from orderbridge_certify.started import Started

FIRST_SIGN_S = 300.0
BY_A_PERSON_S = 3600.0  # somebody may have to go and find the till
SIGN = "first_sign"
LOG = "daemon.log"
OURS = "delivery_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command asks for."""

    till: str
    folder: Path
    url: str
    terms: Terms
    only: Sequence[str] = ()
    hands: Hands
    tell: Callable[[str], None]
    start: str = ""
    """The command that starts the till; empty: somebody does."""

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Those to play, in the order of the table."""
        return tuple(one for one in SCENARIOS if not self.only or one.name in self.only)

    @property
    def kept(self) -> dict[str, object]:
        """What must be the same when it goes on, and what the report names."""
        terms = self.terms
        return {
            "till": self.till,
            "database": make_url(self.url).get_backend_name(),
            "seed": terms.seed,
            "within_s": terms.within_s,
            "pace": terms.pace,
            "reads_locked": terms.reads_locked,
        }


def certify(wanted: Wanted) -> bool:
    """Play what has not been played, and write the report. True: nothing failed."""
    state = State(wanted.folder, wanted.kept)
    missing = [one for one in wanted.scenarios if one.name not in state.results]
    if missing:
        with (wanted.folder / LOG).open("a", encoding="utf-8") as log, _database(wanted.url, state) as database:
            logs.configure(level="warning", format="json", stream=log)
            _play(wanted, state, missing, database)
    results = {one.name: state.results[one.name] for one in wanted.scenarios}
    made = report.made(wanted.kept, results, spoken())
    report.write(made, wanted.folder, spoken())
    wanted.tell(say("certify.ends", verdict=made["verdict"], counts=_counted(made), folder=wanted.folder))
    if made["verdict"] == Verdict.FAIL:
        wanted.tell(say("certify.after_a_fail"))
    return bool(made["verdict"] == Verdict.PASS)


def _counted(made: report.Report) -> str:
    return ", ".join(f"{name} {number}" for name, number in made["counts"].items() if number)


@contextmanager
def _database(url: str, state: State) -> Iterator[Database]:
    """The till's database with our tables, and notes of what others write there. Raises ConfigError, StoreError."""
    open_database(url, accept_unsafe_durability=True, inline=True).close()  # what is wrong with it is told in words
    database = Database(url, accept_unsafe_durability=True, inline=True)
    notes.mark(database.engine)
    try:
        kept = database.read_now(notes.are_kept)
        if (state.is_new or not kept) and (there := database.read_now(_tables)):
            raise ConfigError("certify.not_empty", url=without_password(url), tables=", ".join(there[:3]))
        if not kept:
            database.write_now(schema.upgrade)
            database.write_now(notes.keep)
        state.write()
        yield database
    finally:
        database.close()


def _tables(connection: Connection) -> list[str]:
    return sorted(name for name in inspect(connection).get_table_names() if name.startswith(OURS))


def _play(wanted: Wanted, state: State, missing: list[Scenario], database: Database) -> None:
    terms = wanted.terms
    with house(wanted.url, seed=terms.seed, pace=terms.pace) as around, _till(wanted) as till:
        _await_first_sign(wanted, state, database, around, till)
        for number, scenario in enumerate(missing, start=1):
            first = state.results.get(FIRST)
            if first is not None and first["verdict"] == Verdict.FAIL:
                result = _result(scenario, 0.0, dict.fromkeys(scenario.criteria, judging.not_seen("not_taken")))
            else:
                result = _played(wanted, state, scenario, database, around, till)
            state.end(scenario.name, result)
            verdict, sentence = result["verdict"], say(f"certify.scenarios.{scenario.name}")
            wanted.tell(say("certify.scenario", number=number, all=len(missing), verdict=verdict, sentence=sentence))


@contextmanager
def _till(wanted: Wanted) -> Iterator[Started | None]:
    """What `--start` starts, until the end of the block."""
    if not wanted.start:
        yield None
        return
    till = Started(wanted.start, wanted.folder)
    try:
        yield till
    finally:
        till.end()


def _await_first_sign(wanted: Wanted, state: State, database: Database, around: House, till: Started | None) -> None:
    """Say what the till needs, and wait until it writes something: an order is there to be taken over."""
    where = sqlite_file(wanted.url) or without_password(wanted.url)
    wanted.tell(say("certify.starts_your_till" if till else "certify.start_your_till", where=where))
    if till:
        till.start()
    elif sqlite_file(wanted.url) is None:
        wanted.tell(say("certify.rights", where=where))
    attempt = state.begin(SIGN)
    stage = Stage(around, database, wanted.hands, wanted.terms, till, name=SIGN, place=len(SCENARIOS), attempt=attempt)
    stage.order()
    longest = BY_A_PERSON_S if wanted.hands.by_person else FIRST_SIGN_S
    if not stage.until(lambda seen: bool(seen.notes or seen.rows), wanted.terms.scaled(longest)):
        wanted.tell(say("certify.no_sign", where=where))


def _played(
    wanted: Wanted, state: State, scenario: Scenario, database: Database, around: House, till: Started | None
) -> Played:
    place, attempt = SCENARIOS.index(scenario), state.begin(scenario.name)
    began = SystemClock().monotonic()
    stage = Stage(around, database, wanted.hands, wanted.terms, till, name=scenario.name, place=place, attempt=attempt)
    try:
        scenario.play(stage)
        seen = stage.look()
    finally:
        stage.clear()
    judged = {name: judge(seen) for name, judge in scenario.criteria.items()}
    return _result(scenario, SystemClock().monotonic() - began, judged)


def _result(scenario: Scenario, took_s: float, judged: Mapping[str, Judged]) -> Played:
    criteria = [
        {"name": name, "verdict": str(one.verdict), "why": one.why, "facts": list(one.facts)}
        for name, one in judged.items()
    ]
    verdict = worst([one.verdict for one in judged.values()])
    return {"name": scenario.name, "verdict": str(verdict), "took_s": round(took_s, 2), "criteria": criteria}
