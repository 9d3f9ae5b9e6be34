"""The queries of the commands and the board, on every database."""

from datetime import timedelta

from tests.store.samples import KEY, LATER_TEXT, NOW, NOW_TEXT, OTHER, key, put_action, put_document, put_order

from orderbridge.rules.business_day import sums_of
from orderbridge.store import overview

OVER = {"status": "COMPLETE_WITH_PAYMENT", "ended_utc": LATER_TEXT}
CASH = {"payment_code": "CASH", "amount_due": "0.10", "total": "0.10", "pos_total": "0.20"}


def test_a_days_orders_are_read_open_and_ended_with_exact_amounts(database, pos):
    for number in range(30):
        put_order(pos, key(number), **CASH, **(OVER if number else {}))
    put_order(pos, key(99), received_utc=LATER_TEXT, **OVER)
    total = sums_of(database.read_now(lambda tx: overview.received(tx, NOW, NOW + timedelta(minutes=1))))
    assert (total["orders"], str(total["cash"]), str(total["cash_unfinished"])) == (30, "2.9000", "0.1000")
    assert str(total["difference"]) == "3.00"


def test_the_counts_of_status(database, pos):
    put_order(pos, key(1), status_id=1)
    put_order(pos, key(2), status="CONFIRMED", received_utc=LATER_TEXT, pos_revision=1)
    put_order(pos, key(3), **OVER)
    put_action(pos, state="sending", request_id="a")
    put_action(pos, request_id="b", created_by="command line")
    put_action(pos, state="failed", finished_utc=NOW_TEXT, request_id="auto:c")
    put_document(pos, account="k")
    counts = database.read_now(overview.open_orders)
    open_ones = [("CONFIRMED", 1, NOW + timedelta(minutes=5)), ("RECEIVED", 1, NOW)]
    assert sorted((one["status"], one["count"], one["oldest"]) for one in counts) == open_ones
    outbox = database.read_now(lambda tx: overview.outbox(tx, NOW))
    assert (outbox["waiting"], outbox["sending"], outbox["failed_last_day"]) == (2, 1, 1)
    assert None not in (outbox["oldest_utc"], database.read_now(overview.pos_seen))
    assert database.read_now(overview.quarantined) == {"k": 1}


def test_the_orders_with_a_problem_and_of_failed_rows_are_found(database, pos):
    put_order(pos, key(1), problem="missing:foods")
    put_order(pos, key(2), **OVER)
    put_order(pos, key(3))
    for number in (2, 9):
        put_action(pos, payment_key=key(number), state="failed", finished_utc=NOW_TEXT, request_id=f"r{number}")
    assert database.read_now(overview.troubled) == [key(1), key(2)]


def test_an_order_is_found_and_one_number_may_mean_several(database, pos):
    put_order(pos, KEY, order_number=100001, pos_reference="A-7")
    put_order(pos, OTHER, order_number=1000011, pos_reference="100001")
    for wanted in (KEY, KEY.upper(), KEY[:8].upper(), "100001", "A-7", "%"):
        found = {one["payment_key"] for one in database.read_now(lambda tx, wanted=wanted: overview.find(tx, wanted))}
        assert found == {"100001": {KEY, OTHER}, "%": set()}.get(wanted, {KEY})
