"""What PostgreSQL's errors mean: its SQLSTATEs and their classes (two characters), and words where psycopg has no code."""

from collections.abc import Mapping
from typing import Any

from orderbridge.store.dialects import postgresql_commit, servers
from orderbridge.store.dialects.face import Violated

POOLED = "statement pooling mode"  # PgBouncer's words: no transaction has two statements there
TRIGGER_RAISED = " at RAISE"  # in an error's context: whatever code a trigger gives its own error


def _violated(error: Any, _: str) -> Violated:
    said: Any = getattr(error, "diag", None)
    state = getattr(error, "sqlstate", None)
    if state == "23505":
        return Violated(key=said.constraint_name)
    if state == "23502":
        return Violated(unfilled=f"{said.table_name}.{said.column_name}")
    return Violated()


def _raised(error: Any) -> bool:
    """Whether a function's own RAISE is the error."""
    return TRIGGER_RAISED in (getattr(getattr(error, "diag", None), "context", None) or "")


SIGNS: Mapping[str, Any] = {
    "busy": frozenset({"55P03", "40P01", "40001"}),
    # Classes: CASE without a match, a query of one row that has several, an external routine, a broken trigger's protocol,
    # WITH CHECK OPTION, limits of one row (an index entry that is too long), PL/pgSQL.
    "refused": frozenset({"20", "21", "27", "2D", "2F", "38", "39", "40002", "44", "54", "P0"}),
    "refuses": _raised,
    "ours": frozenset({"2200H", "NOTIFY queue"}),  # a sequence at its end; the server's queue is full
    "violated": _violated,
    "full": frozenset({"53100", "No space left"}),
    "read_only": frozenset({"25006"}),
    "broken": frozenset({"42P01", "42703", "42883"}),
    # psycopg has no SQLSTATE for a connection that was refused, only the server's words.
    "denied": frozenset(
        {
            "42501",
            "3F000",
            "28P01",
            "28000",
            "password authentication failed",
            'FATAL:  role "',
            "no pg_hba.conf entry",
            POOLED,
        }
    ),
    "remedies": {
        "3D000": "database.none_there",
        'FATAL:  database "': "database.none_there",
        "26000": servers.POOLED,  # a prepared statement is not there, or there already: it is another session's
        "42P05": servers.POOLED,
        POOLED: servers.POOLED,
        "53100": servers.FULL,
        "too many connections for": servers.USER_LIMIT,
        "53300": servers.TOO_MANY,
        "too many clients": servers.TOO_MANY,
        "connection slots are reserved": servers.TOO_MANY,
        postgresql_commit.UNCONFIRMED: "database.unconfirmed",
        "read-only": servers.STANDBY,
    },
}
