"""The lists that change rarely."""

from tests.store.samples import LATER, NOW, NOW_TEXT, RESTAURANT, Pos, key, rows

from orderbridge.model import CancelReason, Method, Restaurant, Variables
from orderbridge.store import reference
from orderbridge.store.database import Database

KADIKOY = Restaurant(RESTAURANT, "Kadıköy")
MODA = Restaurant(key(2), "Moda")
CASH, CARD = Method("CASH", "Nakit"), Method("CREDIT_CARD", "Kredi Kartı")
DELIVERY = Method("delivery", "Paket")
NONE = Variables((), ())


def replace(database: Database, *found: Restaurant, account: str = "kadikoy", whole: bool = False) -> int:
    return database.write_now(lambda tx: reference.take_in_restaurants(tx, account, found, whole=whole))


def take_in(database: Database, *reasons: CancelReason, methods: Variables = NONE, whole: bool = False) -> int:
    return database.write_now(lambda tx: reference.take_in_common(tx, reasons, methods, whole=whole))


def restaurants(pos: Pos) -> list[tuple[str | None, ...]]:
    query = "SELECT account, name, status, status_utc FROM delivery_restaurants ORDER BY account, name"
    return [tuple(row.values()) for row in rows(pos, query)]


def set_status(database: Database, account: str, status: str) -> None:
    database.write_now(lambda tx: reference.set_restaurant_status(tx, account, RESTAURANT, status, NOW))


def test_the_restaurants_of_an_account_are_kept(database, pos):
    replace(database, KADIKOY, MODA)
    assert restaurants(pos) == [("kadikoy", "Kadıköy", None, None), ("kadikoy", "Moda", None, None)]


def test_a_restaurant_that_stays_keeps_its_status_and_gets_its_new_name(database, pos):
    replace(database, KADIKOY)
    set_status(database, "kadikoy", "Open")
    replace(database, Restaurant(RESTAURANT, "Kadıköy Şube"), MODA)
    assert restaurants(pos) == [("kadikoy", "Kadıköy Şube", "Open", NOW_TEXT), ("kadikoy", "Moda", None, None)]


def test_a_restaurant_that_is_no_longer_listed_goes_where_another_account_reaches_it(database, pos):
    replace(database, KADIKOY, MODA)
    assert replace(database, MODA) == 1
    assert replace(database, MODA, whole=True) == 1
    assert len(restaurants(pos)) == 2, "nobody else reaches it"
    replace(database, KADIKOY, account="besiktas")
    assert replace(database, whole=False) == 2
    assert len(restaurants(pos)) == 3
    assert replace(database, MODA, whole=True) == 1
    assert restaurants(pos) == [("besiktas", "Kadıköy", None, None), ("kadikoy", "Moda", None, None)]


def test_a_restaurant_that_is_listed_twice_is_kept_once(database, pos):
    replace(database, KADIKOY, Restaurant(RESTAURANT, "Kadıköy yine"))
    assert restaurants(pos) == [("kadikoy", "Kadıköy yine", None, None)]


def test_a_status_is_noted_for_one_account_and_one_restaurant(database, pos):
    replace(database, KADIKOY, MODA)
    replace(database, KADIKOY, account="besiktas")
    set_status(database, "kadikoy", "Closed")
    assert restaurants(pos) == [
        ("besiktas", "Kadıköy", None, None),
        ("kadikoy", "Kadıköy", "Closed", NOW_TEXT),
        ("kadikoy", "Moda", None, None),
    ]


def test_the_status_of_an_unknown_restaurant_makes_no_row(database, pos):
    database.write_now(lambda tx: reference.set_restaurant_status(tx, "kadikoy", RESTAURANT, "Open", LATER))
    assert restaurants(pos) == []


def test_which_accounts_reach_a_restaurant_is_told_in_order(database):
    replace(database, KADIKOY, MODA)
    replace(database, KADIKOY, account="besiktas")
    assert database.read_now(reference.restaurant_accounts) == {
        RESTAURANT: ["besiktas", "kadikoy"],
        MODA.id: ["kadikoy"],
    }


def test_the_reasons_that_a_list_lacks_go_when_it_is_whole(database, pos):
    assert take_in(database, CancelReason(1, "Kapalı"), CancelReason(2, "Kurye yok")) == 0
    found = [(1, "Kapalı"), (2, "Kurye bulunamadı")]
    for whole in (False, True):
        assert take_in(database, CancelReason(2, "Kurye bulunamadı"), whole=whole) == 1
        reasons = [tuple(row.values()) for row in rows(pos, "SELECT * FROM delivery_cancel_reasons ORDER BY id")]
        assert reasons == found[whole:]


def test_what_a_list_names_twice_is_kept_once(database, pos):
    twice = Variables((CASH, CARD, Method("CASH", "Peşin")), (DELIVERY, DELIVERY))
    take_in(database, CancelReason(1, "Kapalı"), CancelReason(1, "Kapandı"), methods=twice)
    assert methods(pos) == [["CASH", "CREDIT_CARD"], ["delivery"]]
    assert [row["reason"] for row in rows(pos, "SELECT * FROM delivery_cancel_reasons")] == ["Kapandı"]


def methods(pos: Pos) -> list[list[str]]:
    tables = ("delivery_payment_methods", "delivery_shipping_methods")
    return [[row["code"] for row in rows(pos, f"SELECT code FROM {table} ORDER BY code")] for table in tables]


def test_the_methods_that_a_list_lacks_go_when_it_is_whole_and_not_empty(database, pos):
    take_in(database, methods=Variables((CASH, CARD), (DELIVERY,)))
    assert take_in(database, methods=Variables((CARD,), ()), whole=True) == 2
    assert methods(pos) == [["CREDIT_CARD"], ["delivery"]]


def test_the_codes_are_the_usual_ones_until_the_service_has_told_its_own(database):
    usual = database.read_now(reference.payment_codes)
    assert usual == {"Nakit": "CASH", "Kredi Kartı (pre-paid)": "CREDIT_CARD", "Banka Kartı (pre-paid)": "DEBIT_CARD"}
    usual.clear()  # a copy: the next one who asks gets them all
    assert database.read_now(reference.payment_codes)["Nakit"] == "CASH"
    take_in(database, methods=Variables((CARD,), ()))
    assert database.read_now(reference.payment_codes) == {"Kredi Kartı": "CREDIT_CARD"}


# ---- what is longer than usual ---------------------------------------------------------------------------------------

LONG = "ş" * 255


def test_a_code_or_an_id_as_long_as_a_name_stops_no_list(database, pos):
    replace(database, Restaurant(LONG, "Kadıköy"), MODA)
    methods = Variables((Method(LONG, "Nakit"), CARD), (Method(LONG, "Paket"),))
    take_in(database, methods=methods)
    assert [row["id"] for row in rows(pos, "SELECT id FROM delivery_restaurants WHERE name = 'Kadıköy'")] == [LONG]
    assert len(rows(pos, "SELECT code FROM delivery_payment_methods")) == 2
    assert database.read_now(reference.payment_codes)["Nakit"] == LONG


def test_codes_that_differ_in_case_alone_are_two(database, pos):
    methods = Variables((Method("cash", "Nakit"), Method("CASH", "Nakit 2")), ())
    take_in(database, methods=methods)
    assert len(rows(pos, "SELECT code FROM delivery_payment_methods")) == 2
