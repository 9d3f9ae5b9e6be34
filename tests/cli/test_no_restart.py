"""Faults that a restart cannot correct end `orderbridge run` with 78, so systemd does not restart it; no traceback."""

import os

import pytest
from sqlalchemy import make_url
from tests import databases
from tests.cli.shell import document
from tests.store.samples import opened


@pytest.fixture
def ended(run):
    def ended() -> str:
        done = run("run")
        assert "Traceback" not in done.err
        assert done.code == 78, done.err
        return done.err

    return ended


@pytest.mark.parametrize("found", [["0099"], ["cafe"], [""], ["000"], ["0001", "0002"]], ids=str)
def test_a_schema_that_no_version_knows(found: list[str], path, ended):
    with opened(path) as pos:
        pos.execute("CREATE TABLE delivery_schema_version (version_num VARCHAR(32) NOT NULL)")
        pos.executemany("INSERT INTO delivery_schema_version VALUES (?)", [[one] for one in found])
    assert ("nothing was changed" if len(found) == 1 else "2 rows instead of one") in ended()
    with opened(path) as pos:
        assert pos.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 1


@pytest.mark.parametrize("kind, also", [
    pytest.param(databases.POSTGRESQL, [], marks=pytest.mark.postgresql),
    # This user sees no schema at all.
    pytest.param(databases.POSTGRESQL, ["REVOKE ALL ON SCHEMA public FROM PUBLIC"], marks=pytest.mark.postgresql),
    pytest.param(databases.MARIADB, [], marks=pytest.mark.mariadb),
])  # fmt: skip
def test_a_user_of_a_server_who_lacks_rights(kind: str, also: list[str], configure, ended, request):
    server = request.getfixturevalue(f"{kind}_server")
    with databases.own_database(server, f"obs_poor_{os.getpid()}") as url, databases.poor_user(url, *also) as poor:
        configure(document(database=f'url = "{poor}"'))
        said = ended()
    if kind == databases.POSTGRESQL:
        assert f"GRANT USAGE, CREATE ON SCHEMA public TO obs_poor_{os.getpid()};" in said
        assert "database.failed" not in said, "the first message has the remedy"
    else:
        assert "let that user create and write tables" in said


COMES_LATER = {
    "en": ("or mount its disk, and let", "The server has no database of that name: create it"),
    "tr": ("ya da diskini bağlayın", "Sunucuda bu adda bir veritabanı yok: oluşturun"),
}


@pytest.mark.parametrize("language", COMES_LATER)
@pytest.mark.parametrize("kind", databases.KINDS)
def test_a_database_that_may_appear_later_is_tried_again(kind: str, language: str, path, configure, run, request):
    """The cause and the remedy are printed first."""
    url, said = f"sqlite:///{path.parent}/missing/pos.db", COMES_LATER[language][0]
    if kind != "sqlite":
        server = request.getfixturevalue(f"{kind}_server")
        url = make_url(server).set(database="obs_not_there").render_as_string(hide_password=False)
        said = COMES_LATER[language][1]
    configure(document(database=f'url = "{url}"').replace('"en"', f'"{language}"'))
    done = run("run")
    assert done.code == 1 and said in done.err.splitlines()[0], done.err
    assert said in run("check").out
