"""Limits the POS to reading (except tokens and encrypted secrets) and to writing its own columns.

On servers these are GRANT statements. On SQLite triggers refuse other writes; their messages name the table, the
refused statement and the remedy.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, Table, inspect

from orderbridge.store.ddl import after, execute
from orderbridge.store.dialects import of
from orderbridge.store.dialects.face import Dialect
from orderbridge.store.own_tables import OURS_ALONE
from orderbridge.store.tables import ASKED, HEAD, SCHEMA_VERSION_TABLE, accounts, actions, metadata, tokens

INSERTED = (*ASKED, "withdraw")
ALL = (*sorted(metadata.tables), SCHEMA_VERSION_TABLE)  # tables and views
READ = tuple(name for name in ALL if name not in {tokens.name, *OURS_ALONE})
UPDATED = {"delivery_actions": ("withdraw",), "delivery_orders": ("pos_revision", "pos_reference", "pos_total")}

_ALONE = "is for orderbridge alone; read this table, and keep what is yours in tables of your own"
_WITHDRAW = "delivery_actions: DELETE is for orderbridge alone; set withdraw = 1 to take a row back"
_BY_ITSELF = "delivery_actions: id and created_utc are filled in by themselves; leave them out of the INSERT"
_REPLACED = "delivery_actions: REPLACE would take away a row that is written; use INSERT, or INSERT OR IGNORE, instead"

# The daemon's columns, with `state` and `attempts` first.
_OURS = [name for name in list(actions.c.keys()) if name not in {"id", *INSERTED, "created_utc"}]

# Without grants, a trigger refuses an INSERT that fills in the daemon's columns, so that its programmer sees the error.
# UPDATEs are not checked, because the daemon itself writes these columns later.
_FILLED_IN = (
    "NEW.state <> 'pending' OR NEW.attempts <> 0"
    f" OR coalesce({', '.join(f'NEW.{column}' for column in _OURS[2:])}) IS NOT NULL"
)
_NOT_YOURS = f"delivery_actions: {', '.join(_OURS[:-1])} and {_OURS[-1]} are written by orderbridge; leave them out"

# A row must show what was sent, so these columns do not change after the INSERT. This applies to the daemon, too.
WRITTEN_ONCE = ("id", *ASKED, "created_utc")
KEPT = "delivery_actions: of a row that is written only withdraw is changed; set withdraw = 1 and insert another row"
_CHANGE = f"BEFORE UPDATE OF {', '.join(WRITTEN_ONCE)}"
_CHANGED = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in WRITTEN_ONCE)

# In the trigger, an omitted id is -1, and `now` is the same time throughout a statement.
_BY_HAND = "NEW.id <> -1 OR NEW.created_utc IS NOT {now}"


# ---- grants ----------------------------------------------------------------------------------------------------------


def grant_statements(dialect: str, role: str, place: str | None) -> tuple[str, ...]:
    """The GRANTs for an existing role or user.

    `place` is the schema on PostgreSQL, the database on MariaDB and MySQL.
    """
    found = of(dialect).grantee(role, place)
    if found is None:  # no grants: comments list the permitted columns
        return (
            f"-- INSERT delivery_actions: {', '.join(INSERTED)}",
            *(f"-- UPDATE {table}: {', '.join(columns)}" for table, columns in UPDATED.items()),
        )
    who, where, first = found
    return (
        *first,
        *(f"GRANT SELECT ON {where}{name} TO {who};" for name in READ),
        f"GRANT INSERT ({', '.join(INSERTED)}) ON {where}delivery_actions TO {who};",
        *(f"GRANT UPDATE ({', '.join(names)}) ON {where}{table} TO {who};" for table, names in UPDATED.items()),
    )


# ---- triggers --------------------------------------------------------------------------------------------------------


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _keep(
    dialect: Dialect, table: str, statement: str, why: str, *, label: str = "", condition: str = ""
) -> Iterator[str]:
    word = statement.split()[1]
    label = label or word.lower()
    when = dialect.outside + (condition and f" AND ({condition})")
    yield from dialect.refuse(f"{table}_guard_{label}", table, statement, when, why or f"{table}: {word} {_ALONE}")


def on_table(table: Table, dialect: Dialect) -> Iterator[str]:
    """The triggers of a table."""
    name, ours = table.name, UPDATED.get(table.name)
    if table is actions:
        yield from _on_inserted(dialect)
    else:
        yield from _keep(dialect, name, "BEFORE INSERT", "")
        yield from _keep(dialect, name, "BEFORE DELETE", "")
    if ours is None:
        yield from _keep(dialect, name, "BEFORE UPDATE", "")
        return
    elsewhere = WRITTEN_ONCE if table is actions else ()  # another trigger refuses these with a better message
    theirs = ", ".join(column.name for column in table.c if column.name not in {*ours, *elsewhere})
    why = f"{name}: a POS changes {_listed(ours)}, and orderbridge all else; leave other columns out of the UPDATE"
    yield from _keep(dialect, name, f"BEFORE UPDATE OF {theirs}", why)


def _for_everybody(dialect: Dialect) -> Iterator[str]:
    """The triggers that also apply to our transactions."""
    yield from dialect.refuse("delivery_actions_insert", actions.name, "BEFORE INSERT", _FILLED_IN, _NOT_YOURS)
    yield from dialect.refuse("delivery_actions_update", actions.name, _CHANGE, _CHANGED, KEPT)


def _on_inserted(dialect: Dialect) -> Iterator[str]:
    """The triggers for the POS's INSERT."""
    name, by_hand = actions.name, _BY_HAND.format(now=dialect.utc_now)
    yield from _keep(dialect, name, "BEFORE INSERT", _BY_ITSELF, condition=by_hand)
    yield from _keep(dialect, name, "AFTER INSERT", _REPLACED, label="replace", condition=dialect.replaced)
    yield from _keep(dialect, name, "BEFORE DELETE", _WITHDRAW)
    yield from _keep(dialect, name, f"BEFORE UPDATE OF {', '.join(WRITTEN_ONCE)}", KEPT, label="written")


def on_version(dialect: Dialect) -> Iterator[str]:
    """The triggers of the schema's version.

    Below the newest revision an UPDATE is permitted even if the guard is closed: a DBA's script runs migrations that
    way, and so does an upgrade from a version without a guard. `renew` creates the trigger again.
    """
    since = f"OLD.version_num >= '{HEAD}'"
    yield from _keep(dialect, SCHEMA_VERSION_TABLE, "BEFORE INSERT", "")
    yield from _keep(dialect, SCHEMA_VERSION_TABLE, "BEFORE DELETE", "")
    yield from _keep(dialect, SCHEMA_VERSION_TABLE, "BEFORE UPDATE", "", condition=since)


def gone(connection: Connection) -> dict[str, str]:
    """Our triggers that were dropped by hand, with the statements to create them."""
    if not (wanted := _wanted(connection)):
        return {}
    there = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars())
    return {name: statement for name, statement in wanted.items() if name not in there}


def _wanted(connection: Connection) -> dict[str, str]:
    """Our triggers by name, with the statements that create them."""
    dialect = of(connection.dialect.name)
    if not dialect.guards:
        return {}
    tables = [table for table in metadata.tables.values() if not table.is_view]
    made = [*dialect.guards, *_for_everybody(dialect), *on_version(dialect)]
    made += [one for table in tables for one in on_table(table, dialect)]
    return {one.split()[2]: one for one in made if one.startswith("CREATE TRIGGER")}


def renew(connection: Connection) -> None:
    """Create our triggers again after migrations: they name the columns and the newest revision."""
    for name in _wanted(connection):
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
    execute(connection, gone(connection).values())


def is_held_open(connection: Connection) -> bool:
    """Whether a person has opened the guard, so that every program may write. Only the committed value counts."""
    table = of(connection.dialect.name).guard
    if table is None or not inspect(connection).has_table(table):
        return False
    return bool(connection.exec_driver_sql(f"SELECT open FROM {table}").scalar())  # noqa: S608 - a name of ours


after(actions, _for_everybody)
after(accounts, lambda dialect: dialect.guards)
for _table in metadata.tables.values():
    if not _table.is_view:
        after(_table, lambda dialect, table=_table: on_table(table, dialect))  # type: ignore[misc]
