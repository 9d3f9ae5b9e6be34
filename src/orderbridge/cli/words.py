"""What click says, in the language of the process: `--help`, what each option is for, and what was typed wrong.

The words are found by click's English, which stands in sentences/ as click writes it. What arguments are called
(KEY, FILE) is a name, the same in both languages, as the options and the columns are.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import click

from orderbridge.texts import SENTENCES, say, spoken

_TYPE = re.compile(r" ([A-Z ]+)$")  # behind an option's names: the kind of value that it takes


def in_words(english: str) -> str:
    """The same in the language of the process; what has no sentence stays as it is."""
    if spoken() == "en" or english not in _keys():
        return english
    return say(_keys()[english])


@cache
def _keys() -> dict[str, str]:
    return {texts["en"]: key for word in ("options", "headings") for key, texts in SENTENCES.of(word).items()}


def show(error: click.ClickException) -> None:
    """Tell what was typed wrong."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # it is the help
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(say("click.help", command=error.ctx.command_path) + "\n", err=True)
    click.echo(say("click.error", message=_mistake(error.format_message())), err=True)


def _mistake(english: str) -> str:
    """One of click's sentences, whose {message} may be another one. A sentence of ours comes as it should be read."""
    if spoken() == "en":
        return english
    for key, texts in SENTENCES.of("click").items():
        if found := _pattern(texts["en"]).fullmatch(english):
            facts = found.groupdict()
            return say(key, **facts | ({"message": _mistake(facts["message"])} if "message" in facts else {}))
    return english


def _pattern(sentence: str) -> re.Pattern[str]:
    """A pattern of such a sentence with its facts in it."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(sentence)), re.DOTALL)


class _Formatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix or f"{in_words('Usage')}: ")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        with super().section(in_words(name)):
            yield

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        translated = [
            (_TYPE.sub(lambda found: f" {in_words(found[1])}", name), _translated(text)) for name, text in rows
        ]
        super().write_dl(translated, col_max, col_spacing)


def _translated(text: str) -> str:
    """An option's help, behind which click writes [default: …] or [required]."""
    if spoken() == "en":
        return text
    words, bracket, extra = text.partition("  [")
    for word in ("default", "required"):
        extra = extra.replace(word, in_words(word), 1)
    return f"{in_words(words)}{bracket}{extra}"


class WordsContext(click.Context):
    """For every command of ours."""

    formatter_class = _Formatter


def help_of(path: str) -> str:
    """Of a command; "": of the program."""
    return say(f"help.{(path or 'orderbridge').replace(' ', '_').replace('-', '_')}")


def short_help(path: str) -> str:
    """Its first sentence, whole: click cuts a line that is longer than the terminal is wide."""
    return re.split(r"(?<=\.)\s", " ".join(help_of(path).split()), maxsplit=1)[0]


def translate(command: click.Command, path: str) -> None:
    """Its help in the language of the process, and that of the commands in it."""
    command.context_class = WordsContext
    command.help, command.short_help = help_of(path), short_help(path)
    command.options_metavar = in_words("[OPTIONS]")
    if isinstance(command, click.Group):
        command.subcommand_metavar = in_words("COMMAND [ARGS]...")
        for name, inner in command.commands.items():
            translate(inner, f"{path} {name}".strip())
