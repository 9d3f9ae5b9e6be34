"""`orderbridge day` and `audit`: the figures of a business day, and the promises, for people and programs."""

import pytest
from tests.cli.shell import document
from tests.store.samples import key, put, put_action, put_order

CASH = {"payment_code": "CASH", "amount_due": "100.10", "total": "100.10", "pos_revision": 1}
CARD = {"payment_code": "CREDIT_CARD", "amount_due": "0", "total": "50", "pos_revision": 1}
DONE = {"status": "COMPLETE_WITH_PAYMENT", "ended_utc": "2026-03-01 20:00:00.000"}
CUT = ("00:59:59.999", "01:00:00.000")


@pytest.fixture
def sold(pos):
    """Two business days in Istanbul, whose first ends at 01:00 UTC; two restaurants."""
    at = {"received_utc": "2026-03-01 18:00:00.000", "restaurant_id": "r1", "restaurant_name": "Kadıköy Şubesi"}
    moda = at | CASH | {"restaurant_id": "r2", "restaurant_name": "Moda"}
    orders = [
        at | CASH | DONE | {"pos_total": "100.10", "order_tip": "5", "discount": "7.25", "restaurant_name": None},
        at | CASH | DONE | {"pos_total": "90.10", "order_number": 100234, "pos_reference": "A-7"},
        at | CARD | DONE,
        moda | {"status": "CANCELED", "ended_utc": "2026-03-01 20:00:00.000", "pos_revision": 0},
        moda | {"status": "IN_DELIVERY"},
        *(moda | DONE | {"received_utc": f"2026-03-02 {time}", "ended_utc": "2026-03-02 03:00:00.000"} for time in CUT),
        moda | DONE | {"received_utc": "2026-03-01 00:59:59.999"},
        moda | {"received_utc": "2026-02-01 00:59:59.999"},
    ]
    for number, columns in enumerate(orders):
        put_order(pos, key(number), **columns)


def test_a_day_for_people(run, configure, sold):
    out = run("day", "2026-03-01").out
    figures = {"orders": "6", "completed": "4", "not completed": "1", "cancelled": "1"}
    figures |= {"never taken over by the POS": "1", "cash to hand in": "300.30", "prepaid": "50.00"}
    figures |= {"discounts": "7.25", "tips": "5.00", "cash of orders not completed": "100.10"}
    for label, value in figures.items():
        assert [line.split()[-1] for line in out.splitlines() if line.startswith(f"{label}  ")] == [value]
    assert "100234 A-7: expected 100.10, POS 90.10, difference -10.00" in out
    assert "Europe/Istanbul" in out and max(map(len, out.splitlines())) <= 130
    assert max(len(line) for line in out.splitlines() if not line.startswith(("Counted", "ended"))) <= 80
    assert run("day").out.count(" 0.00") == 4
    configure(document().replace('language = "en"', 'language = "tr"'))
    out = run("day", "01.03.2026").out
    assert [word for word in ("teslim edilecek nakit", "300,30", "iptal") if word not in out] == []


def test_a_day_for_programs(run, sold):
    told = run("day", "2026-03-01", "--json").json
    times = told["date"], told["begin_utc"], told["end_utc"]
    assert times == ("2026-03-01", "2026-03-01 01:00:00.000", "2026-03-02 01:00:00.000")
    assert (told["total"]["cash"], told["total"]["orders"]) == ("300.3000", 6)
    assert sum(float(one["cash"]) for one in told["restaurants"]) == pytest.approx(300.30)
    assert [one["restaurant_name"] for one in told["restaurants"]] == ["Kadıköy Şubesi", "Moda"]
    assert [one["difference"] for one in told["differences"]] == ["-10.00"]


def test_the_cut_is_chosen_and_an_invalid_date_is_wrong_usage(run, sold):
    for cut, orders in (("02:00", 6), ("4:00", 6), ("05:00", 7)):
        assert run("day", "2026-03-01", "--cut", cut, "--json").json["total"]["orders"] == orders
    for wrong in ("yesterday", "2026-02-30", "2026-03-01 --cut 25:00", "0001-01-01", "9999-12-31", "1999-12-31"):
        ended = run("day", *wrong.split())
        assert (ended.code, ended.out) == (2, ""), wrong


def test_the_audit_names_the_row_and_the_promise(run, pos):
    assert run("audit").out == "0 orders, 0 actions, 0 promises broken.\n"
    times = {"created_utc": "2026-03-01 11:59:00.000", "finished_utc": "2026-03-01 12:00:00.000"}
    row = put_action(pos, state="refused", **times)
    put_order(pos, key(1), acknowledged_utc="2026-03-01 12:00:00.000", payload_hash="d")
    ended = run("audit")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"promise 1, 2026-03-01 12:00:00, order {key(1)}: It was acknowledged, and its document is gone.",
        f"promise 4, 2026-03-01 11:59:00, action {row}: It ended without being done, and error_code is empty.",
        "1 orders, 1 actions, 2 promises broken.",
    ]
    assert [one["code"] for one in run("audit", "--json").json["findings"]] == ["document_lost", "end_without_reason"]
    assert run("learned").err == "Nothing has been seen yet.\n"
    put(pos, "delivery_learned", point="status_id", value="17", times=3, last_utc="2026-03-01 12:00:00.000")
    head, line = run("learned").out.splitlines()
    assert head.split() == ["point", "value", "times", "last_utc"]
    assert line.split() == ["status_id", "17", "3", "2026-03-01", "12:00:00"]
    assert [row["times"] for row in run("learned", "--json").json] == [3]
    assert run("audit", "--since", "1", "--json").json == {"orders": 0, "actions": 0, "findings": []}
