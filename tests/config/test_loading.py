"""Where the configuration is searched, and which source takes precedence."""

import re
from pathlib import Path

import pytest
from tests.config.documents import APP, REST, URL, Write, account, document, problems

from orderbridge.config import Settings, load

PLACES = ("here/orderbridge.toml", "home/.config/orderbridge/config.toml", "etc/config.toml")


def test_the_file_is_searched_in_the_documented_order(write: Write, tmp_path: Path) -> None:
    named, by_variable, *_ = (write(name=name) for name in ("named.toml", "variable.toml", *PLACES))
    environ = {"ORDERBRIDGE_CONFIG": str(by_variable), "HOME": str(tmp_path / "home")}
    found = [load(named, environ=environ).source.file, load(environ=environ).source.file]
    del environ["ORDERBRIDGE_CONFIG"]
    for place in PLACES:
        found.append(load(environ=environ).source.file)
        (tmp_path / place).unlink()
    assert found == [tmp_path / name for name in ("named.toml", "variable.toml", *PLACES)]
    assert "orderbridge init" in problems(None, environ)


@pytest.mark.parametrize("by_variable", [False, True], ids=["--config", "$ORDERBRIDGE_CONFIG"])
def test_a_named_file_must_exist(by_variable: bool, write: Write, tmp_path: Path) -> None:
    write(name="here/orderbridge.toml")
    missing = tmp_path / "missing.toml"
    error = problems(None if by_variable else missing, {"ORDERBRIDGE_CONFIG": str(missing)} if by_variable else {})
    assert f"{missing}: there is no such file" in error


@pytest.mark.parametrize("line, hint", [
    ("language = tr", "straight quotation marks"), ("language = “tr”", "straight quotation marks"),
    (r'language = "C:\users"', "in single quotation marks"), (r'language = "C:\pos"', "in single quotation marks"),
    ('language: "tr"', "separated by ="), ("[log]\n[log]", "already occurs above"),
    ('language = "tr"\nlanguage = "en"', "already occurs above"), ("[log", "config.example.toml shows"),
])  # fmt: skip
def test_a_syntax_error_names_the_file_and_the_line_and_says_what_to_write(line: str, hint: str, write: Write) -> None:
    error = problems(file := write(f"{line}\n[marketplace]\n"))
    assert str(file) in error and re.search("line [12]", error) is not None and hint in error


def test_a_key_under_the_wrong_heading_is_named_with_its_own_table(write: Write) -> None:
    error = problems(write(document() + '[log]\nlisten = ""\n'))
    assert "log.listen" in error and "move it to its own table" in error


@pytest.mark.parametrize("text", [document(marketplace='ca_file = "~/x"'), document(more='[orders]\njournal = "~/x"')])
def test_a_tilde_in_a_path_is_refused(text: str, write: Write) -> None:
    assert "may not begin with ~" in problems(write(text))


def test_what_is_no_toml_is_named(write: Write, tmp_path: Path) -> None:
    file = write(f"a = {'[' * 100_000}")
    assert "config.example.toml shows" in problems(file)
    file.write_bytes('language = "ş"'.encode("iso-8859-9"))
    assert "not UTF-8" in problems(file)
    assert "is a folder. Name the file in it." in problems(tmp_path)
    file.write_text("# all commented out\n")
    assert f"marketplace ({file}): is missing" in problems(file)
    file.write_text("\ufeff" + document(), "utf-8")  # which does no harm
    assert load(file, environ={}).language == "tr"


def test_the_environment_wins_over_the_file(write: Write) -> None:
    more = '[log]\nlevel = "error"\nformat = "json"\n[actions]\nretry_waits_seconds = [7, 8, 9]'
    file = write(document(top='language = "tr"', more=more, accounts=account() + account("besiktas", "another-secret")))
    values = {"LOG__LEVEL": "warning", "LANGUAGE": "en", "ACTIONS__RETRY_WAITS_SECONDS": "[1, 2, 3]"}
    values |= {"ACCOUNTS__1__REST_SECRET_KEY": "from-the-environment"}
    environ = {f"ORDERBRIDGE_{name}": value for name, value in values.items()}
    settings = load(file, environ=environ)
    assert (settings.log.level, settings.language, settings.log.format) == ("warning", "en", "json")
    assert settings.actions.retry_waits_seconds == (1, 2, 3)
    secrets = [(one.name, one.rest_secret_key.get_secret_value()) for one in settings.accounts]
    assert secrets == [("kadikoy", REST), ("besiktas", "from-the-environment")]
    keys = ("log.level", "language", "actions.retry_waits_seconds", "accounts[1].rest_secret_key")
    assert settings.source.origins == dict(zip(keys, environ, strict=True))


def test_the_environment_alone_is_enough() -> None:
    settings = load(
        environ={
            "ORDERBRIDGE_MARKETPLACE__BASE_URL": URL, "ORDERBRIDGE_ACCOUNTS__0__NAME": "kadikoy",
            "ORDERBRIDGE_ACCOUNTS__0__APP_SECRET_KEY": APP, "ORDERBRIDGE_ACCOUNTS__0__REST_SECRET_KEY": REST,
            "ORDERBRIDGE_ACCOUNTS__0__DEFAULT": "true", "ORDERBRIDGE_ACTIONS__RETRY_WAITS_SECONDS": "[0, 1, 2.5]",
            "ORDERBRIDGE_WEB__LISTEN": "", "ORDERBRIDGE_TEST_PG_URL": "1", "UNRELATED": "1",
        }
    )  # fmt: skip
    assert settings.accounts[0].default
    assert (settings.actions.retry_waits_seconds, settings.web.listen) == ((0, 1, 2.5), "")
    assert settings.source.file is None


@pytest.mark.parametrize("name, value, error", [
    ("ACCOUNTS__2__NAME", "besiktas", "without a gap"),
    ("ACTIONS__RETRY_WAITS_SECONDS", "2,10,sixty", "ORDERBRIDGE_ACTIONS__RETRY_WAITS_SECONDS is not valid JSON"),
    ("LANGAUGE", "x", "(ORDERBRIDGE_LANGAUGE): there is no such key"),
    ("MARKETPLACE__BASEURL", "x", "(ORDERBRIDGE_MARKETPLACE__BASEURL): there is no such key"),
    ("LANGUAGE__X", "x", "(ORDERBRIDGE_LANGUAGE__X): there is no such key"),
    ("ACCOUNTS__0__NAM", "x", "(ORDERBRIDGE_ACCOUNTS__0__NAM): there is no such key"),
])  # fmt: skip
def test_an_error_names_a_wrong_variable_and_not_its_value(name: str, value: str, error: str, write: Write) -> None:
    found = problems(write(), {f"ORDERBRIDGE_{name}": value})
    assert error in found and "sixty" not in found


def test_settings_made_by_hand_do_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERBRIDGE_LANGUAGE", "en")
    only = {"name": "a", "app_secret_key": APP, "rest_secret_key": REST}
    assert Settings(marketplace={"base_url": URL}, accounts=[only]).language == "tr"


def test_each_of_many_accounts_has_its_own_secrets(tmp_path: Path):
    """10,000 accounts in one file once took 68 s, since each key was compared with all others. Now they take a few."""
    one = '[[accounts]]\nname = "a{0}"\napp_secret_key_file = "app"\nrest_secret_key = "rest-secret-{0}"\n'
    listed = "".join(map(one.format, range(300)))
    (tmp_path / "app").write_text("an-app-secret")
    file = tmp_path / "orderbridge.toml"
    file.write_text(f'[marketplace]\nbase_url = "https://127.0.0.1:1"\n{listed}')
    settings = load(file, environ={})
    assert len(settings.accounts) == 300
    assert settings.source.origins["accounts[299].app_secret_key"] == str(tmp_path / "app")
    assert "accounts[299].rest_secret_key" not in settings.source.origins
