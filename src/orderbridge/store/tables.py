"""Every table and view of the database contract. The POS programs against these names.

`migrations/` makes the same tables; a test holds the two against each other. The comment on a column or table is the
text of the POS guide. "POS:" marks the columns that the POS writes; all others are the daemon's.

What a partial index serves on SQLite and PostgreSQL, a computed column of ours serves on MariaDB and MySQL, which have
no such index, and on SQL Server, where one cannot compare two columns. Those columns are not part of the contract.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    ColumnElement,
    CreateView,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    TypedColumns,
    UniqueConstraint,
    event,
    literal_column,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles

from orderbridge.model import Action, ActionState
from orderbridge.store.columns import (
    CODE_LENGTH,
    big,
    code,
    foreign_code,
    key,
    money,
    name,
    random_id,
    utc,
    utc_now,
    whole,
)
from orderbridge.store.columns import text as long_text

SCHEMA_VERSION_TABLE = "delivery_schema_version"

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_name)s_uq",
        "ck": "%(table_name)s_%(constraint_name)s",
        "ix": "%(table_name)s_%(column_0_name)s_ix",
    }
)
# Whatever the server's own defaults are: a join of two collations is an error there.
_MYSQL: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}
_MY = ("mysql", "mariadb")
_OTHERS = ("sqlite", "postgresql", "mssql")


def _check(condition: str, label: str, *dialects: str) -> CheckConstraint:
    constraint = CheckConstraint(text(condition), name=label)
    return constraint.ddl_if(dialect=dialects) if dialects else constraint  # type: ignore[arg-type]  # a tuple is fine


def _words(column: str, words: type[Action] | type[ActionState]) -> tuple[CheckConstraint, ...]:
    """One of these words and no other; MariaDB and MySQL alone would take one with spaces behind it."""
    listed = f"IN ({', '.join(repr(str(word)) for word in words)})"
    label = f"{column}_known"
    return (
        _check(f"{column} {listed}", label, *_OTHERS),
        _check(f"CAST({column} AS BINARY) {listed}", label, *_MY),
    )


def _filled(column: str, most: int) -> tuple[CheckConstraint, ...]:
    """A text of one character or more. SQLite alone would keep a longer one than the column is declared for."""
    label = f"{column}_1_to_{most}_characters"
    return (
        _check(f"length({column}) BETWEEN 1 AND {most}", label, "sqlite", "postgresql"),
        _check(f"char_length({column}) BETWEEN 1 AND {most}", label, *_MY),
        _check(f"len({column}) BETWEEN 1 AND {most}", label, "mssql"),
    )


def _integer(column: str) -> CheckConstraint:
    """SQLite alone would keep 25.5 or 'soon' in an INTEGER column."""
    return _check(f"typeof({column}) IN ('integer', 'null')", f"{column}_integer", "sqlite")


def _whole(column: str) -> tuple[CheckConstraint, ...]:
    """A whole number of 64 bits; the range keeps PostgreSQL's NaN and Infinity out."""
    decimals = f"{column} = floor({column}) AND {column} BETWEEN {-(2**63)} AND {2**63 - 1}"
    label = f"{column}_integer"
    return _integer(column), _check(f"{column} IS NULL OR ({decimals})", label, "postgresql", "mssql", *_MY)


def _uuid(column: str) -> tuple[CheckConstraint, ...]:
    """A key is a UUID in lower case: an upper-case one would never match the order it means."""
    digit = "[0-9a-f]"
    parts = [8, 4, 4, 4, 12]
    glob = "-".join(digit * part for part in parts)
    regex = "^" + "-".join(f"{digit}{{{part}}}" for part in parts) + "$"
    label = f"{column}_uuid"
    return (
        # GLOB stops at U+0000, so the length is that of the bytes.
        _check(f"{column} IS NULL OR {column} GLOB '{glob}' AND length(CAST({column} AS BLOB)) = 36", label, "sqlite"),
        _check(f"{column} IS NULL OR {column} ~ '{regex}'", label, "postgresql"),
        _check(f"{column} IS NULL OR {column} REGEXP '{regex}'", label, "mysql", "mariadb"),
        _check(f"{column} IS NULL OR {column} LIKE '{glob}'", label, "mssql"),
    )


class _Orders(TypedColumns):
    payment_key = Column(key(), primary_key=True)
    account = Column(code(), nullable=False)
    order_number = Column(big())
    status_id = Column(Integer)
    status = Column(code(), nullable=False)
    status_text = Column(name())
    restaurant_id = Column(foreign_code())
    restaurant_name = Column(name())
    shipping_method = Column(name())
    payment_method = Column(name())
    payment_code = Column(code())
    amount_due = Column(money())
    note = Column(long_text())
    total = Column(money())
    discount = Column(money())
    courier_type = Column(name())
    courier_fee = Column(money())
    order_tip = Column(money())
    ordered_at = Column(name())
    scheduled_for = Column(name())
    customer_name = Column(name())
    customer_phone = Column(name())
    address = Column(name())
    address_description = Column(long_text())
    apartment_no = Column(name())
    building_no = Column(name())
    neighborhood_name = Column(name())
    district_name = Column(name())
    city_name = Column(name())
    payload = Column(long_text())
    revision = Column(Integer, nullable=False, server_default=text("1"))
    last_change = Column(code(), nullable=False, server_default="new")
    service_status_id = Column(Integer)
    payload_hash = Column(code())
    received_utc = Column(utc(), nullable=False)
    changed_utc = Column(utc(), nullable=False)
    acknowledged_utc = Column(utc())
    acknowledged_status_id = Column(Integer)
    ended_utc = Column(utc())
    ended_by = Column(code())
    problem = Column(long_text())
    pos_revision = Column(Integer, nullable=False, server_default=text("0"))
    pos_reference = Column(foreign_code())


orders = Table(
    "delivery_orders",
    metadata,
    _Orders,
    _integer("pos_revision"),
    _check("pos_revision >= 0 AND pos_revision <= revision", "pos_revision_known"),
    **_MYSQL,
)


class _Items(TypedColumns):
    payment_key = Column(key(), primary_key=True)
    line_no = Column(Integer, primary_key=True, autoincrement=False)
    item_id = Column(name())
    food_id = Column(big())
    name = Column(name())
    note = Column(long_text())
    price = Column(money())
    quantity = Column(big())
    total = Column(money())


items = Table(
    "delivery_order_items",
    metadata,
    _Items,
    ForeignKeyConstraint(["payment_key"], ["delivery_orders.payment_key"], ondelete="CASCADE"),
    **_MYSQL,
)


class _Options(TypedColumns):
    payment_key = Column(key(), primary_key=True)
    line_no = Column(Integer, primary_key=True, autoincrement=False)
    option_no = Column(Integer, primary_key=True, autoincrement=False)
    group_id = Column(big())
    group_name = Column(name())
    type = Column(name())
    operation = Column(name())
    option_id = Column(big())
    option_name = Column(name())
    price = Column(money())


options = Table(
    "delivery_order_item_options",
    metadata,
    _Options,
    ForeignKeyConstraint(
        ["payment_key", "line_no"],
        ["delivery_order_items.payment_key", "delivery_order_items.line_no"],
        ondelete="CASCADE",
    ),
    **_MYSQL,
)


class _Events(TypedColumns):
    id = Column(big(), Identity(), primary_key=True)
    payment_key = Column(key(), nullable=False)
    at_utc = Column(utc(), nullable=False)
    event = Column(code(), nullable=False)
    status_id = Column(Integer)
    status = Column(code())
    detail = Column(long_text())


events = Table(
    "delivery_order_events",
    metadata,
    _Events,
    Index("delivery_order_events_order_ix", "payment_key", "id"),
    **_MYSQL,
)

# Written as a literal, so that a partial index and the queries that use it name the very same words.
UNFINISHED = "state IN ('pending', 'sending')"
unfinished: ColumnElement[bool] = literal_column(UNFINISHED)

_ORDER_ACTIONS = "action IN ('accept', 'on_the_way', 'complete', 'cancel')"
_RESTAURANT_ACTIONS = "action IN ('open_restaurant', 'close_restaurant')"
_FOOD_ACTIONS = "action IN ('activate_food', 'deactivate_food')"


class _Actions(TypedColumns):
    id = Column(big(), Identity(), primary_key=True)
    action = Column(code(), nullable=False)
    payment_key = Column(key())
    restaurant_id = Column(key())
    food_id = Column(whole())
    account = Column(code())
    preparing_time = Column(whole())
    reason_id = Column(whole())
    valid_minutes = Column(whole())
    request_id = Column(code(), nullable=False, server_default=random_id())
    created_by = Column(name())
    withdraw = Column(Integer, nullable=False, server_default=text("0"))
    created_utc = Column(utc(), nullable=False, server_default=utc_now())
    state = Column(code(), nullable=False, server_default="pending")
    attempts = Column(Integer, nullable=False, server_default=text("0"))
    next_attempt_utc = Column(utc())
    expires_utc = Column(utc())
    http_status = Column(Integer)
    error_code = Column(code())
    error_text = Column(long_text())
    known_by = Column(code())
    finished_utc = Column(utc())


actions = Table(
    "delivery_actions",
    metadata,
    _Actions,
    UniqueConstraint("request_id"),
    *_words("action", Action),
    *_words("state", ActionState),
    _check(
        f"NOT ({_ORDER_ACTIONS}) OR (payment_key IS NOT NULL AND restaurant_id IS NULL AND food_id IS NULL)",
        "order_action_names_its_order",
    ),
    _check(
        f"NOT ({_RESTAURANT_ACTIONS}) OR (restaurant_id IS NOT NULL AND payment_key IS NULL AND food_id IS NULL)",
        "restaurant_action_names_its_restaurant",
    ),
    _check(
        f"NOT ({_FOOD_ACTIONS}) OR (food_id IS NOT NULL AND payment_key IS NULL)",
        "food_action_names_its_food",
    ),
    _check(
        "(action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440)"
        " OR (action <> 'accept' AND preparing_time IS NULL)",
        "accept_needs_preparing_time_1_to_1440",
    ),
    _check(
        "(action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8)"
        " OR (action <> 'cancel' AND reason_id IS NULL)",
        "cancel_needs_reason_id_1_to_8",
    ),
    _check("valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080", "valid_minutes_1_to_10080"),
    _check("withdraw IN (0, 1)", "withdraw_0_or_1"),
    *(check for column in ("food_id", "preparing_time", "reason_id", "valid_minutes") for check in _whole(column)),
    _integer("withdraw"),
    *_filled("request_id", CODE_LENGTH),
    *_uuid("payment_key"),
    *_uuid("restaurant_id"),
    Index("delivery_actions_payment_key_ix", "payment_key", "id"),
    sqlite_autoincrement=True,
    **_MYSQL,
)


def _served(label: str, condition: str, column: Column[Any], *equal: Column[Any], **dialects: tuple[str, ...]) -> None:
    """An index of the rows in question alone. Where there is no partial one, `equal` go before the column."""
    where = text(condition)
    index = Index(label, column, sqlite_where=where, postgresql_where=where, mssql_where=where)
    index.ddl_if(dialect=dialects.get("partial", _OTHERS))  # type: ignore[arg-type]  # a tuple is fine
    if equal:
        Index(label, *equal, column).ddl_if(dialect=_MY)  # type: ignore[arg-type]


_served("delivery_actions_unfinished_ix", UNFINISHED, actions.c.id, actions.c.state)


def _after(table: Table, statement: str, *dialects: str) -> None:
    """DDL that only some databases need, once the table is there."""
    ddl = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", ddl.execute_if(dialect=dialects))  # type: ignore[arg-type]  # a tuple is fine


# SQLite has no grants: a row that fills in the daemon's columns is refused where its programmer sees it. Later the
# daemon itself writes them, so that only the INSERT can be watched.
_after(
    actions,
    "CREATE TRIGGER delivery_actions_insert BEFORE INSERT ON delivery_actions"
    " WHEN NEW.state <> 'pending' OR NEW.attempts <> 0"
    " OR coalesce(NEW.next_attempt_utc, NEW.expires_utc, NEW.http_status, NEW.error_code, NEW.error_text,"
    " NEW.known_by, NEW.finished_utc) IS NOT NULL"
    " BEGIN SELECT RAISE(ABORT, 'delivery_actions: state, attempts, next_attempt_utc, expires_utc, http_status,"
    " error_code, error_text, known_by and finished_utc are written by orderbridge; leave them out'); END",
    "sqlite",
)

WAKE_CHANNEL = "delivery_actions"

# The daemon listens. One statement wakes it once, however many rows it writes.
_after(
    actions,
    "CREATE FUNCTION delivery_wake() RETURNS trigger LANGUAGE plpgsql AS"
    f" $$BEGIN PERFORM pg_notify('{WAKE_CHANNEL}', ''); RETURN NULL; END$$",
    "postgresql",
)
_after(
    actions,
    "CREATE TRIGGER delivery_actions_wake AFTER INSERT OR UPDATE OF withdraw ON delivery_actions"
    " FOR EACH STATEMENT EXECUTE FUNCTION delivery_wake()",
    "postgresql",
)


class _Attempts(TypedColumns):
    action_id = Column(big(), primary_key=True, autoincrement=False)
    attempt = Column(Integer, primary_key=True, autoincrement=False)
    started_utc = Column(utc(), nullable=False)
    finished_utc = Column(utc())
    outcome = Column(code())
    spent = Column(Integer, nullable=False, server_default=text("0"))
    http_status = Column(Integer)
    error_code = Column(code())
    detail = Column(long_text())


attempts = Table("delivery_action_attempts", metadata, _Attempts, **_MYSQL)


class _Accounts(TypedColumns):
    fingerprint = Column(code(), primary_key=True)
    name = Column(code(), nullable=False)
    state = Column(code(), nullable=False, server_default="new")
    last_poll_utc = Column(utc())
    last_poll_ok_utc = Column(utc())
    next_poll_utc = Column(utc())
    token_expires_utc = Column(utc())
    last_error = Column(long_text())
    lease_owner = Column(code())
    lease_expires_utc = Column(utc())


accounts = Table("delivery_accounts", metadata, _Accounts, **_MYSQL)


class _Tokens(TypedColumns):
    fingerprint = Column(code(), primary_key=True)
    ciphertext = Column(long_text(), nullable=False)
    issued_utc = Column(utc(), nullable=False)
    expires_utc = Column(utc(), nullable=False)


tokens = Table("delivery_tokens", metadata, _Tokens, **_MYSQL)


class _Restaurants(TypedColumns):
    account = Column(code(), primary_key=True)
    id = Column(foreign_code(), primary_key=True)
    name = Column(name())
    status = Column(code())
    status_utc = Column(utc())


restaurants = Table("delivery_restaurants", metadata, _Restaurants, **_MYSQL)


class _CancelReasons(TypedColumns):
    id = Column(Integer, primary_key=True, autoincrement=False)
    reason = Column(name(), nullable=False)


cancel_reasons = Table("delivery_cancel_reasons", metadata, _CancelReasons, **_MYSQL)


class _PaymentMethods(TypedColumns):
    code = Column(foreign_code(), primary_key=True)
    name = Column(name(), nullable=False)


payment_methods = Table("delivery_payment_methods", metadata, _PaymentMethods, **_MYSQL)


class _ShippingMethods(TypedColumns):
    code = Column(foreign_code(), primary_key=True)
    name = Column(name(), nullable=False)


shipping_methods = Table("delivery_shipping_methods", metadata, _ShippingMethods, **_MYSQL)


class _Quarantine(TypedColumns):
    id = Column(big(), Identity(), primary_key=True)
    account = Column(code(), nullable=False)
    payment_key = Column(key())
    payload = Column(long_text(), nullable=False)
    payload_hash = Column(code(), nullable=False)
    reason = Column(code(), nullable=False)
    first_seen_utc = Column(utc(), nullable=False)
    last_seen_utc = Column(utc(), nullable=False)
    times_seen = Column(Integer, nullable=False, server_default=text("1"))
    resolved_utc = Column(utc())


quarantine = Table("delivery_quarantine", metadata, _Quarantine, UniqueConstraint("account", "payload_hash"), **_MYSQL)

# The three questions a till asks, each served by an index that holds only the rows it asks for.
NEW = "pos_revision = 0 AND ended_utc IS NULL"
CHANGED = "pos_revision > 0 AND pos_revision < revision"
OPEN = "ended_utc IS NULL"

UNRESOLVED = "resolved_utc IS NULL"
WITH_CONTENTS = "payload IS NOT NULL"  # not yet blanked by retention
_PARTIAL_OF_TWO = ("sqlite", "postgresql")

_served("delivery_orders_new_ix", NEW, orders.c.received_utc, orders.c.pos_revision, orders.c.ended_utc)
_served("delivery_quarantine_unresolved_ix", UNRESOLVED, quarantine.c.id, quarantine.c.resolved_utc)
_served("delivery_orders_open_ix", OPEN, orders.c.changed_utc, orders.c.ended_utc)
_served("delivery_orders_changed_ix", CHANGED, orders.c.changed_utc, partial=_PARTIAL_OF_TWO)
_served("delivery_orders_contents_ix", WITH_CONTENTS, orders.c.ended_utc, partial=_PARTIAL_OF_TWO)

_BEHIND = f"CASE WHEN {CHANGED} THEN 1 END"
_CONTENTS_ENDED = f"CASE WHEN {WITH_CONTENTS} THEN ended_utc END"
_after(
    orders,
    f"ALTER TABLE delivery_orders ADD COLUMN pos_is_behind SMALLINT GENERATED ALWAYS AS ({_BEHIND}) STORED INVISIBLE,"
    f" ADD COLUMN contents_ended_utc DATETIME(3) GENERATED ALWAYS AS ({_CONTENTS_ENDED}) STORED INVISIBLE",
    *_MY,
)
_after(
    orders,
    f"ALTER TABLE delivery_orders ADD pos_is_behind AS ({_BEHIND}) PERSISTED,"
    f" contents_ended_utc AS ({_CONTENTS_ENDED}) PERSISTED",
    "mssql",
)
for _statement in (
    "CREATE INDEX delivery_orders_changed_ix ON delivery_orders (pos_is_behind, changed_utc)",
    "CREATE INDEX delivery_orders_contents_ix ON delivery_orders (contents_ended_utc)",
):
    _after(orders, _statement, *_MY, "mssql")


class _Indexed(ColumnElement[Any]):
    """One thing under two names: what the partial index is made for, and the computed column elsewhere."""

    inherit_cache = False

    def __init__(self, plain: str, computed: str) -> None:
        self.plain, self.computed = plain, computed


@compiles(_Indexed)
def _compile_plain(element: _Indexed, *_: Any, **__: Any) -> str:
    return element.plain


@compiles(_Indexed, "mysql", "mariadb", "mssql")
def _compile_computed(element: _Indexed, *_: Any, **__: Any) -> str:
    return element.computed


changed: ColumnElement[bool] = _Indexed(CHANGED, "pos_is_behind = 1")
contents_ended_utc: ColumnElement[datetime] = _Indexed("ended_utc", "contents_ended_utc")


def _view(label: str, condition: ColumnElement[bool]) -> CreateView:
    chosen: Select[object] = select(orders).where(condition)
    return CreateView(chosen, label, metadata=metadata)


new_orders = _view("delivery_new_orders", literal_column(NEW)).table
changed_orders = _view("delivery_changed_orders", changed).table
open_orders = _view("delivery_open_orders", literal_column(OPEN)).table
