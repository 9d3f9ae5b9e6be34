"""`check`: is everything in place? Each thing on a line, with its remedy where it is not.

It changes nothing: no file and no table is made, no order is asked for, unless `--cooldown` asks for some. A login is made only where no kept token works,
and its token is kept where the tables are there. So it may run at any time, beside a daemon and as another user.
"""

from typing import TYPE_CHECKING

import click

from orderbridge.cli.common import Context, as_json
from orderbridge.cli.report import Report
from orderbridge.errors import ConfigError, StoreError
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.config import Settings
    from orderbridge.store.database import Database

UNREACHABLE = 69
CONFIGURATION = 78

pass_context = click.make_pass_decorator(Context)


@click.command()
@click.option("--cooldown", is_flag=True, help="Find out whose cooldown it is. It takes a minute; no daemon may work.")
@as_json
@pass_context
def check(context: Context, as_json: bool, cooldown: bool) -> None:
    """Is everything in place? Configuration, database, line, clock, login, restaurants: each with its remedy."""
    from orderbridge.observe import logs

    logs.configure(level="critical")  # what matters is printed by the command itself
    report = Report(machine=as_json)
    code = _check_cooldown(context, report) if cooldown else _check(context, report)
    report.show()
    raise SystemExit(code)


def _check(context: Context, report: Report) -> int:
    try:
        settings = context.reload()
    except ConfigError as error:
        report.bad("configuration", str(error))
        return CONFIGURATION
    from orderbridge.cli.check_accounts import check_accounts
    from orderbridge.cli.check_database import check_database
    from orderbridge.cli.check_files import check_files
    from orderbridge.cli.check_line import check_line
    from orderbridge.store import workers

    check_files(settings, report)
    with check_database(context, report) as database:
        report.has_worked = database is not None and _has_polled(database, settings)
        try:
            reached = workers.run(check_line(settings.marketplace, report))
        except ConfigError as error:  # its file of certificates
            report.bad("certificates", str(error))
            return CONFIGURATION
        if reached:
            workers.run(check_accounts(context, database, report))
    if report.is_unusable:
        return CONFIGURATION
    if not reached:
        return UNREACHABLE
    return 0 if report.is_good else 1


def _has_polled(database: "Database", settings: "Settings") -> bool:
    from orderbridge.store import accounts

    known = {account.fingerprint for account in settings.accounts}
    return any(one["last_poll_ok_utc"] for one in database.read_now(lambda tx: accounts.overview(tx, known)))


def _check_cooldown(context: Context, report: Report) -> int:
    try:
        context.reload()
    except ConfigError as error:
        report.bad("configuration", str(error))
        return CONFIGURATION
    from orderbridge.cli.check_cooldown import check_cooldown

    try:
        return 0 if check_cooldown(context, report) else 1
    except StoreError as error:
        report.bad("cooldown", str(error))
        return 1


@click.group()
def alarm() -> None:
    """The alarm command, `command` in [alarms]."""


@alarm.command("test")
@pass_context
def alarm_test(context: Context) -> None:
    """Run the alarm command once, with a message that is marked as a test."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.alarms import document_of, send
    from orderbridge.jobs.command import Command
    from orderbridge.rules.notify import Event, EventKind
    from orderbridge.rules.problems import Code, Problem, Severity

    chosen = context.settings.alarms
    if not chosen.command:
        raise ConfigError(say("alarm.none"))
    problem = Problem(Code.ALARM_FAILING, "", SystemClock().now(), Severity.SEVERE)
    document = document_of([Event(EventKind.BEGAN, problem)], context.settings.language)
    words = {"code": "test", "cause": say("alarm.cause"), "remedy": say("alarm.remedy")}
    failure = send(Command(chosen.command, chosen.command_timeout_seconds), document | words)
    if failure is not None:
        raise click.ClickException(say("alarm.failed", reason=failure))
    click.echo(say("alarm.sent"))


COMMANDS = (check, alarm)
