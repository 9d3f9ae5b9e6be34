"""Secrets and where they come from; fingerprints; what an account knows about its restaurants."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.config.documents import APP, NO_SECRETS, REST, URL, Write, account, document, problems
from tests.wording import says

from orderbridge import texts
from orderbridge.config import Account, Settings, fingerprint, load, shown
from orderbridge.errors import ConfigError
from orderbridge.texts import sentence


def test_a_secret_can_come_from_a_file_beside_the_configuration(write: Write, tmp_path: Path) -> None:
    write(f"\n {APP}\r\n", "secrets/app")
    text = document(accounts=f'{NO_SECRETS}app_secret_key_file = "secrets/app"\nrest_secret_key = "{REST}"')
    settings = load(write(text), environ={})
    assert settings.accounts[0].app_secret_key.get_secret_value() == APP
    assert settings.source.origins["accounts[0].app_secret_key"] == str(tmp_path / "secrets/app")


def test_a_secret_can_be_a_systemd_credential(write: Write, tmp_path: Path) -> None:
    write(APP, "credentials/kadikoy.app_secret_key")
    write(REST, "credentials/kadikoy.rest_secret_key")
    settings = load(
        write(document(accounts=NO_SECRETS)), environ={"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    )
    only = settings.accounts[0]
    assert (only.app_secret_key.get_secret_value(), only.rest_secret_key.get_secret_value()) == (APP, REST)


def test_two_sources_of_a_secret_are_an_error_that_names_both(write: Write, tmp_path: Path) -> None:
    write(APP, "credentials/kadikoy.app_secret_key")
    file = write(document(accounts=account(more='rest_secret_key_file = "x"')))
    said = problems(file, {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")})
    assert "more than once (app_secret_key, systemd credential kadikoy.app_secret_key)" in said
    assert "more than once (rest_secret_key, rest_secret_key_file)" in said


def test_no_source_of_a_secret_is_an_error_that_names_all(write: Write) -> None:
    said = problems(write(document(accounts=NO_SECRETS)))
    assert "is missing; give app_secret_key, app_secret_key_file or a systemd credential" in said


def test_a_byte_order_mark_is_no_part_of_a_secret(write: Write, tmp_path: Path) -> None:
    (tmp_path / "app").write_bytes(b"\xef\xbb\xbf" + APP.encode())
    text = document(accounts=f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key = "{REST}"')
    assert load(write(text), environ={}).accounts[0].app_secret_key.get_secret_value() == APP


def test_a_secret_file_that_everybody_can_read_is_a_warning(write: Write, tmp_path: Path) -> None:
    write(APP, "app").chmod(0o644)
    text = document(accounts=f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key = "{REST}"')
    (said,) = load(write(text), environ={}).warnings
    assert f"chmod 0600 {tmp_path}/app" in said


def test_what_is_wrong_is_told_in_the_language_of_the_configuration(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_spoken", "en")
    for language, words in (("tr", "https:// ile başlamalı"), ("en", "must begin with https://")):
        with pytest.raises(ConfigError, check=says(words)):
            load(write(document(top=f'language = "{language}"', url="http://x")), environ={}, speaks=texts.speak)


@pytest.mark.parametrize(
    "content, problem",
    [
        (None, "cannot be read"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a\nb", "line break"),
        (b'"abcd"\n', "quotation marks"),
        ("\u201cabcd\u201d".encode(), "quotation marks"),
        (b"app_secret_key = abcd", "the key's name"),
    ],
    ids=["missing", "empty", "not UTF-8", "two lines", "quoted", "quoted by a word processor", "named"],
)
def test_a_bad_secret_file_is_an_error_that_names_it(
    content: bytes | None, problem: str, write: Write, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "app").write_bytes(content)
    text = document(accounts=f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key = "{REST}"')
    said = problems(write(text))
    assert problem in said
    assert str(tmp_path / "app") in said


def test_no_secret_is_ever_shown(write: Write) -> None:
    url = "postgresql://pos:hunter22@h/d?password=hunter33"
    settings = load(write(document(more=f'[database]\nurl = "{url}"')), environ={})
    printed = f"{settings!r} {settings} {shown(settings)} {settings.source}"
    assert not [secret for secret in (APP, REST, "hunter22", "hunter33") if secret in printed]
    assert shown(settings)["accounts"][0]["app_secret_key"] == "***"
    assert shown(settings)["database"]["url"] == "postgresql+psycopg://pos:***@h/d?password=***"


@pytest.mark.parametrize(
    "text",
    [
        document(accounts=account(rest=f"{REST}\\u0007")),
        document(accounts=account(more="x = 1")),
        document(accounts=account() + account("besiktas")),
        document(url=f"https://{APP}:{REST}@api.example.com"),
        document(accounts=f'[[accounts]]\nname = "a"\napp_secret_key = ["{APP}"]\nrest_secret_key = {{a = "{REST}"}}'),
        document(more=f'[database]\nurl = "oracle://{APP}:{REST}@h"'),
    ],
    ids=["control character", "unknown key beside", "twice", "in the address", "wrong type", "in the database address"],
)
def test_no_error_shows_a_secret(text: str, write: Write) -> None:
    said = problems(write(text))
    assert APP not in said
    assert REST not in said


def test_a_file_with_secrets_that_everybody_can_read_is_a_warning(write: Write) -> None:
    file = write()
    file.chmod(0o644)
    (warning,) = load(file, environ={}).warnings
    assert f"chmod o-r {file}" in warning


def test_a_file_without_secrets_may_be_read_by_everybody(write: Write) -> None:
    write(APP, "app")
    write(REST, "rest")
    file = write(document(accounts=f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key_file = "rest"'))
    file.chmod(0o644)
    assert load(file, environ={}).warnings == ()


def test_a_database_password_is_a_secret_too(write: Write) -> None:
    write(APP, "app")
    write(REST, "rest")
    files = f'{NO_SECRETS}app_secret_key_file = "app"\nrest_secret_key_file = "rest"'
    file = write(document(more='[database]\nurl = "mysql://u:p@h/d"', accounts=files))
    file.chmod(0o644)
    assert len(load(file, environ={}).warnings) == 1


@pytest.mark.parametrize("mode, warned", [(0o644, True), (0o604, True), (0o660, False), (None, False)])
def test_a_sqlite_file_that_everybody_can_read_is_a_warning(mode: int | None, warned: bool, write: Write) -> None:
    file = write()
    kept = file.parent / "orderbridge.db"
    if mode is not None:
        kept.touch()
        kept.chmod(mode)
    warnings = load(file, environ={}).warnings
    assert [f"chmod o-rwx {kept}*" in warning for warning in warnings] == [True] * warned


@pytest.mark.interface("Endpoints 1")
def test_the_fingerprint_hangs_on_address_and_secrets_and_not_on_the_name(write: Write) -> None:
    kadikoy = load(write(), environ={}).accounts[0].fingerprint
    assert load(write(document(accounts=account("renamed"))), environ={}).accounts[0].fingerprint == kadikoy
    assert kadikoy == fingerprint(URL, APP, REST)
    others = [fingerprint(URL + "/v1", APP, REST), fingerprint(URL, APP + "x", REST), fingerprint(URL, APP, REST + "x")]
    assert len({kadikoy, *others}) == 4


def test_the_fingerprint_never_changes_between_versions() -> None:
    assert fingerprint("https://a", "b", "c") == "b802fc09e3f2b8ad4100ac4bf679e2085d5c78a94ab637e6b8ab9bac0783f85d"


def test_the_secrets_do_not_run_into_each_other() -> None:
    assert fingerprint(URL, "ab", "c") != fingerprint(URL, "a", "bc")


def load_accounts(write: Write, accounts: str) -> Settings:
    return load(write(document(accounts=accounts)), environ={})


def test_the_only_account_is_the_default(write: Write) -> None:
    chosen = load_accounts(write, account()).default_account
    assert chosen is not None
    assert chosen.name == "kadikoy"


def test_of_several_accounts_only_a_configured_one_is_the_default(write: Write) -> None:
    assert load_accounts(write, account() + account("besiktas", "other")).default_account is None
    chosen = load_accounts(write, account() + account("besiktas", "other", "default = true")).default_account
    assert chosen is not None
    assert chosen.name == "besiktas"


def test_a_restaurant_can_differ_from_its_account_in_accepting_by_itself(write: Write) -> None:
    rules = (
        "auto_accept_minutes = 25\n"
        '[[accounts.restaurants]]\nid = "AAAAAAAA-1111-4111-8111-111111111111"\nauto_accept_minutes = 40\n'
        '[[accounts.restaurants]]\nid = "22222222-2222-4222-8222-222222222222"\n'
    )
    only: Account = load_accounts(write, account(more=rules)).accounts[0]
    asked = ["aaaaaaaa-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "other", None]
    assert [only.auto_accept(restaurant) for restaurant in asked] == [40, None, 25, 25]


def test_the_settings_cannot_be_changed(write: Write) -> None:
    settings = load(write(), environ={})
    with pytest.raises(ValueError, match="frozen"):
        settings.language = "en"
    with pytest.raises(ValueError, match="frozen"):
        settings.marketplace.base_url = "https://elsewhere.example.com"


def test_not_even_pydantics_own_error_shows_a_secret() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(
            marketplace={"base_url": URL},  # type: ignore[arg-type]
            accounts=[{"name": "a", "app_secret_key": f"{APP}\n", "rest_secret_key": [REST]}],  # type: ignore[arg-type]
        )
    assert APP not in sentence(caught.value)
    assert REST not in sentence(caught.value)
