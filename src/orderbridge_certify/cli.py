"""`orderbridge certify`: certifies a POS."""

import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from orderbridge.cli.common import ANSWERS, Context, pass_context
from orderbridge.extension import Extension
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge_certify.driver import Operator

LONGEST_SLUG = 60


@click.command()
@click.option("--till", required=True, help="The POS's name and version in the report.")
@click.option("--database", "url", help="An empty database; else a SQLite file in the folder.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="The folder for all files; default certify-NAME."
)
@click.option("--seed", default=1, show_default=True, help="The same seed plays the same orders.")
@click.option("--only", multiple=True, help="Only this scenario; may be repeated.")
@click.option("--start", default="", help="A command that starts the POS; certify kills it.")
@click.option("--hands", help="A command that does a person's steps in the POS.")
@click.option("--unattended", is_flag=True, help="Ask no person; criteria that need one are NOT SEEN.")
@click.option(
    "--within", "within_s", default=10.0, show_default=True, help="Seconds within which an order must be taken over."
)
@click.option("--pace", default=1.0, show_default=True, help="Below 1, all waiting times are shortened by that factor.")
@click.option("--reads-locked", is_flag=True, help="The POS locks the database before it reads.")
@pass_context
def certify(
    context: Context,
    /,
    till: str,
    url: str | None,
    folder: Path | None,
    only: tuple[str, ...],
    start: str,
    hands: str | None,
    unattended: bool,
    **terms: Any,
) -> None:
    """Test a POS and write a report."""
    from orderbridge_certify.driver import Terms
    from orderbridge_certify.play import Wanted, break_off
    from orderbridge_certify.play import certify as play

    if context.config_file is not None:
        _ = context.settings  # sets the language
    if min(terms["within_s"], terms["pace"]) <= 0:
        raise click.UsageError(say("certify.above_0"))
    _check_names(only)
    place = (folder or Path(f"certify-{_slug(till)}")).resolve()
    wanted = Wanted(
        till=till,
        folder=place,
        url=_address(url) if url else f"sqlite:///{place.as_posix()}/till.db",
        terms=Terms(**terms),
        only=only,
        operator=_operator(hands, unattended=unattended),
        echo=click.echo,
        start=start,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, so that the POS is killed, too
    try:
        passed = play(wanted)
    except (KeyboardInterrupt, click.Abort) as broken_off:
        break_off(wanted)
        click.echo(f"\n{say('certify.stopped', folder=place)}", err=True)
        raise SystemExit(1) from broken_off
    except OSError as error:
        raise click.ClickException(say("certify.not_written", folder=place, error=error)) from error
    if not passed:
        raise SystemExit(1)


def _check_names(only: tuple[str, ...]) -> None:
    from orderbridge_certify.scenarios import SCENARIOS

    known = [one.name for one in SCENARIOS]
    if unknown := [name for name in only if name not in known]:
        raise click.UsageError(say("certify.unknown", names=", ".join(unknown), known=", ".join(known)))


def _slug(till: str) -> str:
    plain = till.lower().translate(str.maketrans("çğıöşü", "cgiosu"))
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_SLUG] or "till"


def _address(url: str) -> str:
    from orderbridge.config.addresses import database_address
    from orderbridge_certify.notes import WAYS

    try:
        checked = database_address(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if checked.partition(":")[0].partition("+")[0] not in WAYS:
        raise click.UsageError(say("certify.no_database"))
    return checked


def _operator(command: str | None, *, unattended: bool) -> "Operator":
    from orderbridge_certify.driver import Command, Operator, Person

    if command is not None:
        person = None if unattended or not sys.stdin.isatty() else Person(_ask)
        return Command(command, lambda line: click.echo(line, err=True), person)
    return Operator() if unattended else Person(_ask)


def _ask(sentence: str, is_question: bool) -> str:
    """The answer of a person: "done", "yes", "no" or "skip"."""
    keys = say("certify.keys_question") if is_question else say("certify.keys_done")
    while True:
        answer = click.prompt(f"{sentence} [{keys}]", default="", show_default=False).strip().lower()
        if answer == "s":
            return "skip"
        if not is_question and not answer:
            return "done"
        if is_question and answer in ANSWERS:
            return "yes" if ANSWERS[answer] else "no"


COMMANDS = (certify,)


class Certify(Extension):
    """The extension, which only adds commands."""

    commands: ClassVar = {"certify": __name__}
