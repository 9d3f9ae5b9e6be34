"""What runs for long: run, demo, sandbox."""

import asyncio
from pathlib import Path

import click

from orderbridge.cli.common import Context

pass_context = click.make_pass_decorator(Context)


@click.command()
@pass_context
def run(context: Context) -> None:
    """The daemon: bring orders in, acknowledge them, carry out the outbox.

    SIGTERM ends it in order; SIGHUP reads the configuration and its secret files again.
    """
    from orderbridge.config import Settings
    from orderbridge.observe import logs
    from orderbridge.service import Service

    def load() -> Settings:
        settings = context.reload()
        logs.configure(level=settings.log.level, format=settings.log.format)
        for sentence in settings.warnings:
            click.echo(f"orderbridge: {sentence}", err=True)
        return settings

    async def work(settings: Settings) -> None:
        await Service(settings, load).run()

    asyncio.run(work(load()))


@click.command()
@click.option("--orders", "order_count", default=6, show_default=True, help="How many orders to play through.")
@click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("orderbridge-demo.db"),
    show_default=True,
    help="The SQLite file to leave behind.",
)
def demo(order_count: int, database: Path) -> None:
    """Sandbox, daemon and a little till together: watch orders come in, be accepted and completed."""
    import sqlite3

    from orderbridge.demo import play

    try:
        raise SystemExit(play(order_count, database))
    except sqlite3.OperationalError as error:
        raise click.ClickException(f"{database}: {error}. Name a file that can be written with --database.") from error


@click.command()
@click.option("--listen", default="127.0.0.1:8443", show_default=True, help="Address and port.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("sandbox-data"),
    show_default=True,
    help="Where the CA and the server's key are kept.",
)
@click.option("--cooldown", default=30.0, show_default=True, help="Seconds between two get-current calls.")
@click.option("--token-seconds", default=86400.0, show_default=True, help="Validity of an access token.")
@click.option("--orders-per-minute", default=2.0, show_default=True, help="Orders placed by itself; 0: none.")
@click.option("--max-orders", type=int, help="Stop placing by itself after so many.")
@click.option("--seed", default=1, show_default=True, help="The same seed places the same orders.")
def sandbox(
    listen: str,
    directory: Path,
    cooldown: float,
    token_seconds: float,
    orders_per_minute: float,
    max_orders: int | None,
    seed: int,
) -> None:
    """The marketplace's service, played on this machine: for an integration without credentials."""
    from orderbridge.sandbox import Options, World, serve
    from orderbridge.sandbox.server import CannotListen

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError("--listen takes ADDRESS:PORT, for example 127.0.0.1:8443")
    options = Options(
        cooldown_seconds=cooldown,
        token_seconds=token_seconds,
        orders_per_minute=orders_per_minute,
        max_orders=max_orders,
    )
    try:
        serve(World.default(seed=seed, options=options), directory=directory, host=host.strip("[]"), port=int(port))
    except CannotListen as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error}. Name a folder that can be written with --directory.") from error


COMMANDS = (run, demo, sandbox)
