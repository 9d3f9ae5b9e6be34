"""The probes of `check` for a fleet: whether replicas can share the database, the accounts, and who holds them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing

from orderbridge.cli.check import Checked, Finding, Probe, bad, good, warn
from orderbridge.config import Settings
from orderbridge.errors import StoreError
from orderbridge.store.own_tables import ENABLED
from orderbridge.texts import say
from orderbridge_fleet import account_settings, replicas
from orderbridge_fleet.account_settings import Fault, MasterKeys
from orderbridge_fleet.membership import Membership

MOST_NAMES = 5  # in one line


def sharing(checked: Checked) -> Iterator[Finding]:
    """Whether replicas can share the database."""
    if not checked.settings.fleet.from_database:
        return
    if checked.opened.file is not None:
        yield good("fleet", say("check.alone"))
        return
    try:
        with closing(Membership(checked.opened)) as found:
            found.check()
    except StoreError as error:
        yield bad("fleet", error)
    else:
        yield good("fleet", say("check.shared"))


def settings_of_accounts(checked: Checked) -> Iterator[Finding]:
    """Whether all accounts in the database can be decrypted and used. This sends no request."""
    settings = checked.settings
    keys = MasterKeys(settings.fleet.master_keys)
    if not keys.ids or not checked.is_current:
        return  # no master key is configured, so none is needed
    yield good("master_key", ", ".join(keys.ids))
    base_url = settings.marketplace.base_url
    loaded, rows = checked.opened.read_now(
        lambda tx: (account_settings.read(tx, keys, base_url), account_settings.listed(tx)), snapshot=True
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


def shares(checked: Checked) -> Iterator[Finding]:
    """Set `worker` to the replicas and their numbers of buckets. This yields no finding."""
    if checked.worker and checked.is_current:
        found, count = checked.opened.read_now(lambda tx: (replicas.shares(tx), replicas.count(tx)))
        named = (", PID ".join(name.split(" ")[:2]) for name in found)  # the host, the process and a number
        listed = (f"{who}: {held}/{count}" for who, held in zip(named, found.values(), strict=True))
        checked.worker = "; ".join(listed) or checked.worker
    yield from ()


def broken(faults: Mapping[str, Fault], level: Callable[[str, str, str], Finding]) -> Iterator[Finding]:
    """A finding for each kind of fault, with its remedy."""
    for fault in Fault:
        if names := [name for name, found in faults.items() if found == fault]:
            yield level("account_settings", _some(names), say(f"accounts.fault.{fault}"))


def _beside(settings: Settings, opened: dict[str, str]) -> Iterator[Finding]:
    """The accounts that are in the configuration file, too. The file takes precedence."""
    in_file = {one.fingerprint: one.name for one in settings.accounts}
    if names := [name for name, fingerprint in opened.items() if name in in_file.values() or fingerprint in in_file]:
        yield bad("account_settings", _some(names), say("check.in_both"))


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" +{len(listed) - MOST_NAMES}" if len(listed) > MOST_NAMES else ""
    return f"{len(listed)}: {', '.join(listed[:MOST_NAMES])}{more}"


PROBES: tuple[Probe, ...] = (sharing, settings_of_accounts, shares)
