"""The board's sentences: both languages, the same facts, and the words that the other sentences use."""

import re

from docs import build
from tests.test_texts import FOREIGN

from orderbridge_board.door import words


def test_the_boards_words_stand_in_both_languages_and_name_every_problem_of_an_order():
    found = words()
    assert {key for key, said in found.items() if set(said) != {"tr", "en"} or not all(said.values())} == set()
    facts = {key: {frozenset(re.findall(r"{(\w+)}", one)) for one in said.values()} for key, said in found.items()}
    assert [key for key, named in facts.items() if len(named) > 1] == []
    assert {f"problem_{code}" for code in build.problem_codes()} - found.keys() == set()


def test_the_boards_turkish_uses_the_same_words_as_the_other_sentences():
    found = {key: FOREIGN.findall(said["tr"]) for key, said in words().items()}
    assert {key: foreign for key, foreign in found.items() if foreign} == {}
