"""The board's sentences, as data in both languages. The page takes all of them, and says them in the chosen one."""

import tomllib
from functools import cache
from importlib.resources import files

FILE = "words.toml"


@cache
def words() -> dict[str, dict[str, str]]:
    """By key: the sentence in each language."""
    found = files("orderbridge_board").joinpath(FILE).read_text("utf-8")
    return tomllib.loads(found)


def word(key: str, language: str) -> str:
    """One of them."""
    return words()[key][language]
