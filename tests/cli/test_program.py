"""The program as a whole: how it finds its configuration, its exit codes, and its output streams."""

import errno
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from tests.cli.shell import APP, REST, account, document

from orderbridge import __version__
from orderbridge.cli.common import Context
from orderbridge.cli.main import MODULES
from orderbridge.store import tables

OF_ORDERS = "orders order accept on-the-way complete cancel restaurant food actions quarantine"
NAMED_IN_DESIGN = {*"run demo sandbox init check status db".split(), *OF_ORDERS.split()}
FOR_SCRIPTS = {"config", "version"}  # hidden: other commands show the same
# Words that no Turkish sentence has, and that no English one does without. The list of commands has `try`.
ENGLISH = re.compile(
    r"(?<!-)(?<!\n  )\b(?:the|is|are|was|of|for|no|not|and|or|with|such|missing|invalid|error|try|got|requires|takes"
    r"|choose|did|usage|options)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_needs_no_configuration(word, command):
    ended, begins = command(word), f"orderbridge {__version__} (schema {tables.HEAD}, Python 3."
    assert (ended.code, ended.err, ended.out[: len(begins)]) == (0, "", begins)


def test_the_help_lists_the_commands(command):
    for flag in ("-h", "--help"):
        ended = command(flag)
        listed = set(re.findall(r"^  (\S+) ", ended.out, re.MULTILINE))
        assert (ended.code, NAMED_IN_DESIGN - listed, FOR_SCRIPTS & listed) == (0, set(), set())


MISTAKES = """dance; version --loud; order; accept KEY; accept KEY --minutes 0; accept KEY --minutes 1441;
accept KEY --minutes soon; accept --minutes 5; cancel KEY; cancel KEY --reason 9; cancel KEY --reason 0; on-the-way;
complete KEY KEY; restaurant burn KEY; food on köfte; food maybe 55; actions retry x; actions withdraw;
orders --limit many; sandbox --listen 8443; sandbox --listen localhost:https""".split(";")
FURTHER = """acceptt; orders --nev; accept KEY --minute 5 --minutess; orders --limit; orders --new=3;
complete KEY KEY KEY; db; food; sandbox --cooldown long; sandbox --cooldown-scope all; sandbox --directory /dev/null;
demo --database /;
db replay --since yesterday; db replay /; init --language de; day yesterday; erase""".split(";")


def test_wrong_usage_is_reported_and_ends_with_2(run, command):
    for words in MISTAKES:
        ended = run(*words.split())
        assert (ended.code, ended.out) == (2, ""), words
        assert "Usage: orderbridge" in ended.err and "Error: " in ended.err
    for arguments in ((), ("db",), ("actions",), ("config",), ("quarantine",)):
        ended = command(*arguments)
        assert ended.code == 2 and "Commands:" in ended.out + ended.err, arguments


def test_wrong_usage_is_reported_in_turkish(command, monkeypatch):
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    english = {words: ENGLISH.findall(command(*words.split()).err) for words in [*MISTAKES, *FURTHER]}
    assert {words: found for words, found in english.items() if found} == {}


def test_each_command_is_where_the_program_searches_for_it():
    """Each has its own process, since another command of the same module would have loaded it."""
    for name, commands in MODULES.items():
        assert tuple(command.name for command in import_module(name).COMMANDS) == commands


def test_a_place_that_cannot_be_written_names_the_option(command, tmp_path):
    (tmp_path / "file").touch()
    for words, option in (("sandbox --directory", "--directory"), ("demo --orders 1 --database", "--database")):
        ended = command(*words.split(), tmp_path / "file" / "inside")
        assert ended.code == 1 and f"with {option}" in ended.err


PLACES = "--config FILE config show; config --config FILE show; config show --config FILE"


def test_the_file_is_named_anywhere_or_by_the_environment(command, configure, config_file, monkeypatch):
    for words in (*PLACES.split("; "), "--config missing.toml config show --config FILE", "config show"):
        if words == "config show":
            monkeypatch.setenv("ORDERBRIDGE_CONFIG", str(config_file))
        ended = command(*(config_file if part == "FILE" else part for part in words.split()))
        assert (ended.code, ended.out.partition("\n")[0]) == (0, f"# from {config_file}"), words


def test_without_a_configuration_a_command_ends_with_78_and_the_remedy(command):
    for words in ("run", "status", "order KEY", "complete KEY", "actions retry 1", "db sql"):
        ended = command(*words.split())
        assert (ended.code, ended.out) == (78, "")
        remedy = "Create one with `orderbridge init`, or name one with --config."
        assert ended.err == f"orderbridge: No configuration file found. {remedy}\n"


def test_the_configuration_is_shown_without_its_secrets(run, configure):
    url = 'url = "postgresql://pos:hunter22@db.example/pos"'
    configure(document(database=url, accounts=account() + account("moda", "x1y2z3")))
    for shown in (run("check", "--settings").out, run("check", "--settings", "--json").out):
        assert [secret for secret in (APP, REST, "x1y2z3", "hunter22") if secret in shown] == []
        assert "***" in shown and "db.example" in shown


def test_the_configuration_is_shown_key_by_key_and_the_environment_wins(run, path, monkeypatch):
    monkeypatch.setenv("ORDERBRIDGE_MARKETPLACE__COOLDOWN_SECONDS", "45")
    wanted = {"marketplace.cooldown_seconds = 45.0", f"database.url = sqlite:///{path}"}
    wanted |= {"accounts[0].name = kadikoy", "accounts[0].app_secret_key = ***"}
    assert wanted <= set(run("check", "--settings").out.splitlines())
    shown = run("check", "--settings", "--json").json
    assert shown == run("config", "show", "--json").json
    assert (shown["accounts"][0]["name"], shown["marketplace"]["timeout_seconds"]) == ("kadikoy", 20)


def test_commands_name_the_one_that_makes_the_tables_and_it_makes_them_once(run, path):
    path.touch()
    for words in ("orders", "status", "actions list", "quarantine list", "food on 55"):
        ended = run(*words.split())
        assert ended.code == 1 and ended.out == "" and "Run `orderbridge db upgrade`" in ended.err, words
    path.unlink()
    for message in ("upgraded", "already up to date"):
        ended = run("db", "upgrade")
        assert (ended.code, ended.out, path.exists()) == (0, f"schema {tables.HEAD}: {message}\n", True)


def test_a_database_that_another_program_holds_is_reported_without_a_traceback(run, configure, pos):
    configure(document(database='url = "sqlite:///pos.db"\nbusy_timeout_seconds = 0.05'))
    pos.execute("BEGIN IMMEDIATE")
    ended = run("food", "on", "55")
    locked = "orderbridge: The database failed: database is locked. See `orderbridge check`.\n"
    assert (ended.code, ended.err) == (1, locked)


def test_the_ddl_is_printed_without_asking_the_database(run, configure, path):
    servers = {"postgresql": "GENERATED BY DEFAULT AS IDENTITY", "mariadb": "ENGINE=InnoDB"}
    urls = {f"{kind}://pos:hunter22@db.example/pos": word for kind, word in servers.items()}
    for url, word in ({"sqlite:///pos.db": "CREATE TABLE delivery_orders"} | urls).items():
        configure(document(database=f'url = "{url}"'))
        ended = run("db", "sql")
        assert ended.code == 0 and word in ended.out and "hunter22" not in ended.out + ended.err
        assert not path.exists()


PROGRAM = "from orderbridge.cli.main import main; main()"
WITHOUT_ZONES = f"import sys; sys.modules['tzdata'] = None; {PROGRAM}"


@pytest.mark.slow
@pytest.mark.parametrize("code, environment, sentence", [
    (PROGRAM, {"PYTHONIOENCODING": "iso-8859-1"}, "yaziliyor"),
    (PROGRAM, {"PYTHONIOENCODING": "iso-8859-9"}, "yazılıyor"),
    (WITHOUT_ZONES, {"PYTHONTZPATH": "/nowhere"}, "apt install tzdata"),
])  # fmt: skip
def test_exhausted_resources_give_a_sentence_and_no_traceback(code, environment, sentence, pos, configure, config_file):
    pos.close()
    configure(document().replace('"en"', '"tr"'))
    arguments = [sys.executable, "-c", code, "check", "--config", config_file]
    env = os.environ | environment
    ended = subprocess.run(arguments, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    out = ended.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))
    assert sentence in out and "Traceback" not in out, out


def test_the_alarm_commands_own_message_is_shown_when_it_is_tried(configure, config_file):
    configure(document(more='[alarms]\ncommand = ["/bin/sh", "-c", "echo curl: not found >&2; exit 127"]'))
    arguments = [sys.executable, "-c", PROGRAM, "alarm", "test", "--config", config_file]
    ended = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert ended.returncode == 1 and "curl: not found" in ended.stderr and "exit code 127" in ended.stderr


def test_too_many_open_files_or_a_limit_that_is_too_low_are_reported(run, monkeypatch):
    cause = OSError(errno.EMFILE, "Too many open files")

    def fail(*_, **__):
        raise ModuleNotFoundError("orderbridge.store.dialects.mysql") from cause

    monkeypatch.setattr(Context, "database", fail)
    ended = run("status")
    assert ended.code == 1 and ended.err.count("\n") == 1 and "LimitNOFILE" in ended.err
    monkeypatch.setattr("resource.getrlimit", lambda _: (16, 16))
    ended = run("run")
    assert ended.code == 78 and "LimitNOFILE" in ended.err
