"""The sandbox's two pages say what its tables say."""

import re
from dataclasses import fields

import pytest
from docs import build_sandbox as build

from orderbridge_sandbox.faults import Fault
from orderbridge_sandbox.options import SWITCHES
from orderbridge_sandbox.words import words

TEXTS = {code: path.read_text("utf-8") for code, path in build.PAGES.items()}
each_page = pytest.mark.parametrize("code", TEXTS)


@each_page
def test_a_page_is_what_the_tables_make_it(code: str):
    assert build.built(TEXTS[code], code) == TEXTS[code], "run: .venv/bin/python docs/build_sandbox.py"


@each_page
def test_a_page_holds_everything_that_is_made(code: str):
    assert sorted(re.findall(r"made by docs/build_sandbox\.py: (\w+)", TEXTS[code])) == sorted(build.MAKERS)


@each_page
def test_a_page_names_each_switch(code: str):
    assert [name for name in SWITCHES if f"| `{name}` |" not in TEXTS[code]] == []


def test_both_pages_show_the_same_commands():
    blocks = [
        re.findall(r"^(?:curl|\./run sandbox|\./run).*?(?= {2,}#|$)", text, re.MULTILINE) for text in TEXTS.values()
    ]
    assert blocks[0] == blocks[1]


def test_each_field_of_a_fault_has_its_sentence():
    assert words()["faults"].keys() == {one.name for one in fields(Fault)}
