"""Translates codes and facts to sentences in Turkish or English, from the files in sentences/.

The first word of a key names its file: `health.login_refused.cause` is in sentences/health.toml. Keys are stable and
English; sentences may change. A sentence says what happened, then what to do. {names} are facts, the same in both
languages. An unknown code still gives a sentence, and a missing fact a "?", so that a row can always be finished.

A cashier reads the configured language, which the caller passes. A technician reads the language of the process:
`speak` sets it; until a configuration is read it follows the environment.
"""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from orderbridge.errors import MarketplaceError, Message, OrderbridgeError
from orderbridge.model import UNFINISHED, ActionState

LANGUAGES = ("tr", "en")

# Files that only commands need.
OF_COMMANDS = frozenset("bundle click day erase headings help init label listing mark options replay story".split())

# Technical codes that mean the same to a cashier.
SAME = {
    **dict.fromkeys(("unauthorized", "invalid_credentials"), "login_refused"),
    **dict.fromkeys(("login_failed", "login_timeout", "dns_failed", "connection_refused"), "unreachable"),
    **dict.fromkeys(("connect_timeout", "proxy_refused", "proxy_invalid"), "unreachable"),
    **dict.fromkeys(("bad_gateway", "connection_lost", "broken_answer", "body_too_large"), "timeout"),
    **dict.fromkeys(("no_envelope", "malformed_data", "stopped_while_sending", "internal_error"), "timeout"),
    **dict.fromkeys(("login_stopped", "closed"), "stopping"),
}


class _Facts(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "?"


def _flat(tree: Mapping[str, Any], key: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    for name, below in tree.items():
        place = f"{key}.{name}" if key else name
        if set(LANGUAGES) & below.keys():
            yield place, below
        else:
            yield from _flat(below, place)


class _Sentences(Mapping[str, dict[str, str]]):
    """All sentences by key. A file is read when one of its keys is used."""

    def __init__(self) -> None:
        self._files: dict[str, Traversable] = {}  # by the first word of their keys
        self._read: dict[str, dict[str, dict[str, str]]] = {}
        self.add("orderbridge")

    def add(self, package: str) -> None:
        """Add the sentences of a package, which calls this at its import."""
        for file in files(package).joinpath("sentences").iterdir():
            word = file.name.removesuffix(".toml")
            self._files[word] = file
            self._read.pop(word, None)

    def __getitem__(self, key: str) -> dict[str, str]:
        return self.of(key.partition(".")[0])[key]

    def __iter__(self) -> Iterator[str]:
        for word in self.words():
            yield from self.of(word)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def words(self) -> list[str]:
        """The first words of all keys."""
        return sorted(self._files)

    def of(self, word: str) -> dict[str, dict[str, str]]:
        """The sentences whose keys begin with this word."""
        if word not in self._read:
            file = self._files.get(word)
            self._read[word] = {} if file is None else dict(_flat(tomllib.loads(file.read_text("utf-8"))))
        return self._read[word]


SENTENCES = _Sentences()


def read_ahead() -> None:
    """Read all files of a daemon now, because later it may run out of file descriptors."""
    for word in SENTENCES.words():
        if word not in OF_COMMANDS:
            SENTENCES.of(word)


VERDICTS = {key.removeprefix("verdicts."): words for key, words in SENTENCES.of("verdicts").items()}

_spoken = "en"


def speak(language: str) -> None:
    """Set the language of the process, which technicians read."""
    global _spoken  # noqa: PLW0603 - a process speaks one language
    _spoken = language


def spoken() -> str:
    """The language of the process."""
    return _spoken


def language_of(environ: Mapping[str, str]) -> str:
    """The language of the environment, by POSIX's rules."""
    name = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "tr" if name.lower().startswith("tr") else "en"


def say(key: str, language: str | None = None, **facts: object) -> str:
    """The sentence of a key, by default in the language of the process."""
    words = {
        name: sentence(fact, language) if isinstance(fact, Message | OrderbridgeError) else fact
        for name, fact in facts.items()
    }
    return SENTENCES[key][language or _spoken].format_map(_Facts(words))


def sentence(what: Message | BaseException | str, language: str | None = None) -> str:
    """The sentence of a message or one of our errors; other values as text."""
    match what:
        case Message(key=key, facts=facts):
            return say(key, language, **facts)
        case MarketplaceError(code=code, detail=detail):
            return f"{code}: {sentence(detail, language)}" if detail else code
        case OrderbridgeError():
            return sentence(what.message, language)
        case _:
            return str(what)


def line_remedy(error: MarketplaceError) -> str:
    """The cause and the remedy of a failed request."""
    key = f"line.{error.reason}"
    return say(key if key in SENTENCES else "line.other")


def text(code: str, language: str, *, state: ActionState | None = None, **facts: object) -> str:
    """The sentence for the error_code of an outbox row.

    The `state` decides whether the sentence is about a retry or a final result. "bad_arguments" takes the facts
    `argument` and `problem`, which is a key of `arguments` or free text.
    """
    if code == "service_error" and state in UNFINISHED:
        code = "retrying"
    if code == "not_permitted" and state == ActionState.EXPIRED:
        code = "not_permitted_ended"
    if (problem := f"arguments.{facts.get('problem')}") in SENTENCES:
        facts["problem"] = say(problem, language)
    key = f"verdicts.{SAME.get(code, code)}"
    return say(key if key in SENTENCES else "general", language, **facts, code=code)


def problem_text(code: str, language: str, **facts: object) -> tuple[str, str]:
    """The cause and the remedy of an open problem.

    `reason`, a key of `line`, gives a more exact remedy. `by`: who should have acted, if the sentence depends on that.
    """
    by = f"_by_{facts['by']}" if "by" in facts else ""
    cause, remedy = f"health.{code}.cause{by}", f"health.{code}.remedy{by}"
    if (own := f"line.{facts.get('reason')}") in SENTENCES:
        remedy = own
    return say(cause, language, **facts), say(remedy, language, **facts)
