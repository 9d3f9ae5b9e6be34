"""docs/certify.md says what the tables of certify say."""

import re
from pathlib import Path

from docs import build_certify as build

from orderbridge_certify import plays
from orderbridge_certify.scenarios import SCENARIOS

TEXT = build.PAGE.read_text("utf-8")


def test_the_page_is_what_the_tables_make_it() -> None:
    assert build.built(TEXT) == TEXT, "run: .venv/bin/python docs/build_certify.py"
    assert sorted(re.findall(r"made by docs/build_certify\.py: (\w+)", TEXT)) == sorted(build.MAKERS)
    assert [one.name for one in SCENARIOS if f"- `{one.name}`:" not in TEXT] == []


def test_the_page_names_each_verb_that_the_hands_are_asked() -> None:
    source = Path(plays.__file__).read_text("utf-8")
    asked = set(re.findall(r'driver\.(?:do|act|begin|ask)\(\s*"(\w+)"', source)) | {"accept", "ticket", "open", "close"}
    assert {"on_the_way", "complete", "cancel", "withdraw", "collect"} <= asked
    assert [verb for verb in asked if not re.search(rf"`{verb} [A-Z]", TEXT)] == []
    assert re.search(r"^\| `withdraw KEY` \| .*`pending`.*`sending`", TEXT, re.MULTILINE)  # it is tried now and then
