"""The tables of 1.0.0rc1.

Revision ID: 0009
Revises:
"""

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Never run: store/schema.py creates the newest schema in a new database, without Alembic."""
    raise NotImplementedError
