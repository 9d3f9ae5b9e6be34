"""The alarms as a till reads them in plain SQL; without a living daemon, only that no orders are polled."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, make_url, select
from tests import databases
from tests.store.samples import Pos, rows

from orderbridge.store import own_tables, problem_rows
from orderbridge.store.database import Database
from orderbridge.store.ddl import NAME_LENGTH
from orderbridge.store.dialects.face import TroubleKind

SINCE = datetime(2026, 3, 1, 12, tzinfo=UTC)
VIEW = "SELECT * FROM delivery_alarms ORDER BY code, subject"


def row(code: str = "login_refused", subject: str = "kadıköy", **changes: Any) -> dict[str, Any]:
    return {
        "code": code, "subject": subject, "account": subject or None, "severity": "severe", "level": 1,
        "since_utc": SINCE, "how_many": 3, "cause": "Platform 'ğüşiöç' demiyor.", "remedy": "Bakın.", "facts": "{}",
        "told": 0,
    } | changes  # fmt: skip


def write(database: Database, *some: dict[str, Any], gone: tuple[problem_rows.RowKey, ...] = ()) -> None:
    rows = dict.fromkeys(gone) | {(one["code"], one["subject"]): one for one in some}
    database.write_now(lambda tx: problem_rows.rewrite(tx, own_tables.problems, rows))


def sign(database: Database, seconds: float = 90) -> None:
    database.write_now(lambda tx: problem_rows.sign(tx, timedelta(seconds=seconds), "Kimse sorgulamıyor.", "Başlatın."))


def test_a_till_reads_what_is_wrong(database: Database, pos: Pos):
    assert rows(pos, VIEW) == []
    write(database, row(), row("quarantined", "", since_utc=None, severity="warning"))
    sign(database)
    first, second = rows(pos, VIEW)
    assert (first["code"], first["subject"], first["account"]) == ("login_refused", "kadıköy", "kadıköy")
    assert (first["severity"], first["level"], first["how_many"]) == ("severe", 1, 3)
    assert (first["cause"], first["remedy"]) == ("Platform 'ğüşiöç' demiyor.", "Bakın.")
    assert str(first["since_utc"]).startswith("2026-03-01 12:00:00")
    assert (second["code"], second["since_utc"], second["account"]) == ("quarantined", None, None)


def test_without_a_sign_of_life_the_one_alarm_is_not_polling(database: Database, pos: Pos):
    write(database, row())
    sign(database)
    assert [one["code"] for one in rows(pos, VIEW)] == ["login_refused"]
    sign(database, -1)
    (only,) = rows(pos, VIEW)
    assert (only["code"], only["subject"], only["account"], only["severity"]) == ("not_polling", "", None, "severe")
    assert (only["cause"], only["remedy"]) == ("Kimse sorgulamıyor.", "Başlatın.")
    assert (only["level"], only["how_many"]) == (1, 1)
    assert only["since_utc"] is not None


def test_what_changes_is_written_anew_and_what_is_over_goes(database: Database, pos: Pos):
    sign(database)
    write(database, row(), row("quarantined", ""))
    write(database, row(how_many=7), gone=(("quarantined", ""),))
    (only,) = rows(pos, VIEW)
    assert (only["code"], only["how_many"]) == ("login_refused", 7)


def test_another_program_takes_over_what_the_daemon_alone_knows_while_it_lives(database: Database):
    write(database, row(), row("clock_wrong", ""))

    def seen(connection: Connection) -> list[str]:
        return [one["code"] for one in problem_rows.of_codes(connection, ["clock_wrong", "database_full"])]

    assert (database.read_now(seen), database.read_now(problem_rows.is_silent)) == ([], False), "none has ever worked"
    sign(database)
    assert (database.read_now(seen), database.read_now(problem_rows.is_silent)) == (["clock_wrong"], False)
    sign(database, -1)
    assert (database.read_now(seen), database.read_now(problem_rows.is_silent)) == ([], True)


@databases.only(databases.POSTGRESQL)
def test_a_server_that_takes_no_writes_is_found(database: Database, url: str):
    assert database.hindrance(problem_rows.try_to_write) is None
    of_reader = make_url(url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    reader = Database(of_reader.render_as_string(hide_password=False), inline=True)
    assert reader.hindrance(problem_rows.try_to_write) is TroubleKind.READ_ONLY
    reader.close()


def test_a_subject_is_cut_to_its_column_and_we_read_the_view_as_a_till_does(database: Database, pos: Pos):
    long = problem_rows.as_subject("ş" * 3000)
    assert len(long) == NAME_LENGTH
    write(database, row(subject=long, account=None))
    sign(database)
    assert rows(pos, VIEW)[0]["subject"] == long
    only = database.read_now(lambda tx: tx.execute(select(own_tables.alarms)).mappings().one())
    assert only["since_utc"] == SINCE
