"""docs/sandbox.md matches the sandbox's tables."""

import re
from dataclasses import fields

from docs import build_sandbox as build

from orderbridge_sandbox.faults import Fault
from orderbridge_sandbox.options import SWITCHES
from orderbridge_sandbox.switches import words

TEXT = build.PAGE.read_text("utf-8")


def test_the_page_is_what_the_tables_make_it_and_holds_everything_that_is_made():
    assert build.built(TEXT) == TEXT, "run: .venv/bin/python docs/build_sandbox.py"
    assert sorted(re.findall(r"made by docs/build_sandbox\.py: (\w+)", TEXT)) == sorted(build.MAKERS)


def test_the_page_names_each_switch_and_each_field_of_a_fault_has_its_sentence():
    assert [name for name in SWITCHES if f"- `{name}` (" not in TEXT] == []
    assert words()["faults"].keys() == {one.name for one in fields(Fault)}
