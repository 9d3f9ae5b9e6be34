"""Accounts in the database, for a fleet of branches: see CHANGELOG.md. Nothing that was there is changed.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from orderbridge.store.columns import big, code, text, utc

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

MYSQL = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}
KEPT = ("delivery_account_settings", "delivery_fleet")
ALONE = "is for orderbridge alone; read this table, and keep what is yours in tables of your own"


def keep(trigger: str, table: str, word: str, condition: str = "") -> None:
    more = condition and f" AND ({condition})"
    op.execute(
        f"CREATE TRIGGER {table}_guard_{trigger} BEFORE {word} ON {table}"  # noqa: S608
        f" WHEN (SELECT open FROM delivery_guard) = 0{more}"
        f" BEGIN SELECT RAISE(ABORT, '{table}: {word} {ALONE}'); END"
    )


def keep_version(since: str) -> None:
    """From this revision on nobody else changes it. The step to this revision is noted behind this trigger."""
    op.execute("DROP TRIGGER IF EXISTS delivery_schema_version_guard_update")
    keep("update", "delivery_schema_version", "UPDATE", f"OLD.version_num >= '{since}'")


def upgrade() -> None:
    """From 0005 to 0006."""
    op.create_table(
        "delivery_account_settings",
        sa.Column("name", code(), nullable=False),
        sa.Column("fingerprint", code(), nullable=False),
        sa.Column("sealed", text()),
        sa.Column("key_id", code()),
        sa.Column("enabled", sa.Integer, nullable=False),
        sa.Column("version", big(), nullable=False),
        sa.Column("changed_utc", utc(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("delivery_account_settings_pk")),
        sa.UniqueConstraint("fingerprint", name=op.f("delivery_account_settings_fingerprint_uq")),
        **MYSQL,
    )
    op.create_table(
        "delivery_fleet",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("buckets", sa.Integer, nullable=False, server_default=sa.text("64")),
        sa.Column("accounts_version", big(), nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("id", name=op.f("delivery_fleet_pk")),
        **MYSQL,
    )
    op.execute("INSERT INTO delivery_fleet (id) VALUES (1)")
    if op.get_context().dialect.name == "sqlite":
        for table in KEPT:
            for word in ("INSERT", "DELETE", "UPDATE"):
                keep(word.lower(), table, word)
        keep_version(revision)
