"""The words: complete in both languages, never failing, and readable by somebody busy."""

import re
from string import Formatter

import pytest

from orderbridge import texts
from orderbridge.model import ActionState
from orderbridge.texts import GENERAL, PROBLEMS, SAME, VERDICTS, text

SENTENCES = {
    **{f"verdict {code}": pair for code, pair in VERDICTS.items()},
    "general": GENERAL,
}
TURKISH = re.compile(r"[çğıöşüÇĞİÖŞÜ]")


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


@pytest.mark.parametrize("pair", SENTENCES.values(), ids=SENTENCES)
def test_a_sentence_says_the_same_in_both_languages(pair: tuple[str, str]) -> None:
    turkish, english = pair
    assert turkish != english
    assert placeholders(turkish) == placeholders(english)
    assert not TURKISH.search(english)
    assert TURKISH.search(turkish), "a Turkish sentence of this length without one of its letters is a misspelt one"


@pytest.mark.parametrize("sentence", [one for pair in SENTENCES.values() for one in pair])
def test_a_text_is_what_happened_and_what_to_do(sentence: str) -> None:
    assert sentence == sentence.strip()
    assert sentence.endswith(".")
    assert 2 <= len(re.findall(r"\.(?: |$)", sentence)) <= 3


@pytest.mark.parametrize("pair", PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_is_worded_in_both_languages(pair: tuple[str, str]) -> None:
    assert all(pair)
    assert pair[0] != pair[1]


PROMISED = [
    "bad_arguments",
    "order_unknown",
    "account_missing",
    "account_needed",
    "restaurant_unknown",
    "order_completed",
    "order_cancelled",
    "courier_not_restaurant",
    "already",
    "expired",
    "withdrawn",
    "superseded",
    "order_not_found",
    "food_not_found",
    "restaurant_not_found",
    "missing_field",
    "bad_url_id",
    "refused",
    "service_error",
    "outcome_unknown",
    "login_refused",
    "unreachable",
    "rate_limited",
    "timeout",
]


@pytest.mark.parametrize("code", PROMISED)
def test_every_promised_code_has_its_own_words(code: str) -> None:
    assert text(code, "tr") != text(code, "en")
    assert f"({code})" not in text(code, "en"), "the general sentence"


@pytest.mark.parametrize("code", SAME)
def test_a_technical_code_is_told_in_the_words_of_a_plain_one(code: str) -> None:
    assert SAME[code] in VERDICTS
    assert text(code, "tr") == text(SAME[code], "tr")


def test_an_unknown_code_still_gives_a_sentence_that_carries_it() -> None:
    assert (
        text("no_such_code", "en") == "Something unexpected happened (no_such_code). Tell technical support this code."
    )
    assert "(no_such_code)" in text("no_such_code", "tr")


def test_bad_arguments_names_the_argument_and_its_problem() -> None:
    said = [
        text("bad_arguments", language, argument="preparing_time", problem="missing") for language in texts.LANGUAGES
    ]
    assert said == [
        "preparing_time alanı boş. Düzeltip yeniden gönderin.",
        "preparing_time is missing. Correct it and send it again.",
    ]


def test_a_problem_in_other_words_is_taken_as_it_is() -> None:
    assert text("bad_arguments", "en", argument="reason_id", problem="is 9").startswith("reason_id is 9.")


def test_a_missing_fact_is_a_question_mark_and_never_an_error() -> None:
    assert text("bad_arguments", "en") == "? ?. Correct it and send it again."


def test_a_brace_in_a_fact_is_only_a_brace() -> None:
    assert "{code}" in text("bad_arguments", "en", argument="{code}", problem="missing")


@pytest.mark.parametrize(
    "state, final",
    [(None, True), (ActionState.FAILED, True), (ActionState.PENDING, False), (ActionState.SENDING, False)],
)
def test_a_server_error_that_is_still_retried_is_told_as_such(state: ActionState | None, final: bool) -> None:
    assert (text("service_error", "en", state=state) == text("service_error", "en")) is final
    assert ("tried again" in text("service_error", "en", state=state)) is not final
