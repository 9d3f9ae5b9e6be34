"""What a POS may do, as GRANT statements: read all but the tokens and sealed secrets, and write the columns that are its own."""

from orderbridge.store import board_tables, fleet_tables
from orderbridge.store.dialects import of
from orderbridge.store.tables import ASKED, SCHEMA_VERSION_TABLE, metadata, tokens
from orderbridge.texts import say

INSERTED = (*ASKED, "withdraw")
ALL = (*sorted(metadata.tables), SCHEMA_VERSION_TABLE)  # tables and views
READ = tuple(name for name in ALL if name not in {tokens.name, *board_tables.OURS_ALONE, *fleet_tables.OURS_ALONE})
UPDATED = {"delivery_actions": ("withdraw",), "delivery_orders": ("pos_revision", "pos_reference", "pos_total")}


def statements(dialect: str, role: str, place: str | None) -> tuple[str, ...]:
    """For an existing role or user. `place` is the schema on PostgreSQL, the database on MariaDB and MySQL."""
    return of(dialect).grants(role, place, _on_tables)


def _on_tables(who: str | None, where: str = "") -> tuple[str, ...]:
    if who is None:
        return (
            *(f"-- {line}" for line in say("grants.without_roles").splitlines()),
            f"-- INSERT delivery_actions: {', '.join(INSERTED)}",
            *(f"-- UPDATE {table}: {', '.join(columns)}" for table, columns in UPDATED.items()),
        )
    return (
        *(f"GRANT SELECT ON {where}{name} TO {who};" for name in READ),
        f"GRANT INSERT ({', '.join(INSERTED)}) ON {where}delivery_actions TO {who};",
        *(f"GRANT UPDATE ({', '.join(names)}) ON {where}{table} TO {who};" for table, names in UPDATED.items()),
    )
