"""The program: its options, its commands, and from an exception to an exit code."""

import codecs
import errno
import io
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from orderbridge.actions import ACTIONS
from orderbridge.cli.common import Context, Guarded
from orderbridge.cli.facts import version
from orderbridge.cli.words import WordsContext, in_words, show
from orderbridge.errors import Closed, ConfigError, LoginRefused, MarketplaceError, NotSent, OrderbridgeError
from orderbridge.extension import installed
from orderbridge.observe import systemd
from orderbridge.texts import SENTENCES, language_of, line_remedy, say, sentence, speak, spoken

EXIT_FAILED = 1
EXIT_UNREACHABLE = 69
EXIT_CONFIGURATION = 78


# In which module each command of the core is. One is loaded when it is called for: `run` stays for long.
MODULES = {
    "orderbridge.cli.service": ("run", "healthcheck"),
    "orderbridge.cli.day": ("day",),
    "orderbridge.cli.erase": ("erase",),
    "orderbridge.cli.bundle": ("support-bundle",),
    "orderbridge.cli.status": ("status",),
    "orderbridge.cli.orders": ("orders", "order", "take", "quarantine"),
    "orderbridge.cli.actions": (*dict.fromkeys(kind.command.split()[0] for kind in ACTIONS.values()), "actions"),
    "orderbridge.cli.init": ("init",),
    "orderbridge.cli.check": ("check", "alarm"),
    "orderbridge.cli.database": ("db",),
    "orderbridge.cli.facts": ("config", "version"),
}


_OWN = {name: module for module, names in MODULES.items() for name in names}


def _of_extensions() -> dict[str, str]:
    return {name: module for one in installed().values() for name, module in one.load().commands.items()}


def _options_of(command: str) -> list[click.Parameter]:
    modules = [one.load().options.get(command) for one in installed().values()]
    return [option for module in filter(None, modules) for option in import_module(module).OPTIONS]


class _Program(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return sorted([*_OWN, *_of_extensions()])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        translate(self, "")
        return super().make_context(*args, **extra)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        module = _OWN.get(name) or _of_extensions().get(name)
        if module is not None and name not in self.commands:
            for command in import_module(module).COMMANDS:
                command.params += _options_of(command.name)
                _offer_config(command)
                self.add_command(command)
        found = super().get_command(context, name)
        if found is not None:
            translate(found, name)
        return found


_ENGLISH: dict[str, str | None] = {}  # a command's help as it is written in the program


def translate(command: click.Command, path: str) -> None:
    """Its help in the language of the process, and that of the commands in it. "": the program."""
    english = _ENGLISH.setdefault(path, command.help)
    key = f"help.{(path or 'orderbridge').replace(' ', '_').replace('-', '_')}"
    command.context_class = WordsContext
    command.help = english if spoken() == "en" or key not in SENTENCES else say(key)
    # Its first sentence, whole: click cuts a line that is longer than the terminal is wide.
    command.short_help = re.split(r"(?<=\.)\s", " ".join((command.help or "").split()), maxsplit=1)[0]
    command.options_metavar = in_words("[OPTIONS]")
    if isinstance(command, click.Group):
        command.subcommand_metavar = in_words("COMMAND [ARGS]...")
        for name, inner in command.commands.items():
            translate(inner, f"{path} {name}".strip())


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(version())
        context.exit()


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
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
            help="The configuration file (TOML).",
            metavar="FILE",  # what is wrong with it, the configuration says: exit code 78, and not a wrong use
            expose_value=False,
            is_eager=True,
            callback=_take_config,
        )
    )
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _offer_config(inner)


_offer_config(program)


def main() -> None:
    """The entry point. Everything this program says in plain words goes to stderr without a traceback."""
    # structlog loads rich where it happens to be installed, for tracebacks in colour: memory that nothing here uses.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    speak(language_of(os.environ))
    _guard_output()
    try:
        _refuse_bytes(sys.argv[1:])
        sys.exit(program(standalone_mode=False))  # what click raises is told here, in the language of the process
    except click.ClickException as error:
        show(error)
        sys.exit(error.exit_code)
    except click.Abort:
        _end(say("click.aborted"), EXIT_FAILED)
    except (Closed, ConfigError) as error:
        _end(error, EXIT_CONFIGURATION)
    except LoginRefused as error:
        _end(error, EXIT_FAILED)
    except NotSent as error:
        _end(error, EXIT_UNREACHABLE)
    except (OrderbridgeError, MarketplaceError) as error:
        _end(error, EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - a fault of ours is told whole, and as an error
        _end_fault(error)


def _end_fault(error: Exception) -> None:
    if _has_too_many_files(error):
        _end(say("line.here_files"), EXIT_FAILED)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # where the output goes
        _end(str(error), EXIT_FAILED)
    if not isinstance(error, _database_errors()):
        click.echo(systemd.with_priority(traceback.format_exc().rstrip(), "critical"), err=True)
        sys.exit(EXIT_FAILED)
    _end_database(error)


def _has_too_many_files(error: BaseException | None) -> bool:
    """Also where it came out as something else: a module that could not be loaded, a database that did not open."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            return True
        error = error.__cause__ or error.__context__
    return False


def _in_its_letters(error: UnicodeError) -> tuple[str, int]:
    """For a terminal that is not UTF-8: the letter without its mark, or a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = unicodedata.normalize("NFKD", error.object[error.start : error.end].replace("ı", "i"))
    return "".join(
        letter if letter.isascii() else "?" for letter in letters if not unicodedata.combining(letter)
    ), error.end


codecs.register_error("orderbridge", _in_its_letters)


def _guard_output() -> None:
    if "run" in sys.argv:  # it stays for long, and whoever reads its log may not
        from orderbridge.observe import output

        output.never_wait()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="orderbridge")
        if stream is not None and not isinstance(stream, Guarded):
            setattr(sys, name, Guarded(stream))


def _refuse_bytes(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(say("command.no_text", word=ascii(word))) from None


def _database_errors() -> tuple[type[Exception], ...]:
    """SQLAlchemy's own, without loading it for a command that has not."""
    loaded = sys.modules.get("sqlalchemy.exc")
    return () if loaded is None else (loaded.DBAPIError,)


def _end_database(error: Any) -> None:
    """A right that is missing takes a person; a disk that is read-only may come back."""
    from orderbridge.store.failures import is_denied, kind, remedy
    from orderbridge.store.trouble import TroubleKind

    if not is_denied(error) and kind(error) is not TroubleKind.READ_ONLY:
        _end(say("command.database_failed", error=error.orig), EXIT_FAILED)
    said = say("command.database_refuses", error=error.orig, remedy=remedy(error))
    _end(said, EXIT_CONFIGURATION if is_denied(error) else EXIT_FAILED)


def _none_left(error: Exception) -> str:
    """Why nothing can be opened any more, whatever came of it; empty: it can."""
    try:
        from orderbridge.net.causes import none_left

        reason = none_left(error)
        return say(f"line.{reason}") if reason else ""
    except OSError as own:  # not even these
        return str(own)


def _end(error: Exception | str, code: int) -> None:
    if isinstance(error, Exception) and (said := _none_left(error)):
        error, code = said, EXIT_FAILED
    if isinstance(error, MarketplaceError):
        error = f"{sentence(error)}. {line_remedy(error)}"
    click.echo(systemd.with_priority(f"orderbridge: {sentence(error)}", "error"), err=True)
    sys.exit(code)
