"""The program: its options, its commands, and from an exception to an exit code."""

import sys

import click

from orderbridge import __version__
from orderbridge.cli import actions, orders, service, setup
from orderbridge.cli.common import Context
from orderbridge.errors import ConfigError, LoginRefused, MarketplaceError, NotSent, OrderbridgeError

EXIT_FAILED = 1
EXIT_UNREACHABLE = 69
EXIT_CONFIGURATION = 78


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="orderbridge")
def program() -> None:
    """Brings a delivery marketplace's orders into your database, and what you write there back to it.

    \b
    orderbridge demo                 see it work, with nothing set up
    orderbridge run                  the daemon
    orderbridge accept KEY --minutes 25 --wait
    """  # noqa: D301 - click's own mark for lines that stay as they are


def _take_config(context: click.Context, _: click.Parameter, file: str | None) -> None:
    shared: Context = context.ensure_object(Context)
    if file is not None:
        shared.config_file = file


def _offer_config(command: click.Command) -> None:
    """`--config` is understood before the command and after it: people write both."""
    command.params.append(
        click.Option(
            ["--config"],
            type=click.Path(dir_okay=False),
            help="The configuration file (TOML).",
            expose_value=False,
            is_eager=True,
            callback=_take_config,
        )
    )
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _offer_config(inner)


for command in (*service.COMMANDS, *orders.COMMANDS, *actions.COMMANDS, *setup.COMMANDS):
    program.add_command(command)
_offer_config(program)


def main() -> None:
    """The entry point. Everything this program says in plain words goes to stderr without a traceback."""
    try:
        program()
    except ConfigError as error:
        _end(error, EXIT_CONFIGURATION)
    except LoginRefused as error:
        _end(error, EXIT_FAILED)
    except NotSent as error:
        _end(error, EXIT_UNREACHABLE)
    except (OrderbridgeError, MarketplaceError) as error:
        _end(error, EXIT_FAILED)
    except Exception as error:
        if not isinstance(error, _database_errors()):
            raise
        _end(f"The database failed: {error.orig}. See `orderbridge check`.", EXIT_FAILED)  # type: ignore[attr-defined]


def _database_errors() -> tuple[type[Exception], ...]:
    """SQLAlchemy's own, without loading it for a command that has not."""
    loaded = sys.modules.get("sqlalchemy.exc")
    return () if loaded is None else (loaded.DBAPIError,)


def _end(error: Exception | str, code: int) -> None:
    click.echo(f"orderbridge: {error}", err=True)
    sys.exit(code)
