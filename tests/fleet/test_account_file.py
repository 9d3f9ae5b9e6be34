"""Files of accounts as spreadsheets and programs write them, and the errors of invalid lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wording import says

from orderbridge import config
from orderbridge.config.keys import new_master_key
from orderbridge.errors import ConfigError
from orderbridge.texts import say
from orderbridge_fleet.cli.account_import import KEYS, _found, lines

HEAD = "name,app_secret_key,rest_secret_key"
GOOD = {"name": "kadikoy", "app_secret_key": "a", "rest_secret_key": "b"}
ERRORS = {
    "cells": (f"{HEAD}\nkadikoy,a,b\nx,a,b,secret\n", 3, "import.too_many"),
    "open quote": (f'{HEAD}\nkadikoy,a,b\nx,"a,b\ny,a,b\n', 3, "import.no_csv"),
    "behind a quote": (f'{HEAD}\nkadikoy,a,b\nx,"a"b,c\n', 3, "import.no_csv"),
    "rounded": (f"{HEAD}\nkadikoy,a,b\nx,a,1.23457E+15\n", 3, "import.rounded"),
    "behind a line break": (f'{HEAD}\nkadikoy,"a\nb",c\n\nx,a,"1,23E+15"\n', 5, "import.rounded"),
    "behind sep": (f"sep=,\n{HEAD}\nx,a,1.2E+15\n", 3, "import.rounded"),
    "no JSON": (f"{json.dumps(GOOD)}\n\nnonsense", 3, "import.no_json"),
    "cut": (f"{json.dumps(GOOD)}\n{json.dumps(GOOD)[:-3]}", 2, "import.no_json"),
    "list": (f"{json.dumps(GOOD)}\n[1]", 2, "import.no_object"),
    "deep": (f"{json.dumps(GOOD)}\n" + '{"a":' * 100_000, 2, "import.no_json"),
}
UNREADABLE = {
    "is empty": (b"", b"\xef\xbb\xbf \r\n"),
    "jq -c": (b'[{"name": "x"}]',),
    "UTF-16": ("name\n".encode("utf-16"),),
    "Line 3 is not UTF-8": (HEAD.encode() + b"\nx,a,b\nx,\xfe\xf0,b",),
    "Line 1 must name the columns": (
        b"kadikoy,a,b\n", b"name,app_secret_key\nx,a", HEAD.encode() + b",secret\n", HEAD.encode() + b",name\n",
        b"\0\1\2",
    ),
}  # fmt: skip
FLEET = {"accounts": "database", "master_key": new_master_key()}
SETTINGS = config.Settings(marketplace={"base_url": "https://api.example.com"}, fleet=FLEET)
ODD = st.sampled_from(["kadikoy", "25", '"', ";", "\r\n", "\0", "true", "", "1,2E+3"])
CELLS = st.text(st.characters(codec="utf-8"), max_size=12) | ODD
TABLES = st.lists(st.lists(CELLS, max_size=5), max_size=4)
FILES = TABLES.map(lambda rows: "\n".join([HEAD, *(",".join(row) for row in rows)]).encode())
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
SHORT = st.text(max_size=4)
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3), max_leaves=6
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.just("kadikoy"), max_size=6)


def values(data: str | bytes) -> list[dict[str, object]]:
    read = lines(data.encode() if isinstance(data, str) else data)
    assert [line.problem for line in read if line.problem] == []
    return [line.values for line in read]


FORMS = {
    "plain": f"{HEAD}\nkadikoy,a,b\n",
    "no end": f"{HEAD}\nkadikoy,a,b",
    "Windows": f"{HEAD}\r\nkadikoy,a,b\r\n",
    "old Mac": f"{HEAD}\rkadikoy,a,b\r",
    "mark": f"\ufeff{HEAD}\r\nkadikoy,a,b\r\n",
    "semicolons": "name;app_secret_key;rest_secret_key\r\nkadikoy;a;b\r\n",
    "sep": "sep=;\r\nname;app_secret_key;rest_secret_key\r\nkadikoy;a;b\r\n",
    "tabs": "name\tapp_secret_key\trest_secret_key\nkadikoy\ta\tb\n",
    "quotes": '"name";"app_secret_key";"rest_secret_key"\n"kadikoy";"a";"b"\n',
    "order": "rest_secret_key, Name ,APP_SECRET_KEY\n b ,kadikoy, a\n",
    "empty columns": "name;app_secret_key;rest_secret_key;;\r\nkadikoy;a;b;;\r\n;;;;\r\n\r\n",
    "empty cell": "name;app_secret_key;rest_secret_key;auto_accept_minutes\nkadikoy;a;b;\n",
    "empty lines": "\n\nname,app_secret_key,rest_secret_key\n\nkadikoy,a,b\n\n",
    "JSON": json.dumps(GOOD),
    "JSON of Windows": f"\ufeff{json.dumps(GOOD)}\r\n\r\n",
    "JSON with a line end": json.dumps(GOOD | {"app_secret_key": " a\n"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_account_is_read(form):
    assert values(FORMS[form]) == [GOOD]


def test_true_and_false_are_read_in_both_languages():
    words = {"DOĞRU": "true", "YANLIŞ": "false", "TRUE": "true", "Evet": "true", "hayır": "false", "0": "0"}
    for word, meant in words.items():
        assert values(f"{HEAD},auto_accept_scheduled\nkadikoy,a,b,{word}\n")[0]["auto_accept_scheduled"] == meant


def test_a_quoted_text_may_contain_separators():
    text = json.dumps(GOOD | {"app_secret_key": "a\u2028b"}, ensure_ascii=False)
    assert [one["app_secret_key"] for one in values(f"{text}\n{text}")] == ["a\u2028b"] * 2
    assert values(f'{HEAD}\nkadikoy,"a,""x""",b\n')[0]["app_secret_key"] == 'a,"x"'
    assert values(f"{HEAD}\nkadikoy,a\0x,b\n")[0]["app_secret_key"] == "a\0x"
    rules = [{"id": "77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33", "auto_accept_minutes": 5}]
    assert values(json.dumps(GOOD | {"restaurants": rules}))[0]["restaurants"] == rules


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_names_the_line_where_it_begins(kind):
    data, number, key = ERRORS[kind]
    (wrong,) = [line for line in lines(data.encode()) if line.problem]
    assert (wrong.number, wrong.values, wrong.problem) == (number, {}, say(key, column="rest_secret_key", count=3))


def test_an_unknown_key_is_named_only_if_it_can_be_one():
    (line,) = lines(json.dumps(GOOD | {"app_secret_key_file": "x", "geheim-4711-secret": 1}).encode())
    assert line.problem is not None
    assert "(app_secret_key_file, ?)" in line.problem


@pytest.mark.parametrize("message", UNREADABLE)
def test_an_unreadable_file_is_refused_whole(message):
    for data in UNREADABLE[message]:
        with pytest.raises(ConfigError, check=says(message)):
            lines(data)


@given(st.binary(max_size=60) | FILES)
def test_each_line_of_any_file_is_an_account_or_has_a_problem(data):
    try:
        found = _found(SETTINGS, lines(data))
    except ConfigError:
        return
    assert found.numbers.keys() >= found.accounts.keys()
    assert all(found.wrong.values())


@given(st.lists(OBJECTS, min_size=1, max_size=3))
def test_any_json_is_an_account_or_has_a_problem(objects):
    found = _found(SETTINGS, lines("\n".join(map(json.dumps, objects)).encode()))
    assert len(found.accounts) + len(found.wrong) == len(objects)


def test_a_broken_utf8_secret_is_refused():
    line = b'{"name": "x", "app_secret_key": "a\\ud800", "rest_secret_key": "b"}'
    (problem,) = _found(SETTINGS, lines(line)).wrong.values()
    assert problem.startswith("app_secret_key: contains a line break or another control character")
