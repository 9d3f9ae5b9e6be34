"""Whether anybody can hear the board: each tablet says so every few seconds, and one that falls silent counts no more."""

HEARD_S = 8.0  # a tablet says so every 5 s
SURE_S = 15.0  # after a start: tablets come back by themselves


class Audience:
    """The tablets that were heard of, by the monotonic clock."""

    def __init__(self, now: float) -> None:
        self._sure_from = now + SURE_S
        self._until: dict[str, float] = {}

    def heard(self, device: str, now: float, *, audible: bool) -> None:
        """A tablet is there; `audible`: it shows the board and its sound is on."""
        self._until = {one: until for one, until in self._until.items() if until > now}
        if audible:  # one that is not falls silent by itself: another page of the same tablet may show the board
            self._until[device] = now + HEARD_S

    def is_deaf(self, now: float) -> bool:
        """Whether it is certain that nobody can hear."""
        return now >= self._sure_from and not any(until > now for until in self._until.values())
