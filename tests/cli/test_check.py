"""`check` and `foods` against the service itself, played on a free port with real TLS."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.cli.shell import APP, REST, Configure, Ended, account, document
from tests.store.samples import opened, rows

from orderbridge.sandbox import Fault, Sandbox, World

QUICK = "cooldown_seconds = 1\ntimeout_seconds = 60"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(World.default(), directory=tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(running: Sandbox, configure: Configure) -> Iterator[Sandbox]:
    """The running service, with a configuration that reaches it."""
    running.world.ledger.clear()
    set_up(configure, running)
    yield running
    running.world.faults.clear()


def set_up(
    configure: Configure, sandbox: Sandbox, *, accounts: str = "", trust: bool = True, base_url: str = ""
) -> None:
    ca = f'ca_file = "{sandbox.ca_file}"' if trust else ""
    configure(document(base_url=base_url or sandbox.base_url, marketplace=f"{ca}\n{QUICK}", accounts=accounts))


def findings(ended: Ended) -> dict[str, tuple[bool, str]]:
    return {finding["check"]: (finding["ok"], finding["detail"]) for finding in ended.json}


# ---- all is well -----------------------------------------------------------------------------------------------------


def test_everything_in_place_ends_with_0(run, sandbox):
    ended = run("check")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "ok    configuration: 1 account(s)",
        "ok    database: sqlite",
        "ok    account kadikoy: Örnek Lokanta Kadıköy",
    ]


def test_the_findings_can_be_read_by_a_program(run, sandbox):
    ended = run("check", "--json")
    assert ended.code == 0
    assert findings(ended) == {
        "configuration": (True, "1 account(s)"),
        "database": (True, "sqlite"),
        "account kadikoy": (True, "Örnek Lokanta Kadıköy"),
    }


def test_every_account_is_asked(run, configure, sandbox):
    set_up(configure, sandbox, accounts=account() + account("zincir", "sandbox-chain-secret"))
    out = run("check").out
    assert "ok    account kadikoy: Örnek Lokanta Kadıköy\n" in out
    assert "ok    account zincir: Numune Sofra Üsküdar, Numune Sofra Ataşehir\n" in out


def test_a_check_makes_the_tables_and_never_polls(run, sandbox, path):
    run("check")
    run("check")
    assert sandbox.world.calls("get_current") == []
    with opened(path) as pos:
        (row,) = rows(pos, "SELECT name, next_poll_utc FROM delivery_accounts")
    assert row == {"name": "kadikoy", "next_poll_utc": None}


def test_a_second_check_uses_the_token_that_was_kept(run, sandbox):
    run("check")
    run("check")
    assert len(sandbox.world.calls("login")) == 1


def test_no_secret_is_printed_or_kept(run, sandbox, path):
    ended = run("check", "--json")
    kept = b"".join(file.read_bytes() for file in path.parent.glob("pos.db*"))
    assert [secret for secret in (APP, REST) if secret in ended.out + ended.err or secret.encode() in kept] == []


# ---- what fails, with its remedy -------------------------------------------------------------------------------------


def failing(ended: Ended, check: str) -> str:
    ok, detail = findings(ended)[check]
    assert not ok
    return detail


def test_a_service_that_does_not_run_ends_with_69(run, configure, sandbox, closed_port):
    set_up(configure, sandbox, base_url=f"https://127.0.0.1:{closed_port}")
    ended = run("check", "--json")
    assert ended.code == 69
    said = failing(ended, "account kadikoy")
    assert said.startswith("connection_refused. ")
    assert "base_url with its port, the firewall, and that the service runs" in said


def test_a_proxy_and_authorities_of_the_environment_are_named(run, sandbox, monkeypatch, closed_port):
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:geheim@127.0.0.1:{closed_port}")
    monkeypatch.setenv("SSL_CERT_FILE", str(sandbox.ca_file))
    ended = run("check", "--json")
    where = f"127.0.0.1:{closed_port} from HTTPS_PROXY"
    assert findings(ended)["proxy"] == (True, f"in use: {where}")
    assert findings(ended)["certificates"][1].startswith("SSL_CERT_FILE stands for the system's authorities")
    assert f"(proxy {where})" in failing(ended, "account kadikoy")
    assert (ended.code, "geheim" in ended.out + ended.err) == (69, False)


def test_a_proxy_that_cannot_be_used_is_told(run, sandbox, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:geheim@127.0.0.1:1080")
    ended = run("check", "--json")
    assert failing(ended, "proxy") == "HTTPS_PROXY names no proxy that can be used; write http://host:port"
    assert (ended.code, "geheim" in ended.out + ended.err) == (69, False)


def test_a_name_that_is_not_known_ends_with_69(run, configure, monkeypatch):
    def unknown_name(*_: object, **__: object) -> NoReturn:
        """As a machine's DNS says it; one that has none may say it only after a while."""
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown_name)
    configure(document(base_url="https://service.invalid", marketplace="timeout_seconds = 20"))
    ended = run("check", "--json")
    assert ended.code == 69
    said = failing(ended, "account kadikoy")
    assert said.startswith("dns_failed. ")
    assert "Check its spelling and this machine's DNS" in said


def test_a_certificate_that_is_not_trusted_ends_with_69(run, configure, sandbox):
    set_up(configure, sandbox, trust=False)
    ended = run("check", "--json")
    assert ended.code == 69
    said = failing(ended, "account kadikoy")
    assert said.startswith("tls_failed. ")
    assert "marketplace.ca_file" in said


def test_a_wrong_secret_ends_with_1(run, configure, sandbox):
    set_up(configure, sandbox, accounts=account(rest="wrong-secret-of-the-test"))
    ended = run("check", "--json")
    assert ended.code == 1
    said = failing(ended, "account kadikoy")
    assert said.startswith("login_refused. ")
    assert "Compare app_secret_key and rest_secret_key" in said
    assert "wrong-secret-of-the-test" not in ended.out
    assert ended.err == ""  # no log between the findings


def test_a_wrong_secret_does_not_hide_the_account_that_works(run, configure, sandbox):
    set_up(configure, sandbox, accounts=account("moda", "wrong") + account())
    ended = run("check", "--json")
    assert ended.code == 1
    assert [ok for ok, _ in findings(ended).values()] == [True, True, False, True]


@pytest.mark.parametrize(
    "fault, code",
    [
        (Fault(operation="get_restaurants", status=500), "service_error"),
        (Fault.page("get_restaurants", 502), "bad_gateway"),
        (Fault.drop("get_restaurants"), "connection_lost"),
        (Fault.error("get_restaurants", 422, "bilinmeyen hata"), ""),
    ],
    ids=["500", "a proxy's page", "dropped", "refused"],
)
def test_a_service_that_fails_ends_with_1_and_a_code(fault, code, run, sandbox):
    sandbox.world.faults.add(fault)
    ended = run("check", "--json")
    assert ended.code == 1
    assert failing(ended, "account kadikoy").startswith(code)


def test_a_database_that_is_none_ends_with_1_and_its_remedy(run, sandbox, path: Path):
    path.write_bytes(b"a menu, no database" * 100)
    ended = run("check", "--json")
    assert ended.code == 1
    assert "no SQLite file" in failing(ended, "database")


def test_a_database_of_a_newer_program_ends_with_1_and_its_remedy(run, sandbox, pos):
    pos.execute("UPDATE delivery_schema_version SET version_num = '0099'")
    ended = run("check")
    assert ended.code == 1
    assert "FAIL  database: The database has schema 0099" in ended.out
    assert "Install the newer orderbridge" in ended.out


# ---- foods -----------------------------------------------------------------------------------------------------------


def test_the_menu_is_printed_as_it_came(run, sandbox):
    ended = run("foods")
    assert (ended.code, ended.err) == (0, "")
    assert {food["food_id"] for food in ended.json["data"]} >= {1001, 1012}
    assert "Künefe" in ended.out


def test_the_menu_of_a_named_account_is_printed(run, configure, sandbox):
    set_up(configure, sandbox, accounts=account() + account("zincir", "sandbox-chain-secret"))
    assert {food["food_id"] // 1000 for food in run("foods", "--account", "zincir").json["data"]} == {3}


def test_the_menu_of_an_unknown_account_is_wrong_usage(run, sandbox):
    ended = run("foods", "--account", "moda")
    assert (ended.code, ended.out) == (2, "")
    assert "There is no account moda; there are: kadikoy." in ended.err
    assert sandbox.world.calls() == []


def test_a_refused_login_ends_foods_with_1(run, configure, sandbox):
    set_up(configure, sandbox, accounts=account(rest="wrong"))
    ended = run("foods")
    assert (ended.code, ended.out) == (1, "")
    assert "login_refused" in ended.err
    assert "Traceback" not in ended.err


def test_a_service_that_does_not_run_ends_foods_with_69(run, configure, sandbox, closed_port):
    set_up(configure, sandbox, base_url=f"https://127.0.0.1:{closed_port}")
    ended = run("foods")
    assert (ended.code, ended.out) == (69, "")
    assert "connection_refused" in ended.err
