"""Writes the scenarios, criteria and options of `orderbridge certify` into docs/certify.md.

    .venv/bin/python docs/build_certify.py

The page is written by hand. This program replaces what stands between `<!-- made by docs/build_certify.py: NAME -->` and
`<!-- end -->`. tests/certify/test_pages.py fails when the page is out of date.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from orderbridge.texts import SENTENCES, say
from orderbridge_certify.cli import certify as command
from orderbridge_certify.scenarios import SCENARIOS

HERE = Path(__file__).parent
PAGE = HERE / "certify.md"
_MADE = re.compile(r"(<!-- made by docs/build_certify\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def make_options() -> Iterator[str]:
    """The options of the command, with their help."""
    yield "| option | |\n|---|---|"
    helps = {sentence["en"] for sentence in SENTENCES.of("options").values()}
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in {"help", "config"} and str(option.help) in helps:
            yield f"| `{option.opts[0]}` | {option.help} |"


def make_criteria() -> Iterator[str]:
    """Each criterion beside its scenario."""
    yield "| scenario | criterion |\n|---|---|"
    for scenario in SCENARIOS:
        first = f"`{scenario.name}`: {say(f'certify.scenarios.{scenario.name}', 'en')}"
        for name in scenario.names:
            yield f"| {first} | `{name}`: {say(f'certify.criteria.{name}', 'en')} |"
            first = ""


MAKERS: dict[str, Callable[[], Iterator[str]]] = {"options": make_options, "criteria": make_criteria}


def built(text: str) -> str:
    """The page with everything between its marks made anew."""
    return _MADE.sub(lambda part: part[1] + "\n".join(MAKERS[part[2]]()) + "\n" + part[3], text)


if __name__ == "__main__":
    PAGE.write_text(built(PAGE.read_text("utf-8")), "utf-8")
