"""The menu: delivery_foods, and when each account's menu is read.

Revision ID: 0010
Revises: 0009
"""

from alembic import op
from sqlalchemy import Column

from orderbridge.store.ddl import code, utc
from orderbridge.store.tables import accounts, foods

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    foods.create(op.get_bind())
    for column in (Column("menu_next_utc", utc()), Column("menu_read_utc", utc()), Column("menu_error", code())):
        op.add_column(accounts.name, column)
