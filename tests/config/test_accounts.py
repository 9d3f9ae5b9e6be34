"""Secrets and their sources, fingerprints, and an account's restaurants."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.config.documents import APP, NO_SECRETS, REST, URL, Write, account, document, problems
from tests.wording import says

from orderbridge import texts
from orderbridge.config import Account, Settings, fingerprint, load, shown
from orderbridge.errors import ConfigError
from orderbridge.texts import sentence

FILES = f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key_file = "rest"'
APP_FILE = f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key = "{REST}"'


@pytest.mark.parametrize("content", [f"\n {APP}\r\n", f"\ufeff{APP}"], ids=["with line breaks", "with a mark"])
def test_a_secret_can_come_from_a_file_beside_the_configuration(content: str, write: Write, tmp_path: Path) -> None:
    write(content, "app").chmod(0o644)
    settings = load(write(document(accounts=APP_FILE)), environ={})
    assert settings.accounts[0].app_secret_key.get_secret_value() == APP
    assert settings.source.origins["accounts[0].app_secret_key"] == str(tmp_path / "app")
    assert [f"chmod 0600 {tmp_path}/app" in warning for warning in settings.source.warnings] == [True]


def test_a_secret_can_be_a_systemd_credential(write: Write, tmp_path: Path) -> None:
    write(APP, "credentials/kadikoy.app_secret_key")
    write(REST, "credentials/kadikoy.rest_secret_key")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    only = load(write(document(accounts=NO_SECRETS)), environ=environ).accounts[0]
    assert (only.app_secret_key.get_secret_value(), only.rest_secret_key.get_secret_value()) == (APP, REST)


def test_two_sources_of_a_secret_or_none_are_an_error_that_names_them(write: Write, tmp_path: Path) -> None:
    write(APP, "credentials/kadikoy.app_secret_key")
    file = write(document(accounts=account(more='rest_secret_key_file = "x"')))
    error = problems(file, {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")})
    assert "more than once (app_secret_key, systemd credential kadikoy.app_secret_key)" in error
    assert "more than once (rest_secret_key, rest_secret_key_file)" in error
    error = problems(write(document(accounts=NO_SECRETS)))
    assert "is missing; give app_secret_key, app_secret_key_file or a systemd credential" in error


def test_errors_are_in_the_language_of_the_configuration(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_spoken", "en")
    for language, words in (("tr", "https:// ile başlamalı"), ("en", "must begin with https://")):
        with pytest.raises(ConfigError, check=says(words)):
            load(write(document(top=f'language = "{language}"', url="http://x")), environ={}, speaks=texts.speak)


def test_a_bad_secret_file_is_named(write: Write, tmp_path: Path) -> None:
    assert "cannot be read" in problems(write(document(accounts=APP_FILE)))
    for content, problem in (
        *((b" \n", "is empty"), (b"\xff\xfe", "not UTF-8"), (b"a\nb", "line break"), (b'"abcd"\n', "quotation marks")),
        *(("\u201cabcd\u201d".encode(), "quotation marks"), (b"app_secret_key = abcd", "the key's name")),
    ):
        (tmp_path / "app").write_bytes(content)
        error = problems(write(document(accounts=APP_FILE)))
        assert problem in error and str(tmp_path / "app") in error, problem


def test_no_secret_is_ever_shown(write: Write) -> None:
    url = "postgresql://pos:hunter22@h/d?password=hunter33"
    settings = load(write(document(more=f'[database]\nurl = "{url}"')), environ={})
    printed = f"{settings!r} {settings} {shown(settings)} {settings.source}"
    assert not [secret for secret in (APP, REST, "hunter22", "hunter33") if secret in printed]
    assert shown(settings)["accounts"][0]["app_secret_key"] == "***"
    with pytest.raises(ValueError, match="frozen"):
        settings.accounts[0].name = "another"  # type: ignore[misc]
    assert shown(settings)["database"]["url"] == "postgresql+psycopg://pos:***@h/d?password=***"


def test_no_error_shows_a_secret(write: Write) -> None:
    for text in (
        document(accounts=account(rest=f"{REST}\\u0007")),
        document(accounts=account(more="x = 1")),
        document(accounts=account() + account("besiktas")),
        document(url=f"https://{APP}:{REST}@api.example.com"),
        document(accounts=f'[[accounts]]\nname = "a"\napp_secret_key = ["{APP}"]\nrest_secret_key = {{a = "{REST}"}}'),
        document(more=f'[database]\nurl = "oracle://{APP}:{REST}@h"'),
    ):
        error = problems(write(text))
        assert APP not in error and REST not in error


@pytest.mark.parametrize("text, warnings", [
    (document(), 1), (document(accounts=FILES), 0),
    (document(more='[database]\nurl = "mysql://u:p@h/d"', accounts=FILES), 1),
], ids=["secrets", "none", "a database's password"])  # fmt: skip
def test_a_file_with_secrets_that_everybody_can_read_is_a_warning(text: str, warnings: int, write: Write) -> None:
    write(APP, "app")
    write(REST, "rest")
    file = write(text)
    file.chmod(0o644)
    assert [f"chmod o-r {file}" in warning for warning in load(file, environ={}).source.warnings] == [True] * warnings


@pytest.mark.parametrize("mode, warned", [(0o644, True), (0o604, True), (0o660, False), (None, False)])
def test_a_sqlite_file_that_everybody_can_read_is_a_warning(mode: int | None, warned: bool, write: Write) -> None:
    file = write()
    kept = file.parent / "orderbridge.db"
    if mode is not None:
        kept.touch()
        kept.chmod(mode)
    warnings = load(file, environ={}).source.warnings
    assert [f"chmod o-rwx {kept}*" in warning for warning in warnings] == [True] * warned


@pytest.mark.interface("Endpoints 1")
def test_the_fingerprint_depends_on_address_and_secrets_only(write: Write) -> None:
    kadikoy = load(write(), environ={}).accounts[0].fingerprint
    assert load(write(document(accounts=account("renamed"))), environ={}).accounts[0].fingerprint == kadikoy
    assert kadikoy == fingerprint(URL, APP, REST)
    others = [fingerprint(URL + "/v1", APP, REST), fingerprint(URL, APP + "x", REST), fingerprint(URL, APP, REST + "x")]
    assert len({kadikoy, *others}) == 4
    assert fingerprint(URL, "ab", "c") != fingerprint(URL, "a", "bc")
    assert fingerprint("https://a", "b", "c") == "b802fc09e3f2b8ad4100ac4bf679e2085d5c78a94ab637e6b8ab9bac0783f85d"


def test_the_only_account_is_the_default_and_of_several_only_a_configured_one(write: Write) -> None:
    both = account() + account("besiktas", "other")
    for accounts, name in ((account(), "kadikoy"), (both, None), (f"{both}default = true\n", "besiktas")):
        assert load(write(document(accounts=accounts)), environ={}).default_account == name


def test_a_restaurant_can_differ_from_its_account_in_accepting_by_itself(write: Write) -> None:
    asked = ["aaaaaaaa-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "other", None]
    own, bare = (f'[[accounts.restaurants]]\nid = "{one.upper()}"\n' for one in asked[:2])
    rules = f"auto_accept_minutes = 25\n{own}auto_accept_minutes = 40\n{bare}"
    only: Account = load(write(document(accounts=account(more=rules))), environ={}).accounts[0]
    assert [only.auto_accept(restaurant) for restaurant in asked] == [40, None, 25, 25]


def test_not_even_pydantics_own_error_shows_a_secret() -> None:
    secrets = {"app_secret_key": f"{APP}\n", "rest_secret_key": [REST]}
    with pytest.raises(ValidationError) as caught:
        Settings(marketplace={"base_url": URL}, accounts=[{"name": "a", **secrets}])
    assert [secret for secret in (APP, REST) if secret in sentence(caught.value)] == []
