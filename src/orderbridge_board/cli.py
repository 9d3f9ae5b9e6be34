"""The commands that pair, list and revoke the board's tablets."""

import click

from orderbridge.cli.common import Context, as_json, pass_context, show_json, show_rows
from orderbridge.texts import say


@click.group()
def board() -> None:
    """Manage the board's tablets."""


@board.command("pair")
@click.option("--look", "role", flag_value="look", default="act", help="The tablet may only view orders.")
@click.option(
    "--look-customers", "role", flag_value="look_customers", help="The tablet may view orders with phone and address."
)
@as_json
@pass_context
def pair(context: Context, role: str, as_json: bool) -> None:
    """Print the digits that pair a tablet within 10 minutes."""
    from orderbridge.clock import SystemClock
    from orderbridge_board import devices

    web = context.settings.web
    if web.board == "off":
        raise click.ClickException(say("board.off"))
    now = SystemClock().now()
    before, code = context.write(lambda tx: (devices.wrong_tries(tx), devices.new_code(tx, role, now)))
    address = _address(context)
    minutes = round(devices.CODE_LIFE.total_seconds() / 60)
    if as_json:
        show_json({"code": code, "address": address, "expires_utc": now + devices.CODE_LIFE})
    else:
        click.echo(f"{code[:4]} {code[4:]}")
        click.echo(say("board.pair", address=address, minutes=minutes), err=True)
        if before is not None:  # the last code was not used
            click.echo(say("board.guessed" if before >= devices.MOST_TRIES else "board.unused", count=before), err=True)


def _address(context: Context) -> str:
    """The address at which a tablet opens the board."""
    web = context.settings.web
    port = web.listen.rpartition(":")[2]
    host = web.hosts[0] if web.hosts else web.listen.rpartition(":")[0]
    return f"{web.scheme}://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}/"


@board.command("devices")
@as_json
@pass_context
def devices(context: Context, as_json: bool) -> None:
    """List the paired tablets."""
    from orderbridge_board import devices

    show_rows(context.read(devices.listed), machine=as_json, empty=say("board.no_devices"))


@board.command("revoke")
@click.argument("device")
@pass_context
def revoke(context: Context, device: str) -> None:
    """Revoke a tablet's access."""
    from orderbridge.clock import SystemClock
    from orderbridge_board import devices

    now = SystemClock().now()
    if not context.write(lambda tx: devices.revoke(tx, device, now)):
        raise click.ClickException(say("board.no_device", device=device))
    click.echo(say("board.revoked", device=device))


COMMANDS = (board,)
