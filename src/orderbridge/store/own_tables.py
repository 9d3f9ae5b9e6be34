"""The tables of the daemon, the board and the fleet, which are not part of the contract with the POS.

A till reads the daemon's tables through the views delivery_alarms and delivery_lamp.
"""

from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    CreateView,
    Index,
    Integer,
    Table,
    TypedColumns,
    UniqueConstraint,
    literal_column,
    select,
    text,
    union_all,
)

from orderbridge.store.ddl import after, big, code, foreign_code, long_text, metadata, name, utc, utc_now

BUCKETS = 64  # groups of accounts, by a hash of the name
# Values of delivery_account_settings.enabled. HELD: changed after a restored copy, until `db confirm-restore`.
DISABLED, ENABLED, HELD = 0, 1, 2

problems = Table(
    "delivery_problems",
    metadata,
    Column("code", code(), primary_key=True),
    Column("subject", foreign_code(), primary_key=True),
    Column("account", code()),
    Column("severity", code(), nullable=False),
    Column("level", Integer, nullable=False),
    Column("since_utc", utc()),
    Column("how_many", Integer, nullable=False),
    Column("cause", long_text(), nullable=False),
    Column("remedy", long_text(), nullable=False),
    Column("facts", long_text(), nullable=False),
    Column("told", Integer, nullable=False),
    Column("noted_utc", utc(), nullable=False),
)


class _Daemon(TypedColumns):
    id = Column(Integer, primary_key=True, autoincrement=False)
    seen_utc = Column(utc(), nullable=False)
    silent_from_utc = Column(utc(), nullable=False)
    cause = Column(long_text(), nullable=False)
    remedy = Column(long_text(), nullable=False)
    default_account = Column(code())


daemon = Table("delivery_daemon", metadata, _Daemon)


class _Learned(TypedColumns):
    point = Column(code(), primary_key=True)
    value = Column(foreign_code(), primary_key=True)
    times = Column(big(), nullable=False)
    last_utc = Column(utc(), nullable=False)


learned = Table("delivery_learned", metadata, _Learned)


class _Books(TypedColumns):
    id = Column(code(), primary_key=True)
    older_since_utc = Column(utc())
    last_known_utc = Column(utc())
    missing = Column(Integer)
    missing_numbers = Column(code())
    generation = Column(big(), nullable=False, server_default=text("0"))


books = Table("delivery_books", metadata, _Books)


class _Lamps(TypedColumns):
    account = Column(code(), primary_key=True)
    lamp = Column(code(), nullable=False)
    since_utc = Column(utc(), nullable=False)
    code = Column(code())
    sentence = Column(long_text(), nullable=False)
    remedy = Column(long_text())


lamps = Table("delivery_lamps", metadata, _Lamps)

# The open problems. Once the daemon's sign of life is overdue, the view shows only that orders are not polled.
_SHOWN = ("code", "subject", "account", "severity", "level", "since_utc", "how_many", "cause", "remedy")
_lives = select(daemon.c.id).where(daemon.c.silent_from_utc >= utc_now()).exists()
_silence: list[ColumnElement[Any]] = [
    *(literal_column(word) for word in ("'not_polling'", "''", "NULL", "'severe'", "1")),
    daemon.c.seen_utc,
    literal_column("1"),
    daemon.c.cause,
    daemon.c.remedy,
]
alarms = CreateView(
    union_all(
        select(*(problems.c[name] for name in _SHOWN)).where(_lives),
        select(*_silence).where(daemon.c.silent_from_utc < utc_now()),
    ),
    "delivery_alarms",
    metadata=metadata,
).table

# The worst problem of each account, as a lamp.
_dark: list[ColumnElement[Any]] = [
    lamps.c.account,
    literal_column("'red'"),
    daemon.c.seen_utc,
    literal_column("'not_polling'"),
    daemon.c.cause,
    daemon.c.remedy,
]
lamp = CreateView(
    union_all(
        select(lamps).where(_lives),
        select(*_dark).select_from(lamps.join(daemon, daemon.c.silent_from_utc < utc_now())),
    ),
    "delivery_lamp",
    metadata=metadata,
).table


# ---- the board: devices, silenced alarms, and polls ------------------------------------------------------------------


class _Devices(TypedColumns):
    id = Column(code(), primary_key=True)
    name = Column(name(), nullable=False)
    role = Column(code(), nullable=False)
    cookie_hash = Column(code(), nullable=False)
    paired_utc = Column(utc(), nullable=False)
    seen_utc = Column(utc(), nullable=False)
    revoked_utc = Column(utc())


devices = Table(
    "delivery_board_devices", metadata, _Devices, Index("delivery_board_devices_cookie_ix", "cookie_hash", unique=True)
)


class _Pairing(TypedColumns):
    id = Column(Integer, primary_key=True, autoincrement=False)
    code_hash = Column(code(), nullable=False)
    role = Column(code(), nullable=False)
    expires_utc = Column(utc(), nullable=False)
    tries_left = Column(Integer, nullable=False)


pairing = Table("delivery_board_pairing", metadata, _Pairing)


class _Silenced(TypedColumns):
    subject = Column(foreign_code(), primary_key=True)
    device = Column(name(), nullable=False)
    at_utc = Column(utc(), nullable=False)


silenced = Table("delivery_board_silenced", metadata, _Silenced, Index("delivery_board_silenced_at_ix", "at_utc"))


class _Slots(TypedColumns):
    account = Column(code(), primary_key=True)
    slot_utc = Column(utc(), primary_key=True)
    polls = Column(Integer, nullable=False, server_default=text("0"))
    failed = Column(Integer, nullable=False, server_default=text("0"))
    logins = Column(Integer, nullable=False, server_default=text("0"))


slots = Table("delivery_board_slots", metadata, _Slots, Index("delivery_board_slots_slot_ix", "slot_utc"))


# ---- the fleet: accounts with encrypted secrets, their version, and replicas -----------------------------------------


class _AccountSettings(TypedColumns):
    name = Column(code(), primary_key=True)
    fingerprint = Column(code(), nullable=False)
    sealed = Column(long_text())
    key_id = Column(code())
    enabled = Column(Integer, nullable=False)
    version = Column(big(), nullable=False)
    changed_utc = Column(utc(), nullable=False)


account_settings = Table("delivery_account_settings", metadata, _AccountSettings, UniqueConstraint("fingerprint"))


class _Fleet(TypedColumns):
    id = Column(Integer, primary_key=True, autoincrement=False)
    buckets = Column(Integer, nullable=False, server_default=text(str(BUCKETS)))
    accounts_version = Column(big(), nullable=False, server_default=text("0"))


fleet = Table("delivery_fleet", metadata, _Fleet)
after(fleet, lambda _: ("INSERT INTO delivery_fleet (id) VALUES (1)",))


class _Buckets(TypedColumns):
    bucket = Column(Integer, primary_key=True, autoincrement=False)
    replica = Column(code())
    taken_utc = Column(utc())


buckets = Table("delivery_buckets", metadata, _Buckets)


class _Replicas(TypedColumns):
    replica = Column(code(), primary_key=True)
    number = Column(Integer, nullable=False)
    epoch = Column(Integer, nullable=False, server_default=text("0"))
    node = Column(code())
    started_utc = Column(utc(), nullable=False)
    problems = Column(long_text())


replicas = Table("delivery_replicas", metadata, _Replicas)

OURS_ALONE = (devices.name, pairing.name, account_settings.name)  # no till may read these
