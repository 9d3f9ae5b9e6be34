"""What a POS may do, as GRANT statements: read all but the tokens, and write the columns that are its own."""

from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata, tokens

INSERTED = (
    "action",
    "payment_key",
    "restaurant_id",
    "food_id",
    "account",
    "preparing_time",
    "reason_id",
    "valid_minutes",
    "request_id",
    "created_by",
    "withdraw",
)
UPDATED = {"delivery_actions": ("withdraw",), "delivery_orders": ("pos_revision", "pos_reference")}
READ = (*(name for name in sorted(metadata.tables) if name != tokens.name), SCHEMA_VERSION_TABLE)

WITHOUT_ROLES = (
    "-- SQLite has no users and no roles: whoever may write the file may write every column of it.",
    "-- Let only the POS and orderbridge write the file, and let the POS write only these columns:",
    f"-- INSERT into delivery_actions: {', '.join(INSERTED)}",
    *(f"-- UPDATE of {table}: {', '.join(columns)}" for table, columns in UPDATED.items()),
)


def statements(dialect: str, role: str, place: str | None) -> tuple[str, ...]:
    """For an existing role or user. `place` is the schema on PostgreSQL, the database on MariaDB and MySQL."""
    match dialect:
        case "postgresql":
            who, where = _quoted(role, '"'), _quoted(place or "public", '"')
            return (f"GRANT USAGE ON SCHEMA {where} TO {who};", *_on_tables(who, f"{where}."))
        case "mysql" | "mariadb":
            return _on_tables(_account(role), f"{_quoted(place, '`')}." if place else "")
        case "mssql":
            note = "-- SQL Server grants INSERT on whole tables only."
            closed = role.replace("]", "]]")
            return (note, *_on_tables(f"[{closed}]", "", insert_columns=False))
        case _:
            return WITHOUT_ROLES


def _on_tables(who: str, where: str, *, insert_columns: bool = True) -> tuple[str, ...]:
    columns = f" ({', '.join(INSERTED)})" if insert_columns else ""
    return (
        *(f"GRANT SELECT ON {where}{name} TO {who};" for name in READ),
        f"GRANT INSERT{columns} ON {where}delivery_actions TO {who};",
        *(f"GRANT UPDATE ({', '.join(names)}) ON {where}{table} TO {who};" for table, names in UPDATED.items()),
    )


def _quoted(name: str, mark: str) -> str:
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _account(role: str) -> str:
    """`name` is a role, or a user on any host; `name@host` is a user."""
    name, at, host = role.rpartition("@")
    return f"{_quoted(name, '`')}@{_quoted(host, '`')}" if at else _quoted(role, "`")
