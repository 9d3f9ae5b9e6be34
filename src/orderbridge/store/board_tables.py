"""What the board itself has to remember: its devices, what was silenced there, and how polls went.

No till reads or writes any of it.
"""

from sqlalchemy import Column, Index, Integer, Table, TypedColumns, text

from orderbridge.store.columns import code, foreign_code, name, utc
from orderbridge.store.tables import metadata


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
OURS_ALONE = (devices.name, pairing.name)  # which no till may read
