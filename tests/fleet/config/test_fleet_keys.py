"""The configuration keys of accounts in the database."""

import base64
from pathlib import Path

import pytest
from tests.config.documents import Write, account, document, problems

from orderbridge.config import load, shown
from orderbridge.config.keys import new_master_key, parsed

KEY, OLD = (base64.b64encode(bytes([first, *range(31)])).decode() for first in (200, 201))
NO_KEYS = {
    "is missing; with fleet.accounts": ("", 'master_key = ""', 'master_key = " "'),
    "line 1 is not a master key: 32 bytes in base64": ('master_key = "QUJD"', 'master_key = "şifre"'),
    "line 1 is not a master key": tuple(f'master_key = "{KEY[:20]}{odd}{KEY[21:]}"' for odd in ("!", "\\u0000")),
    "line 2 is not a master key": (f'master_key = "{KEY}\\n{OLD[:-4]}"',),
    "none cannot be read": ('master_key_file = "none"',),
}


def fleet(lines: str = "", **more: str) -> str:
    return document(more=f'[fleet]\naccounts = "database"\n{lines}', **{"accounts": "", **more})


def test_with_a_database_of_accounts_the_file_may_have_none_and_one_is_not_the_default(write: Write) -> None:
    made = load(write(), environ={}).fleet
    assert (made.from_database, made.master_keys) == (False, ())
    settings = load(write(fleet(f'master_key = "{KEY}"')), environ={})
    assert (settings.fleet.from_database, settings.accounts) == (True, ())
    assert settings.fleet.master_keys == (base64.b64decode(KEY),)
    settings = load(write(fleet(f'master_key = "{KEY}"', accounts=account())), environ={})
    assert ([one.name for one in settings.accounts], settings.default_account) == (["kadikoy"], None)


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+mysqldb"])
def test_replicas_on_mariadb_are_refused(scheme: str, write: Write) -> None:
    message = problems(write(fleet(f'master_key = "{KEY}"\n[database]\nurl = "{scheme}://pos:hunter22@db/pos"')))
    assert "needs PostgreSQL" in message
    assert "hunter22" not in message


def test_the_master_key_comes_from_a_file_beside_the_configuration_or_from_systemd(write: Write, tmp_path: Path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/master.key").write_bytes(b"\xef\xbb\xbf" + f"{KEY}\r\n{OLD}\r\n\r\n".encode())
    settings = load(write(fleet('master_key_file = "secrets/master.key"')), environ={})
    assert settings.fleet.master_keys == (base64.b64decode(KEY), base64.b64decode(OLD))
    assert settings.fleet.master_key_file == tmp_path / "secrets/master.key"
    assert settings.source.origins["fleet.master_key"] == str(tmp_path / "secrets/master.key")
    write(OLD, "credentials/master_key")
    settings = load(write(fleet()), environ={"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")})
    assert settings.fleet.master_keys == (base64.b64decode(OLD),)


def test_in_file_mode_a_master_key_is_allowed_and_checked(write: Write) -> None:
    assert load(write(document(more=f'[fleet]\nmaster_key = "{KEY}"')), environ={}).fleet.master_keys
    assert "line 1 is not a master key" in problems(write(document(more='[fleet]\nmaster_key = "abcd"')))


@pytest.mark.parametrize("problem", NO_KEYS)
def test_an_invalid_master_key_is_an_error_with_a_remedy_and_without_the_key(problem: str, write: Write):
    for lines in NO_KEYS[problem]:
        message = problems(write(fleet(lines)))
        (line,) = message.splitlines()[1:]
        assert line.strip().startswith("fleet.master_key")
        assert problem in line
        assert KEY[:16] not in message


def test_a_new_key_is_valid_and_unique_and_it_is_never_shown(write: Write) -> None:
    made = {parsed(new_master_key()) for _ in range(10)}
    assert (len(made), {len(key) for (key,) in made}) == (10, {32})
    assert len(parsed(f"{KEY}\n{KEY}\n{OLD}")) == 2
    settings = load(write(fleet(f'master_key = "{KEY}"')), environ={})
    assert KEY not in f"{settings!r} {settings} {shown(settings)} {settings.source} {settings.fleet!r}"
    assert shown(settings)["fleet"]["master_key"] == "***"
    assert shown(load(write(), environ={}))["fleet"]["master_key"] is None


@pytest.mark.parametrize("kind", ["beside", "till"])
def test_the_board_is_refused_together_with_accounts_in_the_database(kind: str, write: Write) -> None:
    message = problems(write(fleet(f'master_key = "{KEY}"\n[web]\nboard = "{kind}"')))
    assert message.splitlines()[1].strip().startswith("web (")
    assert 'write board = "off"' in message


def test_an_unknown_value_is_the_only_error(write: Write) -> None:
    message = problems(write(document(more='[fleet]\naccounts = "db"\n[web]\nboard = "till"', accounts="")))
    assert [line.partition(" ")[0] for line in message.replace("  ", "").splitlines()[1:]] == ["fleet.accounts"]


def test_a_master_key_file_that_everybody_can_read_is_a_warning(write: Write, tmp_path: Path) -> None:
    write(KEY, "master.key").chmod(0o644)
    (message,) = load(write(fleet('master_key_file = "master.key"')), environ={}).source.warnings
    assert f"chmod 0600 {tmp_path}/master.key" in message
