"""How each scenario is played. A play places orders and waits; what it means is judged elsewhere."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from orderbridge_certify.seen import Fact
from orderbridge_certify.stage import Stage
from orderbridge_sandbox import Fault
from orderbridge_sandbox.documents import CENT
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.panel import change_line
from orderbridge_sandbox.rules import MISSING_FIELD, TIME_FORMAT, Operation
from orderbridge_sandbox.scenery import KADIKOY

ADDRESS_NOT_FOUND = 2
AMOUNT = re.compile(r"ask|-?[0-9.,]{1,12}")
SOUP, SOUP_NAME = 1001, "Mercimek Çorbası"
FOOD = 1009
MANY = 40
LETTERS = "Şu çiğ köfteyi ığdır usulü, ÖÇŞĞÜİ'siz yapın 🌶️👶"
LONG = " ".join(f"{number}. söz" for number in range(1, 251))
CHANGE_S = 120.0  # within which a cancellation, or a change, is noted
DEAD_S = 120.0
AWAY_S = 60.0
AFTERWARDS_S = 30.0  # in which a till might still do what it should not


def take_over(stage: Stage) -> None:
    """One order."""
    stage.order()
    stage.until_taken()


def three(stage: Stage) -> None:
    """Three, one after the other."""
    for _ in range(3):
        stage.order()
        stage.until_visible()
    stage.until_taken()


def accepted(stage: Stage, **changes: object) -> str:
    """One that is accepted, and whose changes are noted. Its letter."""
    letter = stage.order(**changes)
    if stage.until_taken():
        stage.accept(letter)
        stage.until_noted()
    return letter


def accept(stage: Stage) -> None:
    """Accept one."""
    accepted(stage)


def on_the_way(stage: Stage) -> None:
    """Accept one, and send it out."""
    stage.act("on_the_way", accepted(stage))


def complete(stage: Stage) -> None:
    """The whole life of an order."""
    letter = accepted(stage)
    if stage.act("on_the_way", letter):
        stage.act("complete", letter)


def cancel(stage: Stage) -> None:
    """The cashier cancels."""
    stage.act("cancel", accepted(stage), str(ADDRESS_NOT_FOUND))


# ---- the customer ----------------------------------------------------------------------------------------------------


def cancelled_before(stage: Stage) -> None:
    """It arrives as one that is cancelled already."""
    with stage.world.lock:
        stage.world.cancel_by_customer(stage.key(stage.order()))
    stage.until_visible()
    stage.wait(AFTERWARDS_S)


def cancelled_after(stage: Stage) -> None:
    """The kitchen is at it."""
    key = stage.key(letter := accepted(stage))
    before = len(stage.papers(letter))
    stage.until_changed(letter, lambda: stage.world.cancel_by_customer(key), CHANGE_S)
    stage.wait(AFTERWARDS_S)
    if "changed" in stage.marks:
        stage.ask(
            "ticket",
            letter,
            "ticket_stop",
            lambda said: len(said.strip()) > before,
            shown=lambda said: {"letters_before": before, "letters_after": len(said.strip())},
        )


def contents_changed(stage: Stage) -> None:
    """A soup comes with it."""
    key = stage.key(letter := accepted(stage))
    stage.until_changed(letter, lambda: change_line(stage.world, key, SOUP, price=95 * CENT * 100), CHANGE_S)
    if "changed" in stage.marks:
        stage.reads(letter, "ticket_again", SOUP_NAME)


# ---- kinds of orders -------------------------------------------------------------------------------------------------


def scheduled(stage: Stage) -> None:
    """For tomorrow."""
    at = _tomorrow(stage)
    letter = stage.order(scheduled_date=at.strftime(TIME_FORMAT))
    stage.until_taken()
    stage.reads(letter, "ticket_time", f"{at:%H:%M}")


def pickup(stage: Stage) -> None:
    """The customer fetches it."""
    accepted(stage, courier_type="come_get", shipping_method="pickup")
    stage.wait(AFTERWARDS_S)


def platform_courier(stage: Stage) -> None:
    """Somebody else brings it."""
    accepted(stage, courier_type="platform_courier")
    stage.wait(AFTERWARDS_S)


def unknown_payment(stage: Stage) -> None:
    """Nobody knows what to collect."""
    letter = stage.order(payment_method="Hediye Çeki")
    if stage.until_taken():
        stage.ask("collect", letter, "collect_asks", lambda said: said.strip() == "ask", shown=_beside("ask"))


def prepaid(stage: Stage) -> None:
    """Nothing is collected."""
    letter = stage.order(payment_method=stage.world.payment_names()["CREDIT_CARD"])
    if stage.until_taken():
        stage.ask("collect", letter, "collect_nothing", _is_nothing, shown=_beside("0.00"))


def _is_nothing(said: str) -> bool:
    return said.strip().strip("0.,") == "" != said.strip()


def _beside(wanted: str) -> Callable[[str], Fact]:
    """What was wanted and what was printed, where that is an amount: whatever else it is may be a customer's."""

    def shown(said: str) -> Fact:
        printed = said.strip()
        return {"wanted": wanted, "printed": printed if AMOUNT.fullmatch(printed) else "?"}

    return shown


def problem(stage: Stage) -> None:
    """A person must look at it."""
    letter = stage.order(order_tip="?")
    if stage.until_taken():
        stage.ask("ticket", letter, "ticket_problem", None)


def letters(stage: Stage) -> None:
    """Whatever a customer can type."""
    letter = stage.order(note=LETTERS)
    if stage.until_taken():
        stage.reads(letter, "ticket_note", LETTERS)


def long_note(stage: Stage) -> None:
    """As long as a customer can type."""
    letter = stage.order(note=LONG)
    if stage.until_taken():
        stage.reads(letter, "ticket_long", LONG)


def forty(stage: Stage) -> None:
    """All at once."""
    stage.within_s *= 6
    for _ in range(MANY):
        stage.order()
    stage.until_taken()
    stage.until_ended()


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def refused(stage: Stage) -> None:
    """The platform does not take the acceptance."""
    letter = stage.order()
    key = stage.key(letter)
    stage.world.faults.add(Fault.error(Operation.ACCEPT, 422, MISSING_FIELD, argument=key, times=None))
    if stage.until_taken():
        stage.accept(letter)
        stage.wait(DEAD_S)


def doubled(stage: Stage) -> None:
    """The same button, twice."""
    letter = accepted(stage)
    key = stage.key(letter)
    if stage.do("on_the_way", letter, key, words="on_the_way_twice") and not stage.hands.by_person:
        stage.do("on_the_way", letter, key)
    stage.until(lambda seen: bool(seen.rows_of("on_the_way")), stage.within_s)
    stage.until_ended()


def line_dead(stage: Stage) -> None:
    """What is asked for meanwhile waits."""
    letter = accepted(stage)
    _cut(stage)
    if stage.do("on_the_way", letter, stage.key(letter)):
        stage.until(lambda seen: bool(seen.rows_of("on_the_way")), stage.within_s)
    stage.wait(DEAD_S)
    stage.house.line(Line.GOOD)
    stage.until_ended()


def withdrawn(stage: Stage) -> None:
    """What waits is taken back: the acceptance of an order for later, or what comes after it where a till accepts that."""
    letter = stage.order(scheduled_date=_tomorrow(stage).strftime(TIME_FORMAT))
    if not stage.until_taken():
        return
    verb, minutes = ("on_the_way", ()) if stage.accepts_by_itself(letter) else ("accept", ("25",))
    stage.until_ended()
    _cut(stage)
    if stage.do(verb, letter, stage.key(letter), *minutes):
        stage.until(lambda seen: bool(seen.rows_of(verb)), stage.within_s)
        stage.do("withdraw", letter, stage.key(letter))
        stage.until(lambda seen: "withdrawn" in {row.state for row in seen.rows}, stage.within_s)
    stage.house.line(Line.GOOD)
    stage.until_ended()


def _tomorrow(stage: Stage) -> datetime:
    return stage.world.local(stage.world.now()).replace(minute=0, second=0) + timedelta(days=1)


def _cut(stage: Stage) -> None:
    stage.house.line(Line.REFUSED)
    stage.house.until_line(Line.REFUSED)


def restarted(stage: Stage) -> None:
    """Between two orders."""
    accepted(stage)
    stage.house.stop()
    stage.house.start()
    stage.order()
    stage.until_taken()
    stage.until_ended()


def daemon_dead(stage: Stage) -> None:
    """What is asked for meanwhile is carried out afterwards."""
    letter = accepted(stage)
    stage.house.stop()
    stage.do("on_the_way", letter, stage.key(letter))
    stage.wait(AWAY_S)
    stage.house.start()
    stage.order()
    stage.until_taken()
    stage.until_ended()


# ---- the restaurant --------------------------------------------------------------------------------------------------


def sold_out(stage: Stage) -> None:
    """A food goes off the menu, and on again."""
    for verb, action in (("food_off", "deactivate_food"), ("food_on", "activate_food")):
        if stage.do(verb, "", str(FOOD), KADIKOY):
            stage.until(lambda seen, action=action: bool(seen.rows_of(action)), stage.within_s)  # type: ignore[misc]
            stage.until_ended()


def closed(stage: Stage) -> None:
    """The restaurant closes, and opens again."""
    for verb in ("close", "open"):
        if stage.do(verb, "", KADIKOY):
            stage.until(lambda seen, verb=verb: bool(seen.rows_of(f"{verb}_restaurant")), stage.within_s)  # type: ignore[misc]
            stage.until_ended()


def all_that_was_written(stage: Stage) -> None:
    """One order more, and everything that was noted in this database."""
    accepted(stage)
    stage.looks_at_all = True
