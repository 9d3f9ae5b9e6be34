"""Plays the scenarios one after another, and writes the report."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, make_url

from orderbridge.clock import SystemClock
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.errors import ConfigError
from orderbridge.observe import logs
from orderbridge.store import schema
from orderbridge.store.database import Database, open_database
from orderbridge.texts import say
from orderbridge_certify import judging, notes, report
from orderbridge_certify.driver import Bench, Driver, Operator, Terms
from orderbridge_certify.report import Result
from orderbridge_certify.scenarios import FIRST, SCENARIOS, Scenario
from orderbridge_certify.seen import Judged, Verdict, worst
from orderbridge_certify.setup import Started, running

FIRST_SIGN_S = 300.0
BY_A_PERSON_S = 3600.0  # a person may have to go to the till first
SIGN = "first_sign"
LOG = "daemon.log"
STATE = "certify.json"
OURS = "delivery_"


class State:
    """The file with terms, starts and results, written after each scenario: an interruption loses at most one."""

    def __init__(self, folder: Path, terms: dict[str, Any]) -> None:
        """Continue from the file, or begin. Raises ConfigError if the file has other terms."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / STATE
        self.is_new = not self._file.exists()
        self._kept: dict[str, Any] = {"terms": terms, "begun": {}, "results": {}}
        if not self.is_new:
            self._kept = json.loads(self._file.read_text("utf-8"))
            if other := sorted(name for name in terms if self._kept["terms"].get(name) != terms[name]):
                raise ConfigError("certify.other_terms", folder=folder, names=", ".join(other))

    @property
    def results(self) -> dict[str, Result]:
        """The results by the name of the scenario."""
        found: dict[str, Result] = self._kept["results"]
        return found

    def begin(self, name: str) -> int:
        """Note the start of a scenario, and return how often it was started before."""
        before: int = self._kept["begun"].get(name, 0)
        self._kept["begun"][name] = before + 1
        self.write()
        return before

    def end(self, name: str, result: Result) -> None:
        """Store the result of a scenario."""
        self.results[name] = result
        self.write()

    def write(self) -> None:
        """Write the file atomically."""
        fresh = self._file.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as out:
            json.dump(self._kept, out, ensure_ascii=False, indent=1)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of the command."""

    till: str
    folder: Path
    url: str
    terms: Terms
    only: Sequence[str] = ()
    operator: Operator
    echo: Callable[[str], None]
    start: str = ""  # the command that starts the till; empty: a person starts it

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios to play, in the order of the table."""
        return tuple(one for one in SCENARIOS if not self.only or one.name in self.only)

    @property
    def kept(self) -> dict[str, object]:
        """The terms, which must be equal when a certificate is continued. The report names them."""
        return {"till": self.till, "database": make_url(self.url).get_backend_name(), **asdict(self.terms)}


def certify(wanted: Wanted) -> bool:
    """Play the scenarios without a result, and write the report. True if none failed."""
    state = State(wanted.folder, wanted.kept)
    missing = [one for one in wanted.scenarios if one.name not in state.results]
    if missing:
        with (wanted.folder / LOG).open("a", encoding="utf-8") as log, _database(wanted.url, state) as database:
            logs.configure(level="warning", format="json", stream=log)
            _play(wanted, state, missing, database)
    made = _reported(wanted, state)
    counts = ", ".join(f"{name} {number}" for name, number in made["counts"].items() if number)
    wanted.echo(say("certify.ends", verdict=made["verdict"], counts=counts, folder=wanted.folder))
    if made["verdict"] == Verdict.FAIL:
        wanted.echo(say("certify.after_a_fail"))
    return bool(made["verdict"] == Verdict.PASS)


def break_off(wanted: Wanted) -> None:
    """Write the report of a run that was broken off: the other scenarios are NOT SEEN, and so is the whole."""
    _reported(wanted, State(wanted.folder, wanted.kept))


def _reported(wanted: Wanted, state: State) -> report.Report:
    found = {one.name: state.results.get(one.name) or _unplayed(one, "not_played") for one in wanted.scenarios}
    made = report.made(wanted.kept, found, is_whole=state.results.keys() >= found.keys())
    report.write(made, wanted.folder)
    return made


@contextmanager
def _database(url: str, state: State) -> Iterator[Database]:
    """The till's database with our tables, and with triggers that record others' writes.

    Raises ConfigError and StoreError.
    """
    open_database(url, accept_unsafe_durability=True, inline=True).close()  # raises an error with a remedy
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
    till = Started(wanted.start, wanted.folder) if wanted.start else None
    with running(wanted.url, seed=terms.seed, pace=terms.pace) as around, closing(till) if till else nullcontext():
        bench = Bench(setup=around, database=database, operator=wanted.operator, terms=terms, till=till)
        _await_first_sign(wanted, state, bench)
        count = len(wanted.scenarios)
        for number, scenario in enumerate(missing, start=count - len(missing) + 1):
            first = state.results.get(FIRST)
            if first is not None and first["verdict"] == Verdict.FAIL:
                result = _unplayed(scenario, "not_taken")
            else:
                result = _played(state, scenario, bench)
            state.end(scenario.name, result)
            verdict, sentence = result["verdict"], say(f"certify.scenarios.{scenario.name}")
            wanted.echo(say("certify.scenario", number=number, all=count, verdict=verdict, sentence=sentence))


def _await_first_sign(wanted: Wanted, state: State, bench: Bench) -> None:
    """Print what the till needs, and place an order. Wait until the till writes something."""
    where = sqlite_file(wanted.url) or without_password(wanted.url)
    known = "certify.continues" if state.results else "certify.start_your_till"
    wanted.echo(say("certify.starts_your_till" if bench.till else known, where=where))
    if sqlite_file(wanted.url) is None and not state.results:
        wanted.echo(say("certify.rights", where=where))
    if bench.till:
        bench.till.start()
    driver = Driver(bench, name=SIGN, place=len(SCENARIOS), attempt=state.begin(SIGN))
    driver.order()
    longest = BY_A_PERSON_S if wanted.operator.by_person else FIRST_SIGN_S
    if not driver.until(lambda seen: bool(seen.notes or seen.rows), wanted.terms.scaled(longest)):
        wanted.echo(say("certify.no_sign", where=where))


def _played(state: State, scenario: Scenario, bench: Bench) -> Result:
    attempt, began = state.begin(scenario.name), SystemClock().monotonic()
    driver = Driver(bench, name=scenario.name, place=SCENARIOS.index(scenario), attempt=attempt)
    try:
        scenario.play(driver)
        seen = driver.observe()
    finally:
        driver.clear()
    return _result(scenario, SystemClock().monotonic() - began, scenario.judged(seen))


def _unplayed(scenario: Scenario, why: str) -> Result:
    return _result(scenario, 0.0, dict.fromkeys(scenario.names, judging.not_seen(why)))


def _result(scenario: Scenario, took_s: float, judged: Mapping[str, Judged]) -> Result:
    criteria = [
        {"name": name, "verdict": str(one.verdict), "why": one.why, "facts": list(one.facts)}
        for name, one in judged.items()
    ]
    verdict = worst([one.verdict for one in judged.values()])
    return {"name": scenario.name, "verdict": str(verdict), "took_s": round(took_s, 2), "criteria": criteria}
