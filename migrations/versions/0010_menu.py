"""The menu: delivery_foods, and when each account's menu is read.

Revision ID: 0010
Revises: 0009
"""

from alembic import op
from sqlalchemy import Column, func, insert, literal, select

from orderbridge.store.ddl import code, utc
from orderbridge.store.tables import accounts, foods, items, orders

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    foods.create(op.get_bind())
    for column in (Column("menu_next_utc", utc()), Column("menu_read_utc", utc()), Column("menu_error", code())):
        op.add_column(accounts.name, column)
    last = func.max(orders.c.received_utc)
    ordered = (
        select(orders.c.account, items.c.food_id, func.max(items.c.name), literal("order"), last, last)
        .join(items, items.c.payment_key == orders.c.payment_key)
        .where(items.c.food_id >= 1)
        .group_by(orders.c.account, items.c.food_id)
    )
    columns = ("account", "food_id", "name", "source", "seen_utc", "changed_utc")
    op.execute(insert(foods).from_select(columns, ordered))
