"""Where a scenario is played: it places orders, waits, asks the hands, and notes the moments that matter."""

import string
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from orderbridge.certify import notes, reading
from orderbridge.certify.hands import QUESTIONS, Hands
from orderbridge.certify.house import House
from orderbridge.certify.seen import FINAL, Answer, Seen
from orderbridge.clock import SystemClock
from orderbridge.sandbox.scenery import KADIKOY
from orderbridge.store.database import Database
from orderbridge.texts import say

LOOK_S = 0.05
PATIENCE_S = 30.0
"""For what is the daemon's business and not the till's: an order that arrives, a row that ends."""
BY_ITSELF_S = 5.0
"""So long a till may do by itself what else the hands are asked for."""
NUMBERS = 60  # of one scenario
ATTEMPT = 10_000  # one that was begun and not ended has used up its numbers
LETTERS = [*string.ascii_uppercase, *(f"A{letter}" for letter in string.ascii_uppercase)]
FOODS = ((1003, "Izgara Köfte", "285.00", 1), (1009, "Ayran", "35.00", 2))


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


class Stage:
    """One scenario's: what it places is its own, and what was seen of it."""

    def __init__(
        self, house: House, database: Database, hands: Hands, terms: Terms, *, name: str, place: int, attempt: int
    ) -> None:
        self.house, self.database, self.terms = house, database, terms
        self.world = house.world
        self.clock = SystemClock()
        self._hands = hands
        self._random = Random(f"{terms.seed} {name} {attempt}")  # noqa: S311 - reproducible on purpose
        self._number = 1001 + NUMBERS * place + ATTEMPT * attempt
        self._answers: list[Answer] = []
        self._numbers: dict[str, int] = {}
        self._keys: dict[str, str] = {}
        self.marks: dict[str, float] = {"reads_locked": float(terms.reads_locked)}
        now = database.read_now(notes.now_of)
        self._window = database.read_now(lambda connection: reading.open_window(connection, self.world, now))

    # ---- orders ------------------------------------------------------------------------------------------------------

    def order(self, **changes: Any) -> str:
        """Place one: cash, by the restaurant's courier, now, two lines; and what is given here. Returns its letter."""
        letter: str = LETTERS[len(self._keys)]
        key = str(UUID(int=self._random.getrandbits(128), version=4))
        number = self._number + len(self._keys)
        self._keys[letter], self._numbers[letter] = key, number
        self._window = replace(self._window, letters={**self._window.letters, key: letter})
        document = {**self._document(), **changes, "id": number, "payment_key": key}
        self.world.place_order(restaurant_id=KADIKOY, document=document)
        return letter

    def _document(self) -> Mapping[str, Any]:
        foods: list[dict[str, Any]] = [
            {
                "id": str(UUID(int=self._random.getrandbits(128), version=4)),
                "food_id": food_id,
                "name": name,
                "note": "",
                "price": float(price),
                "quantity": quantity,
                "total": float(price) * quantity,
                "option_groups": [],
            }
            for food_id, name, price, quantity in FOODS
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

    def look(self) -> Seen:
        """Everything as it stands now."""
        self.house.check()
        found = self.database.read_now(lambda connection: reading.read(connection, self._window))
        return Seen(
            within_s=self.within_s,
            orders=found[0],
            notes=found[1],
            rows=found[2],
            calls=reading.calls(self.world, self._window),
            answers=tuple(self._answers),
            marks=dict(self.marks),
        )

    @property
    def within_s(self) -> float:
        """In so many seconds an order is to be taken over."""
        return self.terms.within_s

    def until(self, condition: Callable[[Seen], bool], seconds: float) -> bool:
        """Wait for it; False when the time is over."""
        over = self.clock.monotonic() + seconds
        while not condition(self.look()):
            if self.clock.monotonic() >= over:
                return False
            self.pause(LOOK_S)
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

    def until_noted(self) -> bool:
        """Until the till has noted every revision, or has had its time."""
        return self.until(lambda seen: all(one.pos_revision == one.revision for one in seen.orders), self.within_s)

    def mark(self, name: str, value: float | None = None) -> None:
        """Note this moment, or a measure."""
        self.marks[name] = self.now_s() if value is None else value

    def now_s(self) -> float:
        """Seconds since the scenario began, by the database's clock."""
        return self._window.since(self.database.read_now(notes.now_of)) or 0.0

    # ---- the till's hands --------------------------------------------------------------------------------------------

    def accept(self, letter: str, minutes: int = 25) -> None:
        """Wait whether the till does it by itself, ask for it if not, and wait for its verdict."""
        if not self.until(lambda seen: bool(seen.rows_of("accept", letter)), self.terms.scaled(BY_ITSELF_S)):
            self.act("accept", letter, str(minutes))
        self.until_ended()

    def act(self, verb: str, letter: str, *arguments: str) -> bool:
        """Have something done with that order, and wait until its row is there and has its verdict."""
        rows = len(self.look().rows_of(verb, letter))
        if not self.do(verb, letter, self.key(letter), *arguments):
            return False
        self.until(lambda seen: len(seen.rows_of(verb, letter)) > rows, self.within_s)
        return self.until_ended()

    def do(self, verb: str, letter: str, *arguments: str, **more: object) -> bool:
        """Ask the hands, and keep what came of it."""
        done = self._hands.do(verb, *arguments, about=self._about(verb, letter, *arguments[1:], **more))
        self._answers.append(Answer(verb=verb, letter=letter, able=done.able, by_person=self._hands.by_person))
        return done.able

    def ask(self, verb: str, letter: str, right: Callable[[str], bool], **about: object) -> None:
        """Ask what the till told the kitchen, or collects; `right` judges what a command says."""
        done = self._hands.do(verb, self.key(letter), about=self._about(verb, letter, **about))
        holds = None if not done.able else done.yes if self._hands.by_person else right(done.said)
        person = self._hands.by_person
        self._answers.append(Answer(verb=verb, letter=letter, able=done.able, by_person=person, holds=holds))

    def _about(self, verb: str, letter: str, *arguments: str, **more: object) -> str:
        facts: dict[str, Any] = {"number": self._numbers.get(letter, ""), "value": " ".join(arguments), **more}
        which = f"{verb}_{facts['question']}" if verb in QUESTIONS else verb
        return say(f"certify.ask.{which}", **facts)

    # ---- what the customer and the platform do -----------------------------------------------------------------------

    def later(self, **time: int) -> datetime:
        """A moment to come, as the restaurant's clock shows it."""
        return self.world.local(self.world.now()) + timedelta(**time)
