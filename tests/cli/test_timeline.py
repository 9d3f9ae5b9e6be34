"""`orderbridge order`: the history in order of time, with requests, answers and durations, and what comes next."""

import pytest
from tests.cli.shell import document
from tests.store.samples import KEY, key, put, put_action, put_order

CALM = {"acknowledged_utc": "2026-03-01 12:00:02.000", "acknowledged_status_id": 1, "service_status_id": 1}


def at(second: float) -> str:
    return f"2026-03-01 12:00:{second:06.3f}"


@pytest.fixture
def whole(pos):
    changed = {"changed_utc": at(9), "revision": 2, "last_change": "status"}
    put_order(pos, **CALM, **changed, status="CONFIRMED", received_utc=at(1), pos_revision=1)
    for second, event in ((1, "received"), (2, "acknowledged"), (9, "accept.done")):
        put(pos, "delivery_order_events", payment_key=KEY, at_utc=at(second), event=event, status="RECEIVED")
    ended = {"state": "done", "known_by": "answer", "finished_utc": at(9), "attempts": 2}
    row = put_action(pos, created_by="kasa 2", created_utc=at(3), **ended)
    tries = [
        {"started_utc": at(4), "finished_utc": at(5.25), "http_status": 503, "outcome": "service_failed"},
        {"started_utc": at(8), "finished_utc": at(8.1), "http_status": 200, "outcome": "ok"},
        {"started_utc": at(8.2), "finished_utc": at(8)},  # the clock was set back
        {"started_utc": at(8.3)},
    ]
    for number, values in enumerate(tries, start=1):
        put(pos, "delivery_action_attempts", action_id=row, attempt=number, **values)
    return row


def test_the_story_is_in_order_of_time(run, configure, whole):
    told = run("order", KEY, "--json").json["story"]
    whats = "received acknowledged action.asked request request request request action.ended"
    assert [entry["what"] for entry in told] == whats.split()
    out = run("order", KEY).out.partition("history (Europe/Istanbul)\n")[2].splitlines()
    assert out[:9] == [
        "2026-03-01",
        "  15:00:01.000  the order came in: RECEIVED",
        "  15:00:02.000  acknowledged to the marketplace: RECEIVED",
        f"  15:00:03.000  requested: accept 25 (row {whole}) by kasa 2",
        f"  15:00:04.000  request 1 of accept (row {whole}): HTTP 503 service_failed, 1.2 s",
        f"  15:00:08.000  request 2 of accept (row {whole}): HTTP 200 ok, 0.1 s",
        f"  15:00:08.200  request 3 of accept (row {whole}): -, ? s",
        f"  15:00:08.300  request 4 of accept (row {whole}): no answer noted",
        f"  15:00:09.000  accept ended (row {whole}): done, known by answer",
    ]
    assert out[-1] == "  The POS to read revision 2 (status)."
    configure(document().replace('language = "en"', 'language = "tr"'))
    out = run("order", KEY).out
    assert f"accept için 1. istek (satır {whole}): HTTP 503 service_failed, 1.2 sn" in out
    assert "Kasanın 2. revizyonu okuması" in out


def test_what_an_order_waits_for(run, pos):
    waits = [
        ({"acknowledged_status_id": None}, None, "Its acknowledgement"),
        ({"pos_revision": 0}, None, "The POS to take it over"),
        ({}, None, "An accept or a cancel: the customer waits."),
        ({"status": "CONFIRMED"}, None, "The next action of the POS"),
        ({}, {"state": "pending", "error_text": "Line down."}, "accept to be sent (row 1). Line down."),
        ({}, {"state": "sending"}, "The outcome of accept (row 2)."),
        ({"problem": "missing:foods"}, None, "Someone to check it: missing:foods."),
        ({"ended_utc": at(5), "pos_revision": 0}, None, "nothing"),
    ]
    for number, (order, action, sentence) in enumerate(waits):
        put_order(pos, key(number), **CALM | {"pos_revision": 1} | order)
        if action:
            put_action(pos, payment_key=key(number), **action)
        assert sentence in run("order", key(number)).out.partition("waits for\n")[2]
