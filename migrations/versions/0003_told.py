"""What came with version 0.3: see CHANGELOG.md. Columns, tables and views are added, none is renamed or taken away.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

from orderbridge.store.columns import code, foreign_code, money, text, utc, utc_now

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MYSQL = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}


def here() -> str:
    return op.get_context().dialect.name


# What the three views show, in their order. A server takes more columns at the end of a view, and keeps who may read it.
SHOWN = (  # noqa: SIM905 - one a line would fill the screen
    "payment_key account order_number status_id status status_text restaurant_id restaurant_name shipping_method"
    " payment_method payment_code amount_due note total discount courier_type courier_fee order_tip ordered_at"
    " scheduled_for customer_name customer_phone address address_description apartment_no building_no"
    " neighborhood_name district_name city_name payload revision last_change service_status_id payload_hash received_utc"
    " changed_utc acknowledged_utc acknowledged_status_id ended_utc ended_by problem pos_revision pos_reference"
).split()
ADDED = ("pos_total",)
VIEWS = {
    "delivery_new_orders": "pos_revision = 0 AND ended_utc IS NULL",
    "delivery_changed_orders": "pos_revision > 0 AND pos_revision < revision",
    "delivery_open_orders": "ended_utc IS NULL",
}


def make_views(columns: tuple[str, ...], *, replace: bool) -> None:
    orders = sa.table("delivery_orders", *map(sa.column, columns))
    for label, condition in VIEWS.items():
        is_computed = label == "delivery_changed_orders" and here() not in {"sqlite", "postgresql"}
        chosen = sa.select(orders).where(sa.text("pos_is_behind = 1" if is_computed else condition))
        op.execute(sa.CreateView(chosen, label, or_replace=replace))


def drop_views() -> None:
    for label in VIEWS:
        op.execute(f"DROP VIEW {label}")


def show_more() -> None:
    """The views, with what this version adds to delivery_orders. Rights that a POS has on them stay."""
    in_place = here() in {"postgresql", "mysql", "mariadb"}
    if not in_place:
        drop_views()
    make_views((*SHOWN, *ADDED), replace=in_place)


def compare_sums() -> None:
    """The POS's own total."""
    op.add_column("delivery_orders", sa.Column("pos_total", money()))
    if here() == "sqlite":  # which would keep '12,50'
        op.execute(
            "CREATE TRIGGER delivery_orders_pos_total BEFORE UPDATE OF pos_total ON delivery_orders"
            " WHEN typeof(NEW.pos_total) NOT IN ('integer', 'real', 'null') BEGIN SELECT RAISE(ABORT,"
            " 'delivery_orders: pos_total is a number, with a point before the decimals'); END"
        )


def find_by_time() -> None:
    """One day's orders, and what has been kept for long enough."""
    op.create_index("delivery_actions_finished_ix", "delivery_actions", ["finished_utc"])
    if here() in {"mysql", "mariadb"}:
        op.create_index("delivery_orders_ended_ix", "delivery_orders", ["ended_utc", "received_utc"])
        return
    ended = sa.text("ended_utc IS NOT NULL")
    op.create_index(
        "delivery_orders_ended_ix",
        "delivery_orders",
        ["received_utc"],
        sqlite_where=ended,
        postgresql_where=ended,
    )


def tell_problems() -> None:
    """What is wrong, for a till to read."""
    text_columns = ("cause", "remedy", "facts")
    op.create_table(
        "delivery_problems",
        sa.Column("code", code(), nullable=False),
        sa.Column("subject", foreign_code(), nullable=False),
        sa.Column("account", code()),
        sa.Column("severity", code(), nullable=False),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("since_utc", utc()),
        sa.Column("how_many", sa.Integer, nullable=False),
        *(sa.Column(name, text(), nullable=False) for name in text_columns),
        sa.Column("told", sa.Integer, nullable=False),
        sa.Column("noted_utc", utc(), nullable=False),
        sa.PrimaryKeyConstraint("code", "subject", name=op.f("delivery_problems_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_daemon",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("seen_utc", utc(), nullable=False),
        sa.Column("silent_from_utc", utc(), nullable=False),
        *(sa.Column(name, text(), nullable=False) for name in ("cause", "remedy")),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_daemon_pk")),
        **MYSQL,
    )
    make_alarms()


def make_alarms() -> None:
    """Once the daemon's sign of life is overdue, by the database's own clock, nobody polls, and that is all it says."""
    shown = "code subject account severity level since_utc how_many cause remedy".split()  # noqa: SIM905
    problems = sa.table("delivery_problems", *map(sa.column, shown))
    daemon = sa.table("delivery_daemon", *map(sa.column, ("id", "seen_utc", "silent_from_utc", "cause", "remedy")))
    lives = sa.select(daemon.c.id).where(daemon.c.silent_from_utc >= utc_now()).exists()
    words = (sa.literal_column(word) for word in ("'not_polling'", "''", "NULL", "'severe'", "1"))
    silence = sa.select(*words, daemon.c.seen_utc, sa.literal_column("1"), daemon.c.cause, daemon.c.remedy)
    told = sa.union_all(sa.select(problems).where(lives), silence.where(daemon.c.silent_from_utc < utc_now()))
    op.execute(sa.CreateView(told, "delivery_alarms"))


def know_the_books() -> None:
    """One row, by which an older copy that was put back is known. The daemon writes it."""
    op.create_table(
        "delivery_books",
        sa.Column("id", code(), nullable=False),
        sa.Column("older_since_utc", utc()),
        sa.Column("last_known_utc", utc()),
        sa.Column("missing", sa.Integer),
        sa.Column("missing_numbers", code()),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_books_pk")),
        **MYSQL,
    )


def upgrade() -> None:
    """From 0002 to 0003."""
    tell_problems()
    know_the_books()
    compare_sums()
    find_by_time()
    show_more()
