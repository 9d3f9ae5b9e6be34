"""Change the view delivery_closures: it uses the default account, and a row that was committed late counts as newer.

Revision ID: 0013
Revises: 0012
"""

from alembic import op
from sqlalchemy import Column

from orderbridge.store.ddl import code
from orderbridge.store.own_tables import daemon
from orderbridge.store.tables import closures

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(daemon.name, Column("default_account", code()))
    op.execute(f"DROP VIEW IF EXISTS {closures.name}")
    closures.create(op.get_bind())
