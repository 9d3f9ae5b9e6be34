"""db grants and db backup, as a DBA or a technician runs them."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert, make_url, select
from tests.cli.shell import document
from tests.databases import MARIADB, SERVERS, own_database
from tests.test_daemon import COMMAND

from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge.store.tables import actions, events, orders


@pytest.mark.parametrize("kind", SERVERS)
def test_the_grants_on_a_server_name_the_role_and_the_place(kind, run, configure, request):
    url = request.getfixturevalue(f"{kind}_database").engine.url.render_as_string(hide_password=False)
    configure(document(database=f'url = "{url}"'))
    ended = run("db", "grants", "till")
    assert (ended.code, ended.err) == (0, "")
    place, role = (f"`{make_url(url).database}`", "`till`") if kind == MARIADB else ('"public"', '"till"')
    assert f"ON {place}.delivery_orders TO {role};" in ended.out


def test_the_grants_on_sqlite_are_comments_and_a_backup_prints_its_place(run, pos, path):
    assert "no roles" in run("db", "grants", "pos").out
    pos.execute("UPDATE delivery_schema_version SET version_num = '0009'")  # as before an upgrade
    target = path.with_name("copy.db")
    ended = run("db", "backup", target)
    assert ended.code == 0 and ended.err == "" and str(target) in ended.out
    with closing(sqlite3.connect(target)) as copied:
        assert copied.execute("SELECT count(*) FROM delivery_orders").fetchone() == (0,)


def test_a_backup_that_cannot_be_made_says_why(run, pos, path):
    for where, message in (("pos.db", "already exists"), (".", "is a folder"), ("no/x.db", "Create it")):
        ended = run("db", "backup", path.parent / where)
        assert ended.code == 1 and ended.out == "" and message in ended.err
    pos.close()
    path.unlink()
    ended = run("db", "backup", path.with_name("copy.db"))
    assert ended.code == 1 and "does not exist" in ended.err and not path.with_name("copy.db").exists()


@pytest.mark.parametrize("kind", SERVERS)
def test_on_a_server_the_commands_back_up_and_restore(kind, run, configure, request, tmp_path, config_file):
    """They are run as printed: into a file, and back over tables that have changed since."""
    tool = {"postgresql": "pg_dump", MARIADB: "mariadb-dump"}[kind]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    server = request.getfixturevalue(f"{kind}_server")
    with own_database(server, f"obs_backup_{os.getpid()}") as url:
        before = with_database(url, lambda database: (put(database, KEYS[0]), contents(database))[1])
        configure(document(database=f'url = "{url}"'))
        file = tmp_path / "orders' dump"
        assert run("db", "backup", file).code == 1
        file.touch()
        (dump,), (restore,) = (run("db", work, file).out.splitlines() for work in ("backup", "restore"))
        assert tool in dump and tool not in restore  # that one would write over the file
        if (done := shell(dump, url)).returncode and "version mismatch" in done.stderr:
            pytest.skip("the tools are older than the server")
        assert done.returncode == 0, done.stderr
        assert with_database(url, lambda database: (put(database, KEYS[1]), contents(database))[1]) != before
        upgrade = f"{COMMAND} db upgrade --config {config_file}"
        restored = shell(restore.replace("orderbridge db upgrade", upgrade), url)
        assert restored.returncode == 0, restored.stderr
        assert with_database(url, contents) == before
        with_database(url, lambda database: put(database, KEYS[2]))  # new ids continue where they were


KEYS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]


def with_database(url, work):
    with closing(Database(url, inline=True)) as database:
        database.write_now(schema.upgrade)
        return work(database)


def put(database, key):
    moment = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    order = {"payment_key": key, "account": "kadikoy", "status": "RECEIVED", "customer_name": "Ayşe ğ😀"}

    def work(tx):
        tx.execute(insert(orders).values(**order, total="12.5", received_utc=moment, changed_utc=moment))
        tx.execute(insert(events).values(payment_key=key, at_utc=moment, event="received"))
        tx.execute(insert(actions).values(action="accept", payment_key=key, preparing_time=20, request_id=key))

    database.write_now(work)


def contents(database):
    tables = (orders, events, actions)
    return database.read_now(lambda tx: [sorted(map(tuple, tx.execute(select(table)))) for table in tables])


def shell(command, url):
    """With the password where a person would have typed it."""
    env = os.environ | {"PGPASSWORD": make_url(url).password or ""}
    return subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True, env=env)
