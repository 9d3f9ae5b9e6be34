"""What a restart cannot heal ends `orderbridge run` with 78, so that systemd leaves it to a person; never a traceback."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text
from tests import databases
from tests.cli.shell import Run, document
from tests.store.samples import opened

PROGRAM = Path(sys.executable).with_name("orderbridge")


def ended(file: Path, *, as_nobody: bool = False) -> subprocess.CompletedProcess[str]:
    # Coverage would write its file at the end, and say at length that another user may not.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ORDERBRIDGE_", "COV"))}
    program = [sys.executable, "-c", DROP] if as_nobody else [PROGRAM]
    command = [*map(str, program), "run", "--config", str(file)]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", env=environ, check=False, timeout=300)


# Root's own interpreter may lie where nobody else can read it: all that is imported later is imported before.
DROP = """
import os, pathlib, pwd, sys
import orderbridge.cli.service_commands, orderbridge.config, orderbridge.service, encodings.idna
from orderbridge.cli.main import main
orderbridge.config.load(pathlib.Path(sys.argv[3]))
import sqlalchemy.dialects.sqlite, sqlite3, orderbridge.store.dialects.sqlite
user = pwd.getpwnam("nobody")
os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)
sys.argv[0] = "orderbridge"
main()
"""


def judged(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 78, done.stderr
    return done.stderr


@pytest.fixture
def told(command: Run, file: Path) -> Callable[[], str]:
    """The same in this process, which takes a tenth of the time: that a process ends so is said by the others."""

    def told() -> str:
        done = command("run", "--config", file)
        assert "Traceback" not in done.err
        assert done.code == 78, done.err
        return done.err

    return told


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may look into; pytest's own are root's alone."""
    with tempfile.TemporaryDirectory(prefix="obs-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def file(place: Path) -> Path:
    """A configuration that could be used."""
    file = place / "orderbridge.toml"
    file.write_text(document(database=f'url = "sqlite:///{place}/pos.db"', more='[web]\nlisten = ""'))
    return file


def test_a_configuration_that_is_a_folder(place: Path):
    assert "is a folder. Name the file in it." in judged(ended(place))


def test_a_board_for_the_network_that_does_not_say_by_which_names(file: Path):
    file.write_text(file.read_text().replace('listen = ""', 'listen = "0.0.0.0:8480"\nboard = "beside"'))
    assert "hosts" in judged(ended(file))


def test_a_configuration_in_a_place_that_is_no_folder(file: Path):
    assert "cannot be read" in judged(ended(file / "x.toml"))


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@root
def test_a_configuration_that_may_not_be_read(file: Path):
    file.chmod(0o600)
    assert "Check its owner and mode" in judged(ended(file, as_nobody=True))


def no_file(path: Path) -> None:
    """The folder is root's."""


def of_root(path: Path) -> None:
    with opened(path) as pos:
        pos.execute("PRAGMA user_version = 1")
    path.chmod(0o644)


def hidden(path: Path) -> None:
    of_root(path)
    path.chmod(0o600)


def in_a_folder_of_root(path: Path) -> None:
    of_root(path)
    path.chmod(0o666)


@root
@pytest.mark.parametrize("make", [no_file, of_root, hidden, in_a_folder_of_root])
def test_a_sqlite_file_that_may_not_be_written(make: Callable[[Path], None], place: Path, file: Path):
    make(place / "pos.db")
    file.chmod(0o644)
    assert "this user write" in judged(ended(file, as_nobody=True))


@pytest.mark.parametrize("found", ["0099", "cafe", "", "000"])
def test_a_schema_that_no_version_knows(found: str, place: Path, told: Callable[[], str]):
    with opened(place / "pos.db") as pos:
        pos.execute("CREATE TABLE delivery_schema_version (version_num VARCHAR(32) NOT NULL)")
        pos.execute("INSERT INTO delivery_schema_version VALUES (?)", (found,))
    assert "nothing was changed" in told()
    with opened(place / "pos.db") as pos:
        assert pos.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 1


def test_a_schema_with_two_versions(place: Path, told: Callable[[], str]):
    with opened(place / "pos.db") as pos:
        pos.execute("CREATE TABLE delivery_schema_version (version_num VARCHAR(32) NOT NULL)")
        pos.execute("INSERT INTO delivery_schema_version VALUES ('0001'), ('0002')")
    assert "2 rows instead of one" in told()


@pytest.mark.parametrize("url", ["nonsense", "nosuch://db.example/pos"])
def test_a_database_that_cannot_be_one(url: str, file: Path, told: Callable[[], str]):
    file.write_text(document(database=f'url = "{url}"'))
    assert "database.url" in told()


REFUSED = {
    databases.POSTGRESQL: ("CREATE ROLE {name} LOGIN PASSWORD 'x'", "DROP ROLE IF EXISTS {name}"),
    databases.MARIADB: ("CREATE USER {name} IDENTIFIED BY 'x'", "DROP USER IF EXISTS {name}"),
}


@pytest.mark.parametrize(
    "kind, also",
    [
        pytest.param(databases.POSTGRESQL, "SELECT 1", marks=pytest.mark.postgresql),
        pytest.param(  # it sees no schema at all
            databases.POSTGRESQL, "REVOKE ALL ON SCHEMA public FROM PUBLIC", marks=pytest.mark.postgresql
        ),
        pytest.param(databases.MARIADB, "SELECT 1", marks=pytest.mark.mariadb),
    ],
)
def test_a_user_of_a_server_who_lacks_rights(kind: str, also: str, file: Path, request: pytest.FixtureRequest):
    server, name = request.getfixturevalue(f"{kind}_server"), f"obs_poor_{os.getpid()}"
    make, drop = (statement.format(name=name) for statement in REFUSED[kind])
    with databases.own_database(server, name) as url:
        engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text(drop))
            connection.execute(text(make))
            connection.execute(text(also))
        poor = make_url(url).set(username=name, password="x").render_as_string(hide_password=False)
        file.write_text(document(database=f'url = "{poor}"'))
        try:
            said = judged(ended(file))
        finally:
            with engine.connect() as connection:
                connection.execute(text(drop))
    if kind == databases.POSTGRESQL:
        assert f"GRANT USAGE, CREATE ON SCHEMA public TO {name};" in said
        assert "database.failed" not in said, "what is said first has the remedy"
    else:
        assert "let that user create and write tables" in said


COMES_LATER = {
    "en": ("or mount its disk, and let", "The server has no database of that name: create it"),
    "tr": ("ya da diskini bağlayın", "Sunucuda bu adda bir veritabanı yok: oluşturun"),
}


@pytest.mark.parametrize("language", COMES_LATER)
@pytest.mark.parametrize(
    "kind",
    [
        "sqlite",
        pytest.param(databases.POSTGRESQL, marks=pytest.mark.postgresql),
        pytest.param(databases.MARIADB, marks=pytest.mark.mariadb),
    ],
)
def test_what_may_still_come_by_itself_is_tried_again_and_its_cause_and_remedy_are_said_first(
    kind: str, language: str, place: Path, file: Path, command: Run, request: pytest.FixtureRequest
):
    url, said = f"sqlite:///{place}/missing/pos.db", COMES_LATER[language][0]
    if kind != "sqlite":
        server = request.getfixturevalue(f"{kind}_server")
        url = make_url(server).set(database="obs_not_there").render_as_string(hide_password=False)
        said = COMES_LATER[language][1]
    file.write_text(document(database=f'url = "{url}"').replace('"en"', f'"{language}"'))
    file.chmod(0o600)
    done = command("run", "--config", file)
    assert (done.code, said in done.err.splitlines()[0]) == (1, True), done.err
    assert said in command("check", "--config", file).out
