"""The tables and views of the contract with the POS; own_tables.py has the daemon's own tables.

`migrations/` creates the same tables, which a test compares. The comments on columns and tables are the text of the POS
reference. "POS:" marks the columns that the POS writes; the daemon writes all others.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    CreateView,
    ForeignKeyConstraint,
    FromClause,
    Identity,
    Index,
    Integer,
    Select,
    Table,
    TypedColumns,
    UniqueConstraint,
    and_,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.types import TypeEngine

from orderbridge import model
from orderbridge.actions import (
    ACTIONS,
    ACTIVE,
    ANSWERS,
    ARGUMENTS,
    CLOSURE_MINUTES,
    CLOSURES,
    Argument,
    Subject,
    of_subject,
)
from orderbridge.actions import OPEN as OPEN_STATUS
from orderbridge.document import Facts, Item, Option, ValueKind, fields_of
from orderbridge.model import RECEIVED, Action, ActionState
from orderbridge.store.ddl import (
    CODE_LENGTH,
    Written,
    after,
    big,
    check,
    check_integer,
    check_uuid,
    check_whole,
    check_words,
    code,
    foreign_code,
    index_where,
    key,
    long_text,
    money,
    name,
    random_id,
    serve,
    utc,
    utc_now,
    whole,
)
from orderbridge.store.own_tables import daemon, problems

SCHEMA_VERSION_TABLE = "delivery_schema_version"


def _migrations() -> Path:
    """The folder of the migrations: inside the package in a wheel, beside src in a checkout."""
    packaged = Path(str(files("orderbridge") / "migrations"))
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


# The revisions of the schema. A test compares them with the names of the migrations, so that Alembic is not loaded.
MIGRATIONS = _migrations()
KNOWN = tuple(sorted(path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9][0-9][0-9][0-9]_*.py")))
HEAD = KNOWN[-1]

metadata = problems.metadata  # of all tables, the daemon's own included

_HOLDS: Mapping[ValueKind, Callable[[], TypeEngine[Any]]] = {
    ValueKind.WHOLE: big,
    ValueKind.MONEY: money,
    ValueKind.NAME: name,
    ValueKind.MOMENT: name,
    ValueKind.ID: foreign_code,
    ValueKind.TEXT: long_text,
    ValueKind.CODE: code,
}


def _document_columns(rows: type[Facts] | type[Item] | type[Option]) -> list[Column[Any]]:
    """The columns for the fields of the document."""
    return [Column(one.column, _HOLDS[one.kind]()) for one in fields_of(rows)]


_order_number, *_facts = _document_columns(Facts)  # this table has it before the status

orders = Table(
    "delivery_orders",
    metadata,
    Column("payment_key", key(), primary_key=True),
    Column("account", code(), nullable=False),
    _order_number,
    Column("status_id", Integer),
    Column("status", code(), nullable=False),
    Column("status_text", name()),
    *_facts,
    Column("payload", long_text()),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("last_change", code(), nullable=False, server_default="new"),
    Column("service_status_id", Integer),
    Column("payload_hash", code()),
    Column("received_utc", utc(), nullable=False),
    Column("changed_utc", utc(), nullable=False),
    Column("acknowledged_utc", utc()),
    Column("acknowledged_status_id", Integer),
    Column("ended_utc", utc()),
    Column("ended_by", code()),
    Column("problem", long_text()),
    Column("pos_revision", Integer, nullable=False, server_default=text("0")),
    Column("pos_reference", foreign_code()),
    Column("silence_from", big()),
    Column("service_key", key()),
    Column("pos_total", money()),
    Column("contents_revision", Integer, nullable=False, server_default=text("1")),
    Column("start_utc", utc()),
    Column("remarks", long_text()),
    check_integer("pos_revision"),
    check("pos_revision >= 0 AND pos_revision <= revision", "pos_revision_known"),
    check(lambda dialect: dialect.is_number("pos_total"), "pos_total_number"),
)


items = Table(
    "delivery_order_items",
    metadata,
    Column("payment_key", key(), primary_key=True),
    Column("line_no", Integer, primary_key=True, autoincrement=False),
    *_document_columns(Item),
    ForeignKeyConstraint(["payment_key"], ["delivery_orders.payment_key"], ondelete="CASCADE"),
)


options = Table(
    "delivery_order_item_options",
    metadata,
    Column("payment_key", key(), primary_key=True),
    Column("line_no", Integer, primary_key=True, autoincrement=False),
    Column("option_no", Integer, primary_key=True, autoincrement=False),
    *_document_columns(Option),
    ForeignKeyConstraint(
        ["payment_key", "line_no"],
        ["delivery_order_items.payment_key", "delivery_order_items.line_no"],
        ondelete="CASCADE",
    ),
)


class _Events(TypedColumns):
    id = Column(big(), Identity(), primary_key=True)
    payment_key = Column(key(), nullable=False)
    at_utc = Column(utc(), nullable=False)
    event = Column(code(), nullable=False)
    status_id = Column(Integer)
    status = Column(code())
    detail = Column(long_text())


events = Table("delivery_order_events", metadata, _Events, Index("delivery_order_events_order_ix", "payment_key", "id"))


def _listed(states: Collection[ActionState]) -> str:
    return f"({', '.join(repr(str(state)) for state in ActionState if state in states)})"


# A literal, because a query uses a partial index only if it repeats the condition of the index word for word.
UNFINISHED = f"state IN {_listed(model.UNFINISHED)}"
unfinished: ColumnElement[bool] = literal_column(UNFINISHED)


_ARGUMENT_COLUMNS = [argument.column for argument in ARGUMENTS]


def _is_one_of(actions: Collection[Action], *, negated: bool = False) -> str:
    chosen = [repr(str(action)) for action in Action if action in actions]
    if len(chosen) == 1:
        return f"action {'<>' if negated else '='} {chosen[0]}"
    return f"action {'NOT ' if negated else ''}IN ({', '.join(chosen)})"


def _names_its_subject(subject: Subject) -> CheckConstraint:
    """A CHECK that the row names its subject and no other; a food may have a restaurant or an account."""
    permitted = {subject, Subject.RESTAURANT} if subject is Subject.FOOD else {subject}
    empty = "".join(f" AND {other.column} IS NULL" for other in Subject if other not in permitted)
    return check(
        f"NOT ({_is_one_of(of_subject(subject))}) OR ({subject.column} IS NOT NULL{empty})",
        f"{subject}_action_names_its_{subject}",
    )


def _needs_its_argument(argument: Argument) -> CheckConstraint:
    """A CHECK that the actions with this argument, and no others, have a value in its range."""
    takers = [action for action, kind in ACTIONS.items() if kind.argument == argument]
    column, scope = argument.column, f"{argument.least} AND {argument.most}"
    needs = (
        f"({_is_one_of(takers)} AND {column} IS NOT NULL AND {column} BETWEEN {scope})"
        f" OR ({_is_one_of(takers, negated=True)} AND {column} IS NULL)"
    )
    # Some databases check constraints in the order of their names. An unknown action passes here, so that the CHECK of
    # `action` reports it.
    tolerant = f"{needs} OR {_is_one_of(list(Action), negated=True)}"
    return check(
        lambda dialect: tolerant if dialect.checks_by_name else needs,
        f"{'_or_'.join(takers)}_needs_{column}_{argument.least}_to_{argument.most}",
    )


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
    valid_until_minutes = Column(whole())
    until_utc = Column(utc())


actions = Table(
    "delivery_actions",
    metadata,
    _Actions,
    UniqueConstraint("request_id"),
    check_words("action", Action),
    check_words("state", ActionState),
    *map(_names_its_subject, Subject),
    *map(_needs_its_argument, ARGUMENTS),
    check("valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080", "valid_minutes_1_to_10080"),
    check(
        f"valid_until_minutes IS NULL OR ({_is_one_of(CLOSURES)}"
        f" AND valid_until_minutes BETWEEN {CLOSURE_MINUTES[0]} AND {CLOSURE_MINUTES[-1]})",
        "valid_until_minutes_1_to_10080_of_a_closure",
    ),
    check("food_id IS NULL OR food_id >= 1", "food_id_1_or_more"),
    check("withdraw IN (0, 1)", "withdraw_0_or_1"),
    *map(check_whole, ("food_id", *_ARGUMENT_COLUMNS, "valid_minutes", "valid_until_minutes")),
    check_integer("withdraw"),
    # SQLite does not enforce a column's length.
    check(lambda dialect: dialect.is_filled("request_id", CODE_LENGTH), f"request_id_1_to_{CODE_LENGTH}_characters"),
    check_uuid("payment_key"),
    check_uuid("restaurant_id"),
    Index("delivery_actions_payment_key_ix", "payment_key", "id"),
    Index("delivery_actions_finished_ix", "finished_utc"),
    sqlite_autoincrement=True,
)


FAILED = "state = 'failed'"
PLANNED = "until_utc IS NOT NULL"
TOGGLES = "payment_key IS NULL"  # rows about a food or a restaurant

serve("delivery_actions_failed_ix", FAILED, actions.c.finished_utc, actions.c.state)
serve("delivery_actions_unfinished_ix", UNFINISHED, actions.c.id, actions.c.state)
serve(
    "delivery_actions_withdraw_ix", f"{UNFINISHED} AND withdraw = 1", actions.c.id, actions.c.state, actions.c.withdraw
)


serve("delivery_actions_planned_ix", PLANNED, actions.c.id, actions.c.until_utc)
index_where("delivery_actions_subject_ix", TOGGLES, actions.c.food_id, actions.c.restaurant_id, actions.c.id)


# The order of the columns: the id, the columns of a POS's INSERT, `withdraw`, which a POS may also change later, the
# time, the columns that only the daemon writes, and columns of later schema revisions.
ASKED = (*actions.c.keys()[1 : actions.c.keys().index("withdraw")], "valid_until_minutes")

after(actions, lambda dialect: dialect.notify_changes(actions.name, "withdraw"))


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


attempts = Table("delivery_action_attempts", metadata, _Attempts)


class _Accounts(TypedColumns):
    fingerprint = Column(code(), primary_key=True)
    name = Column(code(), nullable=False)
    state = Column(code(), nullable=False, server_default="new")
    last_poll_utc = Column(utc())
    last_poll_ok_utc = Column(utc())
    next_poll_utc = Column(utc())
    token_expires_utc = Column(utc())
    last_error = Column(long_text())
    listened_seconds = Column(big(), nullable=False, server_default=text("0"))
    polled_in_turn_with = Column(long_text())
    not_stored = Column(Integer, nullable=False, server_default=text("0"))
    not_written = Column(Integer, nullable=False, server_default=text("0"))
    menu_next_utc = Column(utc())
    menu_read_utc = Column(utc())
    menu_error = Column(code())


accounts = Table("delivery_accounts", metadata, _Accounts)


class _Tokens(TypedColumns):
    fingerprint = Column(code(), primary_key=True)
    ciphertext = Column(long_text(), nullable=False)
    issued_utc = Column(utc(), nullable=False)
    expires_utc = Column(utc(), nullable=False)


tokens = Table("delivery_tokens", metadata, _Tokens)


class _Restaurants(TypedColumns):
    account = Column(code(), primary_key=True)
    id = Column(foreign_code(), primary_key=True)
    name = Column(name())
    status = Column(code())
    status_utc = Column(utc())
    service_id = Column(foreign_code())
    status_since_utc = Column(utc())
    status_by = Column(long_text())


restaurants = Table("delivery_restaurants", metadata, _Restaurants)


foods = Table(
    "delivery_foods",
    metadata,
    Column("account", code(), primary_key=True),
    Column("food_id", big(), primary_key=True, autoincrement=False),
    Column("name", name()),
    Column("category", name()),
    Column("status", code()),
    Column("price", money()),
    Column("payload", long_text()),
    Column("source", code(), nullable=False),
    Column("seen_utc", utc(), nullable=False),
    Column("gone_utc", utc()),
    Column("last_change", code(), nullable=False, server_default="new"),
    Column("old_name", name()),
    Column("changed_utc", utc(), nullable=False),
)


class _CancelReasons(TypedColumns):
    id = Column(Integer, primary_key=True, autoincrement=False)
    reason = Column(name(), nullable=False)


cancel_reasons = Table("delivery_cancel_reasons", metadata, _CancelReasons)


class _PaymentMethods(TypedColumns):
    code = Column(foreign_code(), primary_key=True)
    name = Column(name(), nullable=False)


payment_methods = Table("delivery_payment_methods", metadata, _PaymentMethods)


class _ShippingMethods(TypedColumns):
    code = Column(foreign_code(), primary_key=True)
    name = Column(name(), nullable=False)


shipping_methods = Table("delivery_shipping_methods", metadata, _ShippingMethods)


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


quarantine = Table("delivery_quarantine", metadata, _Quarantine, UniqueConstraint("account", "payload_hash"))

# The conditions of a till's three queries. Each has an index of only the rows that it selects.
NEW = "pos_revision = 0 AND ended_utc IS NULL"
CHANGED = "pos_revision > 0 AND pos_revision < revision"
OPEN = "ended_utc IS NULL"

TAKEN = "ended_utc IS NULL AND pos_revision > 0"  # open, and a till has taken it over
UNRESOLVED = "resolved_utc IS NULL"
WITH_CONTENTS = "payload IS NOT NULL"  # not yet blanked by retention
ENDED = "ended_utc IS NOT NULL"

serve("delivery_orders_new_ix", NEW, orders.c.received_utc, orders.c.pos_revision, orders.c.ended_utc)
serve("delivery_quarantine_unresolved_ix", UNRESOLVED, quarantine.c.id, quarantine.c.resolved_utc)
serve("delivery_orders_open_ix", OPEN, orders.c.changed_utc, orders.c.ended_utc)
serve("delivery_orders_taken_ix", TAKEN, orders.c.silence_from, orders.c.ended_utc, orders.c.pos_revision)
serve("delivery_orders_changed_ix", CHANGED, orders.c.changed_utc)
# Only of ended orders: for a view sorted by received_utc, SQLite would use an index of all orders, and read all of
# them.
serve("delivery_orders_ended_ix", ENDED, orders.c.received_utc, orders.c.ended_utc)
serve("delivery_orders_contents_ix", WITH_CONTENTS, orders.c.ended_utc)

_COMPUTED = {
    "pos_is_behind": f"CASE WHEN {CHANGED} THEN 1 END",
    "contents_ended_utc": f"CASE WHEN {WITH_CONTENTS} THEN ended_utc END",
}
_ON_COMPUTED = (
    "CREATE INDEX delivery_orders_changed_ix ON delivery_orders (pos_is_behind, changed_utc)",
    "CREATE INDEX delivery_orders_contents_ix ON delivery_orders (contents_ended_utc)",
)
after(orders, lambda dialect: dialect.computed(orders.name, _COMPUTED))
after(orders, lambda dialect: () if dialect.partial_indexes else _ON_COMPUTED)

# The condition of the partial index; without partial indexes, the computed column.
changed: ColumnElement[bool] = Written(lambda dialect: CHANGED if dialect.partial_indexes else "pos_is_behind = 1")
contents_ended_utc: ColumnElement[datetime] = Written(
    lambda dialect: "ended_utc" if dialect.partial_indexes else "contents_ended_utc"
)


# Since when a customer waits for the answer to the order: no accept or cancel of it waits, is sent or is done.
_is_answered = (
    select(actions.c.id)
    .where(
        actions.c.payment_key == orders.c.payment_key,
        literal_column(_is_one_of(ANSWERS)),
        literal_column(f"state IN {_listed(model.ANSWERED)}"),
    )
    .exists()
)
_needs_answer_since = case(
    (
        and_(literal_column(OPEN), orders.c.status_id == literal_column(str(RECEIVED)), ~_is_answered),
        orders.c.received_utc,
    )
).label("needs_answer_since")


def _view(label: str, condition: ColumnElement[bool], *more: ColumnElement[Any]) -> CreateView:
    ours = {"silence_from", "service_key"}  # no till needs these
    # A server can add a column to a view only at its end, so the columns of schema 0008 follow `more`.
    later = (orders.c.start_utc, orders.c.remarks)
    shown = (column for column in orders.c if column.name not in ours and column not in later)
    chosen: Select[object] = select(*shown, *more, *later).where(condition)
    return CreateView(chosen, label, metadata=metadata)


new_orders = _view("delivery_new_orders", literal_column(NEW)).table
changed_orders = _view("delivery_changed_orders", changed).table
open_orders = _view("delivery_open_orders", literal_column(OPEN), _needs_answer_since).table


# ---- closures --------------------------------------------------------------------------------------------------------


def _account_of(row: FromClause) -> ColumnElement[str]:
    """The account of a row about a restaurant or a food."""
    reaches = select(func.min(restaurants.c.account)).where(restaurants.c.id == row.c.restaurant_id)
    mine, default = reaches.correlate(row).scalar_subquery(), select(daemon.c.default_account).scalar_subquery()
    return func.coalesce(row.c.account, mine, default, select(func.min(accounts.c.name)).scalar_subquery())


def is_newer(row: FromClause, id_: Any, created: Any, finished: Any) -> ColumnElement[bool]:
    """Whether an action is newer than this done one. Ids do not show it: a late commit is sent after newer rows."""
    was_sent_after = or_(row.c.finished_utc.is_(None), row.c.finished_utc >= finished, row.c.created_utc < created)
    return and_(row.c.id > id_, was_sent_after)


_newer = actions.alias("newer")
_is_food = foods.c.food_id == actions.c.food_id, foods.c.account == _account_of(actions)
_is_active = exists().where(*_is_food, foods.c.status == ACTIVE)
_is_open = exists().where(restaurants.c.id == actions.c.restaurant_id, restaurants.c.status == OPEN_STATUS)


def _closures(subject: Subject, *is_same: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """The rows that closed a restaurant or a food and are the newest of their lane that is done."""
    newer = exists().where(
        *is_same,
        _newer.c.payment_key.is_(None),
        _newer.c.state == "done",
        is_newer(_newer, actions.c.id, actions.c.created_utc, actions.c.finished_utc),
    )
    restaurant = select(func.max(restaurants.c.name)).where(restaurants.c.id == actions.c.restaurant_id)
    food = select(foods.c.name).where(*_is_food)
    return select(
        actions.c.id.label("action_id"),
        actions.c.action,
        _account_of(actions).label("account"),
        actions.c.restaurant_id,
        restaurant.scalar_subquery().label("restaurant_name"),
        actions.c.food_id,
        food.scalar_subquery().label("food_name"),
        actions.c.finished_utc.label("since_utc"),
        case((actions.c.withdraw == 0, actions.c.until_utc)).label("until_utc"),
        actions.c.created_by,
    ).where(
        actions.c.payment_key.is_(None),
        literal_column(_is_one_of(CLOSURES & of_subject(subject))),
        actions.c.state == "done",
        ~newer,
    )


closures = CreateView(
    union_all(
        _closures(
            Subject.RESTAURANT, _newer.c.food_id.is_(None), _newer.c.restaurant_id == actions.c.restaurant_id
        ).where(~_is_open),
        _closures(
            Subject.FOOD,
            _newer.c.food_id == actions.c.food_id,
            func.coalesce(_account_of(_newer) == _account_of(actions), literal_column("1 = 1")),
        ).where(~_is_active),
    ),
    "delivery_closures",
    metadata=metadata,
).table
