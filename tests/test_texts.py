"""The sentences: complete in both languages, all in use, formatted without errors, and short."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from string import Formatter

import click
import pytest

import orderbridge
from orderbridge import texts
from orderbridge.cli.main import WordsContext, program, translate
from orderbridge.cli.trial import CHECKS
from orderbridge.errors import StoreError
from orderbridge.extension import installed
from orderbridge.model import ActionState
from orderbridge.rules.problems import Code
from orderbridge.texts import LANGUAGES, SENTENCES, VERDICTS, problem_text, say, text

# Parts of sentences or lines.
LISTED = "arguments listing status check label mark config headings options day story states lights click facts log net"
PARTS = ("certify.keys_", *(f"{name}." for name in f"{LISTED} liveness demo bundle import".split()))
for _extension in installed().values():  # each adds its sentences
    _extension.load()
DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("ekran.md", "isletme.md", "pos-basvuru.md", "pos-rehberi.md")
LETI = r"[iİ]leti(?:si|ler|yi|nin|de|den|ye)?\b"
FOREIGN = re.compile(rf"(?<!systemd )\b(?:servis|kip(?:i|te|in|ler)?\b|{LETI}|[iİ]leri zaman)\w*", re.IGNORECASE)
TURKISH = re.compile(r"[çğıöşüÇĞİÖŞÜ]")
CLICKS = ("click.", "headings.")  # found by click's English text
FOLDER = Path(orderbridge.__file__).parents[1]  # the daemon, and the packages beside it
SPEAKS = re.compile(r"from orderbridge\.(texts import .*\bsay\b|message import|errors import)")
CARRY_KEYS = {"say", "Message", "ConfigError", *(one.__name__ for one in (StoreError, *StoreError.__subclasses__()))}


@cache
def source() -> dict[str, ast.Module]:
    """The program's source. It is read at the first use, because each worker of a test run loads this file."""
    files = FOLDER.rglob("orderbridge*/**/*.py")
    return {str(file.relative_to(FOLDER)): ast.parse(file.read_text("utf-8")) for file in files}


def literals(file: str) -> Iterator[str]:
    nodes = ast.walk(source()[file])
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@cache
def keys_said() -> set[str]:
    speaking = [tree for file, tree in source().items() if SPEAKS.search((FOLDER / file).read_text("utf-8"))]
    calls = [node for tree in speaking for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id in CARRY_KEYS]
    return {one.value for one in named if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def test_the_daemon_uses_no_sentence_of_the_commands() -> None:
    """Their files are not preloaded, and a daemon without a free descriptor could not open them."""
    commands = ("orderbridge/cli/", "orderbridge_certify/", "orderbridge_fleet/cli/", "orderbridge_sandbox/")
    daemon = {word for file in source() if not file.startswith(commands) for word in literals(file)}
    assert set(SENTENCES.words()) >= texts.OF_COMMANDS
    assert [key for key in SENTENCES if key.partition(".")[0] in texts.OF_COMMANDS and key in daemon] == []


def test_a_daemon_speaks_without_a_file_once_it_has_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    texts.read_ahead()
    SENTENCES.add("orderbridge_sandbox")  # an extension that is loaded later removes nothing
    monkeypatch.setattr(SENTENCES, "_files", {})
    assert text("bad_arguments", "en", argument="food_id", problem="missing").startswith("food_id")
    assert all(problem_text(code, "tr") for code in Code)
    assert say("net.closed_before")


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def _parts(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _parts(inner, f"{path} {name}".strip())


_context = click.Context(program, **program.context_settings)  # otherwise click keeps a help option without -h
for _name in program.list_commands(_context):
    program.get_command(_context, _name)
COMMANDS = dict(_parts(program, ""))
HELP = {f"help.{re.sub('[ -]', '_', path or 'orderbridge')}" for path in COMMANDS}


def test_every_command_has_its_help_in_both_languages() -> None:
    assert HELP - {"help.orderbridge"} == {key for key in SENTENCES if key.startswith("help.")} - {"help.orderbridge"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_help_fits_the_screen(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list fits on two screens of 80 x 24, and each command on one. In the list a command has one line."""
    monkeypatch.setattr(texts, "_spoken", language)
    translate(program, "")
    lengths = {}
    for path, command in COMMANDS.items():
        name = f"orderbridge {path}".strip()
        context = WordsContext(command, info_name=name, max_content_width=80, terminal_width=80)
        lengths[path] = command.get_help(context).count("\n") + 1
    most = {"": 48, "sandbox": 30}
    assert {path: length for path, length in lengths.items() if length > most.get(path, 24)} == {}


_options = [one for command in COMMANDS.values() for one in command.get_params(_context)]
OPTIONS = {str(one.help).partition("  [")[0] for one in _options if isinstance(one, click.Option)}


def test_every_option_has_its_help_in_both_languages() -> None:
    known = {by_language["en"] for key, by_language in SENTENCES.items() if key.startswith("options.")}
    for path, command in COMMANDS.items():
        helps = {one.name: str(one.help) for one in command.params if isinstance(one, click.Option)}
        assert [name for name, help_ in helps.items() if help_.partition("  [")[0] not in known] == [], path


def test_help_has_no_english_in_turkish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_spoken", "tr")
    translate(program, "")
    shown = {path: command.get_help(WordsContext(command, info_name="x")) for path, command in COMMANDS.items()}
    for words in ("Kullanım: x [SEÇENEKLER] KEY", "--minutes SAYI", "gerekli]", "[varsayılan: 60;"):
        assert words in shown["accept"]
    english = {path: HELPS_ENGLISH.findall(help_) for path, help_ in shown.items()}
    assert {path: words for path, words in english.items() if words} == {}


def test_every_recommended_command_exists() -> None:
    sentences = [sentence for by_language in SENTENCES.values() for sentence in by_language.values()]
    for words in set(re.findall(r"`orderbridge ([^`]*)`", "\n".join(sentences))):
        plain = [word for word in words.split() if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
        path = next((" ".join(plain[:n]) for n in (2, 1) if " ".join(plain[:n]) in COMMANDS), None)
        assert path is not None, words
        assert not isinstance(COMMANDS[path], click.Group), words


def test_check_never_recommends_itself() -> None:
    parts = ("check.", "label.", "line.", "database.", "schema.")
    shown = [text for key, both in SENTENCES.items() if key.startswith(parts) for text in both.values()]
    assert [text for text in shown if "orderbridge check" in text] == []


def wrong(keys: Iterable[str], fault: Callable[[dict[str, str]], str | None]) -> dict[str, str]:
    return {key: found for key in keys if (found := fault(SENTENCES[key]))}


def has_words(sentence: str) -> bool:
    return bool(re.search(r"[a-z]", re.sub(r"\{[^}]*\}", "", sentence)))


def test_a_sentence_has_the_same_facts_in_both_languages() -> None:
    def fault(by_language: dict[str, str]) -> str | None:
        if by_language.keys() != set(LANGUAGES):
            return "a language is missing"
        if not all(sentence and sentence == sentence.strip(" ") for sentence in by_language.values()):
            return "empty, or blanks around it"
        if by_language["tr"] == by_language["en"] and has_words(by_language["en"]):
            return "not translated"
        if placeholders(by_language["tr"]) != placeholders(by_language["en"]):
            return "other facts"
        return "English with a Turkish letter" if TURKISH.search(by_language["en"]) else None

    assert wrong(SENTENCES, fault) == {}


def test_a_whole_sentence_ends_and_turkish_has_its_letters() -> None:
    def fault(by_language: dict[str, str]) -> str | None:
        if not all(sentence.endswith((".", "?", "}", ":", "--wait")) for sentence in by_language.values()):
            return "does not end"
        is_turkish = TURKISH.search(by_language["tr"]) or not has_words(by_language["tr"])
        return None if is_turkish else "no Turkish letter in a whole sentence: misspelt"

    assert wrong((key for key in SENTENCES if not key.startswith(PARTS)), fault) == {}


def test_turkish_uses_platform_mod_mesaj_and_ileri_tarihli() -> None:
    """In the sentences and on every Turkish page, including those made from words.toml."""
    turkish = {key: by_language["tr"] for key, by_language in SENTENCES.items()}
    turkish |= {page: (DOCS / page).read_text() for page in PAGES}
    found = {where: FOREIGN.findall(text) for where, text in turkish.items()}
    assert {where: words for where, words in found.items() if words} == {}


def test_a_sentence_is_used() -> None:
    """It is used by its key, by the code in the key, or by the name of a check of `db try`."""
    names = (check.__name__ for check in CHECKS)
    known = {*HELP, *keys_said(), *names, *(word for file in source() for word in literals(file))}
    unused = [key for key in SENTENCES if key not in known and (key.split(".") * 2)[1] not in known]
    unused = [key for key in unused if not key.startswith(CLICKS)]
    assert [key for key in unused if SENTENCES[key]["en"] not in OPTIONS] == []


# English texts that users do not read, or that all read in English.
ENGLISH = re.compile(
    r"(?<![-/.])\b(?:the|is|are|was|were|of|not|no|and|or|that|with|has|have|cannot|must|which|it|its|there|be|been|by"
    r"|for|from|to|a|an|than|before|after)\b(?![-/$|])"
)
HELPS_ENGLISH = re.compile(r"default|required|usage|options:|commands:|arguments|this message", re.IGNORECASE)
STATEMENT = re.compile(r"\b(?:SELECT|CREATE|INSERT|UPDATE|DELETE|PRAGMA|NULL|CASE|BETWEEN|IN)\b|&&")
FOR_EVERYBODY = (
    "orderbridge_sandbox/",  # the marketplace's own words and its control interface, for developers
    "orderbridge/observe/metrics.py",  # Prometheus' HELP
    # Messages of constraints and triggers: stored in the database, and part of the contract.
    *(f"orderbridge/store/{file}.py" for file in ("tables", "write_guards", "dialects/sqlite")),
    "orderbridge/store/dialects/mysql.py",  # texts of drivers, which identify errors
    "orderbridge/actions.py",  # faults of the table of actions, for programmers; its help is looked up
)
# Texts of drivers, which identify errors; then texts for programmers.
KNOWN = """no pg_hba.conf entry
too many connections for
connection slots are reserved
database is locked
database table is locked
disk is full
file is not a database
levels of trigger recursion
no such table
no such column
no such function
has no column named
a document set aside is no order: {}
base_url must begin with https://
not connected""".splitlines()


def _literals(tree: ast.AST) -> Iterator[str]:
    """Texts that are neither docstrings nor keys of a table, with {} for each fact."""
    seen: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            seen.update(one.value for one in body if isinstance(one, ast.Expr))
        if isinstance(node, ast.Dict):
            seen.update(key for key in node.keys if key is not None)
        if isinstance(node, ast.JoinedStr):
            seen.update(node.values)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in seen:
            yield node.value


def test_all_texts_for_people_are_in_both_languages_outside_the_code() -> None:
    helps = {by_language["en"] for key, by_language in SENTENCES.items() if key.startswith(("options.", "headings."))}
    known = {*KNOWN, *helps}
    for file, tree in source().items():
        sentences = [one for one in _literals(tree) if " " in one and ENGLISH.search(one) and not STATEMENT.search(one)]
        unknown = [one for one in sentences if one.partition("  [")[0] not in known]
        assert unknown == [] or file.startswith(FOR_EVERYBODY), file


def test_every_used_key_has_a_sentence() -> None:
    assert len(keys_said()) > 5 and SENTENCES.keys() >= keys_said()


def test_a_verdict_says_what_happened_and_what_to_do() -> None:
    sentences = [one for by_language in VERDICTS.values() for one in by_language.values()]
    assert [one for one in sentences if not 2 <= len(re.findall(r"\.(?: |$)", one)) <= 3] == []


def test_every_problem_has_its_cause_and_its_remedy() -> None:
    for code, language in product(Code, LANGUAGES):
        by_language = SENTENCES[f"health.{code}.cause"][language], SENTENCES[f"health.{code}.remedy"][language]
        facts = {name: f"<{name}>" for sentence in by_language for name in placeholders(sentence)}
        assert problem_text(code, language, **facts) == tuple(sentence.format_map(facts) for sentence in by_language)


def test_before_a_configuration_is_read_the_environment_sets_the_language() -> None:
    turkish = [
        {"LANG": "tr_TR"},
        {"LANG": "en_US.UTF-8", "LC_MESSAGES": "tr_TR"},
        {"LANG": "tr_TR.UTF-8", "LC_ALL": ""},
    ]
    english: list[dict[str, str]] = [{}, {"LANG": "C"}, {"LANG": "tr_TR", "LC_MESSAGES": "tr_TR", "LC_ALL": "C.UTF-8"}]
    assert [texts.language_of(environ) for environ in turkish] == ["tr"] * 3
    assert [texts.language_of(environ) for environ in english] == ["en"] * 3


PROMISED = (
    "bad_arguments order_unknown account_missing account_needed restaurant_unknown order_completed order_cancelled"
    " courier_not_restaurant already expired withdrawn superseded order_not_found food_not_found restaurant_not_found"
    " missing_field bad_url_id refused service_error outcome_unknown login_refused not_permitted unreachable"
    " rate_limited timeout"
).split()


def test_every_documented_code_has_its_own_sentence() -> None:
    assert set(texts.SAME.values()) <= VERDICTS.keys()
    assert [code for code in PROMISED if code not in VERDICTS and code not in texts.SAME] == []
    assert [code for code in PROMISED if f"({code})" in text(code, "en")] == [], "the general sentence"


def test_a_retried_server_error_says_that_it_is_retried() -> None:
    for state in (None, ActionState.FAILED, ActionState.PENDING, ActionState.SENDING):
        shown, is_final = text("service_error", "en", state=state), state in {None, ActionState.FAILED}
        assert (shown == text("service_error", "en"), "retried" in shown) == (is_final, not is_final)
