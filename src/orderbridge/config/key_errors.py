"""What is wrong with a configuration, and the words for it: one line for each key, with who set it.

Each says what is right, which is the remedy. No message shows the value of a secret, and none carries pydantic's own error
along, which holds its input.
"""

import difflib
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orderbridge.config.settings import Settings
from orderbridge.texts import say

# What pydantic finds, and which sentence of ours says it.
WORDS = {
    **{kind: kind for kind in ("missing", "greater_than", "greater_than_equal", "less_than_equal", "too_long")},
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "whole"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "bool"),
    **dict.fromkeys(("string_type", "path_type"), "string"),
    "tuple_type": "tuple",
    "model_type": "table",
}
LISTS = {("accounts",): "config.accounts_list", ("alarms", "command"): "config.command_list"}

Place = tuple[str, ...]  # ("accounts", "0", "name")


@dataclass(slots=True)
class Findings:
    """What loading learns on the way. `origins`: the variable, or the file of a secret, that set a key or a whole table."""

    file: Path | None
    needs_secrets: bool = True
    origins: dict[Place, str] = field(default_factory=dict)
    problems: dict[Place, str] = field(default_factory=dict)
    without_secrets: set[Place] = field(default_factory=set)  # the secrets that could not be read and are not needed

    def add(self, error: ValidationError) -> None:
        """What the models refuse, where nothing is known to be wrong already."""
        for details in error.errors(include_url=False, include_input=False):
            place = tuple(map(str, details["loc"])) or ("accounts",)  # the only check of the whole is about accounts
            self.problems.setdefault(place, _sentence(details, place))

    def lines(self) -> list[str]:
        """One for each problem, by their places: the key, who set it or a table around it, and the problem."""
        found = []
        for place, problem in sorted(self.problems.items()):
            around = (self.origins.get(place[:length]) for length in range(len(place), 0, -1))
            origin = next(filter(None, around), self.file)
            found.append(f"{dotted(place)}{f' ({origin})' if origin else ''}: {problem}")
        return found


def dotted(place: Place) -> str:
    """The way a person writes it: accounts[0].name."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place).lstrip(".")


def in_words(error: ValidationError) -> str:
    """What is wrong with settings that came from no file."""
    found = Findings(None)
    found.add(error)
    return "; ".join(found.lines())


def _sentence(details: ErrorDetails, place: Place) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "tuple_type" if place in LISTS:
            return say(LISTS[place])
        case "literal_error":
            *others, _, last = context["expected"].split()  # pydantic joins them in English
            return say("config.literal_error", expected=" ".join([*others, say("config.or"), last]))
        case "extra_forbidden":
            return unknown_key(place)
        case "value_error":
            return str(context["error"])
        case known if known in WORDS:
            return say(f"config.{WORDS[known]}", **context)
        case _:
            return details["msg"]


def unknown_key(place: Place) -> str:
    """That there is no such key, and which one may be meant."""
    near = difflib.get_close_matches(place[-1], _key_names(Settings), 1)
    if near == [place[-1]]:
        return say("config.unknown_here")
    return say("config.unknown_near", near=near[0]) if near else say("config.unknown")


def _key_names(model: type[BaseModel]) -> list[str]:
    """Every key of a table and of the tables in it."""
    names = list(model.model_fields)
    for info in model.model_fields.values():
        for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                names += _key_names(part)
    return names
