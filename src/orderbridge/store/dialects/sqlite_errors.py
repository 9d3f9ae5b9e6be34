"""What SQLite's errors mean: words of their texts, because most have one number, and the driver's name of a constraint."""

from collections.abc import Mapping
from typing import Any

from orderbridge.store.dialects.face import Violated
from orderbridge.store.dialects.sqlite_guard import GUARD

_NO_DATABASE = "database.no_database"
# Of an expression in a trigger, a CHECK or an index of the POS, for this row's values.
REFUSED = frozenset(
    {"malformed JSON", "JSON path error", "integer overflow", "levels of trigger recursion", "pattern too complex"}
)
UNIQUE = {"SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_ROWID"}
BUSY = frozenset({"database is locked", "database table is locked"})
REMEDIES: Mapping[int | str, str] = {
    "disk is full": "database.disk_full",
    "disk I/O error": "database.disk_full",
    "unable to open database file": "database.cannot_open",
    "file is not a database": _NO_DATABASE,
    "malformed": _NO_DATABASE,
    "readonly": "database.readonly",
}


def _violated(error: Any, _: str) -> Violated:
    about = str(error).partition(" constraint failed: ")[2]
    name = getattr(error, "sqlite_errorname", None)
    if name == "SQLITE_CONSTRAINT_NOTNULL":
        return Violated(unfilled=about)
    return Violated(key=about) if name in UNIQUE else Violated()


SIGNS: Mapping[str, Any] = {
    "busy": BUSY,
    "refused": REFUSED,
    "ours": frozenset({f"constraint failed: {GUARD}"}),
    "violated": _violated,
    "full": frozenset({"disk is full"}),
    "read_only": frozenset({"readonly database"}),
    "broken": frozenset({"no such table", "no such column", "no such function"}),
    "remedies": REMEDIES,
}
