"""The two pages about certify say what its tables say."""

import re
from pathlib import Path

import pytest
from docs import build_certify as build

from orderbridge_certify import plays
from orderbridge_certify.scenarios import SCENARIOS

TEXTS = {code: path.read_text("utf-8") for code, path in build.PAGES.items()}


@pytest.mark.parametrize("code", TEXTS)
def test_a_page_is_what_the_tables_make_it(code: str) -> None:
    assert build.built(TEXTS[code], code) == TEXTS[code], "run: .venv/bin/python docs/build_certify.py"
    assert sorted(re.findall(r"made by docs/build_certify\.py: (\w+)", TEXTS[code])) == sorted(build.MAKERS)
    assert [one.name for one in SCENARIOS if f"| `{one.name}`:" not in TEXTS[code]] == []


@pytest.mark.parametrize("code", TEXTS)
def test_a_page_names_each_verb_that_the_hands_are_asked(code: str) -> None:
    source = Path(plays.__file__).read_text("utf-8")
    asked = set(re.findall(r'stage\.(?:do|act|ask)\(\s*"(\w+)"', source)) | {"accept", "ticket", "open", "close"}
    assert {"on_the_way", "complete", "cancel", "withdraw", "collect"} <= asked
    assert [verb for verb in asked if not re.search(rf"`{verb} [A-Z]", TEXTS[code])] == []
    assert re.search(
        r"^\| `withdraw KEY` \| .*`pending`.*`sending`", TEXTS[code], re.MULTILINE
    )  # it is tried now and then
