"""The command that runs the daemon."""

import resource

import click

from orderbridge.cli.common import Context
from orderbridge.texts import say

pass_context = click.make_pass_decorator(Context)

LEAST_FILES = 64  # the database's connections, a few accounts' lines, the journal


@click.command()
@pass_context
def run(context: Context) -> None:
    """The daemon: bring orders in, acknowledge them, carry out the outbox.

    SIGTERM ends it in order; SIGHUP reads the configuration and its secret files again.
    """
    from orderbridge.config import Settings
    from orderbridge.errors import ConfigError, Unusable
    from orderbridge.observe import logs, systemd
    from orderbridge.service import Service
    from orderbridge.store import workers

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < LEAST_FILES:
        raise ConfigError(say("daemon.few_files", least=LEAST_FILES))

    def load() -> Settings:
        settings = context.reload()
        logs.configure(level=settings.log.level, format=settings.log.format)
        for sentence in settings.warnings:
            click.echo(systemd.with_priority(f"orderbridge: {sentence}", "warning"), err=True)
        return settings

    async def work(settings: Settings) -> None:
        await Service(settings, load).run()

    try:
        workers.run(work(load()))
    except Unusable as error:  # for systemd it is the configuration: starting again does not help
        raise ConfigError(str(error)) from error
    finally:
        workers.settle()


COMMANDS = (run,)
