"""All tables, as the program has them. The first release writes them out here; from then on a change is a new file.

Revision ID: 0009
Revises:
"""

from alembic import op

from orderbridge.store.tables import metadata

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A new database is made by store/schema.py, without Alembic and in the same way."""
    metadata.create_all(op.get_bind(), checkfirst=False)
