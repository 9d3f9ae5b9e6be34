"""The words: complete in both languages, all of them used, never failing, and readable by somebody busy."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import click
import pytest

import orderbridge
from orderbridge import texts
from orderbridge.cli.main import program
from orderbridge.cli.words import WordsContext
from orderbridge.model import ActionState
from orderbridge.rules.health import Code
from orderbridge.texts import LANGUAGES, SAME, SENTENCES, VERDICTS, language_of, problem_text, say, text

PARTS = (
    "arguments.",
    "listing.",
    "bundle.",
    "status.",
    "check.",
    "label.",
    "mark.",
    "config.",
    "headings.",
    "options.",
    "day.",
    "story.",
    "states.",
    "lights.",
)  # of a sentence or a line
TURKISH = re.compile(r"[çğıöşüÇĞİÖŞÜ]")
TEXTS = [file.read_text("utf-8") for file in Path(orderbridge.__file__).parent.rglob("*.py")]
SOURCE = [ast.parse(text) for text in TEXTS]
SPEAKING = [ast.parse(text) for text in TEXTS if re.search(r"from orderbridge\.texts import .*\bsay\b", text)]
WRITTEN = {
    node.value
    for tree in SOURCE
    for node in ast.walk(tree)
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
}
SAID = {
    node.args[0].value
    for tree in SPEAKING
    for node in ast.walk(tree)
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id == "say"
    and node.args
    and isinstance(node.args[0], ast.Constant)
}


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def _helped(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    yield f"help.{path.replace(' ', '_').replace('-', '_')}", command.help or ""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _helped(inner, f"{path} {name}")


_context = click.Context(program, **program.context_settings)  # else click keeps a help option without -h
HELP = {
    key: text
    for name in program.list_commands(_context)
    for key, text in _helped(program.get_command(_context, name) or program, name)
}


@pytest.mark.parametrize("key", HELP)
def test_every_command_has_its_help_in_both_languages(key: str) -> None:
    first = " ".join(HELP[key].split("\n\n")[0].split())
    assert SENTENCES[key]["en"] == first


def test_help_is_in_the_language_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_spoken", "tr")
    command = program.get_command(_context, "db")
    assert isinstance(command, click.Group)
    assert command.help == SENTENCES["help.db"]["tr"]
    assert command.commands["upgrade"].help == SENTENCES["help.db_upgrade"]["tr"]
    monkeypatch.setattr(texts, "_spoken", "en")
    command = program.get_command(_context, "db")
    assert command is not None
    assert command.help == HELP["help.db"]


def _parts(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _parts(inner, f"{path} {name}".strip())


for _name in program.list_commands(_context):
    program.get_command(_context, _name)
COMMANDS = dict(_parts(program, ""))
CLICKS_OWN = ("usage", "options", "commands", "default", "required")
OPTIONS = {
    str(one.help).partition("  [")[0]
    for command in COMMANDS.values()
    for one in command.get_params(_context)
    if isinstance(one, click.Option)
}


def test_every_option_has_its_help_in_both_languages() -> None:
    known = {said["en"] for key, said in SENTENCES.items() if key.startswith("options.")}
    options = [
        (path, one) for path, command in COMMANDS.items() for one in command.params if isinstance(one, click.Option)
    ]
    lacking = [
        (path, one.name) for path, one in options if one.help is not None and one.help.partition("  [")[0] not in known
    ]
    assert lacking == []


def test_help_has_no_english_heading_in_turkish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_spoken", "tr")
    accept = program.get_command(_context, "accept")
    assert accept is not None
    shown = accept.get_help(WordsContext(accept, info_name="accept"))
    assert "Kullanım: accept" in shown
    assert "Seçenekler:" in shown
    assert "gerekli]" in shown
    assert "[varsayılan: 60.0]" in shown
    assert "Options:" not in shown


def test_every_command_that_is_recommended_does_something() -> None:
    named = {
        named
        for said in SENTENCES.values()
        for text in said.values()
        for named in re.findall(r"`orderbridge ([^`]*)`", text)
    }
    for words in named:
        plain = [word for word in words.split() if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
        path = next((" ".join(plain[:n]) for n in (2, 1) if " ".join(plain[:n]) in COMMANDS), None)
        assert path is not None, words
        assert not isinstance(COMMANDS[path], click.Group), words


@pytest.mark.parametrize("said", SENTENCES.values(), ids=SENTENCES)
def test_a_sentence_says_the_same_in_both_languages(said: dict[str, str]) -> None:
    assert said.keys() == set(LANGUAGES)
    assert all(sentence and sentence == sentence.strip(" ") for sentence in said.values())
    assert said["tr"] != said["en"]
    assert placeholders(said["tr"]) == placeholders(said["en"])
    assert not TURKISH.search(said["en"])


@pytest.mark.parametrize("key", [key for key in SENTENCES if not key.startswith(PARTS)])
def test_a_whole_sentence_ends_and_turkish_looks_like_it(key: str) -> None:
    for sentence in SENTENCES[key].values():
        assert sentence.endswith((".", "?", "}"))
    turkish = SENTENCES[key]["tr"]
    assert TURKISH.search(turkish), "a Turkish sentence of this length without one of its letters is a misspelt one"
    assert not re.search(r"\b(servis|kip|ileti)\w*", turkish, re.IGNORECASE), "platform, mod, mesaj"


@pytest.mark.parametrize("key", SENTENCES)
def test_a_sentence_is_used(key: str) -> None:
    """By its key, or by the code in it."""
    code = key.split(".")[1] if "." in key else key
    helps = key in HELP or SENTENCES[key]["en"] in OPTIONS or key in {f"headings.{word}" for word in CLICKS_OWN}
    assert key in SAID or key in WRITTEN or code in WRITTEN or helps


def test_what_is_said_has_a_sentence() -> None:
    assert len(SAID) > 5
    assert SENTENCES.keys() >= SAID


@pytest.mark.parametrize("sentence", [one for said in VERDICTS.values() for one in said.values()])
def test_a_verdict_is_what_happened_and_what_to_do(sentence: str) -> None:
    assert 2 <= len(re.findall(r"\.(?: |$)", sentence)) <= 3


@pytest.mark.parametrize("code", Code)
def test_every_problem_has_its_cause_and_its_remedy(code: Code) -> None:
    for language in LANGUAGES:
        said = SENTENCES[f"health.{code}.cause"][language], SENTENCES[f"health.{code}.remedy"][language]
        facts = {name: f"<{name}>" for sentence in said for name in placeholders(sentence)}
        assert problem_text(code, language, **facts) == tuple(sentence.format_map(facts) for sentence in said)


def test_of_a_line_that_is_dead_the_reason_says_what_to_do() -> None:
    cause, remedy = problem_text("line_tls", "en", reason="tls_expired", why="issued by CN=X")
    assert "issued by CN=X" in cause
    assert remedy == say("line.tls_expired", "en")


@pytest.mark.parametrize(
    "environ, language",
    [
        ({}, "en"),
        ({"LANG": "tr_TR.UTF-8"}, "tr"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "tr_TR.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "tr_TR"}, "tr"),
        ({"LANG": "tr_TR", "LC_ALL": ""}, "tr"),
    ],
)
def test_before_a_configuration_is_read_the_environment_says_the_language(
    environ: dict[str, str], language: str
) -> None:
    assert language_of(environ) == language


def test_technicians_read_the_language_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_spoken", "en")
    assert say("database.unknown") == "Check database.url."
    texts.speak("tr")
    assert say("database.unknown") == "database.url değerini kontrol edin."
    assert say("database.unknown", "en") == "Check database.url."


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
    "not_permitted",
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
