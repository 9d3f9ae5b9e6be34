"""The entry point: finds and runs commands, translates their help, and turns exceptions into exit codes."""

import codecs
import errno
import io
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, NoReturn

import click

from orderbridge.actions import ACTIONS
from orderbridge.cli.common import Context, Guarded, version
from orderbridge.errors import Closed, ConfigError, LoginRefused, MarketplaceError, NotSent, OrderbridgeError
from orderbridge.extension import installed
from orderbridge.observe import systemd
from orderbridge.texts import SENTENCES, language_of, line_remedy, say, sentence, speak, spoken

EXIT_FAILED = 1
EXIT_UNREACHABLE = 69
EXIT_CONFIGURATION = 78

# ---- click's texts, in the language of the process -------------------------------------------------------------------

# sentences/ holds click's English texts, which are the keys to their translations. The names of arguments (KEY, FILE),
# options and columns are the same in both languages.
_TYPE = re.compile(r" ([A-Z ]+)$")  # the type of an option's value, after its names


def in_words(english: str) -> str:
    """The translation of one of click's texts; a text without one is returned unchanged."""
    if spoken() == "en" or english not in _keys():
        return english
    return say(_keys()[english])


@cache
def _keys() -> dict[str, str]:
    return {texts["en"]: key for word in ("options", "headings") for key, texts in SENTENCES.of(word).items()}


def show(error: click.ClickException) -> None:
    """Print a usage error."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # prints the help
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(say("click.help", command=error.ctx.command_path) + "\n", err=True)
    click.echo(say("click.error", message=_error_in_words(error.format_message())), err=True)


def _error_in_words(english: str) -> str:
    """Translate click's message, including an inner {message}. Our own messages are translated already."""
    if spoken() == "en":
        return english
    for key, texts in SENTENCES.of("click").items():
        if found := _pattern(texts["en"]).fullmatch(english):
            facts = found.groupdict()
            inner = {"message": _error_in_words(facts["message"])} if "message" in facts else {}
            return say(key, **facts | inner)
    return english


def _pattern(sentence: str) -> re.Pattern[str]:
    """A pattern that matches the sentence with any values for its placeholders."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(sentence)), re.DOTALL)


class _Formatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix or f"{in_words('Usage')}: ")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        with super().section(in_words(name)):
            yield

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        translated = [
            (_TYPE.sub(lambda found: f" {in_words(found[1])}", name), _translated(text)) for name, text in rows
        ]
        super().write_dl(translated, col_max, col_spacing)


def _translated(text: str) -> str:
    """An option's help, to which click appends [default: …] or [required]."""
    if spoken() == "en":
        return text
    words, bracket, extra = text.partition("  [")
    for word in ("default", "required"):
        extra = extra.replace(word, in_words(word), 1)
    return f"{in_words(words)}{bracket}{extra}"


class WordsContext(click.Context):
    """click's context with our formatter."""

    formatter_class = _Formatter


def help_of(path: str) -> str:
    """The help of a command; "" is the program."""
    return say(f"help.{(path or 'orderbridge').replace(' ', '_').replace('-', '_')}")


def short_help(path: str) -> str:
    """The first sentence of the help. click would cut it at the width of the terminal."""
    return re.split(r"(?<=\.)\s", " ".join(help_of(path).split()), maxsplit=1)[0].rstrip(".")


def translate(command: click.Command, path: str) -> None:
    """Translate the help of a command and of its subcommands."""
    command.context_class = WordsContext
    command.help, command.short_help = help_of(path), short_help(path)
    command.options_metavar = in_words("[OPTIONS]")
    if isinstance(command, click.Group):
        command.subcommand_metavar = in_words("COMMAND [ARGS]...")
        for name, inner in command.commands.items():
            translate(inner, f"{path} {name}".strip())


# ---- the commands ----------------------------------------------------------------------------------------------------

# The module of each command of the core. Only the called one is loaded, to save memory in the daemon.
MODULES = {
    "orderbridge.cli.service_commands": ("run", "healthcheck", "version"),
    "orderbridge.cli.erase": ("erase",),
    "orderbridge.cli.bundle": ("support-bundle",),
    "orderbridge.cli.status": ("status",),
    "orderbridge.cli.order_commands": ("orders", "take", "quarantine", "audit", "learned"),
    "orderbridge.cli.history": ("order",),
    "orderbridge.cli.day": ("day",),
    "orderbridge.cli.action_commands": (
        *dict.fromkeys(kind.command.split()[0] for kind in ACTIONS.values()),
        "actions",
        "foods",
    ),
    "orderbridge.cli.init": ("init",),
    "orderbridge.cli.check": ("check", "alarm", "config"),
    "orderbridge.cli.database_commands": ("db",),
}


FOR_SCRIPTS = {"config", "version"}  # not listed: other commands show the same
_OWN = {name: module for module, names in MODULES.items() for name in names}
_AT_ONCE: dict[str, Any] = {"expose_value": False, "is_eager": True}  # an option that its callback handles


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

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading their modules, which would be slow."""
        names = [name for name in self.list_commands(context) if name not in FOR_SCRIPTS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help(name)) for name in names])

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


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(version())
        context.exit()


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, callback=_show_version, help="Show the version and exit.", **_AT_ONCE)
def program() -> None:
    """Stores a delivery marketplace's orders in your database, and sends the actions that you write there.

    \b
    orderbridge demo                 try it without any set-up
    orderbridge run                  the daemon
    orderbridge accept KEY --minutes 25 --wait
    """  # noqa: D301 - click's own mark for lines that stay as they are


def _take_config(context: click.Context, _: click.Parameter, file: str | None) -> None:
    shared: Context = context.ensure_object(Context)
    if file is not None:
        shared.config_file = file


def _offer_config(command: click.Command) -> None:
    """Accept `--config` before the command and after it."""
    # The file is not checked here: an unreadable one is a configuration error (78), not a usage error (2).
    command.params.append(
        click.Option(
            ["--config"], help="The configuration file (TOML).", metavar="FILE", callback=_take_config, **_AT_ONCE
        )
    )
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _offer_config(inner)


_offer_config(program)


def main() -> None:
    """Run the program. Expected errors go to stderr as sentences; only a bug prints a traceback."""
    # structlog would load rich, if installed, for coloured tracebacks that we do not use.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    speak(language_of(os.environ))
    _guard_output()
    try:
        _refuse_bytes(sys.argv[1:])
        # Errors are printed below, in the language of the process.
        sys.exit(program(standalone_mode=False, color=False if os.environ.get("NO_COLOR") else None))
    except click.ClickException as error:
        show(error)
        sys.exit(error.exit_code)
    except click.Abort:
        _end(say("click.aborted"))
    except Exception as error:  # noqa: BLE001 - a bug is printed with its traceback
        _end_by(error)


def _end_by(error: Exception) -> NoReturn:
    if exhausted := _exhausted(error):
        _end(exhausted)
    if isinstance(error, Closed | ConfigError):
        _end(error, EXIT_CONFIGURATION)
    if isinstance(error, NotSent) and not isinstance(error, LoginRefused):
        _end(error, EXIT_UNREACHABLE)
    if isinstance(error, OrderbridgeError | MarketplaceError):
        _end(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # stdout is a file
        _end(str(error))
    loaded = sys.modules.get("sqlalchemy.exc")  # absent for commands without a database
    if loaded is not None and isinstance(error, loaded.DBAPIError):
        _end_by_database(error)
    click.echo(systemd.with_priority(traceback.format_exc().rstrip(), "critical"), err=True)
    sys.exit(EXIT_FAILED)


def _end_by_database(error: Any) -> NoReturn:
    """Exit with 78 for a missing right, which needs an administrator; else with 1: the cause may go away."""
    from orderbridge.store.dialects.face import TroubleKind
    from orderbridge.store.failures import is_denied, kind, remedy

    if not is_denied(error) and kind(error) is not TroubleKind.READ_ONLY:
        _end(say("command.database_failed", error=error.orig))
    refused = say("command.database_refuses", error=error.orig, remedy=remedy(error))
    _end(refused, EXIT_CONFIGURATION if is_denied(error) else EXIT_FAILED)


def _exhausted(error: Exception) -> str:
    """The sentence about exhausted memory or file descriptors, if these caused the error; else empty."""
    try:
        from orderbridge.net.connector import exhausted

        reason = exhausted(error)
        return say(f"line.{reason}") if reason else ""
    except (OSError, ImportError) as own:  # the modules cannot be read either
        return str(own)


def _end(error: Exception | str, code: int = EXIT_FAILED) -> NoReturn:
    if isinstance(error, MarketplaceError):
        error = f"{sentence(error)}. {line_remedy(error)}"
    click.echo(systemd.with_priority(f"orderbridge: {sentence(error)}", "error"), err=True)
    sys.exit(code)


# ---- the standard streams --------------------------------------------------------------------------------------------


def _without_accents(error: UnicodeError) -> tuple[str, int]:
    """Replace a character that the terminal's encoding lacks: the letter without its accent, or a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = unicodedata.normalize("NFKD", error.object[error.start : error.end].replace("ı", "i"))
    plain = (letter if letter.isascii() else "?" for letter in letters if not unicodedata.combining(letter))
    return "".join(plain), error.end


codecs.register_error("orderbridge", _without_accents)


def _guard_output() -> None:
    if "run" in sys.argv:  # a reader of the daemon's log may stop reading
        from orderbridge.observe import logs

        logs.never_wait()
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
