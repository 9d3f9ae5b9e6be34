"""What is said in each transaction on SQLite goes to the driver itself.

SQLAlchemy takes ten times as long for a statement as SQLite does for one of these, and each transaction has three of
them. Where no transaction has begun for it, it also undoes all that a failed statement stands in.
"""

import sqlite3

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


def driver_of(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection."""
    return connection.connection.driver_connection  # type: ignore[return-value]


def tell_driver(connection: Connection, statement: str) -> int:
    """How many rows it has changed. Its errors are SQLAlchemy's, which everybody knows; nothing is undone."""
    try:
        return driver_of(connection).execute(statement).rowcount
    except sqlite3.Error as error:
        raise DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        ) from error
