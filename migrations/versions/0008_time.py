"""Times of scheduled orders, remarks, since when a restaurant is closed, and parts of a piece: see CHANGELOG.md.

Each change is a function of its own, called from upgrade().

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import context, op

from orderbridge.store.columns import big, money, text, utc

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# What the views show, in their order: new columns stand at the end, because a server adds them nowhere else.
SHOWN = (  # noqa: SIM905 - one a line would fill the screen
    "payment_key account order_number status_id status status_text restaurant_id restaurant_name shipping_method"
    " payment_method payment_code amount_due note total discount courier_type courier_fee order_tip ordered_at"
    " scheduled_for customer_name customer_phone address address_description apartment_no building_no"
    " neighborhood_name district_name city_name payload revision last_change service_status_id payload_hash received_utc"
    " changed_utc acknowledged_utc acknowledged_status_id ended_utc ended_by problem pos_revision pos_reference pos_total"
    " contents_revision"
).split()
ADDED = ("start_utc", "remarks")
OPEN = "delivery_open_orders"
VIEWS = {
    "delivery_new_orders": "pos_revision = 0 AND ended_utc IS NULL",
    "delivery_changed_orders": "pos_revision > 0 AND pos_revision < revision",
    OPEN: "ended_utc IS NULL",
}
NEEDS_ANSWER = (
    "CASE WHEN (ended_utc IS NULL AND delivery_orders.status_id = 1 AND NOT (EXISTS (SELECT delivery_actions.id"
    " FROM delivery_actions WHERE delivery_actions.payment_key = delivery_orders.payment_key"
    " AND action IN ('accept', 'cancel') AND state IN ('pending', 'sending', 'done'))))"
    " THEN delivery_orders.received_utc END AS needs_answer_since"
)
ITEMS = "delivery_order_items"
KEPT_COLUMNS = [column for column in SHOWN if column not in {"pos_revision", "pos_reference", "pos_total"}]
A_POS_CHANGES = "a POS changes pos_revision, pos_reference and pos_total, and orderbridge all else"


def here() -> str:
    return op.get_context().dialect.name


def make_views(*added: str, replace: bool) -> None:
    orders = sa.table("delivery_orders", *map(sa.column, (*SHOWN, *added)))
    for label, condition in VIEWS.items():
        is_computed = label == "delivery_changed_orders" and here() not in {"sqlite", "postgresql"}
        columns = [orders.c[name] for name in SHOWN]
        more = [sa.literal_column(NEEDS_ANSWER)] if label == OPEN else []
        chosen = sa.select(*columns, *more, *(orders.c[name] for name in added))
        chosen = chosen.where(sa.text("pos_is_behind = 1" if is_computed else condition))
        op.execute(sa.CreateView(chosen, label, or_replace=replace))


def drop_views() -> None:
    for label in VIEWS:
        op.execute(f"DROP VIEW {label}")


def guard_orders(*added: str) -> None:
    """SQLite's trigger names the columns that are not the POS's."""
    op.execute("DROP TRIGGER IF EXISTS delivery_orders_guard_update")
    theirs = [*KEPT_COLUMNS[:-1], "silence_from", "service_key", "contents_revision", *added]
    op.execute(
        f"CREATE TRIGGER delivery_orders_guard_update BEFORE UPDATE OF {', '.join(theirs)} ON delivery_orders"  # noqa: S608
        " WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT,"
        f" 'delivery_orders: {A_POS_CHANGES}; leave other columns out of the UPDATE'); END"
    )


def guard_version(since: str) -> None:
    """From this revision on nobody else changes it. The step to this revision is noted behind this trigger."""
    op.execute("DROP TRIGGER IF EXISTS delivery_schema_version_guard_update")
    op.execute(
        "CREATE TRIGGER delivery_schema_version_guard_update BEFORE UPDATE ON delivery_schema_version"  # noqa: S608
        f" WHEN (SELECT open FROM delivery_guard) = 0 AND (OLD.version_num >= '{since}') BEGIN SELECT RAISE(ABORT,"
        " 'delivery_schema_version: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables"
        " of your own'); END"
    )


def add_to_orders() -> None:
    """When to begin a scheduled order, and what is merely noted. Rights that a POS has on the views stay."""
    op.add_column("delivery_orders", sa.Column("start_utc", utc()))
    op.add_column("delivery_orders", sa.Column("remarks", text()))
    if here() == "sqlite":
        drop_views()
        guard_orders(*ADDED)
    make_views(*ADDED, replace=here() != "sqlite")


def add_to_restaurants() -> None:
    """Since when a restaurant has its status, and by whom."""
    op.add_column("delivery_restaurants", sa.Column("status_since_utc", utc()))
    op.add_column("delivery_restaurants", sa.Column("status_by", text()))


def add_to_books() -> None:
    """The counter by which an older copy is known."""
    op.add_column("delivery_books", sa.Column("generation", big(), nullable=False, server_default=sa.text("0")))


def change_quantity(old: sa.types.TypeEngine[object], new: sa.types.TypeEngine[object]) -> None:
    """`1.5` is a quantity, too.

    SQLite has no statement for this, and a table made anew would lose the POS's own triggers and indexes. No value is
    stored otherwise under the other type, so the declaration alone is changed, as SQLite's documentation of ALTER TABLE
    describes it. In a script for an empty database, 0001 makes the column so already.
    """
    if here() != "sqlite":
        op.alter_column(ITEMS, "quantity", existing_type=old, type_=new, existing_nullable=True)
        return
    if context.is_offline_mode():
        return
    before, after = (f"quantity {kind.compile(dialect=op.get_context().dialect)}" for kind in (old, new))
    connection = op.get_bind()
    cookie = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = ?", (before, after, ITEMS)
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {cookie + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")


def drop_unused() -> None:
    """Columns that are always NULL."""
    op.drop_column("delivery_accounts", "lease_owner")
    op.drop_column("delivery_accounts", "lease_expires_utc")
    op.drop_column("delivery_replicas", "seen_utc")


def give_views_to_their_readers() -> None:
    """The views that are not made anew above, which ran with the rights of their maker. In a script 0003 and 0005 do it."""
    if here() in {"sqlite", "postgresql"} or context.is_offline_mode():
        return
    for label in ("delivery_alarms", "delivery_lamp"):
        _, made, *_ = op.get_bind().exec_driver_sql(f"SHOW CREATE VIEW {label}").one()
        query = made.partition(" VIEW ")[2]
        op.execute(sa.text(f"CREATE OR REPLACE SQL SECURITY INVOKER VIEW {query}".replace(":", "\\:")))


def upgrade() -> None:
    """From 0007 to 0008."""
    add_to_orders()
    add_to_restaurants()
    add_to_books()
    change_quantity(big(), money())
    drop_unused()
    give_views_to_their_readers()
    if here() == "sqlite":
        guard_version(revision)
