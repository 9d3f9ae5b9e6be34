"""The POS guide and reference match the tables and rules, in both languages, and their examples work.

tests/store/test_guide_till.py runs the till of the guide.
"""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import build
from tests.store.samples import KEY, in_its_place, put_order

from orderbridge.rules.lifecycle import NEEDS_PAYMENT, STATUS_NAMES
from orderbridge.store import tables

GUIDES = {code: path.read_text("utf-8") for code, path in build.GUIDES.items()}
REFERENCES = {code: path.read_text("utf-8") for code, path in build.REFERENCES.items()}
WINDOWS_PAGES = {"en": build.HERE / "windows-till.md", "tr": build.HERE / "windows-kasa.md"}
WINDOWS = {code: path.read_text("utf-8") for code, path in WINDOWS_PAGES.items()}
PAGES = [build.HERE.parent / "README.md", *sorted(build.HERE.glob("*.md"))]
MOST_WORDS = 6000  # half an hour for guide and reference together
BLOCK = re.compile(r"```sql\n(.*?)```", re.DOTALL)
LOOP = re.compile(r"```text\n(.*?)```", re.DOTALL)
IN_LOOP = re.compile(r"(?:SELECT|INSERT INTO|UPDATE|DELETE FROM)\b[^;]*;")
INLINE = re.compile(r"`((?:SELECT|UPDATE|INSERT INTO) [^`]*)`")
LINK = re.compile(r"\]\(([^)]+)\)")
VIEWS = {name for name, table in tables.metadata.tables.items() if table.is_view}

each_language = pytest.mark.parametrize("code", GUIDES)


@each_language
def test_a_reference_is_what_the_tables_and_rules_make_it(code: str):
    assert build.built(REFERENCES[code], code) == REFERENCES[code], "run: .venv/bin/python docs/build.py"
    assert sorted(re.findall(r"made by docs/build\.py: (\w+)", REFERENCES[code])) == sorted(build.MAKERS)


@each_language
def test_guide_and_reference_stay_short(code: str):
    assert len(GUIDES[code].split()) + len(REFERENCES[code].split()) <= MOST_WORDS


def test_every_table_and_column_is_described_and_the_columns_of_the_pos_are_there():
    assert set(build.WORDS["tables"]) == set(tables.metadata.tables) - VIEWS
    for table in build.contract():
        described = build.WORDS["tables"][table.name]
        names = [column.name for column in table.columns]
        assert sorted(described["columns"]) == sorted(names), table.name
        assert set(described.get("POS", ())) <= set(names), table.name


def test_every_name_and_code_is_explained():
    assert sorted(build.WORDS["constraints"]) == sorted(build.constraints())
    assert sorted(build.WORDS["error_codes"]) == sorted(build.error_codes())
    assert sorted(build.WORDS["problems"]) == sorted(build.problem_codes() + build.remark_codes())


def pairs(words: object) -> Iterator[list[str]]:
    if isinstance(words, dict):
        for name, inner in words.items():
            if name not in {"POS", "no_till"}:
                yield from pairs(inner)
    else:
        yield words  # type: ignore[misc]


def test_everything_has_words_in_both_languages():
    listed = list(pairs(build.WORDS))
    assert all(len(pair) == 2 and all(pair) for pair in listed)
    assert not [english for english, _ in listed if re.search("[çğıöşüÇĞİÖŞÜ]", english)]


def test_the_picture_shows_every_status():
    shown = {status for start, end, _ in build.order_arrows() for status in (start, end)}
    assert shown == {"[*]", *STATUS_NAMES.values(), NEEDS_PAYMENT}


def without_comments(sql: str) -> list[str]:
    return [line.strip() for line in re.sub("--.*", "", sql).splitlines() if line.strip()]


def statements_of_the_till(guide: str) -> list[str]:
    (loop,) = LOOP.findall(guide)
    return [" ".join(found.split()) for found in IN_LOOP.findall(re.sub("--.*", "", loop))]


@pytest.mark.parametrize("texts", [GUIDES, REFERENCES, WINDOWS], ids=["guide", "reference", "windows"])
def test_both_languages_have_the_same_sections_statements_and_tables(texts: dict[str, str]):
    english, turkish = texts["en"], texts["tr"]
    for pattern in (r"^(#+) ", r"^(\|(?:[^|]*\|)+)$", r"^(- |[0-9]\. )", r"^(<!-- .*)$"):
        counted = [len(re.findall(pattern, text, re.MULTILINE)) for text in (english, turkish)]
        assert counted[0] == counted[1], pattern
    blocks = [[without_comments(sql) for sql in BLOCK.findall(text)] for text in (english, turkish)]
    assert (blocks[0], INLINE.findall(english)) == (blocks[1], INLINE.findall(turkish))


def test_the_till_is_the_same_in_both_languages_and_so_are_the_commands():
    english, turkish = GUIDES["en"], GUIDES["tr"]
    assert statements_of_the_till(english) == statements_of_the_till(turkish)
    shells = [re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) for guide in (english, turkish)]
    commands = [re.findall(r"^[a-z].*?(?=  +#|$)", "".join(blocks), re.MULTILINE) for blocks in shells]
    assert commands[0] == commands[1]


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts make: lower case, spaces to hyphens, without most punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_has_a_target_and_no_page_lets_pip_install_orderbridge_by_its_name(page: Path):
    """It is not published, so another package could have that name."""
    assert re.findall(r"pip install[^`\n]*[ '\"]orderbridge(?:\[|['\"` ]|$)", page.read_text("utf-8")) == []
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" not in target:
            file, _, place = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), target
            assert not place or place in anchors(there), target


@each_language
def test_every_example_is_linked(code: str):
    files = {path.relative_to(build.HERE).as_posix() for path in build.HERE.glob("examples/*/*")}
    assert files == {target for target in LINK.findall(GUIDES[code]) if target.startswith("examples/")}


PRINTED = GUIDES["en"] + REFERENCES["en"]
STATEMENTS = BLOCK.findall(PRINTED) + INLINE.findall(PRINTED)


@pytest.mark.parametrize("sql", STATEMENTS, ids=lambda sql: sql.split("\n")[0][:60])
def test_the_statements_work_as_printed(sql: str, empty_file: Path, tmp_path: Path):
    shutil.copy(empty_file, tmp_path / "pos.db")
    connection = sqlite3.connect(tmp_path / "pos.db", isolation_level=None)
    with in_its_place(connection):
        put_order(connection, revision=3)
    before = connection.total_changes
    connection.executescript(sql.replace("'…'", f"'{KEY}'").replace("id = …", "id = 1"))
    if "delivery_orders SET" in sql:
        assert connection.total_changes > before
    connection.close()
