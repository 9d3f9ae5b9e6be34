"""A sentence that is not made yet: its key in sentences/ and the facts in it. `texts` makes it where a person reads."""

from collections.abc import Mapping
from dataclasses import dataclass

from orderbridge.hiding import without_secrets


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A fact may be a message itself."""

    key: str
    facts: Mapping[str, object]

    def __init__(self, key: str, /, **facts: object) -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "facts", facts)

    def __str__(self) -> str:
        """For programmers. `texts.sentence` is for everybody else."""
        return " ".join([self.key, *(f"{name}={value}" for name, value in self.facts.items())])


def hidden(what: "str | Message") -> "str | Message":
    """The same without our secrets."""
    if isinstance(what, str):
        return without_secrets(what)
    facts = {name: hidden(fact) if isinstance(fact, str | Message) else fact for name, fact in what.facts.items()}
    return Message(what.key, **facts)
