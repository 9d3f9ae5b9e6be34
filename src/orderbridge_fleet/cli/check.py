"""The accounts in the database: is the master key theirs, does each open, can it stand beside the others?"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from orderbridge.cli.report import Checked, Finding, bad, good, warn
from orderbridge.config import Settings
from orderbridge.store.fleet_tables import ENABLED
from orderbridge.texts import say
from orderbridge_fleet import account_list
from orderbridge_fleet.account_settings import read
from orderbridge_fleet.sealing import Fault, MasterKeys

MOST_NAMES = 5  # in a line; `accounts show` has the rest of one


def account_settings(checked: Checked) -> Iterator[Finding]:
    """All of them, whether or not one is broken. Nothing is asked of the service."""
    settings = checked.settings
    keys = MasterKeys(settings.fleet.master_keys)
    if not keys.ids or not checked.is_current:
        return  # the configuration needs none
    yield good("master_key", ", ".join(keys.ids))
    base_url = settings.marketplace.base_url
    loaded, rows = checked.opened.read_now(
        lambda tx: (read(tx, keys, base_url), account_list.listed(tx)), snapshot=True
    )
    if not rows:
        if settings.fleet.from_database and not settings.accounts:
            yield warn("account_settings", say("check.no_settings"), say("check.add_settings"))
        return
    disabled = sum(row["enabled"] != ENABLED for row in rows)
    yield good("account_settings", say("check.settings", opened=len(loaded.accounts), disabled=disabled))
    yield from broken(loaded.broken, bad)
    former = [row["name"] for row in rows if row["key_id"] in keys.ids[1:]]
    if former:
        yield warn("account_settings", say("check.former_key", count=len(former)), say("check.rotate"))
    opened = {one.name: one.fingerprint for one in loaded.accounts}
    if moved := [row["name"] for row in rows if opened.get(row["name"], row["fingerprint"]) != row["fingerprint"]]:
        yield warn("account_settings", say("check.moved", count=len(moved)), say("check.rotate"))
    yield from _beside(settings, opened)


def broken(faults: Mapping[str, Fault], level: Callable[[str, str, str], Finding]) -> Iterator[Finding]:
    """One for each fault, with its remedy."""
    for fault in Fault:
        if names := [name for name, found in faults.items() if found == fault]:
            yield level("account_settings", _some(names), say(f"accounts.fault.{fault}"))


def _beside(settings: Settings, opened: dict[str, str]) -> Iterator[Finding]:
    """What is in the file as well: there the file counts."""
    in_file = {one.fingerprint: one.name for one in settings.accounts}
    if names := [name for name, fingerprint in opened.items() if name in in_file.values() or fingerprint in in_file]:
        yield bad("account_settings", _some(names), say("check.in_both"))


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" +{len(listed) - MOST_NAMES}" if len(listed) > MOST_NAMES else ""
    return f"{len(listed)}: {', '.join(listed[:MOST_NAMES])}{more}"
