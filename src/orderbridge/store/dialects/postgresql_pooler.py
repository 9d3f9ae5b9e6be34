"""Detects a pooler that gives a server process to other sessions after each transaction, and our locks with it."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine

from orderbridge.store.dialects.postgresql_sessions import begin_with_the_last

ROUNDS = 8  # a busy pooler hides it in one round of ten


def is_pooled(url: URL, options: Mapping[str, Any]) -> bool:
    """Whether the address leads to such a pooler. `options`: for create_engine."""
    if url.get_driver_name() != "psycopg":
        return False
    engine = lasting_sessions(url, options)
    with engine.connect() as connection:
        return changes_process(connection, engine)


def lasting_sessions(url: URL, options: Mapping[str, Any], **limits: Any) -> Engine:
    """An engine whose sessions commit each statement and prepare none: a pooler would refuse that. `limits`: psycopg's."""
    arguments = {**options["connect_args"], "prepare_threshold": None, **limits}
    given = {**options, "isolation_level": "AUTOCOMMIT", "connect_args": arguments}
    engine = create_engine(url, hide_parameters=True, poolclass=NullPool, **given)
    begin_with_the_last(engine)
    return engine


def changes_process(connection: Connection, engine: Engine) -> bool:
    """Whether two sessions share a server process, or change it while one of them is in a transaction."""
    with engine.connect() as other:
        before = process_of(connection), process_of(other)
        return before[0] == before[1] or any(_changes(connection, other, before) for _ in range(ROUNDS))


def process_of(connection: Connection) -> int:
    """The number of the server process that answers."""
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def _changes(connection: Connection, other: Connection, before: tuple[int, int]) -> bool:
    other.exec_driver_sql("BEGIN")
    within = process_of(connection), process_of(other)
    other.exec_driver_sql("ROLLBACK")
    return within != before or process_of(other) != before[1]
