"""Configures Alembic with the connection that orderbridge.store.schema passes."""

from alembic import context

from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata

# The caller owns the transaction: a migration is applied completely or not at all, if the database can do that.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=SCHEMA_VERSION_TABLE,
    render_as_batch=True,
    transactional_ddl=False,
)
context.run_migrations()
