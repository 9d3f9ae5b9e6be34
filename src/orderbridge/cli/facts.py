"""The program's version, and the settings in force.

`orderbridge --version` and `check --settings` show them; `version` and `config show` stay for scripts that call them.
"""

from typing import Any

import click

from orderbridge import __version__
from orderbridge.cli.common import Context, as_json, show_json
from orderbridge.texts import say

pass_context = click.make_pass_decorator(Context)


def show_settings(context: Context, as_json: bool) -> None:
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


def version() -> str:
    """The program's, its schema's and Python's."""
    import platform

    from orderbridge.store import revisions

    return "orderbridge " + say(
        "facts.version", version=__version__, schema=revisions.HEAD, python=platform.python_version()
    )


@click.group(hidden=True)
def config() -> None:
    """The configuration."""


config.command("show")(as_json(pass_context(show_settings)))


@click.command("version", hidden=True)
def version_command() -> None:
    """The program's version and its schema's."""
    click.echo(version())


COMMANDS = (config, version_command)
