"""Writes what the sandbox's own tables say into its two pages.

    .venv/bin/python docs/build_sandbox.py            # writes sandbox.md and deneme-platformu.md anew

The pages are written by hand; between `<!-- made by docs/build_sandbox.py: NAME -->` and `<!-- end -->` stands what is made
here of the switches, presets, commands, faults and advice of src/orderbridge_sandbox and of the options of `orderbridge sandbox`.
tests/sandbox/test_sandbox_pages.py fails when a page says something else.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import click

from orderbridge.texts import SENTENCES
from orderbridge_sandbox.cli import sandbox as command
from orderbridge_sandbox.command import PREFIX, Part
from orderbridge_sandbox.commands import COMMANDS
from orderbridge_sandbox.faults import Fault
from orderbridge_sandbox.options import GROUPS, SWITCHES
from orderbridge_sandbox.presets import PRESETS
from orderbridge_sandbox.scenery import DEFAULT_SCENERY
from orderbridge_sandbox.switches import switches_of
from orderbridge_sandbox.words import words

HERE = Path(__file__).parent
PAGES = {"en": HERE / "sandbox.md", "tr": HERE / "deneme-platformu.md"}
_MADE = re.compile(r"(<!-- made by docs/build_sandbox\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_GROUPS = {
    "Pace": ("Orders by themselves, and the clock", "Kendiliğinden gelen siparişler ve saat"),
    "Limits": ("Limits", "Sınırlar"),
    "Lists": ("Lists", "Listeler"),
    "Operations": ("Operations", "İşlemler"),
    "Trouble": ("Trouble with calls", "İsteklerde sorun"),
    "Connections": ("The line", "Bağlantı"),
}
_HEADS = {
    "switches": ("| switch | takes | default | |", "| ayar | değer | varsayılan | |"),
    "presets": ("| preset | | sets |", "| ad | | ayarlar |"),
    "fields": ("| field | default | |", "| alan | varsayılan | |"),
    "advice": ("| code | advice |", "| kod | öneri |"),
    "options": ("| option | |", "| seçenek | |"),
    "accounts": ("| account | rest_secret_key | reaches |", "| hesap | rest_secret_key | eriştiği restoranlar |"),
    "restaurants": ("| restaurant | id | menu | foods |", "| restoran | id | menü | ürünler |"),
    "needed": ("needed", "zorunlu"),
}
_KINDS_TR = {
    "true or false": "true ya da false",
    "whole number": "tam sayı",
    "number": "sayı",
    "text": "metin",
    "object": "nesne",
    "list of texts": "metin listesi",
    ", or none": " ya da none",
}


class Language:
    """One of the two, and the words in it."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._index = ("en", "tr").index(code)

    def __call__(self, pair: tuple[str, str]) -> str:
        return pair[self._index]

    def kind(self, told: str) -> str:
        """A kind of value in words; the values themselves are the same in both."""
        if self.code == "tr":
            for english, turkish in _KINDS_TR.items():
                told = re.sub(rf"(?<![\w]){english}(?![\w])", turkish, told)
        return told


def _table(head: str, lines: list[list[str]]) -> Iterator[str]:
    yield head
    yield "|---" * (head.count("|") - 1) + "|"
    for line in lines:
        yield "| " + " | ".join(part.replace("|", r"\|") for part in line) + " |"


def _value(value: object) -> str:
    if value is None:
        return "none"
    return (
        f"`{str(value).lower()}`"
        if isinstance(value, bool)
        else f"`{value:g}`"
        if isinstance(value, float)
        else f"`{value}`"
    )


def make_options(language: Language) -> Iterator[str]:
    english = {said["en"]: said[language.code] for said in SENTENCES.of("options").values()}
    options = [one for one in command.params if isinstance(one, click.Option) and one.name != "config"]
    yield from _table(
        language(_HEADS["options"]),
        [[", ".join(f"`{name}`" for name in one.opts), english[str(one.help).partition("  [")[0]]] for one in options],
    )


def make_presets(language: Language) -> Iterator[str]:
    yield from _table(
        language(_HEADS["presets"]),
        [
            [
                f"`{name}`",
                words()["presets"][name][language.code],
                ", ".join(f"`{key}={_plain(value)}`" for key, value in settings.items()),
            ]
            for name, settings in PRESETS.items()
        ],
    )


def _plain(value: object) -> str:
    return _value(value).strip("`")


def make_switches(language: Language) -> Iterator[str]:
    for group in GROUPS:
        yield f"\n### {language(_GROUPS[group.__name__])}\n"
        lines = [SWITCHES[name] for name in switches_of(group)]
        yield from _table(
            language(_HEADS["switches"]),
            [
                [f"`{one.name}`", _told(one.kind, one.values, language), _value(one.default), one.about[language.code]]
                for one in lines
            ],
        )


def _told(told: str, values: list[str], language: Language) -> str:
    if values:
        return ", ".join(f"`{value}`" for value in values)
    return language.kind(told)


def make_commands(language: Language) -> Iterator[str]:
    for one in COMMANDS:
        yield f"- `{one.method} {PREFIX}{one.path}`: {one.words[language.code]}"
        for name, part in (one.parts or {}).items():
            shown = f"?{name}=" if one.method == "GET" else name
            yield f"  - `{shown}` ({_part(part, language)}): {one.words[name][language.code]}"


def _part(part: Part, language: Language) -> str:
    return language.kind(part.kind) + (f", {language(_HEADS['needed'])}" if part.is_needed else "")


def make_faults(language: Language) -> Iterator[str]:
    defaults = {one.name: one.default for one in fields(Fault)} | {"body": "", "headers": "{}"}
    yield from _table(
        language(_HEADS["fields"]),
        [
            [f"`{name}`", _value(defaults[name]) if defaults[name] != "" else "", said[language.code]]
            for name, said in words()["faults"].items()
        ],
    )


def make_advice(language: Language) -> Iterator[str]:
    yield from _table(
        language(_HEADS["advice"]),
        [[f"`{code}`", re.sub(r"\{\w+\}", "…", said[language.code])] for code, said in words()["advice"].items()],
    )


def make_scenery(language: Language) -> Iterator[str]:
    names = {one.id: one.name for one in DEFAULT_SCENERY.restaurants}
    yield from _table(
        language(_HEADS["accounts"]),
        [
            [f"`{one.name}`", f"`{one.rest_secret_key}`", ", ".join(names[key] for key in one.restaurant_ids)]
            for one in DEFAULT_SCENERY.accounts
        ],
    )
    yield ""
    foods = {
        one.menu: [food.id for food in DEFAULT_SCENERY.foods if food.menu == one.menu] for one in DEFAULT_SCENERY.foods
    }
    yield from _table(
        language(_HEADS["restaurants"]),
        [
            [one.name, f"`{one.id}`", f"`{one.menu}`", f"{foods[one.menu][0]}-{foods[one.menu][-1]}"]
            for one in DEFAULT_SCENERY.restaurants
        ],
    )


MAKERS: dict[str, Callable[[Language], Iterator[str]]] = {
    "options": make_options,
    "presets": make_presets,
    "switches": make_switches,
    "commands": make_commands,
    "faults": make_faults,
    "advice": make_advice,
    "scenery": make_scenery,
}


def built(text: str, code: str) -> str:
    """A page with everything between its marks made anew."""
    language = Language(code)
    return _MADE.sub(lambda part: part[1] + "\n".join(MAKERS[part[2]](language)) + "\n" + part[3], text)


if __name__ == "__main__":
    for language_code, path in PAGES.items():
        path.write_text(built(path.read_text("utf-8"), language_code), "utf-8")
