"""The board's own tables, of version 0.3. Nothing that was there is changed.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

from orderbridge.store.columns import code, foreign_code, name, utc

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MYSQL = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}


def upgrade() -> None:
    """From 0003 to 0004."""
    op.create_table(
        "delivery_board_devices",
        sa.Column("id", code(), nullable=False),
        sa.Column("name", name(), nullable=False),
        sa.Column("role", code(), nullable=False),
        sa.Column("cookie_hash", code(), nullable=False),
        sa.Column("paired_utc", utc(), nullable=False),
        sa.Column("seen_utc", utc(), nullable=False),
        sa.Column("revoked_utc", utc()),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_board_devices_pk")),
        **MYSQL,
    )
    op.create_index("delivery_board_devices_cookie_ix", "delivery_board_devices", ["cookie_hash"], unique=True)
    op.create_table(
        "delivery_board_pairing",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("code_hash", code(), nullable=False),
        sa.Column("role", code(), nullable=False),
        sa.Column("expires_utc", utc(), nullable=False),
        sa.Column("tries_left", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_board_pairing_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_board_silenced",
        sa.Column("subject", foreign_code(), nullable=False),
        sa.Column("device", name(), nullable=False),
        sa.Column("at_utc", utc(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("delivery_board_silenced_pk")),
        **MYSQL,
    )
    op.create_index("delivery_board_silenced_at_ix", "delivery_board_silenced", ["at_utc"])
    zero = sa.text("0")
    op.create_table(
        "delivery_board_slots",
        sa.Column("account", code(), nullable=False),
        sa.Column("slot_utc", utc(), nullable=False),
        *(sa.Column(label, sa.Integer, nullable=False, server_default=zero) for label in ("polls", "failed", "logins")),
        sa.PrimaryKeyConstraint("account", "slot_utc", name=op.f("delivery_board_slots_pk")),
        **MYSQL,
    )
    op.create_index("delivery_board_slots_slot_ix", "delivery_board_slots", ["slot_utc"])
