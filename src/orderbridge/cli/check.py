"""`check`: is everything in place? Each thing on a line, with its remedy where it is not.

It changes nothing: no file and no table is made, no order is asked for. A login is made only where no kept token works,
and its token is kept where the tables are there. So it may run at any time, beside a daemon and as another user.
"""

import click

from orderbridge.cli.common import Context, as_json
from orderbridge.cli.facts import show_settings
from orderbridge.cli.report import Checked, Report, bad
from orderbridge.errors import ConfigError
from orderbridge.texts import say

UNREACHABLE = 69
CONFIGURATION = 78

pass_context = click.make_pass_decorator(Context)


@click.command()
@click.option("--settings", is_flag=True, help="Only show the settings in force, secrets hidden.")
@as_json
@pass_context
def check(context: Context, as_json: bool, settings: bool) -> None:
    """Is everything in place? Configuration, database, line, clock, login, restaurants: each with its remedy."""
    from orderbridge.observe import logs

    if settings:
        show_settings(context, as_json)
        return
    logs.configure(level="critical")  # what matters is printed by the command itself
    report = Report(machine=as_json)
    try:
        checked = Checked(context, context.reload())
    except ConfigError as error:
        report.add(bad("configuration", error))
        code = CONFIGURATION
    else:
        code = _check(checked, report)
    report.show()
    raise SystemExit(code)


def _check(checked: Checked, report: Report) -> int:
    from orderbridge.cli import check_files, check_service
    from orderbridge.cli.check_database import check_database
    from orderbridge.store import workers

    report.probe(check_files.FILES, checked)
    with check_database(checked, report):
        try:
            workers.run(report.ask(check_service.PROBES, checked))
        except ConfigError as error:  # its file of certificates
            report.add(bad("certificates", error))
            return CONFIGURATION
    if checked.is_unusable:
        return CONFIGURATION
    if not checked.is_reached:
        return UNREACHABLE
    return 0 if report.is_good else 1


@click.group()
def alarm() -> None:
    """The alarm command, `command` in [alarms]."""


@alarm.command("test")
@pass_context
def alarm_test(context: Context) -> None:
    """Run the alarm command once, with a message that is marked as a test."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.alarms import Command, document_of, send
    from orderbridge.rules.notify import Event, EventKind
    from orderbridge.rules.problems import Code, Problem, Severity

    chosen = context.settings.alarms
    if not chosen.command:
        raise ConfigError("alarm.none")
    problem = Problem(Code.ALARM_FAILING, "", SystemClock().now(), Severity.SEVERE)
    document = document_of([Event(EventKind.BEGAN, problem)], context.settings.language)
    words = {"code": "test", "cause": say("alarm.cause"), "remedy": say("alarm.remedy")}
    failure = send(Command(chosen.command, chosen.command_timeout_seconds), document | words)
    if failure is not None:
        raise click.ClickException(say("alarm.failed", reason=failure))
    click.echo(say("alarm.sent"))


COMMANDS = (check, alarm)
