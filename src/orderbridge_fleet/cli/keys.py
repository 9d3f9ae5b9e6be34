"""`accounts key`: a master key is made, and takes another one's place."""

from contextlib import closing
from typing import TYPE_CHECKING

import click

from orderbridge.cli.common import Context, pass_context
from orderbridge.texts import say
from orderbridge_fleet.cli.context import keys_of

if TYPE_CHECKING:
    from orderbridge_fleet.sealing import Fault, MasterKeys

MOST_NAMES = 20


@click.command("key")
@click.option("--rotate", is_flag=True, help="Seal every account again by the file's first line.")
@pass_context
def key(context: Context, rotate: bool) -> None:
    """Print a new master key, for the first line of fleet.master_key_file. Nothing is written.

    --rotate: seal every account again with the first line of that file; its other lines still open what they have
    sealed. If it is interrupted, run it again. It says when the other lines may be removed.
    """
    from orderbridge.config.keys import new_master_key

    if rotate:
        _rotate(context)
    else:
        click.echo(new_master_key())


def _rotate(context: Context) -> None:
    keys = keys_of(context.settings)
    anew, already, broken = _reseal(context, keys)
    click.echo(say("accounts.resealed", anew=anew, already=already, by=keys.ids[0]))
    for name, fault in list(broken.items())[:MOST_NAMES]:
        click.echo(f"{name}: {say(f'accounts.fault.{fault}')}", err=True)
    if len(broken) > MOST_NAMES:
        click.echo(say("accounts.more_faults", count=len(broken) - MOST_NAMES), err=True)
    if broken:
        raise click.ClickException(say("accounts.keep_keys", count=len(broken)))
    if len(keys.ids) > 1:
        click.echo(say("accounts.old_may_go", keys=", ".join(keys.ids[1:])))
    else:
        click.echo(say("accounts.one_key"))


def _reseal(context: Context, keys: "MasterKeys") -> tuple[int, int, dict[str, "Fault"]]:
    """A page in a transaction, so that others wait a short time only."""
    from orderbridge.store import schema
    from orderbridge_fleet import account_changes

    base_url = context.settings.marketplace.base_url
    anew = already = 0
    broken: dict[str, Fault] = {}
    after: str | None = ""
    with closing(context.database()) as database:
        database.read_now(schema.check)
        while after is not None:
            begin = after
            part = database.write_now(lambda tx, begin=begin: account_changes.reseal(tx, keys, base_url, begin))  # type: ignore[misc]
            after, anew, already = part.last, anew + part.anew, already + part.already
            broken |= part.broken
    return anew, already, broken


COMMANDS = (key,)
