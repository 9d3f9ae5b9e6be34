"""Adds delivery_learned: how the marketplace behaves where docs/interface.md leaves it open.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

from orderbridge.store.own_tables import learned

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    learned.create(op.get_bind())
