"""Closures that end: valid_until_minutes and until_utc in delivery_actions.

Revision ID: 0011
Revises: 0010
"""

from alembic import op
from sqlalchemy import CheckConstraint, Column
from sqlalchemy.schema import AddConstraint

from orderbridge.store.ddl import utc, whole
from orderbridge.store.dialects import of
from orderbridge.store.tables import actions

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    bind = op.get_bind()
    checks = [one for one in actions.constraints if isinstance(one, CheckConstraint) and "valid_until" in str(one.name)]
    if of(bind.dialect.name).one_writer:  # SQLite adds constraints only with their column
        words = " ".join(str(bind.dialect.ddl_compiler(bind.dialect, None).process(one)) for one in checks)
        op.execute(f"ALTER TABLE {actions.name} ADD COLUMN valid_until_minutes INTEGER {words}")
    else:
        op.add_column(actions.name, Column("valid_until_minutes", whole()))
        for one in checks:
            bind.execute(AddConstraint(one, isolate_from_table=False))  # else tables made later lack it
    op.add_column(actions.name, Column("until_utc", utc()))
    for index in actions.indexes:
        if index.name in {"delivery_actions_planned_ix", "delivery_actions_subject_ix"}:
            index.create(bind)
