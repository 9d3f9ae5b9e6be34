"""The board's sentences: complete in both languages, with the same facts and terms as other sentences."""

import re

from docs import build
from tests.test_texts import FOREIGN

from orderbridge.texts import SENTENCES
from orderbridge_board.door import words

TILL = re.compile(r"\bkasa|\btill\b|\bPOS\b", re.IGNORECASE)
BESIDE_A_TILL = {"link_pos", "answer_at_till", "pos_seen", "pos_never"}  # shown there alone


def test_the_boards_words_stand_in_both_languages_and_name_every_problem_of_an_order():
    found = words()
    assert {
        key for key, by_language in found.items() if set(by_language) != {"tr", "en"} or not all(by_language.values())
    } == set()
    facts = {
        key: {frozenset(re.findall(r"{(\w+)}", one)) for one in by_language.values()}
        for key, by_language in found.items()
    }
    assert [key for key, named in facts.items() if len(named) > 1] == []
    assert {f"problem_{code}" for code in build.problem_codes()} - found.keys() == set()


def test_the_boards_turkish_uses_the_same_words_as_the_other_sentences():
    found = {key: FOREIGN.findall(by_language["tr"]) for key, by_language in words().items()}
    assert {key: foreign for key, foreign in found.items() if foreign} == {}


def test_where_the_board_is_the_till_no_sentence_is_about_a_till():
    shown = {
        key: by_language
        for word in ("verdicts", "arguments", "health", "line")
        for key, by_language in SENTENCES.of(word).items()
    }
    own = {key.removesuffix("_by_board") for key in shown if key.endswith("_by_board")}
    found = {key: by_language for key, by_language in (shown | words()).items() if key not in own | BESIDE_A_TILL}
    assert [key for key, by_language in found.items() if TILL.search(" ".join(by_language.values()))] == []
