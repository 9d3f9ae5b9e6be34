"""Alive or not, for whoever starts containers anew: `orderbridge healthcheck`."""

import click

from orderbridge.cli.common import Context
from orderbridge.texts import say

pass_context = click.make_pass_decorator(Context)


@click.command()
@pass_context
def healthcheck(context: Context) -> None:
    """Does the daemon work? Exit code 1 when it is dead or hung: then a restart helps.

    It is alive while the marketplace is down, and whatever the light of `status` is. Without --config, every daemon here
    is asked: on this machine, or in this container.
    """
    from pathlib import Path

    from orderbridge.observe import liveness

    named = context.config_file
    names = liveness.daemons() if named is None else [liveness.name_of(Path(named))]
    answers = {name: liveness.ask(name) for name in names}
    for name, said in answers.items():
        verdict, *status = said.splitlines()
        click.echo(" | ".join([f"{name}: {verdict}", *status]))
    if not answers:
        click.echo(f"dead: {say('liveness.none')}")
    alive = [said.startswith(liveness.ALIVE) for said in answers.values()]
    raise SystemExit(0 if alive and all(alive) else 1)


COMMANDS = (healthcheck,)
