"""`--help` in the language of the process: click's own words, and what each option is for."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from orderbridge.texts import SENTENCES, say, spoken

_KEYS = {said["en"]: key for key, said in SENTENCES.items() if key.startswith(("options.", "headings."))}


def in_words(english: str) -> str:
    """The same in the language of the process; what has no sentence stays as it is."""
    return say(_KEYS[english]) if english in _KEYS else english


class _Formatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix or f"{in_words('Usage')}: ")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        with super().section(in_words(name)):
            yield

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, _translated(text)) for name, text in rows], col_max, col_spacing)


def _translated(text: str) -> str:
    """An option's help, behind which click writes [default: …] or [required]."""
    if spoken() == "en":
        return text
    said, bracket, extra = text.partition("  [")
    for word in ("default", "required"):
        extra = extra.replace(word, in_words(word), 1)
    return f"{in_words(said)}{bracket}{extra}"


class WordsContext(click.Context):
    """For every command of ours."""

    formatter_class = _Formatter
