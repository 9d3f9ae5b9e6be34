"""The commands run, healthcheck and (for scripts) version."""

import resource

import click

from orderbridge.cli.common import Context, pass_context, version
from orderbridge.texts import say

MIN_FILES = 64  # file descriptors for the database, the marketplace, the journal


@click.command()
@pass_context
def run(context: Context) -> None:
    """Run the daemon."""
    from orderbridge.config import Settings
    from orderbridge.errors import ConfigError, Unusable
    from orderbridge.observe import logs, systemd
    from orderbridge.service import Service
    from orderbridge.store import workers

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < MIN_FILES:
        raise ConfigError("daemon.few_files", least=MIN_FILES)

    def load() -> Settings:
        settings = context.reload()
        logs.configure(level=settings.log.level, format=settings.log.format)
        for sentence in settings.source.warnings:
            click.echo(systemd.with_priority(f"orderbridge: {sentence}", "warning"), err=True)
        return settings

    async def work(settings: Settings) -> None:
        await Service(settings, load).run()

    try:
        workers.run(work(load()))
    except Unusable as error:  # after exit code 78 systemd does not restart it
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
    if file is None:  # ask all daemons; another user's process may use such a name and does not count
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
