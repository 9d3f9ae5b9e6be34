"""The driver of a scenario: places orders, waits, asks the operator, and records times."""

import shlex
import string
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from orderbridge.clock import SystemClock
from orderbridge.store.database import Database
from orderbridge.texts import say
from orderbridge_certify import notes
from orderbridge_certify.seen import ACTIONS, FINAL, Answer, Fact, Order, Seen
from orderbridge_certify.setup import Setup, Started
from orderbridge_sandbox.documents import item_of, random_uuid
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.scenery import KADIKOY

LONGEST_S = 30.0
CANNOT = 64  # the command's exit code for an unknown verb


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a request to the operator: whether it could be done, and the output."""

    able: bool
    output: str = ""
    yes: bool | None = None  # a person's answer to a question


class Operator:
    """Operates the till. This base class does nothing, so criteria that need an operator are not judged."""

    by_person = False
    person: "Person | None" = None  # asked about what only a person can see

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - for subclasses
        """Do what the verb says. `about`: the same as a sentence or a question."""
        return Done(able=False)


class Command(Operator):
    """Runs COMMAND VERB ARGUMENTS, without a shell."""

    def __init__(self, command: str, echo: Callable[[str], None], person: "Person | None" = None) -> None:
        self._command = shlex.split(command)
        self._echo = echo
        self.person = person

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - as above
        """Run the command. Its error output goes to the terminal, not to the report."""
        try:
            ran = subprocess.run(  # noqa: S603 - the command that the technician named
                [*self._command, verb, *arguments], capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._echo(f"{verb}: {type(error).__name__}")
            return Done(able=False)
        if ran.returncode not in (0, CANNOT):
            self._echo(f"{verb}: {ran.returncode} {ran.stderr.strip()[-300:]}")
        return Done(able=ran.returncode != CANNOT, output=ran.stdout)


class Person(Operator):
    """A person at the terminal, who presses Enter when it is done, answers y or n to a question, or s to skip."""

    by_person = True

    def __init__(self, ask: Callable[[str, bool], str]) -> None:
        """`ask(sentence, is_question)` returns "done", "yes", "no" or "skip"."""
        self._ask = ask
        self.person = self

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - as above
        """Ask the person, and wait for the answer."""
        answer = self._ask(about, verb in QUESTIONS)
        return Done(able=answer != "skip", yes={"yes": True, "no": False}.get(answer))


QUESTIONS = frozenset({"ticket", "collect"})


POLL_S = 0.05
BETWEEN_S = 0.3  # between two runs of the command
PATIENCE_S = 30.0  # for the daemon's work, such as an order that arrives, or a row that ends
BY_ITSELF_S = 5.0  # how long the till may take to act by itself, before the operator is asked
SHOWN = 60  # characters of a long note in the report
NUMBERS = 60  # order numbers of one scenario
ATTEMPT = 10_000  # added to the order numbers at each repetition, because an interrupted attempt has used some
LETTERS = [*string.ascii_uppercase, *(f"A{letter}" for letter in string.ascii_uppercase)]
FOODS = ((1003, 1), (1009, 2))  # (food, quantity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings of all scenarios of a certificate."""

    seed: int = 1
    within_s: float = 10.0
    pace: float = 1.0
    reads_locked: bool = False

    def scaled(self, seconds: float) -> float:
        """Return a waiting time at this pace."""
        return seconds * min(self.pace, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The environment that all scenarios of a certificate share."""

    setup: Setup
    database: Database
    operator: Operator
    terms: Terms
    till: Started | None  # None: certify did not start the till


class Driver:
    """The driver of one scenario, with its orders and the answers about them."""

    def __init__(self, bench: Bench, *, name: str, place: int, attempt: int) -> None:
        self.setup, self.database, self.operator = bench.setup, bench.database, bench.operator
        self.terms, self.till = bench.terms, bench.till
        self.world = self.setup.world
        self.clock = SystemClock()
        self._random = Random(f"{self.terms.seed} {name} {attempt}")  # noqa: S311 - reproducible on purpose
        self._number = 1001 + NUMBERS * place + ATTEMPT * attempt
        self._answers: list[Answer] = []
        self._numbers: dict[str, int] = {}
        self._keys: dict[str, str] = {}
        self._visible: dict[str, float] = {}
        self.marks: dict[str, float] = {"reads_locked": float(self.terms.reads_locked)}
        self.within_s = self.terms.within_s  # the time limit to take an order over
        self.reads_all_notes = False  # whether to judge the notes of earlier scenarios, too
        self._began = self.clock.monotonic()
        self._window = self.database.read_now(lambda connection: notes.open_window(connection, self.world))

    # ---- orders ------------------------------------------------------------------------------------------------------

    def order(self, **changes: Any) -> str:
        """Place an order and return its letter: cash, own courier, not scheduled, two lines, with these changes."""
        letter: str = LETTERS[len(self._keys)]
        key = random_uuid(self._random)
        number = self._number + len(self._keys)
        self._keys[letter], self._numbers[letter] = key, number
        self._window = replace(self._window, letters={**self._window.letters, key: letter})
        document = {**self._document(), **changes, "id": number, "payment_key": key}
        self.world.place_order(restaurant_id=KADIKOY, document=document)
        return letter

    def word(self) -> str:
        """A word for the note of an order, by which its papers are recognized."""
        return f"certify-{self._random.getrandbits(32):08x}"

    def _document(self) -> Mapping[str, Any]:
        foods = [
            item_of(random_uuid(self._random), self.world.foods["kadikoy", key], quantity) for key, quantity in FOODS
        ]
        return {
            "shipping_method": "delivery",
            "courier_type": "restaurant",
            "payment_method": "Nakit",
            "note": "",
            "scheduled_date": "",
            "discount": "0",
            "courier_fee": 0,
            "order_tip": 0,
            "total": sum(food["total"] for food in foods),
            "foods": foods,
        }

    def key(self, letter: str) -> str:
        """The payment_key of an order."""
        return self._keys[letter]

    # ---- observing and waiting ---------------------------------------------------------------------------------------

    def observe(self) -> Seen:
        """All recorded facts at this moment."""
        self.setup.check()
        orders, notes_, rows = self.database.read_now(lambda connection: notes.read(connection, self._window))
        return Seen(
            within_s=self.within_s,
            orders=tuple(self._as_seen(order) for order in orders),
            notes=self.database.read_now(notes.all_notes) if self.reads_all_notes else notes_,
            rows=rows,
            calls=notes.calls(self.world, self._window),
            answers=tuple(self._answers),
            marks=dict(self.marks),
        )

    def _as_seen(self, order: Order) -> Order:
        """The order with the time at which it was first seen: its commit may be later than `received_utc`."""
        if order.visible_s is None:
            return order
        return replace(order, visible_s=self._visible.setdefault(order.letter, self.now_s()))

    def until(self, condition: Callable[[Seen], bool], seconds: float) -> bool:
        """Wait until the condition holds. False if it does not within this time."""
        over = self.clock.monotonic() + seconds
        while not condition(self.observe()):
            if self.clock.monotonic() >= over:
                return False
            self.pause(POLL_S)
        return True

    def pause(self, seconds: float) -> None:
        """Wait for this number of seconds."""
        threading.Event().wait(seconds)

    def wait(self, seconds: float) -> None:
        """Wait for this number of seconds, scaled by the pace of this certificate."""
        self.pause(self.terms.scaled(seconds))

    def until_visible(self) -> bool:
        """Wait until the daemon has stored every order of the scenario."""
        return self.until(lambda seen: all(one.visible_s is not None for one in seen.orders), PATIENCE_S)

    def until_taken(self) -> bool:
        """Wait until every order is taken over, or the till's time is over."""
        self.until_visible()
        return self.until(lambda seen: all(one.taken_s is not None for one in seen.orders), self.within_s + 1)

    def until_ended(self) -> bool:
        """Wait until every outbox row has ended."""
        return self.until(lambda seen: all(row.state in FINAL for row in seen.rows), PATIENCE_S)

    def until_noted(self, seconds: float = 0.0) -> bool:
        """Wait until the till has confirmed every revision, or its time is over."""
        longest = seconds or self.within_s
        return self.until(lambda seen: all(one.pos_revision == one.revision for one in seen.orders), longest)

    def until_changed(self, letter: str, change: Callable[[], object], limit_s: float) -> None:
        """Change an order, record when the till could see it (mark `changed`), and wait for its reaction."""
        # A change between a list and its acknowledgement would be acknowledged unseen, so no poll may be in progress.
        self.world.wait_for(lambda: self.world.orders[self.key(letter)].acknowledged, timeout=PATIENCE_S)
        before = self.observe().order(letter).revision
        change()
        if self.until(lambda seen: seen.order(letter).revision > before, PATIENCE_S):
            self.marks |= {"changed": self.now_s(), "changed_limit": self.terms.scaled(limit_s)}
            self.until_noted(self.terms.scaled(limit_s))

    def now_s(self) -> float:
        """Seconds since the scenario began."""
        return round(self.clock.monotonic() - self._began, 2)

    # ---- the till's operator -----------------------------------------------------------------------------------------

    def accept(self, letter: str, minutes: int = 25) -> None:
        """Ask the operator to accept, unless the till does so by itself, and wait until the row has ended."""
        if not self.accepts_by_itself(letter):
            self.act("accept", letter, str(minutes))
        self.until_ended()

    def accepts_by_itself(self, letter: str) -> bool:
        """Whether the till accepts by itself within a few seconds."""
        return self.until(lambda seen: bool(seen.rows_of("accept", letter)), self.terms.scaled(BY_ITSELF_S))

    def act(self, verb: str, letter: str, *arguments: str) -> bool:
        """Ask for an action on that order, and wait until its row has ended."""
        return self.begin(verb, letter, *arguments) and self.until_ended()

    def begin(self, verb: str, letter: str, *arguments: str) -> bool:
        """Ask for an action on that order, and wait until its row is inserted. False if the operator cannot do it."""
        action = ACTIONS.get(verb, verb)
        rows = len(self.observe().rows_of(action, letter))
        is_able = self.do(verb, letter, *arguments)
        if is_able:
            self.until(lambda seen: len(seen.rows_of(action, letter)) > rows, self.within_s)
        return is_able

    def do(self, verb: str, letter: str, *given: str, words: str = "") -> bool:
        """Ask the operator, and record the answer."""
        arguments = (self.key(letter), *given) if letter else given
        about = say(f"certify.ask.{words or verb}", number=self._numbers.get(letter, ""), value=arguments[-1])
        done = self.operator.do(verb, *arguments, about=about)
        self._answers.append(Answer(verb=verb, letter=letter, able=done.able, by_person=self.operator.by_person))
        return done.able

    def ask(
        self,
        verb: str,
        letter: str,
        question: str,
        right: Callable[[str], bool] | None,
        *,
        value: str = "",
        shown: Callable[[str], Fact] = lambda _: {},
    ) -> None:
        """Ask what the till printed for the kitchen, or what it collects.

        `right` judges the output of a command; None if only a person can judge. `shown`: what a report shows of a wrong
        answer.
        """
        about = say(f"certify.ask.{question}", number=self._numbers[letter], value=value)
        asked = self.operator.person if right is None else self.operator
        if asked is None:
            self._answers.append(Answer(verb=verb, letter=letter, able=False, needs_person=True))
            return
        done = asked.do(verb, self.key(letter), about=about)
        over = self.clock.monotonic() + self.within_s
        # The paper may be printed after the takeover: a command is run again until it is, a person waits for it.
        while done.able and right and not (asked.by_person or right(done.output)) and self.clock.monotonic() < over:
            self.pause(BETWEEN_S)
            done = asked.do(verb, self.key(letter), about=about)
        holds = done.yes if asked.by_person or right is None else right(done.output)
        answer = Answer(verb=verb, letter=letter, able=done.able, by_person=asked.by_person, shown=shown(done.output))
        self._answers.append(replace(answer, holds=holds if done.able else None))

    def reads(self, letter: str, question: str, wanted: str) -> None:
        """Ask whether the ticket has these words, whatever its line breaks."""
        self.ask(
            "ticket",
            letter,
            question,
            lambda output: _without_spaces(wanted) in _without_spaces(output),
            value=wanted,
            shown=lambda _: {"not_found": wanted[:SHOWN]},
        )

    def papers(self, letter: str) -> str:
        """All papers for the kitchen so far, from the command. Empty for a person, who is asked at the end."""
        return "" if self.operator.by_person else self.operator.do("ticket", self.key(letter), about="").output.strip()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Reset the simulated marketplace."""
        self.setup.line(Line.GOOD)
        with self.world.lock:
            self.world.faults.clear()
            self.world.open_restaurant(KADIKOY)
            self.world.inactive_foods.clear()


def _without_spaces(text: str) -> str:
    return "".join(text.split())
