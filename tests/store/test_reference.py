"""The stored restaurants, cancel reasons and methods, which change rarely."""

from tests.store.samples import NOW, NOW_TEXT, RESTAURANT, Pos, key, rows

from orderbridge.model import Restaurant, Variables
from orderbridge.store import reference
from orderbridge.store.database import Database

KADIKOY = Restaurant(RESTAURANT, "Kadıköy")
MODA = Restaurant(key(2), "Moda")
CASH, CARD = {"CASH": "Nakit"}, {"CREDIT_CARD": "Kredi Kartı"}
DELIVERY = {"delivery": "Paket"}
NONE = Variables({}, {})
LONG = "ş" * 255


def replace(database: Database, *found: Restaurant, account: str = "kadikoy", whole: bool = False) -> int:
    return database.write_now(lambda tx: reference.update_restaurants(tx, account, found, whole=whole))


def take_in(database: Database, reasons: dict[int, str] | None = None, methods=NONE, *, whole: bool = False) -> int:
    return database.write_now(lambda tx: reference.update_common(tx, reasons or {}, methods, whole=whole))


def restaurants(pos: Pos) -> list[tuple[str | None, ...]]:
    query = "SELECT account, name, status, status_utc FROM delivery_restaurants ORDER BY account, name"
    return [tuple(row.values()) for row in rows(pos, query)]


def reasons(pos: Pos) -> list[tuple[int, str]]:
    return [tuple(row.values()) for row in rows(pos, "SELECT * FROM delivery_cancel_reasons ORDER BY id")]


def methods(pos: Pos) -> list[list[str]]:
    tables = ("delivery_payment_methods", "delivery_shipping_methods")
    return [[row["code"] for row in rows(pos, f"SELECT code FROM {table} ORDER BY code")] for table in tables]


def test_a_restaurant_keeps_its_status_and_gets_its_newest_name(database, pos):
    def set_status(status: str) -> None:
        database.write_now(lambda tx: reference.set_restaurant_status(tx, "kadikoy", RESTAURANT, status, NOW))

    set_status("Open")
    assert restaurants(pos) == [], "the status of an unknown restaurant makes no row"
    replace(database, KADIKOY, MODA)
    replace(database, KADIKOY, account="besiktas")
    others = [("besiktas", "Kadıköy", None, None), ("kadikoy", "Moda", None, None)]
    assert restaurants(pos) == sorted([("kadikoy", "Kadıköy", None, None), *others])
    set_status("Closed")
    replace(database, KADIKOY, Restaurant(RESTAURANT, "Kadıköy Şube"), MODA)  # twice in one list
    assert restaurants(pos) == sorted([("kadikoy", "Kadıköy Şube", "Closed", NOW_TEXT), *others])
    reached = {RESTAURANT: ["besiktas", "kadikoy"], MODA.id: ["kadikoy"]}
    assert database.read_now(reference.restaurant_accounts) == reached


def test_an_unlisted_restaurant_moves_to_another_account_that_reaches_it(database, pos):
    replace(database, KADIKOY, MODA)
    assert (replace(database, MODA), replace(database, MODA, whole=True)) == (1, 1)
    assert len(restaurants(pos)) == 2, "no other account reaches it"
    replace(database, KADIKOY, account="besiktas")
    assert (replace(database, whole=False), len(restaurants(pos))) == (2, 3)
    assert replace(database, MODA, whole=True) == 1
    assert restaurants(pos) == [("besiktas", "Kadıköy", None, None), ("kadikoy", "Moda", None, None)]


def test_rows_that_a_whole_nonempty_list_lacks_are_deleted(database, pos):
    assert (take_in(database, {1: "Kapalı", 2: "Kurye yok"}), reasons(pos)) == (0, [(1, "Kapalı"), (2, "Kurye yok")])
    found = [(1, "Kapalı"), (2, "Kurye bulunamadı")]
    for whole in (False, True):
        assert (take_in(database, {2: "Kurye bulunamadı"}, whole=whole), reasons(pos)) == (1, found[whole:])
    take_in(database, methods=Variables(CASH | CARD, DELIVERY))
    assert methods(pos) == [["CASH", "CREDIT_CARD"], ["delivery"]]
    assert take_in(database, methods=Variables(CARD, {}), whole=True) == 2 + 1
    assert methods(pos) == [["CREDIT_CARD"], ["delivery"]]


def test_the_usual_codes_are_used_until_the_marketplace_sends_its_own(database):
    usual = database.read_now(reference.payment_codes)
    assert usual == {"Nakit": "CASH", "Kredi Kartı (pre-paid)": "CREDIT_CARD", "Banka Kartı (pre-paid)": "DEBIT_CARD"}
    usual.clear()  # a copy, so the next call still returns all
    assert database.read_now(reference.payment_codes)["Nakit"] == "CASH"
    take_in(database, methods=Variables(CARD, {}))
    assert database.read_now(reference.payment_codes) == {"Kredi Kartı": "CREDIT_CARD"}


def test_long_codes_are_stored_and_codes_are_case_sensitive(database, pos):
    replace(database, Restaurant(LONG, "Kadıköy"), MODA)
    take_in(database, methods=Variables({LONG: "Nakit", **CARD, "credit_card": "Nakit 2"}, {LONG: "Paket"}))
    assert [row["id"] for row in rows(pos, "SELECT id FROM delivery_restaurants WHERE name = 'Kadıköy'")] == [LONG]
    assert len(rows(pos, "SELECT code FROM delivery_payment_methods")) == 3
    assert database.read_now(reference.payment_codes)["Nakit"] == LONG
