"""What a fleet of branches keeps in the database: its accounts with their sealed secrets, and what counts their changes.

And the replicas that share the work: who there is, and whose a bucket of accounts is.

No till reads or writes any of it.
"""

from sqlalchemy import Column, Integer, Table, TypedColumns, UniqueConstraint, text

from orderbridge.store.columns import big, code, utc
from orderbridge.store.columns import text as long_text
from orderbridge.store.ddl import after
from orderbridge.store.tables import metadata

BUCKETS = 64  # into which accounts fall, by their name
# Values of delivery_account_settings.enabled. HELD: altered after the copy that was put back; `db confirm-restore` enables it.
DISABLED, ENABLED, HELD = 0, 1, 2


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
OURS_ALONE = (account_settings.name,)  # which no till may read
