"""What came with version 0.2: see CHANGELOG.md. Columns are added, none is renamed or taken away.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

from orderbridge.store.columns import big, foreign_code, key, text, utc_now

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def here() -> str:
    return op.get_context().dialect.name


def refuse_foods_below_1() -> None:
    """What has ended stays as it is; what waits could never be sent."""
    now = utc_now().compile(dialect=op.get_context().dialect)
    op.execute(
        "UPDATE delivery_actions SET state = 'refused', error_code = 'bad_arguments',"  # noqa: S608 - names and a function of ours
        f" error_text = 'food_id is 1 or more.', finished_utc = {now}"
        " WHERE food_id < 1 AND state IN ('pending', 'sending')"
    )
    if here() == "sqlite":  # which adds no CHECK to a table that is there
        op.execute(
            "CREATE TRIGGER delivery_actions_food BEFORE INSERT ON delivery_actions WHEN NEW.food_id < 1"
            " BEGIN SELECT RAISE(ABORT, 'delivery_actions_food_id_1_or_more: food_id is 1 or more'); END"
        )
        return
    op.create_check_constraint(
        op.f("delivery_actions_food_id_1_or_more"),
        "delivery_actions",
        sa.text("food_id IS NULL OR food_id >= 1 OR state NOT IN ('pending', 'sending')"),
    )


WRITTEN_ONCE = (
    "id",
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
    "created_utc",
)


def refuse_changed_arguments() -> None:
    changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in WRITTEN_ONCE)
    op.execute(
        f"CREATE TRIGGER delivery_actions_update BEFORE UPDATE OF {', '.join(WRITTEN_ONCE)} ON delivery_actions"  # noqa: S608
        f" WHEN {changed} BEGIN SELECT RAISE(ABORT, 'delivery_actions: of a row that is written only withdraw"
        " is changed; set withdraw = 1 and insert another row'); END"
    )


def find_failed_actions() -> None:
    if here() in {"mysql", "mariadb"}:
        op.create_index("delivery_actions_failed_ix", "delivery_actions", ["state", "finished_utc"])
        return
    failed = sa.text("state = 'failed'")
    op.create_index(
        "delivery_actions_failed_ix",
        "delivery_actions",
        ["finished_utc"],
        sqlite_where=failed,
        postgresql_where=failed,
    )


def count_silence() -> None:
    """Orders that are open now begin to be counted when the daemon looks for the first time."""
    op.add_column(
        "delivery_accounts", sa.Column("listened_seconds", big(), nullable=False, server_default=sa.text("0"))
    )
    op.add_column("delivery_orders", sa.Column("silence_from", big()))
    if here() in {"mysql", "mariadb"}:
        op.create_index("delivery_orders_taken_ix", "delivery_orders", ["ended_utc", "pos_revision", "silence_from"])
        return
    taken = sa.text("ended_utc IS NULL AND pos_revision > 0")
    op.create_index(
        "delivery_orders_taken_ix",
        "delivery_orders",
        ["silence_from"],
        sqlite_where=taken,
        postgresql_where=taken,
    )


def keep_ids_as_sent() -> None:
    """What the service calls an order or a restaurant, where that is not in lower case."""
    op.add_column("delivery_orders", sa.Column("service_key", key()))
    op.add_column("delivery_restaurants", sa.Column("service_id", foreign_code()))


def serve_withdrawals() -> None:
    """What a POS asks back is found at once, however many rows wait."""
    columns = ["state", "withdraw", "id"] if here() in {"mysql", "mariadb"} else ["id"]
    asked = sa.text("state IN ('pending', 'sending') AND withdraw = 1")
    op.create_index(
        "delivery_actions_withdraw_ix",
        "delivery_actions",
        columns,
        sqlite_where=asked,
        postgresql_where=asked,
    )


def upgrade() -> None:
    """From 0001 to 0002."""
    serve_withdrawals()
    refuse_foods_below_1()
    if here() == "sqlite":
        refuse_changed_arguments()
    count_silence()
    op.add_column("delivery_accounts", sa.Column("polled_in_turn_with", text()))
    for counted in ("not_stored", "not_written"):
        op.add_column("delivery_accounts", sa.Column(counted, sa.Integer, nullable=False, server_default=sa.text("0")))
    keep_ids_as_sent()
    find_failed_actions()
