"""Which order somebody means who holds a number, a key, its first letters or the POS's reference in his hands."""

import click

from orderbridge.cli.common import Context, show_rows
from orderbridge.config.account import UUID
from orderbridge.texts import say


def key_of(context: Context, wanted: str, *, machine: bool, to_act: bool = False) -> str:
    """The payment_key that is meant. Raises ClickException for no order, and for several, which are listed.

    `to_act`: first letters are not enough, and a whole key is taken as it is, also of an order that is not here yet.
    """
    from orderbridge.store import story

    find = story.exactly if to_act else story.find
    found = context.read(lambda tx: find(tx, wanted))
    if len(found) == 1:
        return str(found[0]["payment_key"])
    if found:
        show_rows(found, machine=machine, empty="")
        raise click.ClickException(say("story.several", wanted=wanted, count=len(found)))
    if to_act and UUID.fullmatch(wanted.lower()):
        return wanted.lower()
    raise click.ClickException(say("story.none", wanted=wanted))
