"""The database's own commands: db upgrade, db sql, db grants."""

import click

from orderbridge.cli.common import Context

pass_context = click.make_pass_decorator(Context)


@click.group()
def db() -> None:
    """The database."""


@db.command("upgrade")
@pass_context
def db_upgrade(context: Context) -> None:
    """Make the tables, or bring them up to date."""
    from orderbridge.store import schema

    database = context.database(makes_file=True)
    try:
        done = database.write_now(schema.upgrade)
    finally:
        database.close()
    click.echo(f"schema {schema.HEAD}: {'upgraded' if done else 'was up to date'}")


@db.command("sql")
@pass_context
def db_sql(context: Context) -> None:
    """Print the DDL for the configured database, for a DBA to run."""
    from orderbridge.store import schema

    click.echo(schema.offline_sql(context.settings.database.url))


@db.command("grants")
@click.argument("role")
@pass_context
def db_grants(context: Context, role: str) -> None:
    """Print the GRANT statements that let ROLE, the POS's own user, do its whole job and no more."""
    from sqlalchemy import make_url

    from orderbridge.store import grants
    from orderbridge.store.dialects import of

    url = make_url(context.settings.database.url)
    place = url.database
    if query := of(url.get_backend_name()).schema_query:  # only the server knows in which schema our tables are
        database = context.database()
        try:
            place = database.read_now(lambda tx: tx.exec_driver_sql(query).scalar())
        finally:
            database.close()
    click.echo("\n".join(grants.statements(url.get_backend_name(), role, place)))


COMMANDS = (db,)
