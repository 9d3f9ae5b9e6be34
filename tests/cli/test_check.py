"""`check` against a simulated service on a free port, with real TLS."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.cli.shell import APP, REST, Configure, Ended, account, document
from tests.databases import POSTGRESQL, SERVERS, empty, free_port, own_database, poor_user
from tests.store.samples import NOW_TEXT, opened, put, rows
from tests.store.test_pooler import bouncer

from orderbridge.cli import probes
from orderbridge.config.addresses import fingerprint
from orderbridge.config.keys import new_master_key
from orderbridge.store import schema, tables
from orderbridge.store.leader import LeaderLock
from orderbridge_sandbox import Fault, Sandbox


@pytest.fixture
def sandbox(running: Sandbox, configure: Configure) -> Iterator[Sandbox]:
    running.world.ledger.clear()
    set_up(configure, running)
    yield running
    running.world.faults.clear()


def set_up(configure: Configure, sandbox: Sandbox, **parts: str) -> None:
    market = f'ca_file = "{sandbox.ca_file}"\ncooldown_seconds = 1\ntimeout_seconds = 60'
    web = f'[web]\nlisten = "127.0.0.1:{free_port()}"'  # the usual one may be another program's
    configure(document(base_url=sandbox.base_url, marketplace=market, more=web, **parts))


def findings(ended: Ended) -> dict[str, tuple[str, str]]:
    """By subject: the level, and all texts of its findings."""
    return {one["check"]: (one["level"], f"{one['detail']} {one['remedy']}".strip()) for one in ended.json}


def said_of(ended: Ended, check: str, level: str = "failed") -> str:
    found, said = findings(ended)[check]
    assert found == level, said
    return said


def test_everything_in_place_ends_with_0(run, sandbox, pos, config_file, path):
    pos.execute("UPDATE delivery_guard SET open = 0")
    ended = run("check")
    assert (ended.code, ended.err) == (0, "")
    expected = [
        rf"ok       configuration  {config_file}: 1 account\(s\)",
        rf"(ok|warning)  +disk space     {path.parent}: \d+ MB free",
        rf"ok       database       sqlite:///{path}",
        rf"ok       tables         {tables.HEAD}",
        "ok       rights         writable, and no right is missing",
        "ok       durability     what is committed is on disk",
        r"ok       daemon         none \(`orderbridge run` is not running\)",
        r"ok       web address    127.0.0.1:\d+",
        r"ok       DNS            127.0.0.1 = 127.0.0.1",
        r"ok       TLS            TLSv1.3; issued by CN=orderbridge sandbox CA; for localhost, 127.0.0.1.*",
        f"ok       marketplace    {sandbox.base_url}: HTTP 401",
        r"ok       clock          [+-]\d+ s from the marketplace's .*",
        "ok       account        kadikoy: Örnek Lokanta Kadıköy",
    ]
    shown = [line for line in ended.out.splitlines() if not line.startswith("  ")]  # a remedy stands below its cause
    for line, pattern in zip(shown, expected, strict=True):
        assert re.fullmatch(pattern, line), line


def test_open_and_missing_guards_are_named_and_restored(run, sandbox, pos):
    pos.execute("DROP TRIGGER delivery_orders_guard_delete")
    faults = ("not its own: delivery_orders_guard_delete", "delivery_guard is held open")
    assert [fault for fault in faults if fault not in run("check").out] == []
    run("db", "upgrade")
    pos.execute("UPDATE delivery_guard SET open = 0")
    assert not re.search("held open|dropped", run("check").out)
    assert rows(pos, "SELECT 1 AS n FROM sqlite_master WHERE name = 'delivery_orders_guard_delete'") == [{"n": 1}]


def test_it_speaks_the_language_of_the_configuration(run, configure, sandbox, config_file):
    configure(config_file.read_text().replace('"en"', '"tr"'))
    assert re.search("^tamam  +ayarlar  .*henüz yok", run("check").out, re.MULTILINE | re.DOTALL)


def test_a_check_makes_no_file_and_no_table_and_never_polls(run, sandbox, path):
    ended = run("check", "--json")
    assert "does not exist" in said_of(ended, "database", "warning")
    assert said_of(ended, "web", "ok")
    assert not path.exists()
    path.touch()
    assert said_of(run("check", "--json"), "schema", "warning").startswith("orderbridge's tables do not exist yet")
    with opened(path) as pos:
        assert rows(pos, "SELECT name FROM sqlite_master") == []
    assert sandbox.world.calls("get_current") == []
    run("db", "upgrade")
    with opened(path) as pos:
        pos.execute("UPDATE delivery_guard SET open = open + 1")
        pos.execute("UPDATE delivery_schema_version SET version_num = '0009'")
        assert "the tables have version 0009" in said_of(run("check", "--json"), "schema", "warning")
        assert rows(pos, "SELECT version_num FROM delivery_schema_version") == [{"version_num": "0009"}]


def test_a_second_check_uses_the_stored_token_and_no_secret_is_stored(run, sandbox, pos, path):
    printed = "".join(ended.out + ended.err for ended in (run("check", "--json"), run("check")))
    assert len(sandbox.world.calls("login")) == 1
    kept = b"".join(file.read_bytes() for file in path.parent.glob("pos.db*"))
    assert [secret for secret in (APP, REST) if secret in printed or secret.encode() in kept] == []


def test_a_proxy_and_authorities_of_the_environment_are_named(run, sandbox, monkeypatch, closed_port):
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:geheim@127.0.0.1:{closed_port}")
    monkeypatch.setenv("SSL_CERT_FILE", str(sandbox.ca_file))
    ended = run("check", "--json")
    where = f"127.0.0.1:{closed_port} from HTTPS_PROXY"
    assert said_of(ended, "proxy", "ok") == where
    assert said_of(ended, "certificates", "warning").startswith("SSL_CERT_FILE replaces the system's authorities")
    assert f"(proxy {where})" in said_of(ended, "tls") and "account kadikoy" not in findings(ended)
    assert ended.code == 69 and "geheim" not in ended.out + ended.err
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:geheim@127.0.0.1:1080")
    ended = run("check", "--json")
    assert "HTTPS_PROXY does not name a usable proxy" in said_of(ended, "proxy")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.crt")
    assert "does not exist: /nowhere/ca.crt" in said_of(run("check", "--json"), "certificates", "warning")
    assert "geheim" not in ended.out + ended.err


def test_every_account_is_asked_and_a_wrong_secret_hides_none_that_works(run, configure, sandbox):
    set_up(configure, sandbox, accounts=account("moda", "wrong") + account("zincir", "sandbox-chain-secret"))
    ended = run("check", "--json")
    assert findings(ended)["account moda"][0] == "failed"
    assert said_of(ended, "account zincir", "ok") == "Numune Sofra Üsküdar, Numune Sofra Ataşehir"
    assert {"check", "ok", "level", "detail", "remedy"} == set(ended.json[0])


@pytest.mark.parametrize("fault, skip, code, check, level, said", [  # skip: the request without a token goes first
    (Fault(operation="get_restaurants", status=500), 1, 1, "account kadikoy", "failed", "service_error: HTTP 500 "),
    (Fault.page("get_restaurants", 502), 1, 1, "account kadikoy", "failed", "bad_gateway: HTTP 502 "),
    (Fault.drop("get_restaurants"), 1, 1, "account kadikoy", "failed", "connection_lost: "),
    (Fault.error("get_restaurants", 422, "why"), 1, 1, "account kadikoy", "failed", "refused: HTTP 422: why "),
    (Fault(operation="get_restaurants", status=500), 0, 0, "service", "warning", ""),
    (Fault.page("get_restaurants", 502), 0, 69, "service", "failed", ""),
    (Fault.drop("get_restaurants"), 0, 69, "service", "failed", ""),
])  # fmt: skip
def test_a_service_that_fails_is_named(fault, skip, code, check, level, said, run, sandbox):
    sandbox.world.faults.add(replace(fault, skip=skip))
    ended = run("check", "--json")
    assert (ended.code, said_of(ended, check, level)[: len(said)]) == (code, said)


def test_the_path_is_suspected_only_if_nothing_ever_worked(run, sandbox, pos):
    sandbox.world.faults.add(replace(Fault.page("get_restaurants", 403), times=None))
    before = run("check", "--json")
    assert before.code == 69 and "Compare the path" in said_of(before, "service")
    whose = fingerprint(sandbox.base_url, APP, REST)
    put(pos, "delivery_accounts", fingerprint=whose, name="kadikoy", state="ok", last_poll_ok_utc=NOW_TEXT)
    after = run("check", "--json")
    assert after.code == 69 and "A protection in front of the marketplace" in said_of(after, "service")
    assert "path" not in said_of(after, "service")


@pytest.mark.parametrize("kind", SERVERS)
def test_checking_a_server_changes_nothing(kind, run, configure, sandbox, request):
    database = request.getfixturevalue(f"{kind}_database")
    url = database.engine.url.render_as_string(hide_password=False)
    set_up(configure, sandbox, database=f'url = "{url}"')
    database.write_now(schema.upgrade)
    empty(database)  # of what another test has left
    leader = LeaderLock(database)
    assert leader.take()
    ended = run("check", "--json")
    leader.close()
    assert said_of(ended, "rights", "ok")
    assert said_of(ended, "schema", "ok") == tables.HEAD
    assert said_of(ended, "worker", "ok") != "none (`orderbridge run` is not running)"
    assert database.read_now(lambda tx: tx.exec_driver_sql("SELECT count(*) FROM delivery_orders").scalar()) == 0


@pytest.mark.parametrize("kind", SERVERS)
def test_a_right_that_is_missing_is_named(kind, run, configure, sandbox, request):
    database = request.getfixturevalue(f"{kind}_database")
    database.write_now(schema.upgrade)
    tables_of_it = "ALL TABLES IN SCHEMA public" if kind == POSTGRESQL else f"`{database.engine.url.database}`.*"
    everything = database.engine.url.render_as_string(hide_password=False)
    with poor_user(everything, f"GRANT SELECT ON {tables_of_it} TO {{name}}") as url:
        set_up(configure, sandbox, database=f'url = "{url}"')
        ended = run("check", "--json")
    said = said_of(ended, "rights")
    assert "UPDATE on delivery_orders" in said and "SELECT on delivery_orders" not in said


FLEET = f'url = "{{}}"\n[fleet]\naccounts = "database"\nmaster_key = "{new_master_key()}"'


@pytest.mark.postgresql
@pytest.mark.parametrize("mode", ["", "session", "transaction"])
def test_replicas_cannot_share_a_pooler_that_gives_sessions_away(mode, run, configure, sandbox, postgresql_server):
    with (
        own_database(postgresql_server, f"obs_pooled_{os.getpid()}") as url,
        bouncer(url, mode) if mode else nullcontext(url) as behind,
    ):
        set_up(configure, sandbox, database=FLEET.format(behind))
        ended = run("check", "--json")
    is_refused = mode == "transaction"
    assert "pool_mode = session" in said_of(ended, "database") if is_refused else said_of(ended, "fleet", "ok")


def test_a_replica_on_sqlite_is_refused(run, configure, sandbox):
    set_up(configure, sandbox, database=FLEET.format("sqlite:///pos.db"))
    run("db", "upgrade")
    assert "a SQLite file serves one replica" in run("check").out


@pytest.mark.postgresql
def test_a_missing_right_to_create_tables_is_named_before_they_exist(run, configure, sandbox, postgresql_server):
    with own_database(postgresql_server, f"obs_bare_{os.getpid()}") as bare, poor_user(bare) as url:
        set_up(configure, sandbox, database=f'url = "{url}"')
        said = said_of(run("check", "--json"), "rights")
    grant = f"GRANT USAGE, CREATE ON SCHEMA public TO obs_poor_{os.getpid()};"
    assert "it lacks: CREATE on schema public" in said and grant in said


@pytest.mark.parametrize("exit_code, code, said", [(0, 0, "without an error"), (3, 1, "exit code 3")])
def test_the_alarm_command_is_tried(run, configure, tmp_path, exit_code, code, said):
    program = tmp_path / "alarm"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/heard\ncat >>{tmp_path}/heard\nexit {exit_code}\n')
    program.chmod(0o755)
    configure(document(more=f'[alarms]\ncommand = ["{program}"]'))
    ended = run("alarm", "test")
    assert ended.code == code and said in ended.out + ended.err
    heard = (tmp_path / "heard").read_text()
    assert heard[:11] == "began test " and "This is a test; nothing is wrong." in heard
    configure()
    ended = run("alarm", "test")
    assert ended.code == 78 and "[alarms]" in ended.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for another user")
def test_a_file_that_the_service_cannot_write_is_named(run, pos, path):
    for one in (path.parent, *path.parent.glob("pos.db*")):
        os.chown(one, 12345, 12345)
    assert "chown" not in run("check").out
    os.chown(path, 0, 0)
    path.chmod(0o600)
    assert f"chown 12345 {path}" in run("check").out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks for another user")
def test_a_ca_file_that_the_service_cannot_read_is_named(run, pos, path, configure, running):
    with TemporaryDirectory(dir="/var/tmp") as folder:
        authority = Path(folder, "own ca.pem")
        authority.write_bytes(Path(running.ca_file).read_bytes())
        configure(document(marketplace=f'ca_file = "{authority}"'))
        os.chown(path.parent, 12345, 12345)
        for of_folder, of_file, closed in ((0o755, 0o644, None), (0o755, 0o640, authority), (0o700, 0o644, folder)):
            Path(folder).chmod(of_folder)
            authority.chmod(of_file)
            ended = run("check")
            assert ("cannot read it" in ended.out) == (closed is not None)
            assert closed is None or f"{closed} is closed" in ended.out


def test_a_missing_state_folder_before_the_first_start_is_no_fault(run, configure, config_file, tmp_path, monkeypatch):
    """As the pages print it: init, check, then enable --now."""
    (tmp_path / "orderbridge.service").touch()
    monkeypatch.setattr(probes, "UNITS", tmp_path)
    monkeypatch.setattr(probes, "SYSTEM_FILE", config_file)
    monkeypatch.setattr(probes, "STATE_FILE", f"sqlite:///{tmp_path}/state/orderbridge.db")
    configure(document(database=f'url = "sqlite:///{tmp_path}/state/orderbridge.db"'))
    assert "systemd creates it at the first start" in run("check").out
    configure(document(database=f'url = "sqlite:///{tmp_path}/elsewhere/orderbridge.db"'))
    assert "Create the folder" in run("check").out


def test_a_disk_without_free_inodes_is_not_full_for_existing_files(run, pos, monkeypatch):
    of, open_as_ever = os.statvfs, os.open

    def no_new_file(path, flags, *more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return open_as_ever(path, flags, *more)

    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*of(path)[:6], 0, 0, *of(path)[8:]]))
    monkeypatch.setattr(os, "open", no_new_file)
    assert "database_full" not in run("status").out
