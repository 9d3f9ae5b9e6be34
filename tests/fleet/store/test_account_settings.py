"""Accounts in the database: encrypted, bound to their names, read completely or by changes."""

import base64
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.databases import SERVERS, only
from tests.store.samples import NOW, AnyPos, one, rows

from orderbridge.config import Account
from orderbridge.errors import Unusable
from orderbridge.store.database import Database
from orderbridge_fleet import account_changes, account_settings
from orderbridge_fleet.account_settings import Fault, Loaded, MasterKeys, key_id

URL = "https://api.example.com"
RESTAURANT = "77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33"
KEY, NEW_KEY = bytes(range(32)), bytes(range(100, 132))
KEYS, BOTH, ONLY_NEW = MasterKeys([KEY]), MasterKeys([NEW_KEY, KEY]), MasterKeys([NEW_KEY])
LATER = NOW + timedelta(hours=1)


def account(name: str = "kadikoy", rest: str = "", **options: Any) -> Account:
    secrets = {"app_secret_key": "app-secret-şifre", "rest_secret_key": rest or f"rest-secret-of-{name}"}
    return Account(name=name, **secrets, **options).at(URL)


def put(database: Database, *accounts: Account, keys: MasterKeys = KEYS) -> account_changes.Put:
    return database.write_now(lambda tx: account_changes.put(tx, keys, accounts, NOW))


def read(database: Database, keys: MasterKeys = KEYS, since: int | None = None, base_url: str = URL) -> Loaded:
    return database.read_now(lambda tx: account_settings.read(tx, keys, base_url, since=since))


def names(loaded: Loaded) -> list[str]:
    return [one.name for one in loaded.accounts]


def remove(database: Database, *gone: str) -> list[str]:
    return database.write_now(lambda tx: account_changes.remove(tx, gone, LATER))


def enable(database: Database, *those: str, enabled: bool = True) -> list[str]:
    return database.write_now(lambda tx: account_changes.enable(tx, those, LATER, enabled=enabled))


def alter(pos: AnyPos, **values: object) -> None:
    """As a user who can write to the database, but has no key."""
    for column, value in values.items():
        pos.execute(f"UPDATE delivery_account_settings SET {column} = ? WHERE name = 'kadikoy'", (value,))


def test_an_account_comes_back_as_it_went_in_and_no_secret_stands_in_the_row(database, pos):
    rules = ({"id": RESTAURANT, "auto_accept_minutes": 40},)
    there = account(auto_accept_minutes=25, auto_accept_scheduled=True, restaurants=rules)
    sealed = set()
    for _ in range(2):
        assert put(database, there).added == ("kadikoy",)
        (back,) = read(database).accounts
        assert (back, back.fingerprint) == (there, there.fingerprint)
        assert back.app_secret_key.get_secret_value() == "app-secret-şifre"
        (back,) = read(database, base_url="https://other.example.com").accounts
        assert back.fingerprint == account().at("https://other.example.com").fingerprint
        row = one(pos, "SELECT * FROM delivery_account_settings")
        assert "secret" not in str(row)
        assert b"secret" not in base64.b64decode(row["sealed"])
        assert (row["key_id"], row["enabled"]) == (key_id(KEY), 1)
        sealed.add(row["sealed"])
        pos.execute("DELETE FROM delivery_account_settings")
    assert len(sealed) == 2, "the same account is sealed anew each time"


def broken(database: Database, keys: MasterKeys = KEYS) -> dict[str, Fault]:
    """The unusable accounts, with a good one beside them that nothing harms."""
    put(database, account("besiktas"))
    loaded = read(database, keys)
    assert keys is not KEYS or names(loaded) == ["besiktas"]
    return dict(loaded.broken)


@pytest.mark.parametrize("column, values, fault", [
    ("sealed", (None, "", "A", "AAAA", "A" * 16, "not base64 at all!", "şifre"), Fault.DAMAGED),
    ("key_id", (None, "", "0" * 16), Fault.KEY_UNKNOWN), ("key_id", (key_id(NEW_KEY),), Fault.DAMAGED),
])  # fmt: skip
def test_a_row_that_does_not_open_is_named_by_its_fault(column, values, fault, database, pos):
    put(database, account())
    for value in values:
        alter(pos, **{column: value})
        assert broken(database, BOTH if value == key_id(NEW_KEY) else KEYS) == {"kadikoy": fault}


def test_one_altered_bit_or_a_cut_or_the_text_of_another_account_is_damage(database, pos):
    put(database, account("uskudar"))
    pos.execute("UPDATE delivery_account_settings SET name = 'kadikoy'")
    assert broken(database) == {"kadikoy": Fault.DAMAGED}
    put(database, account())
    text = base64.b64decode(one(pos, "SELECT sealed FROM delivery_account_settings WHERE name = 'kadikoy'")["sealed"])
    for place in (0, 11, 12, 40, -1, None):
        kept = bytearray(text)
        if place is None:
            del kept[-3:]
        else:
            kept[place] ^= 1
        alter(pos, sealed=base64.b64encode(kept).decode())
        assert broken(database) == {"kadikoy": Fault.DAMAGED}


def test_keys_that_decrypt_no_account_are_refused(database):
    check = account_settings.refuse_strange
    database.read_now(lambda tx: check(tx, ONLY_NEW))
    put(database, account("kadikoy"), account("besiktas"))
    with pytest.raises(Unusable):
        database.read_now(lambda tx: check(tx, ONLY_NEW))
    put(database, account("besiktas", "another"), keys=ONLY_NEW)
    database.read_now(lambda tx: check(tx, ONLY_NEW))
    remove(database, "besiktas")
    with pytest.raises(Unusable):
        database.read_now(lambda tx: check(tx, ONLY_NEW))


def test_a_decrypted_row_that_is_no_account_is_wrong(database, pos):
    put(database, account())
    for plain in (
        b"", b"[]", b"5", b"{", b"\xff", b"{}", b'{"app_secret_key": "a"}',
        b'{"app_secret_key": "a", "rest_secret_key": "b", "x": 1}',
        b'{"app_secret_key": "a", "rest_secret_key": "", "auto_accept_minutes": 5}',
    ):  # fmt: skip
        text, by = KEYS.seal("kadikoy", plain)
        alter(pos, sealed=text, key_id=by)
        assert broken(database) == {"kadikoy": Fault.WRONG}
    text, by = KEYS.seal("kadikoy", b'{"name": "besiktas", "app_secret_key": "a", "rest_secret_key": "b"}')
    alter(pos, sealed=text, key_id=by)
    assert names(read(database)) == ["besiktas", "kadikoy"]


def test_of_two_accounts_with_the_same_secrets_the_first_one_works(database, pos):
    """As after a change of the address: the rows still have the fingerprints of the former one."""
    put(database, account("besiktas", rest="same"))
    put(database, account("kadikoy", rest="same").at("https://former.example.com"))
    loaded = read(database)
    assert (names(loaded), loaded.broken) == (["besiktas"], {"kadikoy": Fault.SAME_SECRETS})


def test_each_change_is_a_higher_version(database):
    versions = [read(database).version]
    for change in (
        lambda: put(database, account(), account("besiktas")),
        lambda: put(database, account(auto_accept_minutes=5)),
        lambda: enable(database, "kadikoy", enabled=False),
        lambda: enable(database, "kadikoy"),
        lambda: remove(database, "kadikoy"),
        lambda: put(database, account()),
    ):
        change()
        versions.append(read(database).version)
    assert versions == [0, 1, 2, 3, 4, 5, 6]


def test_an_unchanged_account_keeps_its_version_and_row(database, pos):
    put(database, account(), account("besiktas", auto_accept_minutes=5))
    before = rows(pos, "SELECT * FROM delivery_account_settings ORDER BY name")
    again = put(database, account("besiktas", auto_accept_minutes=5), account())
    assert (again.added, again.altered, sorted(again.unchanged)) == ((), (), ["besiktas", "kadikoy"])
    assert enable(database, "kadikoy") == remove(database, "unknown") == []
    assert enable(database, "unknown", enabled=False) == []
    assert (rows(pos, "SELECT * FROM delivery_account_settings ORDER BY name"), read(database).version) == (before, 1)


def test_only_what_changed_since_is_read_with_the_names_of_those_that_are_disabled_or_removed(database):
    put(database, account("besiktas"), account("kadikoy"), account("uskudar"), account("moda"))
    seen = read(database).version
    put(database, account("kadikoy", rest="new"))
    enable(database, "moda", enabled=False)
    remove(database, "uskudar")
    loaded = read(database, since=seen)
    assert (names(loaded), loaded.gone) == (["kadikoy"], {"moda", "uskudar"})
    nothing = read(database, since=loaded.version)
    assert (nothing.accounts, nothing.gone, nothing.version) == ((), frozenset(), loaded.version)
    assert (names(read(database)), read(database).gone) == (["besiktas", "kadikoy"], {"moda", "uskudar"})


def test_a_change_committed_between_two_reads_is_read_again(kind, database, url, monkeypatch):
    """A reader may see a change early; it must never pass it over."""
    put(database, account("besiktas"))
    second = Database(url, inline=True)
    asked = account_settings.version

    def then_another(tx):
        seen = asked(tx)
        put(second, account("kadikoy"))
        return seen

    monkeypatch.setattr(account_settings, "version", then_another)
    seen = read(database).version
    monkeypatch.undo()
    second.close()
    assert (seen, names(read(database, since=seen))) == (1, ["kadikoy"])


def test_a_removed_account_leaves_no_secret_and_can_be_added_again(database, pos):
    put(database, account())
    assert remove(database, "kadikoy") == ["kadikoy"]
    row = one(pos, "SELECT * FROM delivery_account_settings")
    assert (row["sealed"], row["key_id"], row["enabled"]) == (None, None, 0)
    assert row["fingerprint"] != account().fingerprint
    assert remove(database, "kadikoy") == enable(database, "kadikoy") == []
    assert put(database, account("moda", rest="rest-secret-of-kadikoy")).added == ("moda",)
    assert put(database, account("kadikoy", rest="other")).added == ("kadikoy",)
    assert names(read(database)) == ["kadikoy", "moda"]


def test_a_disabled_account_that_is_altered_stays_disabled(database):
    put(database, account())
    enable(database, "kadikoy", enabled=False)
    assert put(database, account(rest="new")).altered == ("kadikoy",)
    assert (names(read(database)), read(database).gone) == ([], {"kadikoy"})
    enable(database, "kadikoy")
    assert read(database).accounts[0].rest_secret_key.get_secret_value() == "new"


def test_the_secrets_of_another_account_are_refused(database):
    put(database, account("kadikoy", rest="same"))
    refused = put(database, account("besiktas"), account("moda", rest="same"))
    assert (refused.taken, refused.added) == ({"moda": "kadikoy"}, ())
    assert (names(read(database)), read(database).version) == (["kadikoy"], 1)


def test_an_account_that_does_not_decrypt_can_be_replaced(database, pos):
    pos.execute("DELETE FROM delivery_fleet")
    put(database, account())
    assert (names(read(database)), read(database).version) == (["kadikoy"], 1)
    assert put(database, account(), keys=ONLY_NEW).altered == ("kadikoy",)
    assert names(read(database, ONLY_NEW)) == ["kadikoy"]


@only(SERVERS[0])
def test_concurrent_changes_are_serialized(kind, database, url):
    """Else the later version could be committed, and read, before the earlier one."""
    second = Database(url, inline=True)
    waits = threading.Thread(target=lambda: put(second, account("kadikoy")))

    def slow(tx):
        account_changes.put(tx, KEYS, [account("besiktas")], NOW)
        waits.start()
        waits.join(0.5)
        assert waits.is_alive()

    database.write_now(slow)
    waits.join()
    second.close()
    assert (names(read(database, since=1)), read(database).version) == (["kadikoy"], 2)


def reseal(database: Database, keys: MasterKeys, after: str = "", base_url: str = URL) -> account_changes.Resealed:
    return database.write_now(lambda tx: account_changes.reseal(tx, keys, base_url, after))


def test_a_killed_rotation_continues_and_then_the_old_key_can_be_removed(database, monkeypatch):
    monkeypatch.setattr(account_changes, "RESEALED_AT_ONCE", 2)
    put(database, *(account(f"a{number}") for number in range(5)))
    put(database, account("moda"), keys=BOTH)
    assert reseal(database, BOTH).last == "a1"  # killed here
    assert (len(read(database, ONLY_NEW).accounts), len(read(database, BOTH).accounts)) == (3, 6)
    last, anew, already = "", 0, 0
    while last is not None:
        part = reseal(database, BOTH, last)
        last, anew, already = part.last, anew + part.anew, already + part.already
    assert (anew, already, read(database).version, len(read(database, ONLY_NEW).accounts)) == (3, 3, 2, 6)


def test_a_rotation_names_what_does_not_open_and_leaves_what_is_removed_but_not_what_is_disabled(database, pos):
    put(database, account(), account("besiktas"), account("moda"))
    alter(pos, sealed="AAAA")
    enable(database, "besiktas", enabled=False)
    remove(database, "moda")
    done = reseal(database, BOTH)
    assert (done.anew, done.broken) == (1, {"kadikoy": Fault.DAMAGED})
    assert one(pos, "SELECT sealed FROM delivery_account_settings WHERE name = 'kadikoy'")["sealed"] == "AAAA"
    enable(database, "besiktas")
    assert names(read(database, ONLY_NEW)) == ["besiktas"]


def test_a_rotation_brings_fingerprints_to_the_address_in_force_and_leaves_the_second_of_two_equal_ones(database, pos):
    put(database, account("besiktas", rest="same"))
    put(database, account("kadikoy", rest="same").at("https://former.example.com"), account("moda"))
    assert reseal(database, BOTH).broken == {"kadikoy": Fault.SAME_SECRETS}
    assert names(read(database, ONLY_NEW)) == ["besiktas", "moda"]
    reseal(database, BOTH, base_url="https://other.example.com")
    row = one(pos, "SELECT fingerprint FROM delivery_account_settings WHERE name = 'moda'")
    assert row["fingerprint"] == account("moda").at("https://other.example.com").fingerprint
