"""What a POS may do, as GRANT statements: read all but the tokens, and write the columns that are its own."""

from orderbridge.store.dialects import of
from orderbridge.store.tables import ASKED, SCHEMA_VERSION_TABLE, metadata, tokens

INSERTED = (*ASKED, "withdraw")
ALL = (*sorted(metadata.tables), SCHEMA_VERSION_TABLE)  # tables and views
READ = tuple(name for name in ALL if name != tokens.name)
UPDATED = {"delivery_actions": ("withdraw",), "delivery_orders": ("pos_revision", "pos_reference", "pos_total")}

WITHOUT_ROLES = (
    "-- SQLite has no users and no roles: whoever may write the file may write every column of it.",
    "-- Let only the POS and orderbridge write the file, and let the POS write only these columns:",
    f"-- INSERT into delivery_actions: {', '.join(INSERTED)}",
    *(f"-- UPDATE of {table}: {', '.join(columns)}" for table, columns in UPDATED.items()),
)


def statements(dialect: str, role: str, place: str | None) -> tuple[str, ...]:
    """For an existing role or user. `place` is the schema on PostgreSQL, the database on MariaDB and MySQL."""
    return of(dialect).grants(role, place, _on_tables)


def _on_tables(who: str | None, where: str = "", *, insert_columns: bool = True) -> tuple[str, ...]:
    if who is None:
        return WITHOUT_ROLES
    columns = f" ({', '.join(INSERTED)})" if insert_columns else ""
    return (
        *(f"GRANT SELECT ON {where}{name} TO {who};" for name in READ),
        f"GRANT INSERT{columns} ON {where}delivery_actions TO {who};",
        *(f"GRANT UPDATE ({', '.join(names)}) ON {where}{table} TO {who};" for table, names in UPDATED.items()),
    )
