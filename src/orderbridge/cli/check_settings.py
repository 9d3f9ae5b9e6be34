"""The accounts in the database: is the master key theirs, does each open, can it stand beside the others?"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from orderbridge.cli.report import Report
from orderbridge.config import Settings
from orderbridge.store import account_list, account_settings
from orderbridge.store.fleet_tables import ENABLED
from orderbridge.store.sealing import Fault, MasterKeys
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.store.database import Database

MOST_NAMES = 5  # in a line; `accounts show` has the rest of one


def check_settings(settings: Settings, database: "Database", report: Report) -> None:
    """All of them, whether or not one is broken. Nothing is asked of the service."""
    keys = MasterKeys(settings.fleet.master_keys)
    if not keys.ids:
        return  # the configuration needs none
    report.good("master_key", ", ".join(keys.ids))
    base_url = settings.marketplace.base_url
    loaded, rows = database.read_now(
        lambda tx: (account_settings.read(tx, keys, base_url), account_list.listed(tx)), snapshot=True
    )
    if not rows:
        if settings.fleet.from_database and not settings.accounts:
            report.look("account_settings", say("check.no_settings"), say("check.add_settings"))
        return
    disabled = sum(row["enabled"] != ENABLED for row in rows)
    report.good("account_settings", say("check.settings", opened=len(loaded.accounts), disabled=disabled))
    tell_broken(loaded.broken, report.bad)
    former = [row["name"] for row in rows if row["key_id"] in keys.ids[1:]]
    if former:
        report.look("account_settings", say("check.former_key", count=len(former)), say("check.rotate"))
    opened = {one.name: one.fingerprint for one in loaded.accounts}
    if moved := [row["name"] for row in rows if opened.get(row["name"], row["fingerprint"]) != row["fingerprint"]]:
        report.look("account_settings", say("check.moved", count=len(moved)), say("check.rotate"))
    _check_beside(settings, opened, report)


def tell_broken(broken: Mapping[str, Fault], tell: Callable[[str, str, str], None]) -> None:
    """A line for each fault, with its remedy."""
    for fault in Fault:
        if names := [name for name, found in broken.items() if found == fault]:
            tell("account_settings", _some(names), say(f"accounts.fault.{fault}"))


def _check_beside(settings: Settings, opened: dict[str, str], report: Report) -> None:
    """What is in the file as well: there the file counts."""
    in_file = {one.fingerprint: one.name for one in settings.accounts}
    if names := [name for name, fingerprint in opened.items() if name in in_file.values() or fingerprint in in_file]:
        report.bad("account_settings", _some(names), say("check.in_both"))


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" +{len(listed) - MOST_NAMES}" if len(listed) > MOST_NAMES else ""
    return f"{len(listed)}: {', '.join(listed[:MOST_NAMES])}{more}"
