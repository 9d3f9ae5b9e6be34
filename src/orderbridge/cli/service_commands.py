"""The commands that run the daemon and ask whether it is alive: run, healthcheck; and version, for scripts."""

import resource

import click

from orderbridge.cli.common import Context, pass_context, version
from orderbridge.texts import say

LEAST_FILES = 64  # the database's connections, a few accounts' lines, the journal


@click.command()
@pass_context
def run(context: Context) -> None:
    """Run the daemon."""
    from orderbridge.config import Settings
    from orderbridge.errors import ConfigError, Unusable
    from orderbridge.observe import logs, systemd
    from orderbridge.service import Service
    from orderbridge.store import workers

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < LEAST_FILES:
        raise ConfigError("daemon.few_files", least=LEAST_FILES)

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
        raise ConfigError(error.code, **error.facts) from error
    finally:
        workers.settle()


@click.command()
@pass_context
def healthcheck(context: Context) -> None:
    """Ask whether the daemon is alive."""
    import os
    from pathlib import Path

    from orderbridge.config.loading import find
    from orderbridge.observe import liveness

    file = find(None if context.config_file is None else Path(context.config_file), os.environ)
    if file is None:  # another user's process may have such a name: it does not count
        found = {name: liveness.ask(name) for name in liveness.daemons()}
        answers = {name: answer for name, answer in found.items() if not answer.startswith(liveness.STRANGER)}
    else:
        name, owner = liveness.name_of(file), file.stat().st_uid if file.exists() else os.geteuid()
        answers = {name: liveness.ask(name, [owner])}
    for name, answer in answers.items():
        verdict, *status = answer.splitlines()
        click.echo(" | ".join([f"{name}: {verdict}", *status]))
    if not answers:
        click.echo(f"dead: {say('liveness.none')}")
    alive = [answer.startswith(liveness.ALIVE) for answer in answers.values()]
    raise SystemExit(0 if alive and all(alive) else 1)


@click.command("version", hidden=True)
def version_command() -> None:
    """Show the version of the program and of its schema."""
    click.echo(version())


COMMANDS = (run, healthcheck, version_command)
