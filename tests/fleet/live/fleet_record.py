"""Judges the service's record without the fleet: who was polled when (monotonic seconds), and what was sent twice."""

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from sqlalchemy import Connection, text

TOKEN = "token-rest-"

_ATTEMPTS = text(
    "SELECT a.food_id, a.restaurant_id, a.payment_key, count(*) AS excused FROM delivery_action_attempts t"
    " JOIN delivery_actions a ON a.id = t.action_id"
    " WHERE t.outcome IS NULL OR t.outcome = 'unknown' OR t.http_status IN (401, 429) OR t.http_status >= 500"
    " GROUP BY a.food_id, a.restaurant_id, a.payment_key"
)
_OPEN = "state IN ('pending', 'sending')"
_LEFT = text(f"SELECT state, count(*) AS number FROM delivery_actions WHERE {_OPEN} GROUP BY state")


@dataclass(slots=True)
class Record:
    """`polls` and `answers`: of each account, in their order. `puts`: of each path."""

    cooldown_s: float
    timeout_s: float
    polls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    puts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, seen: Mapping[str, Iterable[tuple[str, int]]]) -> None:
        for kind, found in (("polls", self.polls), ("answers", self.answers), ("puts", self.puts)):
            for token, at in seen[kind]:
                found[token.removeprefix(TOKEN)].append(at / 1e9)

    def after(self, name: str, moment: float) -> float | None:
        """The first poll of the account after that moment."""
        polls = self.polls.get(name, [])
        place = bisect.bisect_right(polls, moment)
        return polls[place] if place < len(polls) else None

    def answer(self, name: str, poll: float) -> float | None:
        """When the poll of that moment was answered."""
        answers = self.answers.get(name, [])
        place = bisect.bisect_right(answers, poll)
        following = self.after(name, poll)
        found = answers[place] if place < len(answers) else None
        return None if found is None or (following is not None and found > following) else found

    def early(self) -> list[tuple[str, float, float]]:
        """Polls inside the cooldown: the account, when, and by how much."""
        found = []
        for name, polls in self.polls.items():
            for before, poll in pairwise(polls):
                free = (self.answer(name, before) or before) + self.cooldown_s
                if poll < free:
                    found.append((name, poll, free - poll))
        return found

    def acknowledged(self) -> set[str]:
        return {path.rpartition("/")[2] for path in self.puts if path.startswith("/orders/success/")}

    def twice(self, connection: Connection) -> list[str]:
        """Actions that were sent again although each earlier attempt had a clear answer."""
        excused: Counter[str] = Counter()
        for food, restaurant, key, number in connection.execute(_ATTEMPTS):
            order = f"/orders/accept/{key}" if key else f"/restaurants/status/close/{restaurant}"
            excused[f"/foods/status-passive/{int(food)}" if food else order] += number
        others = [path for path in self.puts if not path.startswith("/orders/success/")]
        return [path for path in others if len(self.puts[path]) > 1 + excused[path]]

    def lost(self, connection: Connection) -> set[str]:
        return self.acknowledged() - set(connection.execute(text("SELECT payment_key FROM delivery_orders")).scalars())


def left(connection: Connection) -> dict[str, int]:
    return {row.state: row.number for row in connection.execute(_LEFT)}
