"""Writes the scenarios and criteria of `orderbridge certify` into docs/certify.md.

    .venv/bin/python docs/build_certify.py

The page is written by hand. This program replaces the text between `<!-- made by docs/build_certify.py: NAME -->` and
`<!-- end -->`. tests/certify/test_pages.py fails when the page is out of date.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from orderbridge.texts import say
from orderbridge_certify.scenarios import SCENARIOS

HERE = Path(__file__).parent
PAGE = HERE / "certify.md"
_MADE = re.compile(r"(<!-- made by docs/build_certify\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def make_criteria() -> Iterator[str]:
    """Each scenario with its criteria. The sentence of a criterion stands where the criterion is first named."""
    explained: set[str] = set()
    for scenario in SCENARIOS:
        criteria = [
            f"`{name}`" if name in explained else f"`{name}`: {say(f'certify.criteria.{name}', 'en')}"
            for name in scenario.names
        ]
        explained.update(scenario.names)
        yield f"- `{scenario.name}`: {say(f'certify.scenarios.{scenario.name}', 'en')}\n  {' '.join(criteria)}"


MAKERS: dict[str, Callable[[], Iterator[str]]] = {"criteria": make_criteria}


def built(text: str) -> str:
    """The page with everything between its marks made anew."""
    return _MADE.sub(lambda part: part[1] + "\n".join(MAKERS[part[2]]()) + "\n" + part[3], text)


if __name__ == "__main__":
    PAGE.write_text(built(PAGE.read_text("utf-8")), "utf-8")
