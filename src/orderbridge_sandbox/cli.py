"""The commands `demo` and `sandbox`."""

import errno
from pathlib import Path
from typing import Any, ClassVar

import click

from orderbridge.extension import Extension
from orderbridge.texts import SENTENCES, say, spoken

SENTENCES.add("orderbridge_sandbox")  # here, because the package itself imports nothing from the daemon
SHORT = {"cooldown": "cooldown_seconds"}  # options whose names differ from their switches


@click.command()
@click.option("--orders", "order_count", default=6, show_default=True, help="How many orders to play.")
@click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("orderbridge-demo.db"),
    show_default=True,
    help="The SQLite file to write.",
)
def demo(order_count: int, database: Path) -> None:
    """Run sandbox, daemon and a small POS together."""
    import sqlite3

    from orderbridge_sandbox.demo import play

    try:
        raise SystemExit(play(order_count, database))
    except (OSError, sqlite3.OperationalError) as error:
        raise click.ClickException(say("demo.not_written", file=database, error=error)) from error


@click.command()
@click.option("--listen", default="127.0.0.1:8443", show_default=True, help="Address and port.")
@click.option("--name", "names", multiple=True, help="Another host name; may be repeated.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("sandbox-data"),
    show_default=True,
    help="Where the CA and the server's key are kept.",
)
@click.option("--cooldown", type=float, show_default="30", help="Seconds between two get-current calls.")
@click.option(
    "--cooldown-scope",
    type=click.Choice(["credential", "application", "address", "restaurant"]),
    show_default="credential",
    help="Who shares a cooldown.",
)
@click.option("--token-seconds", type=float, show_default="86400", help="Validity of an access token.")
@click.option("--orders-per-minute", type=float, show_default="2", help="Orders placed automatically; 0: none.")
@click.option("--max-orders", type=int, help="Stop placing orders after this many.")
@click.option("--seed", type=int, help="The same seed places the same orders.")
@click.option(
    "--as",
    "learned",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play the output of `orderbridge learned --json`.",
)
@click.option(
    "--play",
    "journal",
    type=click.Path(exists=True, path_type=Path),
    help="Play a journal's orders, without customers' data.",
)
@click.option(
    "--faster", type=click.FloatRange(min=0, min_open=True), default=1, show_default=True, help="How many times faster."
)
@click.option("--preset", "presets", multiple=True, help="A set of switches, by name; may be repeated.")
@click.option("--set", "settings", multiple=True, help="A switch, NAME=VALUE (docs/sandbox.md).")
@click.option("-q", "--quiet", is_flag=True, help="Print no events.")
def sandbox(
    listen: str,
    names: tuple[str, ...],
    directory: Path,
    seed: int | None,
    learned: Path | None,
    journal: Path | None,
    faster: float,
    presets: tuple[str, ...],
    settings: tuple[str, ...],
    quiet: bool,
    **given: Any,
) -> None:
    """Simulate the marketplace on this machine."""
    from orderbridge.clock import SystemClock
    from orderbridge_sandbox import Options, World
    from orderbridge_sandbox.learned import settings_learned
    from orderbridge_sandbox.options import settings_from, settings_of
    from orderbridge_sandbox.play import Play, read
    from orderbridge_sandbox.server import CannotListen, serve
    from orderbridge_sandbox.switches import BadOption

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(say("sandbox.listen"))
    # A later source overrides an earlier one.
    begin = {"orders_per_minute": 2.0 if journal is None else 0.0, "orders_where": "logged_in", "language": spoken()}
    named = {SHORT.get(name, name): value for name, value in given.items() if value is not None}
    try:
        seen = {} if learned is None else settings_learned(learned)
        options = Options().changed(begin | seen | settings_of(presets) | named | settings_from(settings))
    except BadOption as error:
        raise click.UsageError(str(error)) from error
    if seed is None:  # otherwise an existing database would get the same orders again
        seed = int(SystemClock().now().timestamp())
    world, host = World.default(seed=seed, options=options), host.strip("[]")
    if journal is not None:
        world.play = Play(read(journal), faster)
        if not world.play:
            raise click.UsageError(say("sandbox.nothing_to_play", journal=journal))
    try:
        serve(world, directory=directory, host=host, port=int(port), names=names, quiet=quiet, over=say("sandbox.over"))
    except CannotListen as error:
        is_taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        raise click.ClickException(say("sandbox.taken", address=listen) if is_taken else str(error)) from error
    except OSError as error:
        raise click.ClickException(say("sandbox.not_written", error=error)) from error


COMMANDS = (demo, sandbox)


class SandboxCommands(Extension):
    """The extension, which only adds commands."""

    commands: ClassVar = {"demo": __name__, "sandbox": __name__}
