"""Writes the scenarios and criteria of `orderbridge certify` into its two pages.

    .venv/bin/python docs/build_certify.py            # writes certify.md and sertifika.md anew

The pages are written by hand; between `<!-- made by docs/build_certify.py: NAME -->` and `<!-- end -->` stands what is made
of src/orderbridge_certify/scenarios.py, sentences/certify.toml and the command's options. tests/certify/test_pages.py fails when
a page says something else.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from orderbridge.texts import SENTENCES, say
from orderbridge_certify.cli import certify as command
from orderbridge_certify.scenarios import SCENARIOS

HERE = Path(__file__).parent
PAGES = {"en": HERE / "certify.md", "tr": HERE / "sertifika.md"}
_MADE = re.compile(r"(<!-- made by docs/build_certify\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADS = {
    "options": {"en": "| option | |", "tr": "| seçenek | |"},
    "criteria": {"en": "| scenario | criterion |", "tr": "| senaryo | ölçüt |"},
}


def make_options(code: str) -> Iterator[str]:
    """The options of the command, with their help in the language of the page."""
    yield f"{_HEADS['options'][code]}\n|---|---|"
    words = {said["en"]: said[code] for said in SENTENCES.of("options").values()}
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in {"help", "config"} and str(option.help) in words:
            yield f"| `{option.opts[0]}` | {words[str(option.help)]} |"


def make_criteria(code: str) -> Iterator[str]:
    """Each criterion beside its scenario."""
    yield f"{_HEADS['criteria'][code]}\n|---|---|"
    for scenario in SCENARIOS:
        first = f"`{scenario.name}`: {say(f'certify.scenarios.{scenario.name}', code)}"
        for name in scenario.names:
            yield f"| {first} | `{name}`: {say(f'certify.criteria.{name}', code)} |"
            first = ""


MAKERS: dict[str, Callable[[str], Iterator[str]]] = {"options": make_options, "criteria": make_criteria}


def built(text: str, code: str) -> str:
    """A page with everything between its marks made anew."""
    return _MADE.sub(lambda part: part[1] + "\n".join(MAKERS[part[2]](code)) + "\n" + part[3], text)


if __name__ == "__main__":
    for language_code, path in PAGES.items():
        path.write_text(built(path.read_text("utf-8"), language_code), "utf-8")
