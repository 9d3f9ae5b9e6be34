"""Replicas that share the work: see CHANGELOG.md. Nothing that was there is changed.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

from orderbridge.store.columns import code, text, utc

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

MYSQL = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in {"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"}.items()
}
KEPT = ("delivery_buckets", "delivery_replicas")
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
    """From 0006 to 0007."""
    op.create_table(
        "delivery_buckets",
        sa.Column("bucket", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("replica", code()),
        sa.Column("taken_utc", utc()),
        sa.PrimaryKeyConstraint("bucket", name=op.f("delivery_buckets_pk")),
        **MYSQL,
    )
    op.create_table(
        "delivery_replicas",
        sa.Column("replica", code(), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("node", code()),
        sa.Column("started_utc", utc(), nullable=False),
        sa.Column("seen_utc", utc()),
        sa.Column("problems", text()),
        sa.PrimaryKeyConstraint("replica", name=op.f("delivery_replicas_pk")),
        **MYSQL,
    )
    if op.get_context().dialect.name == "sqlite":
        for table in KEPT:
            for word in ("INSERT", "DELETE", "UPDATE"):
                keep(word.lower(), table, word)
        keep_version(revision)
