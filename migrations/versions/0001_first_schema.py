"""The first schema: orders, the outbox, accounts, reference lists, quarantine.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import context, op

from orderbridge.store.columns import big, code, foreign_code, key, money, name, random_id, text, utc, utc_now, whole

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MYSQL = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}
MY = ("mysql", "mariadb")
OTHERS = ("sqlite", "postgresql")


def check(condition: str, label: str, *dialects: str) -> sa.CheckConstraint:
    constraint = sa.CheckConstraint(sa.text(condition), name=label)
    return constraint.ddl_if(dialect=dialects) if dialects else constraint


def integer_check(column: str) -> sa.CheckConstraint:
    return check(f"typeof({column}) IN ('integer', 'null')", f"{column}_integer", "sqlite")


def whole_checks(column: str) -> list[sa.CheckConstraint]:
    decimals = f"{column} = floor({column}) AND {column} BETWEEN {-(2**63)} AND {2**63 - 1}"
    whole = check(f"{column} IS NULL OR ({decimals})", f"{column}_integer", "postgresql", *MY)
    return [integer_check(column), whole]


def uuid_checks(column: str) -> list[sa.CheckConstraint]:
    digit, parts = "[0-9a-f]", [8, 4, 4, 4, 12]
    glob = "-".join(digit * part for part in parts)
    regex = "^" + "-".join(f"{digit}{{{part}}}" for part in parts) + "$"
    label = f"{column}_uuid"
    return [
        check(f"{column} IS NULL OR {column} GLOB '{glob}' AND length(CAST({column} AS BLOB)) = 36", label, "sqlite"),
        check(f"{column} IS NULL OR {column} ~ '{regex}'", label, "postgresql"),
        check(f"{column} IS NULL OR {column} REGEXP '{regex}'", label, "mysql", "mariadb"),
    ]


def word_checks(column: str, *words: str) -> list[sa.CheckConstraint]:
    listed = f"IN ({', '.join(map(repr, words))})"
    label = f"{column}_known"
    return [
        check(f"{column} {listed}", label, *OTHERS),
        check(f"CAST({column} AS BINARY) {listed}", label, *MY),
    ]


def here() -> str:
    return op.get_context().dialect.name


def is_sqlite_script() -> bool:
    return here() == "sqlite" and context.is_offline_mode()


def partial_index(label: str, table: str, column: str, where: str, *equal: str) -> None:
    """An index of the rows in question alone. Where there is no partial one, `equal` go before the column."""
    if here() not in MY:
        condition = sa.text(where)
        op.create_index(label, table, [column], sqlite_where=condition, postgresql_where=condition)
    elif equal:
        op.create_index(label, table, [*equal, column])


CHANGED = "pos_revision > 0 AND pos_revision < revision"
WITH_CONTENTS = "payload IS NOT NULL"
BEHIND = f"CASE WHEN {CHANGED} THEN 1 END"
CONTENTS_ENDED = f"CASE WHEN {WITH_CONTENTS} THEN ended_utc END"


def index_changed_and_contents() -> None:
    """By partial indexes; on MariaDB and MySQL by computed columns."""
    if here() in {"sqlite", "postgresql"}:
        partial_index("delivery_orders_changed_ix", "delivery_orders", "changed_utc", CHANGED)
        partial_index("delivery_orders_contents_ix", "delivery_orders", "ended_utc", WITH_CONTENTS)
        return
    op.execute(
        f"ALTER TABLE delivery_orders ADD COLUMN pos_is_behind SMALLINT GENERATED ALWAYS AS ({BEHIND}) STORED INVISIBLE,"
        f" ADD COLUMN contents_ended_utc DATETIME(3) GENERATED ALWAYS AS ({CONTENTS_ENDED}) STORED INVISIBLE"
    )
    op.execute("CREATE INDEX delivery_orders_changed_ix ON delivery_orders (pos_is_behind, changed_utc)")
    op.execute("CREATE INDEX delivery_orders_contents_ix ON delivery_orders (contents_ended_utc)")


def wake_by_trigger() -> None:
    op.execute(
        "CREATE FUNCTION delivery_wake() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM pg_notify('delivery_actions', ''); RETURN NULL; END$$"
    )
    op.execute(
        "CREATE TRIGGER delivery_actions_wake AFTER INSERT OR UPDATE OF withdraw ON delivery_actions"
        " FOR EACH STATEMENT EXECUTE FUNCTION delivery_wake()"
    )


def refuse_the_daemons_columns() -> None:
    op.execute(
        "CREATE TRIGGER delivery_actions_insert BEFORE INSERT ON delivery_actions"
        " WHEN NEW.state <> 'pending' OR NEW.attempts <> 0"
        " OR coalesce(NEW.next_attempt_utc, NEW.expires_utc, NEW.http_status, NEW.error_code, NEW.error_text,"
        " NEW.known_by, NEW.finished_utc) IS NOT NULL"
        " BEGIN SELECT RAISE(ABORT, 'delivery_actions: state, attempts, next_attempt_utc, expires_utc, http_status,"
        " error_code, error_text, known_by and finished_utc are written by orderbridge; leave them out'); END"
    )


VIEWS = ("delivery_new_orders", "delivery_changed_orders", "delivery_open_orders")


def view_conditions() -> tuple[str, ...]:
    behind = CHANGED if here() in {"sqlite", "postgresql"} else "pos_is_behind = 1"
    return ("pos_revision = 0 AND ended_utc IS NULL", behind, "ended_utc IS NULL")


def upgrade() -> None:
    op.create_table(
        "delivery_accounts",
        sa.Column("fingerprint", code(), nullable=False),
        sa.Column("name", code(), nullable=False),
        sa.Column("state", code(), nullable=False, server_default="new"),
        sa.Column("last_poll_utc", utc()),
        sa.Column("last_poll_ok_utc", utc()),
        sa.Column("next_poll_utc", utc()),
        sa.Column("token_expires_utc", utc()),
        sa.Column("last_error", text()),
        sa.Column("lease_owner", code()),
        sa.Column("lease_expires_utc", utc()),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("delivery_accounts_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_action_attempts",
        sa.Column("action_id", big(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_utc", utc(), nullable=False),
        sa.Column("finished_utc", utc()),
        sa.Column("outcome", code()),
        sa.Column("spent", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("http_status", sa.Integer()),
        sa.Column("error_code", code()),
        sa.Column("detail", text()),
        sa.PrimaryKeyConstraint("action_id", "attempt", name=op.f("delivery_action_attempts_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_actions",
        sa.Column("id", big(), sa.Identity(), nullable=False),
        sa.Column("action", code(), nullable=False),
        sa.Column("payment_key", key()),
        sa.Column("restaurant_id", key()),
        sa.Column("food_id", whole()),
        sa.Column("account", code()),
        sa.Column("preparing_time", whole()),
        sa.Column("reason_id", whole()),
        sa.Column("valid_minutes", whole()),
        sa.Column("request_id", code(), nullable=False, server_default=random_id()),
        sa.Column("created_by", name()),
        sa.Column("withdraw", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("created_utc", utc(), nullable=False, server_default=utc_now()),
        sa.Column("state", code(), nullable=False, server_default="pending"),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("next_attempt_utc", utc()),
        sa.Column("expires_utc", utc()),
        sa.Column("http_status", sa.Integer()),
        sa.Column("error_code", code()),
        sa.Column("error_text", text()),
        sa.Column("known_by", code()),
        sa.Column("finished_utc", utc()),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_actions_pk")),
        sa.UniqueConstraint("request_id", name=op.f("delivery_actions_request_id_uq")),
        *word_checks(
            "action",
            "accept",
            "on_the_way",
            "complete",
            "cancel",
            "open_restaurant",
            "close_restaurant",
            "activate_food",
            "deactivate_food",
        ),
        *word_checks("state", "pending", "sending", "done", "refused", "failed", "expired", "superseded", "withdrawn"),
        check(
            "NOT (action IN ('accept', 'on_the_way', 'complete', 'cancel')) OR (payment_key IS NOT NULL AND restaurant_id IS NULL AND food_id IS NULL)",
            "order_action_names_its_order",
        ),
        check(
            "NOT (action IN ('open_restaurant', 'close_restaurant')) OR (restaurant_id IS NOT NULL AND payment_key IS NULL AND food_id IS NULL)",
            "restaurant_action_names_its_restaurant",
        ),
        check(
            "NOT (action IN ('activate_food', 'deactivate_food')) OR (food_id IS NOT NULL AND payment_key IS NULL)",
            "food_action_names_its_food",
        ),
        check(
            "(action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440) OR (action <> 'accept' AND preparing_time IS NULL)",
            "accept_needs_preparing_time_1_to_1440",
        ),
        check(
            "(action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8) OR (action <> 'cancel' AND reason_id IS NULL)",
            "cancel_needs_reason_id_1_to_8",
        ),
        check(
            "valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080",
            "valid_minutes_1_to_10080",
        ),
        check("withdraw IN (0, 1)", "withdraw_0_or_1"),
        *whole_checks("food_id"),
        *whole_checks("preparing_time"),
        *whole_checks("reason_id"),
        *whole_checks("valid_minutes"),
        integer_check("withdraw"),
        check("length(request_id) BETWEEN 1 AND 64", "request_id_1_to_64_characters", "sqlite", "postgresql"),
        check("char_length(request_id) BETWEEN 1 AND 64", "request_id_1_to_64_characters", *MY),
        *uuid_checks("payment_key"),
        *uuid_checks("restaurant_id"),
        sqlite_autoincrement=True,
        **MYSQL,
    )
    op.create_index("delivery_actions_payment_key_ix", "delivery_actions", ["payment_key", "id"])
    partial_index(
        "delivery_actions_unfinished_ix", "delivery_actions", "id", "state IN ('pending', 'sending')", "state"
    )
    if here() == "sqlite":
        refuse_the_daemons_columns()
    if here() == "postgresql":
        wake_by_trigger()
    op.create_table(
        "delivery_cancel_reasons",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reason", name(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_cancel_reasons_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_order_events",
        sa.Column("id", big(), sa.Identity(), nullable=False),
        sa.Column("payment_key", key(), nullable=False),
        sa.Column("at_utc", utc(), nullable=False),
        sa.Column("event", code(), nullable=False),
        sa.Column("status_id", sa.Integer()),
        sa.Column("status", code()),
        sa.Column("detail", text()),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_order_events_pk")),
        **MYSQL,
    )
    op.create_index("delivery_order_events_order_ix", "delivery_order_events", ["payment_key", "id"])
    orders = op.create_table(
        "delivery_orders",
        sa.Column("payment_key", key(), nullable=False),
        sa.Column("account", code(), nullable=False),
        sa.Column("order_number", big()),
        sa.Column("status_id", sa.Integer()),
        sa.Column("status", code(), nullable=False),
        sa.Column("status_text", name()),
        sa.Column("restaurant_id", foreign_code()),
        sa.Column("restaurant_name", name()),
        sa.Column("shipping_method", name()),
        sa.Column("payment_method", name()),
        sa.Column("payment_code", code()),
        sa.Column("amount_due", money()),
        sa.Column("note", text()),
        sa.Column("total", money()),
        sa.Column("discount", money()),
        sa.Column("courier_type", name()),
        sa.Column("courier_fee", money()),
        sa.Column("order_tip", money()),
        sa.Column("ordered_at", name()),
        sa.Column("scheduled_for", name()),
        sa.Column("customer_name", name()),
        sa.Column("customer_phone", name()),
        sa.Column("address", name()),
        sa.Column("address_description", text()),
        sa.Column("apartment_no", name()),
        sa.Column("building_no", name()),
        sa.Column("neighborhood_name", name()),
        sa.Column("district_name", name()),
        sa.Column("city_name", name()),
        sa.Column("payload", text()),
        sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("1")),
        sa.Column("last_change", code(), nullable=False, server_default="new"),
        sa.Column("service_status_id", sa.Integer()),
        sa.Column("payload_hash", code()),
        sa.Column("received_utc", utc(), nullable=False),
        sa.Column("changed_utc", utc(), nullable=False),
        sa.Column("acknowledged_utc", utc()),
        sa.Column("acknowledged_status_id", sa.Integer()),
        sa.Column("ended_utc", utc()),
        sa.Column("ended_by", code()),
        sa.Column("problem", text()),
        sa.Column("pos_revision", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("pos_reference", foreign_code()),
        sa.PrimaryKeyConstraint("payment_key", name=op.f("delivery_orders_pk")),
        integer_check("pos_revision"),
        check("pos_revision >= 0 AND pos_revision <= revision", "pos_revision_known"),
        **MYSQL,
    )
    partial_index(
        "delivery_orders_new_ix",
        "delivery_orders",
        "received_utc",
        "pos_revision = 0 AND ended_utc IS NULL",
        "pos_revision",
        "ended_utc",
    )
    partial_index("delivery_orders_open_ix", "delivery_orders", "changed_utc", "ended_utc IS NULL", "ended_utc")
    index_changed_and_contents()
    op.create_table(
        "delivery_payment_methods",
        sa.Column("code", foreign_code(), nullable=False),
        sa.Column("name", name(), nullable=False),
        sa.PrimaryKeyConstraint("code", name=op.f("delivery_payment_methods_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_quarantine",
        sa.Column("id", big(), sa.Identity(), nullable=False),
        sa.Column("account", code(), nullable=False),
        sa.Column("payment_key", key()),
        sa.Column("payload", text(), nullable=False),
        sa.Column("payload_hash", code(), nullable=False),
        sa.Column("reason", code(), nullable=False),
        sa.Column("first_seen_utc", utc(), nullable=False),
        sa.Column("last_seen_utc", utc(), nullable=False),
        sa.Column("times_seen", sa.Integer(), nullable=False, server_default=sa.text("1")),
        sa.Column("resolved_utc", utc()),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_quarantine_pk")),
        sa.UniqueConstraint("account", "payload_hash", name=op.f("delivery_quarantine_account_uq")),
        **MYSQL,
    )
    partial_index(
        "delivery_quarantine_unresolved_ix",
        "delivery_quarantine",
        "id",
        "resolved_utc IS NULL",
        "resolved_utc",
    )
    op.create_table(
        "delivery_restaurants",
        sa.Column("account", code(), nullable=False),
        sa.Column("id", foreign_code(), nullable=False),
        sa.Column("name", name()),
        sa.Column("status", code()),
        sa.Column("status_utc", utc()),
        sa.PrimaryKeyConstraint("account", "id", name=op.f("delivery_restaurants_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_shipping_methods",
        sa.Column("code", foreign_code(), nullable=False),
        sa.Column("name", name(), nullable=False),
        sa.PrimaryKeyConstraint("code", name=op.f("delivery_shipping_methods_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_tokens",
        sa.Column("fingerprint", code(), nullable=False),
        sa.Column("ciphertext", text(), nullable=False),
        sa.Column("issued_utc", utc(), nullable=False),
        sa.Column("expires_utc", utc(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("delivery_tokens_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_order_items",
        sa.Column("payment_key", key(), nullable=False),
        sa.Column("line_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("item_id", name()),
        sa.Column("food_id", big()),
        sa.Column("name", name()),
        sa.Column("note", text()),
        sa.Column("price", money()),
        # 0008 changes it; on SQLite it can do so in a database, but not in a script.
        sa.Column("quantity", money() if is_sqlite_script() else big()),
        sa.Column("total", money()),
        sa.PrimaryKeyConstraint("payment_key", "line_no", name=op.f("delivery_order_items_pk")),
        sa.ForeignKeyConstraint(
            ["payment_key"],
            ["delivery_orders.payment_key"],
            name=op.f("delivery_order_items_payment_key_fk"),
            ondelete="CASCADE",
        ),
        **MYSQL,
    )
    op.create_table(
        "delivery_order_item_options",
        sa.Column("payment_key", key(), nullable=False),
        sa.Column("line_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("option_no", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group_id", big()),
        sa.Column("group_name", name()),
        sa.Column("type", name()),
        sa.Column("operation", name()),
        sa.Column("option_id", big()),
        sa.Column("option_name", name()),
        sa.Column("price", money()),
        sa.PrimaryKeyConstraint("payment_key", "line_no", "option_no", name=op.f("delivery_order_item_options_pk")),
        sa.ForeignKeyConstraint(
            ["payment_key", "line_no"],
            ["delivery_order_items.payment_key", "delivery_order_items.line_no"],
            name=op.f("delivery_order_item_options_payment_key_fk"),
            ondelete="CASCADE",
        ),
        **MYSQL,
    )
    for label, condition in zip(VIEWS, view_conditions(), strict=True):
        op.execute(sa.CreateView(sa.select(orders).where(sa.text(condition)), label))
