"""The board's sentences: complete in both languages, with the same facts and terms as other sentences."""

import re

from docs import build
from tests.test_texts import FOREIGN

from orderbridge.texts import SENTENCES
from orderbridge_board.door import words

TILL = re.compile(r"\bkasa|\btill\b|\bPOS\b", re.IGNORECASE)
SHOWN = ("verdicts", "arguments", "health", "line")  # sentences that are not the board's own
BESIDE_A_TILL = {"link_pos", "answer_at_till", "pos_seen", "pos_never"}  # shown there alone


def test_the_boards_words_are_complete_in_both_languages_and_name_every_problem_of_an_order():
    for key, sentences in words().items():
        assert (sentences.keys(), all(sentences.values())) == ({"tr", "en"}, True), key
        assert len({frozenset(re.findall(r"{(\w+)}", sentence)) for sentence in sentences.values()}) == 1, key
        assert FOREIGN.findall(sentences["tr"]) == [], key
    assert {f"problem_{code}" for code in build.problem_codes()} - words().keys() == set()


def test_where_the_board_is_the_till_no_sentence_is_about_a_till():
    shown = words() | {key: one for part in SHOWN for key, one in SENTENCES.of(part).items()}
    own = {key.removesuffix("_by_board") for key in shown if key.endswith("_by_board")}
    about_a_till = {key for key, sentences in shown.items() if TILL.search(" ".join(sentences.values()))}
    assert about_a_till - own - BESIDE_A_TILL == set()
