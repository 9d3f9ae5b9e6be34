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
CANNOT = 64  # with this the command says that it does not know the verb


@dataclass(frozen=True, slots=True)
class Done:
    """The result: whether it could be done, and the output."""

    able: bool
    output: str = ""
    yes: bool | None = None  # a person's answer to a question


class Operator:
    """Works the till. The base class does nothing: what needs an operator is not seen."""

    by_person = False
    person: "Person | None" = None  # who is asked what only eyes can see

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - for the others
        """Do it; `about` says it in words, or asks."""
        return Done(able=False)


class Command(Operator):
    """COMMAND VERB ARGUMENTS, without a shell."""

    def __init__(self, command: str, tell: Callable[[str], None], person: "Person | None" = None) -> None:
        self._command = shlex.split(command)
        self._tell = tell
        self.person = person

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - as above
        """Run it. What it complains of is for who watches, and for no report."""
        try:
            ran = subprocess.run(  # noqa: S603 - the command that the technician named
                [*self._command, verb, *arguments], capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._tell(f"{verb}: {type(error).__name__}")
            return Done(able=False)
        if ran.returncode not in (0, CANNOT):
            self._tell(f"{verb}: {ran.returncode} {ran.stderr.strip()[-300:]}")
        return Done(able=ran.returncode != CANNOT, output=ran.stdout)


class Person(Operator):
    """Somebody at the terminal: Enter when it is done, yes or no to a question, s to skip."""

    by_person = True

    def __init__(self, ask: Callable[[str, bool], str]) -> None:
        """`ask(sentence, is_question)` gives "done", "yes", "no" or "skip"."""
        self._ask = ask
        self.person = self

    def do(self, verb: str, *arguments: str, about: str) -> Done:  # noqa: ARG002 - as above
        """Ask, and wait for the answer."""
        answer = self._ask(about, verb in QUESTIONS)
        return Done(able=answer != "skip", yes={"yes": True, "no": False}.get(answer))


QUESTIONS = frozenset({"ticket", "collect"})


POLL_S = 0.05
BETWEEN_S = 0.3  # each question of a command is a process of its own
PATIENCE_S = 30.0  # for what is the daemon's business and not the till's: an order that arrives, a row that ends
BY_ITSELF_S = 5.0  # so long a till may do by itself what else the operator is asked for
SHOWN = 60  # letters of a long note
NUMBERS = 60  # of one scenario
ATTEMPT = 10_000  # one that was begun and not ended has used up its numbers
LETTERS = [*string.ascii_uppercase, *(f"A{letter}" for letter in string.ascii_uppercase)]
FOODS = ((1003, 1), (1009, 2))  # each with its quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for all scenarios of a certificate."""

    seed: int = 1
    within_s: float = 10.0
    pace: float = 1.0
    reads_locked: bool = False

    def scaled(self, seconds: float) -> float:
        """A wait of certify's own, at this pace."""
        return seconds * min(self.pace, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all scenarios of a certificate are played with."""

    setup: Setup
    database: Database
    operator: Operator
    terms: Terms
    till: Started | None  # None: the till was started by someone else


class Driver:
    """One scenario's: what it places is its own, and what was seen of it."""

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
        self.within_s = self.terms.within_s  # in so many seconds an order is to be taken over
        self.looks_at_all = False  # whether what was noted in earlier scenarios is looked at, too
        self._began = self.clock.monotonic()
        self._window = self.database.read_now(lambda connection: notes.open_window(connection, self.world))

    # ---- orders ------------------------------------------------------------------------------------------------------

    def order(self, **changes: Any) -> str:
        """Place one: cash, by the restaurant's courier, now, two lines; and what is given here. Returns its letter."""
        letter: str = LETTERS[len(self._keys)]
        key = random_uuid(self._random)
        number = self._number + len(self._keys)
        self._keys[letter], self._numbers[letter] = key, number
        self._window = replace(self._window, letters={**self._window.letters, key: letter})
        document = {**self._document(), **changes, "id": number, "payment_key": key}
        self.world.place_order(restaurant_id=KADIKOY, document=document)
        return letter

    def word(self) -> str:
        """One for a note, by which the papers of an order are known."""
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
        """Its payment_key."""
        return self._keys[letter]

    # ---- looking and waiting -----------------------------------------------------------------------------------------

    def observe(self) -> Seen:
        """Everything as it stands now."""
        self.setup.check()
        orders, notes_, rows = self.database.read_now(lambda connection: notes.read(connection, self._window))
        return Seen(
            within_s=self.within_s,
            orders=tuple(self._as_seen(order) for order in orders),
            notes=self.database.read_now(notes.all_notes) if self.looks_at_all else notes_,
            rows=rows,
            calls=notes.calls(self.world, self._window),
            answers=tuple(self._answers),
            marks=dict(self.marks),
        )

    def _as_seen(self, order: Order) -> Order:
        """When it was received is no moment of a commit: under a lock of the till's it can be seen only later."""
        if order.visible_s is None:
            return order
        return replace(order, visible_s=self._visible.setdefault(order.letter, self.now_s()))

    def until(self, condition: Callable[[Seen], bool], seconds: float) -> bool:
        """Wait for it; False when the time is over."""
        over = self.clock.monotonic() + seconds
        while not condition(self.observe()):
            if self.clock.monotonic() >= over:
                return False
            self.pause(POLL_S)
        return True

    def pause(self, seconds: float) -> None:
        """Let the time pass."""
        threading.Event().wait(seconds)

    def wait(self, seconds: float) -> None:
        """The same, at the pace of this certificate."""
        self.pause(self.terms.scaled(seconds))

    def until_visible(self) -> bool:
        """Until every order of the scenario has arrived."""
        return self.until(lambda seen: all(one.visible_s is not None for one in seen.orders), PATIENCE_S)

    def until_taken(self) -> bool:
        """Until every order has been taken over, or the till has had its time."""
        self.until_visible()
        return self.until(lambda seen: all(one.taken_s is not None for one in seen.orders), self.within_s + 1)

    def until_ended(self) -> bool:
        """Until every row has its verdict."""
        return self.until(lambda seen: all(row.state in FINAL for row in seen.rows), PATIENCE_S)

    def until_noted(self, seconds: float = 0.0) -> bool:
        """Until the till has noted every revision, or has had its time."""
        longest = seconds or self.within_s
        return self.until(lambda seen: all(one.pos_revision == one.revision for one in seen.orders), longest)

    def until_changed(self, letter: str, change: Callable[[], object], limit_s: float) -> None:
        """Change an order, record when the till could see it (mark `changed`), and wait for its reaction."""
        # What changes between a list and its acknowledgement is acknowledged unseen: nothing may be under way.
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
        """Wait whether the till does it by itself, ask for it if not, and wait for its verdict."""
        if not self.accepts_by_itself(letter):
            self.act("accept", letter, str(minutes))
        self.until_ended()

    def accepts_by_itself(self, letter: str) -> bool:
        """Whether the till does, within a few seconds."""
        return self.until(lambda seen: bool(seen.rows_of("accept", letter)), self.terms.scaled(BY_ITSELF_S))

    def act(self, verb: str, letter: str, *arguments: str) -> bool:
        """Have something done with that order, and wait until its row is there and has its verdict."""
        return self.begin(verb, letter, *arguments) and self.until_ended()

    def begin(self, verb: str, letter: str, *arguments: str) -> bool:
        """Have something done with that order, and wait until its row is there. False: the operator cannot do it."""
        action = ACTIONS.get(verb, verb)
        rows = len(self.observe().rows_of(action, letter))
        is_able = self.do(verb, letter, *arguments)
        if is_able:
            self.until(lambda seen: len(seen.rows_of(action, letter)) > rows, self.within_s)
        return is_able

    def do(self, verb: str, letter: str, *given: str, words: str = "") -> bool:
        """Ask the operator, and keep what came of it."""
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
        """Ask what the till printed for the kitchen, or collects; `right` judges the output of a command, where it can.

        `shown` is what a report tells of a wrong answer.
        """
        about = say(f"certify.ask.{question}", number=self._numbers[letter], value=value)
        asked = self.operator.person if right is None else self.operator
        if asked is None:
            self._answers.append(Answer(verb=verb, letter=letter, able=False, needs_person=True))
            return
        done = asked.do(verb, self.key(letter), about=about)
        over = self.clock.monotonic() + self.within_s
        # What is taken over need not be on paper at once: a command is asked until it is, a person waits by himself.
        while done.able and right and not (asked.by_person or right(done.output)) and self.clock.monotonic() < over:
            self.pause(BETWEEN_S)
            done = asked.do(verb, self.key(letter), about=about)
        holds = done.yes if asked.by_person or right is None else right(done.output)
        answer = Answer(verb=verb, letter=letter, able=done.able, by_person=asked.by_person, shown=shown(done.output))
        self._answers.append(replace(answer, holds=holds if done.able else None))

    def reads(self, letter: str, question: str, wanted: str) -> None:
        """Ask whether the ticket has these words on it, wherever a line is broken."""
        self.ask(
            "ticket",
            letter,
            question,
            lambda output: _closed(wanted) in _closed(output),
            value=wanted,
            shown=lambda _: {"not_found": wanted[:SHOWN]},
        )

    def papers(self, letter: str) -> str:
        """All that was printed for the kitchen so far, as a command reports it. A person is asked once, at the end."""
        return "" if self.operator.by_person else self.operator.do("ticket", self.key(letter), about="").output.strip()

    # ---- once it is over ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Put the platform back to what it was."""
        self.setup.line(Line.GOOD)
        with self.world.lock:
            self.world.faults.clear()
            self.world.open_restaurant(KADIKOY)
            self.world.inactive_foods.clear()


def _closed(text: str) -> str:
    return "".join(text.split())
