"""Accounts in the database: encrypted, bound to their names, read completely or by changes."""

import base64
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection
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


# ---- what comes back -------------------------------------------------------------------------------------------------


def test_a_new_database_has_no_account_and_no_version(database):
    loaded = read(database)
    assert (loaded.accounts, loaded.version, dict(loaded.broken), loaded.gone) == ((), 0, {}, frozenset())


def test_an_account_comes_back_as_it_went_in(database):
    rules = ({"id": RESTAURANT, "auto_accept_minutes": 40},)
    there = account(auto_accept_minutes=25, auto_accept_scheduled=True, restaurants=rules)
    assert put(database, there).added == ("kadikoy",)
    (back,) = read(database).accounts
    assert back == there
    assert back.fingerprint == there.fingerprint
    assert back.app_secret_key.get_secret_value() == "app-secret-şifre"


def test_no_secret_stands_in_the_row(database, pos):
    put(database, account())
    row = one(pos, "SELECT * FROM delivery_account_settings")
    text = str(row)
    assert "secret" not in text
    assert b"secret" not in base64.b64decode(row["sealed"])
    assert (row["key_id"], row["enabled"], row["version"]) == (key_id(KEY), 1, 1)


def test_the_same_account_is_sealed_differently_each_time(database, pos):
    put(database, account())
    before = one(pos, "SELECT sealed FROM delivery_account_settings")
    put(database, account(auto_accept_minutes=5))
    put(database, account())
    assert one(pos, "SELECT sealed FROM delivery_account_settings") != before


def test_the_fingerprint_is_that_of_the_address_in_force(database):
    put(database, account())
    (back,) = read(database, base_url="https://other.example.com").accounts
    assert back.fingerprint == account().at("https://other.example.com").fingerprint


# ---- what cannot be used ---------------------------------------------------------------------------------------------


def broken(database: Database, keys: MasterKeys = KEYS) -> dict[str, Fault]:
    """With a good one beside it, which nothing harms."""
    put(database, account("besiktas"))
    loaded = read(database, keys)
    assert keys is not KEYS or names(loaded) == ["besiktas"]
    return dict(loaded.broken)


NO_TEXTS = (None, "", "A", "AAAA", "A" * 16, "not base64 at all!", "şifre", "dGhpcyBpcyBubyBzZWFsZWQgdGV4dA==")


@pytest.mark.parametrize(
    "column, value, fault",
    [
        *(("sealed", text, Fault.DAMAGED) for text in NO_TEXTS),
        *(("key_id", by, Fault.KEY_UNKNOWN) for by in (None, "", "0" * 16)),
    ],
)
def test_a_row_that_does_not_open_is_named_by_its_fault(column, value, fault, database, pos):
    put(database, account())
    alter(pos, **{column: value})
    assert broken(database) == {"kadikoy": fault}


@pytest.mark.parametrize("place", [0, 11, 12, 40, -1, None], ids=["nonce", "its end", "text", "inside", "tag", "cut"])
def test_one_altered_bit_or_a_cut_is_damage(place, database, pos):
    put(database, account())
    kept = bytearray(base64.b64decode(one(pos, "SELECT sealed FROM delivery_account_settings")["sealed"]))
    if place is None:
        del kept[-3:]
    else:
        kept[place] ^= 1
    alter(pos, sealed=base64.b64encode(kept).decode())
    assert broken(database) == {"kadikoy": Fault.DAMAGED}


def test_a_text_in_another_accounts_row_does_not_open(database, pos):
    put(database, account("uskudar"))
    pos.execute("UPDATE delivery_account_settings SET name = 'kadikoy'")
    assert broken(database) == {"kadikoy": Fault.DAMAGED}


def test_with_another_master_key_every_row_has_an_unknown_key(database):
    put(database, account())
    assert broken(database, ONLY_NEW) == {"kadikoy": Fault.KEY_UNKNOWN, "besiktas": Fault.KEY_UNKNOWN}


def test_keys_that_open_no_account_at_all_are_refused(database):
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


def test_a_key_that_is_named_and_is_another_opens_nothing(database, pos):
    put(database, account())
    alter(pos, key_id=key_id(NEW_KEY))
    assert broken(database, BOTH)["kadikoy"] == Fault.DAMAGED


@pytest.mark.parametrize(
    "plain",
    [b"", b"[]", b"5", b"{", b"\xff", b"{}", b'{"app_secret_key": "a"}', b'{"app_secret_key": "a", "rest_secret_key": "b", "x": 1}',
     b'{"app_secret_key": "a", "rest_secret_key": "", "auto_accept_minutes": 5}'],
)  # fmt: skip
def test_what_opens_and_is_no_account_is_wrong_and_its_text_goes_nowhere(plain, database, pos):
    put(database, account())
    text, by = KEYS.seal("kadikoy", plain)
    alter(pos, sealed=text, key_id=by)
    assert broken(database) == {"kadikoy": Fault.WRONG}


def test_the_name_is_the_rows_whatever_the_text_says(database, pos):
    put(database, account())
    text, by = KEYS.seal("kadikoy", b'{"name": "besiktas", "app_secret_key": "a", "rest_secret_key": "b"}')
    alter(pos, sealed=text, key_id=by)
    assert names(read(database)) == ["kadikoy"]


def test_of_two_with_the_same_secrets_the_first_works(database, pos):
    """As after another address: the fingerprints in the rows are still those of the former one."""
    put(database, account("besiktas", rest="same"))
    put(database, account("kadikoy", rest="same").at("https://former.example.com"))
    loaded = read(database)
    assert (names(loaded), loaded.broken) == (["besiktas"], {"kadikoy": Fault.SAME_SECRETS})


# ---- what changed ----------------------------------------------------------------------------------------------------


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


def test_what_changes_nothing_leaves_the_version_and_the_row(database, pos):
    put(database, account(), account("besiktas", auto_accept_minutes=5))
    before = rows(pos, "SELECT * FROM delivery_account_settings ORDER BY name")
    again = put(database, account("besiktas", auto_accept_minutes=5), account())
    assert (again.added, again.altered, sorted(again.unchanged)) == ((), (), ["besiktas", "kadikoy"])
    assert (
        enable(database, "kadikoy") == remove(database, "unknown") == enable(database, "unknown", enabled=False) == []
    )
    assert rows(pos, "SELECT * FROM delivery_account_settings ORDER BY name") == before
    assert read(database).version == 1


def test_only_what_changed_since_is_read(database):
    put(database, account("besiktas"), account("kadikoy"), account("uskudar"), account("moda"))
    seen = read(database).version
    put(database, account("kadikoy", rest="new"))
    enable(database, "moda", enabled=False)
    remove(database, "uskudar")
    loaded = read(database, since=seen)
    assert (names(loaded), loaded.gone) == (["kadikoy"], {"moda", "uskudar"})
    nothing = read(database, since=loaded.version)
    assert (nothing.accounts, nothing.gone, nothing.version) == ((), frozenset(), loaded.version)


def test_whole_it_names_those_that_are_disabled_or_removed(database):
    put(database, account("kadikoy"), account("moda"), account("uskudar"))
    enable(database, "moda", enabled=False)
    remove(database, "uskudar")
    assert (names(read(database)), read(database).gone) == (["kadikoy"], {"moda", "uskudar"})


def test_a_change_that_is_committed_between_the_version_and_the_rows_is_met_again(kind, database, url, monkeypatch):
    """A reader may see a change early; it must never pass it over."""
    put(database, account("besiktas"))
    second = Database(url, inline=True)
    asked = account_settings.version

    def then_another(tx: Connection) -> int:
        seen = asked(tx)
        put(second, account("kadikoy"))
        return seen

    monkeypatch.setattr(account_settings, "version", then_another)
    seen = read(database).version
    monkeypatch.undo()
    second.close()
    assert (seen, names(read(database, since=seen))) == (1, ["kadikoy"])


def test_a_removed_account_leaves_no_secret(database, pos):
    put(database, account())
    assert remove(database, "kadikoy") == ["kadikoy"]
    row = one(pos, "SELECT * FROM delivery_account_settings")
    assert (row["sealed"], row["key_id"], row["enabled"]) == (None, None, 0)
    assert row["fingerprint"] != account().fingerprint
    assert remove(database, "kadikoy") == []


def test_its_secrets_may_come_again_under_another_name_and_it_under_its_own(database):
    put(database, account())
    remove(database, "kadikoy")
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


def test_a_removed_account_cannot_be_enabled(database):
    put(database, account())
    remove(database, "kadikoy")
    assert enable(database, "kadikoy") == []


def test_secrets_that_are_another_accounts_are_refused_whole(database):
    put(database, account("kadikoy", rest="same"))
    refused = put(database, account("besiktas"), account("moda", rest="same"))
    assert (refused.taken, refused.added) == ({"moda": "kadikoy"}, ())
    assert (names(read(database)), read(database).version) == (["kadikoy"], 1)


def test_what_does_not_open_is_put_anew(database):
    put(database, account())
    assert put(database, account(), keys=ONLY_NEW).altered == ("kadikoy",)
    assert names(read(database, ONLY_NEW)) == ["kadikoy"]


def test_an_emptied_table_is_begun_anew(database, pos):
    pos.execute("DELETE FROM delivery_fleet")
    put(database, account())
    assert (names(read(database)), read(database).version) == (["kadikoy"], 1)


@only(SERVERS[0])
def test_two_that_change_at_once_do_so_one_after_another(kind, database, url):
    """Else the later version could be committed, and read, before the earlier one."""
    second = Database(url, inline=True)
    waits = threading.Thread(target=lambda: put(second, account("kadikoy")))

    def slow(tx: Connection) -> None:
        account_changes.put(tx, KEYS, [account("besiktas")], NOW)
        waits.start()
        waits.join(0.5)
        assert waits.is_alive()

    database.write_now(slow)
    waits.join()
    second.close()
    assert [one.name for one in read(database, since=1).accounts] == ["kadikoy"]
    assert read(database).version == 2


# ---- another master key ----------------------------------------------------------------------------------------------


def reseal(database: Database, keys: MasterKeys, after: str = "", base_url: str = URL) -> account_changes.Resealed:
    return database.write_now(lambda tx: account_changes.reseal(tx, keys, base_url, after))


def test_after_the_rotation_the_old_key_may_go(database):
    put(database, account(), account("besiktas"))
    put(database, account("moda"), keys=BOTH)
    done = reseal(database, BOTH)
    assert (done.last, done.anew, done.already, dict(done.broken)) == (None, 2, 1, {})
    assert names(read(database, ONLY_NEW)) == ["besiktas", "kadikoy", "moda"]
    assert read(database).version == 2


def test_a_rotation_goes_page_by_page_and_on_where_it_was_killed(database, monkeypatch):
    monkeypatch.setattr(account_changes, "RESEALED_AT_ONCE", 2)
    put(database, *(account(f"a{number}") for number in range(5)))
    assert reseal(database, BOTH).last == "a1"  # killed here
    assert (len(read(database, ONLY_NEW).accounts), len(read(database, BOTH).accounts)) == (2, 5)
    last, anew = "", 0
    while last is not None:
        part = reseal(database, BOTH, last)
        last, anew = part.last, anew + part.anew
    assert anew == 3
    assert len(read(database, ONLY_NEW).accounts) == 5


def test_what_the_rotation_cannot_open_it_leaves_and_names(database, pos):
    put(database, account(), account("besiktas"))
    alter(pos, sealed="AAAA")
    enable(database, "besiktas", enabled=False)
    done = reseal(database, BOTH)
    assert (done.anew, done.broken) == (1, {"kadikoy": Fault.DAMAGED})
    assert one(pos, "SELECT sealed FROM delivery_account_settings WHERE name = 'kadikoy'")["sealed"] == "AAAA"


def test_a_disabled_account_is_sealed_anew_and_a_removed_one_is_not(database, pos):
    put(database, account(), account("besiktas"))
    enable(database, "kadikoy", enabled=False)
    remove(database, "besiktas")
    assert reseal(database, BOTH).anew == 1
    enable(database, "kadikoy")
    assert names(read(database, ONLY_NEW)) == ["kadikoy"]


def test_it_brings_the_fingerprints_to_the_address_in_force(database, pos):
    put(database, account())
    reseal(database, KEYS, base_url="https://other.example.com")
    row = one(pos, "SELECT fingerprint FROM delivery_account_settings")
    assert row["fingerprint"] == account().at("https://other.example.com").fingerprint


def test_of_two_with_the_same_secrets_it_leaves_the_second_as_it_is(database):
    put(database, account("besiktas", rest="same"))
    put(database, account("kadikoy", rest="same").at("https://former.example.com"), account("moda"))
    assert reseal(database, BOTH).broken == {"kadikoy": Fault.SAME_SECRETS}
    assert names(read(database, ONLY_NEW)) == ["besiktas", "moda"]


def test_the_first_key_seals_and_no_id_gives_a_key_away():
    assert BOTH.seal("x", b"y")[1] == BOTH.ids[0] == key_id(NEW_KEY)
    assert KEY.hex() not in key_id(KEY)
    assert len({*BOTH.ids}) == 2
