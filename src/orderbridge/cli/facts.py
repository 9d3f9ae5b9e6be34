"""What is in force here: config show, version."""

from typing import Any

import click

from orderbridge import __version__
from orderbridge.cli.common import Context, as_json, show_json
from orderbridge.texts import say

pass_context = click.make_pass_decorator(Context)


@click.group()
def config() -> None:
    """The configuration."""


@config.command("show")
@as_json
@pass_context
def config_show(context: Context, as_json: bool) -> None:
    """What is in force, secrets hidden."""
    from orderbridge.config import shown

    settings = context.settings
    values = shown(settings)
    if as_json:
        show_json(values)
        return
    click.echo("# " + say("facts.source", source=settings.source.file or say("facts.no_file")))
    for name, value in _flat(values):
        click.echo(f"{name} = {value}")


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [line for key, part in value.items() for line in _flat(part, f"{name}.{key}" if name else key)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [line for place, part in enumerate(value) for line in _flat(part, f"{name}[{place}]")]
    return [(name, value)]


@click.command()
@as_json
def version(as_json: bool) -> None:
    """The program's version and its schema's."""
    import platform

    from orderbridge.store import revisions

    facts = {"version": __version__, "schema": revisions.HEAD, "python": platform.python_version()}
    if as_json:
        show_json(facts)
    else:
        click.echo("orderbridge " + say("facts.version", **facts))


COMMANDS = (config, version)
