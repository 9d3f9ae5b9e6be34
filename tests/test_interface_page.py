"""Each point of docs/interface.md has a test of the daemon and one of the sandbox, by the marker `interface`.

A point is a section without subsections, or each number in a section whose sentences or endpoints are numbered.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "interface.md").read_text("utf-8")


def points() -> set[str]:
    found = set()
    for section in re.split(r"\n##+ ", PAGE)[1:]:
        title, _, text = section.partition("\n")
        numbers = re.findall(r"^(?:\| )?(\d+)(?:\.| \| [A-Z]+ \|) ", text, re.MULTILINE)
        found |= {f"{title} {number}" for number in numbers} or ({title} if text.strip() else set())
    return found


def marked(files: list[Path]) -> set[str]:
    marks = re.findall(r"^@pytest\.mark\.interface\((.+)\)$", "".join(map(Path.read_text, files)), re.MULTILINE)
    return {point for mark in marks for point in re.findall(r'"(.+?)"', mark)}


@pytest.mark.parametrize("sandbox", [False, True], ids=["the daemon", "the sandbox"])
def test_each_point_has_a_test_and_no_other_is_named(sandbox: bool):
    files = [file for file in TESTS.rglob("test_*.py") if ("sandbox" in file.parts) == sandbox]
    assert marked(files) == points()
