"""Accounts: the cooldown survives a restart, and a token is decrypted only with its own secrets."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sqlalchemy import event
from structlog.testing import capture_logs
from tests.databases import SERVERS, SQLITE, only

from tests.store.samples import (  # isort: skip
    LATER, LATER_TEXT, NOW, NOW_TEXT, OTHER, RESTAURANT, AnyPos, Row, difference, key, one, order_row, put, put_order,
    put_orders, rows,
)  # fmt: skip
from orderbridge.model import Token
from orderbridge.store import accounts
from orderbridge.store.accounts import Entry, Success, Vault
from orderbridge.store.database import Database

FINGERPRINT, FOREIGN = "f" * 64, "a" * 64
LONGEST = timedelta(seconds=50)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)
DAY = 24 * HOUR
PLAIN = "token-that-nobody-may-read"


def register(database: Database, fingerprint: str = FINGERPRINT, name: str = "kadikoy") -> None:
    database.write_now(lambda tx: accounts.register(tx, [Entry(fingerprint, name)]))


def account_row(pos: AnyPos, fingerprint: str = FINGERPRINT) -> Row:
    return one(pos, "SELECT * FROM delivery_accounts WHERE fingerprint = ?", fingerprint)


def reserve(database: Database, now=NOW, *, fingerprint=FINGERPRINT, longest=LONGEST) -> datetime | None:
    until = now + longest
    return database.write_now(lambda tx: accounts.reserve_poll(tx, fingerprint, now=now, until=until, longest=longest))


def test_an_account_that_was_polled_before_waits(database):
    cases = [(True, NOW + HOUR, NOW + HOUR), (True, NOW, NOW + LONGEST), (False, NOW + HOUR, NOW + LONGEST)]
    for number, (waits, first, noted) in enumerate(cases):
        fingerprint = str(number)
        register(database, fingerprint)
        reserve(database, fingerprint=fingerprint)
        entry = Entry(fingerprint, "kadikoy", first_poll=first, waits=waits)
        assert database.write_now(lambda tx, one=entry: accounts.register(tx, [one]))[fingerprint] == NOW + LONGEST
        assert reserve(database, fingerprint=fingerprint, longest=2 * HOUR) == noted


def succeed(database: Database, listened_s: int = 0) -> None:
    database.write_now(lambda tx: accounts.note_successes(tx, [Success(FINGERPRINT, NOW, LATER, listened_s)]))


def test_a_good_poll_adds_seconds_of_listening_and_new_secrets_keep_them(database, pos):
    register(database)
    register(database, "0" * 64, "moda")
    for who in (FINGERPRINT, "0" * 64):
        database.write_now(lambda tx, who=who: accounts.note_poll(tx, who, state="failing", last_error="timeout"))
    before = account_row(pos, "0" * 64)
    succeed(database, 30)
    succeed(database, 31)
    assert account_row(pos, "0" * 64) == before
    row = account_row(pos)
    assert (row["state"], row["last_error"], row["listened_seconds"]) == ("ok", None, 61)
    assert (row["last_poll_ok_utc"], row["next_poll_utc"]) == (NOW_TEXT, LATER_TEXT)
    register(database, FOREIGN)
    register(database)
    assert [account_row(pos, which)["listened_seconds"] for which in (FINGERPRINT, FOREIGN)] == [61, 61]


def overview(database: Database, *fingerprints: str) -> list[Row]:
    return database.read_now(lambda tx: accounts.overview(tx, fingerprints))


def test_the_overview_lists_the_configured_accounts_by_name_and_a_renamed_one_keeps_its_cooldown(database, pos):
    for fingerprint, name in (("0" * 64, "moda"), (FINGERPRINT, "kadikoy"), (FOREIGN, "besiktas")):
        register(database, fingerprint, name)
    reserve(database)
    before = account_row(pos)
    register(database, name="moda")
    assert (difference(before, account_row(pos)), reserve(database)) == ({"name"}, NOW + LONGEST)
    listed = overview(database, FINGERPRINT, FOREIGN)
    assert [(account["name"], account["last_poll_utc"]) for account in listed] == [("besiktas", None), ("moda", NOW)]
    assert not any(fingerprint in str(listed) for fingerprint in (FINGERPRINT, FOREIGN))
    assert overview(database) == []


def test_a_noted_poll_blocks_the_next_one_until_its_cooldown_is_over_or_its_answer_allows_it(database, pos):
    assert reserve(database) == NOW + LONGEST, "it is not registered"
    assert rows(pos, "SELECT * FROM delivery_accounts") == []
    register(database)
    register(database, FOREIGN, "besiktas")
    before = account_row(pos)
    assert reserve(database) is None
    after = account_row(pos)
    assert (after["last_poll_utc"], after["next_poll_utc"]) == (NOW_TEXT, "2026-03-01 12:00:50.250")
    assert difference(before, after) == {"last_poll_utc", "next_poll_utc"}
    for passed in (timedelta(0), SECOND, LONGEST - MILLISECOND):
        assert reserve(database, NOW + passed) == NOW + LONGEST
    assert account_row(pos) == after
    assert reserve(database, fingerprint=FOREIGN) is None
    before, foreign = account_row(pos), account_row(pos, FOREIGN)
    until = NOW + timedelta(seconds=31)
    answered = {"state": "ok", "last_poll_ok_utc": LATER, "next_poll_utc": until}
    database.write_now(lambda tx: accounts.note_poll(tx, FINGERPRINT, **answered))
    assert difference(before, account_row(pos)) == answered.keys()
    assert (account_row(pos)["last_poll_ok_utc"], account_row(pos, FOREIGN)) == (LATER_TEXT, foreign)
    assert (reserve(database, until - MILLISECOND), reserve(database, until)) == (until, None)
    set_back = until - MILLISECOND
    assert reserve(database, set_back) == set_back + LONGEST


def test_a_clock_set_back_or_an_unreadable_note_blocks_for_the_longest_cooldown_at_most(kind, database, pos):
    register(database)
    reserve(database)
    earlier = NOW - timedelta(days=400)
    for passed in (timedelta(0), SECOND):  # and does not move the block further
        assert reserve(database, earlier + passed) == earlier + LONGEST
    assert reserve(database, earlier + LONGEST) is None
    for number, cell in enumerate(["soon", "", "x"] if kind == SQLITE else []):
        now = NOW + number * DAY
        pos.execute("UPDATE delivery_accounts SET next_poll_utc = ?", (cell,))
        assert reserve(database, now) in (None, now + LONGEST)
        assert reserve(database, now + LONGEST) is None


def test_of_two_that_race_only_one_may_poll(url, database):
    """Two processes race on one database, in enough rounds to show a missing guard."""
    rivals = [Database(url, inline=True) for _ in range(2)]
    rounds = [key(number) for number in range(30)]
    for fingerprint in rounds:
        register(database, fingerprint, fingerprint)
    start = threading.Barrier(len(rivals), timeout=60)

    def race(rival: Database) -> list[str]:
        won = []
        for fingerprint in rounds:
            start.wait()
            if reserve(rival, fingerprint=fingerprint) is None:
                won.append(fingerprint)
        return won

    with ThreadPoolExecutor(len(rivals)) as pool:
        first, second = pool.map(race, rivals)
    for rival in rivals:
        rival.close()
    assert sorted(first + second) == rounds


def reaches(pos: AnyPos, account: str, restaurant: str = RESTAURANT) -> None:
    put(pos, "delivery_restaurants", account=account, id=restaurant, name="Kadıköy")


def adopt(database: Database, *configured: str) -> int:
    return database.write_now(lambda tx: accounts.adopt_orphans(tx, configured))


def test_an_orphan_goes_to_a_configured_account_that_reaches_its_restaurant_and_no_other_order_moves(database, pos):
    stays = [{"account": "kadikoy"}, {"ended_utc": NOW_TEXT}, {"restaurant_id": OTHER}, {"restaurant_id": None}]
    put_orders(pos, {}, *stays, {"restaurant_id": key(1)}, account="gone", restaurant_id=RESTAURANT)
    reaches(pos, "besiktas")
    reaches(pos, "gone", key(1))
    reaches(pos, "left too", OTHER)
    before = rows(pos, "SELECT * FROM delivery_orders ORDER BY payment_key")
    assert adopt(database, "kadikoy", "besiktas") == 1
    after = rows(pos, "SELECT * FROM delivery_orders ORDER BY payment_key")
    assert after == [before[0] | {"account": "besiktas"}, *before[1:]]


@only(*SERVERS)
def test_an_orphan_taken_over_concurrently_stays_with_its_new_account(database, pos):
    put_order(pos, account="gone", restaurant_id=RESTAURANT)
    reaches(pos, "kadikoy")

    delivered = "UPDATE delivery_orders SET account = 'besiktas'"
    event.listen(database.engine, "after_cursor_execute", lambda *_: pos.execute(delivered), once=True)
    adopt(database, "kadikoy", "besiktas")
    assert order_row(pos)["account"] == "besiktas"


def vault(fingerprint: str = FINGERPRINT, app: str = "app", rest: str = "rest") -> Vault:
    return Vault(fingerprint, app, rest)


def token(plain: str = PLAIN, issued: datetime = NOW) -> Token:
    return Token(plain, issued, issued + DAY)


def save(database: Database, kept: Token | None = None, by: Vault | None = None) -> None:
    register(database)
    database.write_now(lambda tx: (by or vault()).save(tx, kept or token()))


def load(database: Database, by: Vault | None = None) -> Token | None:
    by = by or vault()
    return by.open(database.read_now(accounts.kept_tokens).get(by._fingerprint))


def test_a_token_is_read_as_it_was_stored_and_a_newer_one_replaces_it(database, pos):
    register(database)
    assert load(database) is None
    sealed = set()
    for kept in [token()] * 5 + [token("Ş🌯" * 500), token("newer", LATER)]:
        with capture_logs() as lines:
            save(database, kept)
        assert kept.access_token not in str(lines)
        assert load(database) == kept
        sealed.add(one(pos, "SELECT ciphertext FROM delivery_tokens")["ciphertext"])
    assert len(sealed) == 7, "the same token is sealed anew each time"
    assert account_row(pos)["token_expires_utc"] == "2026-03-02 12:05:00.250"


def test_only_an_accounts_own_secrets_decrypt_its_token(database, pos):
    save(database, token(issued=NOW + timedelta(microseconds=777)))
    for app, rest in (("another", "rest"), ("app", "another"), ("rest", "app"), ("ap", "prest"), ("", "app\0rest")):
        assert load(database, vault(app=app, rest=rest)) is None
    foreign = vault(FOREIGN)
    save(database, token("another"), foreign)
    assert (load(database), load(database, foreign)) == (token(), token("another"))
    pos.execute("DELETE FROM delivery_tokens WHERE fingerprint = ?", (FOREIGN,))
    pos.execute("UPDATE delivery_tokens SET fingerprint = ?", (FOREIGN,))
    assert load(database, foreign) is None


@only(SQLITE)  # the types and the encoding of a server refuse most of these
def test_a_row_that_was_changed_gives_no_token(database, pos):
    save(database)
    sealed = base64.b64decode(one(pos, "SELECT ciphertext FROM delivery_tokens")["ciphertext"])
    places = [place % len(sealed) for place in (0, 11, 12, -17, -1)]
    bits = [bytes(byte ^ (at == place) for at, byte in enumerate(sealed)) for place in places]
    for column, values in {
        "issued_utc": ["2026-03-01 12:00:00.251", "2027-03-01 12:00:00.250", "soon"],
        "expires_utc": ["soon"],
        "ciphertext": ["", "AAAA", "no base64 at all: ş", b"\x00\xff", PLAIN, *map(base64.b64encode, bits)],
    }.items():
        for value in values:
            save(database)
            pos.execute(f"UPDATE delivery_tokens SET {column} = ?", (value.decode() if value in bits else value,))
            assert load(database) is None
