"""How Alembic reaches the database: over the connection that orderbridge.store.schema hands in."""

from alembic import context

from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata

OPTIONS = {"target_metadata": metadata, "version_table": SCHEMA_VERSION_TABLE, "render_as_batch": True}

if context.is_offline_mode():
    context.configure(
        url=context.config.get_main_option("sqlalchemy.url"),
        literal_binds=True,
        dialect_opts={"paramstyle": "named"},
        **OPTIONS,
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    # The caller owns the transaction: a migration is there whole or not at all, where the database can do that.
    context.configure(connection=context.config.attributes["connection"], transactional_ddl=False, **OPTIONS)
    context.run_migrations()
