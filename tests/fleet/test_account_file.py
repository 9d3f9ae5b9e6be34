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


def values(data: str | bytes) -> list[dict[str, object]]:
    read = lines(data.encode() if isinstance(data, str) else data)
    assert [line.problem for line in read if line.problem] == []
    return [line.values for line in read]


@pytest.mark.parametrize(
    "data",
    [
        f"{HEAD}\nkadikoy,a,b\n",
        f"{HEAD}\nkadikoy,a,b",
        f"{HEAD}\r\nkadikoy,a,b\r\n",
        f"{HEAD}\rkadikoy,a,b\r",
        f"\ufeff{HEAD}\r\nkadikoy,a,b\r\n",
        "name;app_secret_key;rest_secret_key\r\nkadikoy;a;b\r\n",
        "sep=;\r\nname;app_secret_key;rest_secret_key\r\nkadikoy;a;b\r\n",
        "name\tapp_secret_key\trest_secret_key\nkadikoy\ta\tb\n",
        '"name";"app_secret_key";"rest_secret_key"\n"kadikoy";"a";"b"\n',
        "rest_secret_key, Name ,APP_SECRET_KEY\n b ,kadikoy, a\n",
        "name;app_secret_key;rest_secret_key;;\r\nkadikoy;a;b;;\r\n;;;;\r\n\r\n",
        "name;app_secret_key;rest_secret_key;auto_accept_minutes\nkadikoy;a;b;\n",
        "\n\nname,app_secret_key,rest_secret_key\n\nkadikoy,a,b\n\n",
        json.dumps(GOOD),
        f"\ufeff{json.dumps(GOOD)}\r\n\r\n",
        json.dumps(GOOD | {"app_secret_key": " a\n"}),
    ],
    ids=["plain", "no end", "Windows", "old Mac", "mark", "semicolons", "sep", "tabs", "quotes", "order", "empty columns",
         "empty cell", "empty lines", "JSON", "JSON of Windows", "JSON with a line end"],
)  # fmt: skip
def test_an_account_is_read(data):
    assert values(data) == [GOOD]


@pytest.mark.parametrize(
    "word, meant",
    [("DOĞRU", "true"), ("YANLIŞ", "false"), ("TRUE", "true"), ("Evet", "true"), ("hayır", "false"), ("0", "0")],
)
def test_true_and_false_are_read_in_both_languages(word, meant):
    assert values(f"{HEAD},auto_accept_scheduled\nkadikoy,a,b,{word}\n")[0]["auto_accept_scheduled"] == meant


def test_a_quoted_text_may_contain_separators():
    text = json.dumps(GOOD | {"app_secret_key": "a\u2028b"}, ensure_ascii=False)
    assert [one["app_secret_key"] for one in values(f"{text}\n{text}")] == ["a\u2028b"] * 2
    assert values(f'{HEAD}\nkadikoy,"a,""x""",b\n')[0]["app_secret_key"] == 'a,"x"'
    assert values(f"{HEAD}\nkadikoy,a\0x,b\n")[0]["app_secret_key"] == "a\0x"
    rules = [{"id": "77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33", "auto_accept_minutes": 5}]
    assert values(json.dumps(GOOD | {"restaurants": rules}))[0]["restaurants"] == rules


@pytest.mark.parametrize(
    "data, number, key",
    [
        (f"{HEAD}\nkadikoy,a,b\nx,a,b,secret\n", 3, "import.too_many"),
        (f'{HEAD}\nkadikoy,a,b\nx,"a,b\ny,a,b\n', 3, "import.no_csv"),
        (f'{HEAD}\nkadikoy,a,b\nx,"a"b,c\n', 3, "import.no_csv"),
        (f"{HEAD}\nkadikoy,a,b\nx,a,1.23457E+15\n", 3, "import.rounded"),
        (f'{HEAD}\nkadikoy,"a\nb",c\n\nx,a,"1,23E+15"\n', 5, "import.rounded"),
        (f"sep=,\n{HEAD}\nx,a,1.2E+15\n", 3, "import.rounded"),
        (f"{json.dumps(GOOD)}\n\nnonsense", 3, "import.no_json"),
        (f"{json.dumps(GOOD)}\n{json.dumps(GOOD)[:-3]}", 2, "import.no_json"),
        (f"{json.dumps(GOOD)}\n[1]", 2, "import.no_object"),
        (f"{json.dumps(GOOD)}\n" + '{"a":' * 100_000, 2, "import.no_json"),
    ],
    ids=["cells", "open quote", "behind a quote", "rounded", "behind a line break", "behind sep", "no JSON", "cut",
         "list", "deep"],
)  # fmt: skip
def test_an_error_names_the_line_where_it_begins(data, number, key):
    (wrong,) = [line for line in lines(data.encode()) if line.problem]
    assert (wrong.number, wrong.values) == (number, {})
    assert wrong.problem == say(key, column="rest_secret_key", count=3)


def test_an_unknown_key_is_named_only_if_it_can_be_one():
    (line,) = lines(json.dumps(GOOD | {"app_secret_key_file": "x", "geheim-4711-secret": 1}).encode())
    assert line.problem is not None
    assert "(app_secret_key_file, ?)" in line.problem


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n", "is empty"),
        (b'[{"name": "x"}]', "jq -c"),
        ("name\n".encode("utf-16"), "UTF-16"),
        (HEAD.encode() + b"\nx,a,b\nx,\xfe\xf0,b", "Line 3 is not UTF-8"),
        (b"kadikoy,a,b\n", "Line 1 must name the columns"),
        (b"name,app_secret_key\nx,a", "Line 1 must name the columns"),
        (HEAD.encode() + b",secret\n", "Line 1 must name the columns"),
        (HEAD.encode() + b",name\n", "Line 1 must name the columns"),
        (b"\x00\x01\x02", "Line 1 must name the columns"),
    ],
    ids=["empty", "blank", "list", "UTF-16", "Turkish Windows", "no head", "half a head", "another column", "twice",
         "rubbish"],
)  # fmt: skip
def test_an_unreadable_file_is_refused_whole(data, message):
    with pytest.raises(ConfigError, check=says(message)):
        lines(data)


SETTINGS = config.Settings(
    marketplace={"base_url": "https://api.example.com"}, fleet={"accounts": "database", "master_key": new_master_key()}
)
CELLS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["kadikoy", "25", '"', ";", "\r\n", "\0", "true", "", "1,2E+3"]
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.just("kadikoy"), max_size=6)


@given(
    st.binary(max_size=60)
    | st.lists(st.lists(CELLS, max_size=5), max_size=4).map(
        lambda rows: "\n".join([HEAD, *(",".join(row) for row in rows)]).encode()
    )
)
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
    (problem,) = _found(
        SETTINGS, lines(b'{"name": "x", "app_secret_key": "a\\ud800", "rest_secret_key": "b"}')
    ).wrong.values()
    assert problem.startswith("app_secret_key: contains a line break or another control character")
