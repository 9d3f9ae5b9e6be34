"""When to print anew, who waits for an answer, and a lamp: see CHANGELOG.md. Nothing is renamed or taken away.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

from orderbridge.store.columns import code, text, utc, utc_now

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

MYSQL = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}

# What the three views show, in their order. A server takes more columns at the end of a view, and keeps who may read it.
SHOWN = (  # noqa: SIM905 - one a line would fill the screen
    "payment_key account order_number status_id status status_text restaurant_id restaurant_name shipping_method"
    " payment_method payment_code amount_due note total discount courier_type courier_fee order_tip ordered_at"
    " scheduled_for customer_name customer_phone address address_description apartment_no building_no"
    " neighborhood_name district_name city_name payload revision last_change service_status_id payload_hash received_utc"
    " changed_utc acknowledged_utc acknowledged_status_id ended_utc ended_by problem pos_revision pos_reference pos_total"
).split()
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


def here() -> str:
    return op.get_context().dialect.name


def make_views(*more: str, replace: bool) -> None:
    orders = sa.table("delivery_orders", *map(sa.column, (*SHOWN, *more)))
    for label, condition in VIEWS.items():
        is_computed = label == "delivery_changed_orders" and here() not in {"sqlite", "postgresql"}
        computed = [sa.literal_column(NEEDS_ANSWER)] if more and label == OPEN else []
        chosen = sa.select(orders, *computed).where(sa.text("pos_is_behind = 1" if is_computed else condition))
        op.execute(sa.CreateView(chosen, label, or_replace=replace))


def drop_views() -> None:
    for label in VIEWS:
        op.execute(f"DROP VIEW {label}")


def show_more() -> None:
    """The views, with what this version adds. Rights that a POS has on them stay."""
    in_place = here() in {"postgresql", "mysql", "mariadb"}
    if not in_place:
        drop_views()
    make_views("contents_revision", replace=in_place)


def know_the_print() -> None:
    """Of what is stored already the newest change is known, and none before it."""
    op.add_column(
        "delivery_orders", sa.Column("contents_revision", sa.Integer, nullable=False, server_default=sa.text("1"))
    )
    op.execute("UPDATE delivery_orders SET contents_revision = revision WHERE last_change = 'contents'")


def light_a_lamp() -> None:
    """One for each account. Once the daemon's sign of life is overdue, by the database's own clock, all are red."""
    op.create_table(
        "delivery_lamps",
        sa.Column("account", code(), nullable=False),
        sa.Column("lamp", code(), nullable=False),
        sa.Column("since_utc", utc(), nullable=False),
        sa.Column("code", code()),
        sa.Column("sentence", text(), nullable=False),
        sa.Column("remedy", text()),
        sa.PrimaryKeyConstraint("account", name=op.f("delivery_lamps_pk")),
        **MYSQL,
    )
    shown = ("account", "lamp", "since_utc", "code", "sentence", "remedy")
    lamps = sa.table("delivery_lamps", *map(sa.column, shown))
    daemon = sa.table("delivery_daemon", *map(sa.column, ("id", "seen_utc", "silent_from_utc", "cause", "remedy")))
    lives = sa.select(daemon.c.id).where(daemon.c.silent_from_utc >= utc_now()).exists()
    dark = sa.select(
        lamps.c.account,
        sa.literal_column("'red'"),
        daemon.c.seen_utc,
        sa.literal_column("'not_polling'"),
        daemon.c.cause,
        daemon.c.remedy,
    ).select_from(lamps.join(daemon, daemon.c.silent_from_utc < utc_now()))
    op.execute(sa.CreateView(sa.union_all(sa.select(lamps).where(lives), dark), "delivery_lamp"))


ACTIONS = (
    "('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food',"
    " 'deactivate_food')"
)
NEEDS = {
    "accept_needs_preparing_time_1_to_1440": (
        "(action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440)"
        " OR (action <> 'accept' AND preparing_time IS NULL)"
    ),
    "cancel_needs_reason_id_1_to_8": (
        "(action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8)"
        " OR (action <> 'cancel' AND reason_id IS NULL)"
    ),
}


def name_what_is_unknown(more: str) -> None:
    """PostgreSQL asks constraints in the order of their names: one that says what an action needs came first."""
    if here() != "postgresql":
        return
    for label, condition in NEEDS.items():
        op.drop_constraint(op.f(f"delivery_actions_{label}"), "delivery_actions")
        op.create_check_constraint(op.f(f"delivery_actions_{label}"), "delivery_actions", sa.text(condition + more))


KEPT = (  # noqa: SIM905 - as above: the tables in which a POS only reads
    "delivery_accounts delivery_action_attempts delivery_board_devices delivery_board_pairing delivery_board_silenced"
    " delivery_board_slots delivery_books delivery_cancel_reasons delivery_daemon delivery_lamps delivery_order_events"
    " delivery_order_item_options delivery_order_items delivery_payment_methods delivery_problems delivery_quarantine"
    " delivery_restaurants delivery_shipping_methods delivery_tokens"
).split()
ONCE = (
    "id, action, payment_key, restaurant_id, food_id, account, preparing_time, reason_id, valid_minutes, request_id,"
    " created_by, created_utc"
)
LATER = "state, attempts, next_attempt_utc, expires_utc, http_status, error_code, error_text, known_by, finished_utc"
NOT_SHOWN = ("silence_from", "service_key", "contents_revision")
A_POS_CHANGES = "a POS changes {}, and orderbridge all else; leave other columns out of the UPDATE"
ALONE = "is for orderbridge alone; read this table, and keep what is yours in tables of your own"
ALONE_ACTIONS = "delivery_actions: DELETE is for orderbridge alone; set withdraw = 1 to take a row back"
BY_HAND = "NEW.id <> -1 OR NEW.created_utc IS NOT strftime('%Y-%m-%d %H:%M:%f', 'now')"
BY_ITSELF = "delivery_actions: id and created_utc are filled in by themselves; leave them out of the INSERT"
REPLACED = (
    "NOT EXISTS (SELECT 1 FROM delivery_actions WHERE id = coalesce((SELECT again_id FROM delivery_guard), NEW.id))"
)
NO_REPLACE = "delivery_actions: REPLACE would take away a row that is written; use INSERT, or INSERT OR IGNORE, instead"
WRITTEN = "delivery_actions: of a row that is written only withdraw is changed; set withdraw = 1 and insert another row"


def keep(trigger: str, table: str, statement: str, why: str, condition: str = "") -> None:
    more = condition and f" AND ({condition})"
    op.execute(
        f"CREATE TRIGGER {table}_{trigger} {statement} ON {table} WHEN (SELECT open FROM delivery_guard) = 0{more}"  # noqa: S608
        f" BEGIN SELECT RAISE(ABORT, '{why}'); END"
    )


def keep_all(table: str, changed: str = "", known: str = "", condition: str = "") -> None:
    """From a POS, which changes what is `known` at most."""
    for word in ("INSERT", "DELETE"):
        keep(f"guard_{word.lower()}", table, f"BEFORE {word}", f"{table}: {word} {ALONE}")
    why = f"{table}: {A_POS_CHANGES.format(known) if known else f'UPDATE {ALONE}'}"
    keep("guard_update", table, f"BEFORE UPDATE{changed}", why, condition)


def make_guard() -> None:
    """One row, which the daemon opens in its own transactions."""
    op.execute(
        "CREATE TABLE delivery_guard (id INTEGER NOT NULL CONSTRAINT delivery_guard_pk PRIMARY KEY,"
        " open INTEGER DEFAULT 0 NOT NULL, again_id INTEGER, CONSTRAINT delivery_guard_one_row CHECK (id = 1),"
        " CONSTRAINT delivery_guard_open_0_or_more CHECK (typeof(open) = 'integer' AND open >= 0))"
    )
    op.execute("INSERT INTO delivery_guard (id) VALUES (1)")
    op.execute(
        "CREATE TRIGGER delivery_guard_again BEFORE INSERT ON delivery_actions"
        " WHEN EXISTS (SELECT 1 FROM delivery_actions WHERE request_id = NEW.request_id) BEGIN UPDATE delivery_guard"
        " SET again_id = (SELECT id FROM delivery_actions WHERE request_id = NEW.request_id); END"
    )
    op.execute(
        "CREATE TRIGGER delivery_guard_gone AFTER DELETE ON delivery_actions"
        " WHEN OLD.id = (SELECT again_id FROM delivery_guard) BEGIN UPDATE delivery_guard SET again_id = NULL; END"
    )
    stays = "delivery_guard: DELETE is for orderbridge alone; leave its one row"
    keep("stays", "delivery_guard", "BEFORE DELETE", stays)


def keep_from_the_pos() -> None:
    """SQLite has no grants: triggers refuse what grants refuse elsewhere. The version's let this revision be noted."""
    make_guard()
    for table in KEPT:
        keep_all(table)
    keep_all("delivery_schema_version", condition="OLD.version_num >= '0005'")
    theirs = [name for name in SHOWN if name not in {"pos_revision", "pos_reference", "pos_total"}]
    behind = theirs.index("problem") + 1
    theirs[behind:] = NOT_SHOWN
    keep_all("delivery_orders", f" OF {', '.join(theirs)}", "pos_revision, pos_reference and pos_total")
    actions = "delivery_actions"
    keep("guard_insert", actions, "BEFORE INSERT", BY_ITSELF, BY_HAND)
    keep("guard_replace", actions, "AFTER INSERT", NO_REPLACE, REPLACED)
    keep("guard_delete", actions, "BEFORE DELETE", ALONE_ACTIONS)
    keep("guard_written", actions, f"BEFORE UPDATE OF {ONCE}", WRITTEN)
    keep("guard_update", actions, f"BEFORE UPDATE OF {LATER}", f"{actions}: {A_POS_CHANGES.format('withdraw')}")


def leave_to_the_pos() -> None:
    for table in (*KEPT, "delivery_schema_version", "delivery_orders", "delivery_actions"):
        for word in ("insert", "delete", "update"):
            op.execute(f"DROP TRIGGER IF EXISTS {table}_guard_{word}")
    op.execute("DROP TRIGGER IF EXISTS delivery_actions_guard_replace")
    op.execute("DROP TRIGGER IF EXISTS delivery_actions_guard_written")
    op.execute("DROP TRIGGER IF EXISTS delivery_guard_again")
    op.execute("DROP TRIGGER IF EXISTS delivery_guard_gone")
    op.execute("DROP TABLE IF EXISTS delivery_guard")


def upgrade() -> None:
    """From 0004 to 0005."""
    name_what_is_unknown(f" OR action NOT IN {ACTIONS}")
    know_the_print()
    show_more()
    light_a_lamp()
    if here() == "sqlite":
        keep_from_the_pos()
