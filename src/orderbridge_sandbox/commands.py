"""Commands on the sandbox itself: its ledger, switches, faults, tokens and clock. panel.py has those on orders."""

from decimal import Decimal
from typing import Any

from . import panel
from .command import COMMANDS, check_names, command
from .faults import Fault
from .options import Options
from .presets import settings_of
from .rules import Operation
from .state import CallRecord
from .world import World

__all__ = ["COMMANDS"]  # whole once this file was imported


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """A JSON number with a point arrives as Decimal; a switch or a fault takes a float."""
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in given.items()}


@command("POST", "/tokens/end")
def end_tokens(world: World, account: str = "") -> Any:
    if account:
        panel.account_named(world, account)
    return {"ended": world.end_tokens(account)}


@command("GET", "/ledger")
def ledger(world: World, operation: str = "", account: str = "") -> list[CallRecord]:
    if operation:
        check_names("operation", [operation], [*Operation, "unknown"])
    if account:
        panel.account_named(world, account)
    return world.calls(operation, account=account)


@command("GET", "/options")
def show_options(world: World) -> Options:
    return world.options


@command("PATCH", "/options")
def set_options(world: World, /, **changes: Any) -> Options:
    return world.set_options(**_plain(changes))


@command("POST", "/presets")
def play_preset(world: World, name: str) -> Options:
    return world.set_options(**settings_of([name]))


@command("GET", "/faults")
def list_faults(world: World) -> list[Fault]:
    return world.faults.pending()


@command("POST", "/faults")
def add_fault(world: World, /, **values: Any) -> Fault:
    fault = Fault.from_json(_plain(values))
    if fault.account:
        panel.account_named(world, fault.account)
    world.faults.add(fault)
    return fault


@command("DELETE", "/faults")
def clear_faults(world: World) -> Any:
    world.faults.clear()
    return []


@command("POST", "/clock")
def advance_clock(world: World, advance: Decimal) -> Any:
    """Set the platform's clock ahead (below 0: back) from where it is; return its time."""
    world.set_options(clock_offset_seconds=world.options.clock_offset_seconds + float(advance))
    world.tell(f"clock.advanced seconds={float(advance):g}")
    return {"now": world.local(world.now())}


@command("POST", "/reset")
def reset(world: World, seed: int | None = None) -> Any:
    world.reset(seed=seed)
    return {}
