"""The judges, with recorded facts that are written by hand."""

from dataclasses import replace
from decimal import Decimal

import pytest

from orderbridge_certify import judging, plays
from orderbridge_certify.driver import Command, Operator, Person
from orderbridge_certify.scenarios import SCENARIOS
from orderbridge_certify.seen import Answer, Call, Judge, Note, Order, Row, Seen, Verdict, facts, worst

TAKEN = Order(letter="A", visible_s=1.0, taken_s=1.5, revision=2, pos_revision=2, reference=True)
DONE = Row(action="accept", letter="A", state="done", preparing_time=25)
TOOK = Call(operation="accept", letter="A", http_status=200)
ABLE = Answer(verb="cancel", letter="A")
BY_PERSON = Answer(verb="ticket", holds=False, by_person=True)
UNABLE = Answer(verb="ticket", able=False)
UPDATED = Note(what="update", table="delivery_orders", column="pos_total")


def seen(*orders: Order, **more: object) -> Seen:
    return Seen(orders=orders or (TAKEN,), **more)  # type: ignore[arg-type]


CASES: list[tuple[str, Judge, Seen, str]] = [
    ("in time", judging.taken_over, seen(), "PASS"),
    ("too late", judging.taken_over, seen(Order(letter="A", visible_s=1.0, taken_s=12.5)), "FAIL"),
    ("never", judging.taken_over, seen(Order(letter="A", visible_s=1.0)), "FAIL"),
    ("it never came", judging.taken_over, seen(Order(letter="A")), "NOT SEEN"),
    ("one row, done by one call", judging.carried_out("accept"), seen(rows=(DONE,), calls=(TOOK,)), "PASS"),
    ("two calls", judging.carried_out("accept"), seen(rows=(DONE,), calls=(TOOK, TOOK)), "FAIL"),
    ("no call", judging.carried_out("accept"), seen(rows=(DONE,)), "FAIL"),
    ("one row", judging.asked_for("accept"), seen(rows=(DONE,)), "PASS"),
    ("two rows", judging.asked_for("accept"), seen(rows=(DONE, DONE)), "FAIL"),
    ("asked, and no row", judging.asked_for("cancel"), seen(answers=(ABLE,)), "FAIL"),
    ("no person to ask", judging.asked_for("cancel"), seen(answers=(Answer(verb="cancel", able=False),)), "NOT SEEN"),
    ("a right time", judging.arguments("accept", lambda row: row.preparing_time == 25), seen(rows=(DONE,)), "PASS"),
    ("a reference", judging.has_reference, seen(), "PASS"),
    ("no reference", judging.has_reference, seen(Order(letter="A", taken_s=1.0)), "FAIL"),
    ("its own columns", judging.own_columns, seen(notes=(UPDATED,)), "PASS"),
    ("the daemon's column", judging.own_columns, seen(notes=(replace(UPDATED, column="status"),)), "FAIL"),
    ("a row of the daemon's", judging.own_columns, seen(notes=(Note(what="insert", table="delivery_orders"),)), "FAIL"),
    ("deleted", judging.deletes_nothing, seen(notes=(Note(what="delete", table="delivery_actions"),)), "FAIL"),
    ("a short lock", judging.short_lock, seen(marks={"longest_lock_s": 1.9}), "PASS"),
    ("a long lock", judging.short_lock, seen(marks={"longest_lock_s": 2.1}), "FAIL"),
    ("booked right", judging.books_total, seen(Order(letter="A", total=Decimal(5), pos_total=Decimal("5.00"))), "PASS"),
    ("booked wrong", judging.books_total, seen(Order(letter="A", total=Decimal(5), pos_total=Decimal(4))), "FAIL"),
    ("not booked", judging.books_total, seen(), "NOT SEEN"),
    ("the ticket is right", judging.shown_right("ticket"), seen(answers=(Answer(verb="ticket", holds=True),)), "PASS"),
    ("the ticket is wrong", judging.shown_right("ticket"), seen(answers=(Answer(verb="ticket", holds=False),)), "FAIL"),
    ("judged by a person", judging.shown_right("ticket"), seen(answers=(BY_PERSON,)), "BY A PERSON"),
    ("what was read", judging.revision_read, seen(marks={"read": 1, "unread": 1}), "PASS"),
    ("what was not read", judging.revision_read, seen(marks={"unread": 2}), "FAIL"),
    ("it did not wait for the lock", judging.revision_read, seen(marks={"unread": 1}), "NOT SEEN"),
    ("it locks first", judging.revision_read, seen(marks={"unread": 2, "reads_locked": 1}), "NOT SEEN"),
]


@pytest.mark.parametrize("judge, what, verdict", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_judgement(judge: Judge, what: Seen, verdict: str) -> None:
    assert judge(what).verdict == verdict


def test_an_order_that_was_not_taken_over_is_reported_once() -> None:
    scenario = next(one for one in SCENARIOS if one.name == "problem")
    judged = scenario.judged(seen(Order(letter="A", visible_s=1.0)))
    found = [(name, one.verdict, one.why) for name, one in judged.items()]
    assert found == [("taken_over", Verdict.FAIL, "not_taken"), ("ticket_problem", Verdict.NOT_SEEN, "not_taken")]


def test_a_scenario_has_the_result_of_its_worst_criterion() -> None:
    several = [Verdict.PASS, Verdict.NOT_SEEN], [Verdict.PASS, Verdict.FAIL, Verdict.BY_A_PERSON], [Verdict.NOT_SEEN]
    assert [*map(worst, several)] == [Verdict.PASS, Verdict.FAIL, Verdict.NOT_SEEN]


def test_facts_are_in_a_stable_order() -> None:
    early, late = Call(operation="accept", letter="B", at_s=1), Call(operation="accept", letter="A", at_s=2)
    assert [one["letter"] for one in facts(early, late)] == ["A", "B"]


def test_a_wrong_answer_shows_what_was_wanted_and_an_amount_but_no_other_word() -> None:
    beside = plays._beside("ask")
    assert beside("0.00\n") == {"wanted": "ask", "printed": "0.00"}
    assert beside("Ayşe Yılmaz") == {"wanted": "ask", "printed": "?"}
    wrong = Answer(verb="collect", letter="A", holds=False, shown=beside("0.00"))
    judged = judging.shown_right("collect")(seen(answers=(wrong,)))
    assert judged.facts == ({"letter": "A", "wanted": "ask", "printed": "0.00"},)


@pytest.mark.parametrize("judge, what, why", [
    (judging.shown_right("ticket"), seen(answers=(UNABLE,)), "no_hands"),
    (judging.shown_right("ticket"), seen(answers=(replace(UNABLE, needs_person=True),)), "needs_person"),
    (judging.short_lock, seen(), "locks_hidden"),
    (judging.revision_read, seen(), "not_waiting"),  # its remedy: --only revision_read
    (judging.waits_its_turn, seen(marks={"waited": 0}), "not_waiting_long"),
])  # fmt: skip
def test_a_criterion_not_seen_has_a_reason(judge: Judge, what: Seen, why: str) -> None:
    assert judge(what) == judging.not_seen(why)


def test_a_run_without_a_person_says_so() -> None:
    person = Person(lambda *_: "yes")
    assert (Operator().person, Command("x", print).person, Command("x", print, person).person) == (None, None, person)
    assert person.person is person
