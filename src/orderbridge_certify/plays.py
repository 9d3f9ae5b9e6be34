"""The plays of all scenarios except those about printing. A play places orders and waits; judging.py judges it."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from orderbridge_certify.driver import Driver
from orderbridge_certify.judging import MOST_TRIES
from orderbridge_certify.locks import Held, noise, probed
from orderbridge_certify.seen import Fact
from orderbridge_sandbox import Fault
from orderbridge_sandbox.commands import change_line
from orderbridge_sandbox.documents import CENT
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.rules import MISSING_FIELD, TIME_FORMAT, Operation
from orderbridge_sandbox.scenery import KADIKOY

ADDRESS_NOT_FOUND = 2
AMOUNT = re.compile(r"ask|-?[0-9.,]{1,12}")
SOUP, SOUP_NAME = 1001, "Mercimek Çorbası"
FOOD = 1009
MANY = 40
LETTERS = "Şu çiğ köfteyi ığdır usulü, ÖÇŞĞÜİ'siz yapın 🌶️👶"
LONG = " ".join(f"{number}. söz" for number in range(1, 251))
CHANGE_S = 120.0  # the time limit to confirm a cancellation or a change
DEAD_S = 120.0
AWAY_S = 60.0
AFTERWARDS_S = 30.0  # how long to wait for writes that the till should not make


def take_over(driver: Driver) -> None:
    """Place one order."""
    driver.order()
    driver.until_taken()


def three(driver: Driver) -> None:
    """Place three orders, one after another."""
    for _ in range(3):
        driver.order()
        driver.until_visible()
    driver.until_taken()


def accepted(driver: Driver, **changes: object) -> str:
    """Place an order, have it accepted, and wait until the till confirms the change. Returns its letter."""
    letter = driver.order(**changes)
    if driver.until_taken():
        driver.accept(letter)
        driver.until_noted()
    return letter


def on_the_way(driver: Driver) -> None:
    """Accept an order, and send it out."""
    driver.act("on_the_way", accepted(driver))


def complete(driver: Driver) -> None:
    """Accept an order, send it out, and complete it."""
    letter = accepted(driver)
    if driver.act("on_the_way", letter):
        driver.act("complete", letter)


def cancel(driver: Driver) -> None:
    """The cashier cancels an accepted order."""
    driver.act("cancel", accepted(driver), str(ADDRESS_NOT_FOUND))


# ---- the customer ----------------------------------------------------------------------------------------------------


def cancelled_before(driver: Driver) -> None:
    """An order is already cancelled when it arrives."""
    with driver.world.lock:
        driver.world.cancel_by_customer(driver.key(driver.order()))
    driver.until_visible()
    driver.wait(AFTERWARDS_S)


def cancelled_after(driver: Driver) -> None:
    """The customer cancels an order that the kitchen is cooking."""
    key = driver.key(letter := accepted(driver))
    before = len(driver.papers(letter))
    driver.until_changed(letter, lambda: driver.world.cancel_by_customer(key), CHANGE_S)
    driver.wait(AFTERWARDS_S)
    if "changed" in driver.marks:
        driver.ask(
            "ticket",
            letter,
            "ticket_stop",
            lambda output: len(output.strip()) > before,
            shown=lambda output: {"letters_before": before, "letters_after": len(output.strip())},
        )


def contents_changed(driver: Driver) -> None:
    """The customer adds a soup to an accepted order."""
    key = driver.key(letter := accepted(driver))
    driver.until_changed(letter, lambda: change_line(driver.world, key, SOUP, price=95 * CENT * 100), CHANGE_S)
    if "changed" in driver.marks:
        driver.reads(letter, "ticket_again", SOUP_NAME)


# ---- kinds of orders -------------------------------------------------------------------------------------------------


def scheduled(driver: Driver) -> None:
    """An order is scheduled for tomorrow."""
    at = _tomorrow(driver)
    letter = driver.order(scheduled_date=at.strftime(TIME_FORMAT))
    driver.until_taken()
    driver.reads(letter, "ticket_time", f"{at:%H:%M}")


def pickup(driver: Driver) -> None:
    """The customer picks the order up."""
    accepted(driver, courier_type="come_get", shipping_method="pickup")
    driver.wait(AFTERWARDS_S)


def platform_courier(driver: Driver) -> None:
    """The marketplace's courier delivers the order."""
    accepted(driver, courier_type="platform_courier")
    driver.wait(AFTERWARDS_S)


def unknown_payment(driver: Driver) -> None:
    """The payment method is unknown, and so is the amount to collect."""
    letter = driver.order(payment_method="Hediye Çeki")
    if driver.until_taken():
        driver.ask("collect", letter, "collect_asks", lambda output: output.strip() == "ask", shown=_beside("ask"))


def prepaid(driver: Driver) -> None:
    """The order is paid: nothing is collected."""
    letter = driver.order(payment_method=driver.world.payment_names()["CREDIT_CARD"])
    if driver.until_taken():
        driver.ask("collect", letter, "collect_nothing", _is_nothing, shown=_beside("0.00"))


def _is_nothing(output: str) -> bool:
    return output.strip().strip("0.,") == "" != output.strip()


def _beside(wanted: str) -> Callable[[str], Fact]:
    """The expected amount and the printed one. Other output is not shown, because it may be a customer's."""

    def shown(output: str) -> Fact:
        printed = output.strip()
        return {"wanted": wanted, "printed": printed if AMOUNT.fullmatch(printed) else "?"}

    return shown


def problem(driver: Driver) -> None:
    """The order has a problem that a person must decide."""
    letter = driver.order(order_tip="?")
    if driver.until_taken():
        driver.ask("ticket", letter, "ticket_problem", None)


def letters(driver: Driver) -> None:
    """The note has unusual characters."""
    letter = driver.order(note=LETTERS)
    if driver.until_taken():
        driver.reads(letter, "ticket_note", LETTERS)


def long_note(driver: Driver) -> None:
    """The note is as long as possible."""
    letter = driver.order(note=LONG)
    if driver.until_taken():
        driver.reads(letter, "ticket_long", LONG)


def forty(driver: Driver) -> None:
    """Forty orders arrive at once."""
    driver.within_s *= 6
    for _ in range(MANY):
        driver.order()
    driver.until_taken()
    driver.until_ended()


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def refused(driver: Driver) -> None:
    """The marketplace refuses the accept."""
    letter = driver.order()
    key = driver.key(letter)
    driver.world.faults.add(Fault.error(Operation.ACCEPT, 422, MISSING_FIELD, argument=key, times=None))
    if driver.until_taken():
        driver.accept(letter)
        driver.wait(DEAD_S)


def doubled(driver: Driver) -> None:
    """The operator requests the same action twice."""
    letter = accepted(driver)
    if driver.do("on_the_way", letter, words="on_the_way_twice") and not driver.operator.by_person:
        driver.do("on_the_way", letter)
    driver.until(lambda seen: bool(seen.rows_of("on_the_way")), driver.within_s)
    driver.until_ended()


def line_dead(driver: Driver) -> None:
    """An action waits while the network line is down."""
    letter = accepted(driver)
    _cut(driver)
    driver.begin("on_the_way", letter)
    driver.wait(DEAD_S)
    driver.setup.line(Line.GOOD)
    driver.until_ended()


def withdrawn(driver: Driver) -> None:
    """Withdraw a waiting row: the accept of a scheduled order, or the till's next action on it."""
    letter = driver.order(scheduled_date=_tomorrow(driver).strftime(TIME_FORMAT))
    if not driver.until_taken():
        return
    verb, minutes = ("on_the_way", ()) if driver.accepts_by_itself(letter) else ("accept", ("25",))
    driver.until_ended()
    _cut(driver)
    if driver.begin(verb, letter, *minutes):
        driver.do("withdraw", letter)
        driver.until(lambda seen: "withdrawn" in {row.state for row in seen.rows}, driver.within_s)
    driver.setup.line(Line.GOOD)
    driver.until_ended()


def _tomorrow(driver: Driver) -> datetime:
    return driver.world.local(driver.world.now()).replace(minute=0, second=0) + timedelta(days=1)


def _cut(driver: Driver) -> None:
    driver.setup.line(Line.REFUSED)
    driver.setup.until_line(Line.REFUSED)


def restarted(driver: Driver) -> None:
    """The till is restarted between two orders."""
    accepted(driver)
    driver.setup.stop()
    driver.setup.start()
    driver.order()
    driver.until_taken()
    driver.until_ended()


def daemon_dead(driver: Driver) -> None:
    """An action that is requested while the daemon is down is sent after its restart."""
    letter = accepted(driver)
    driver.setup.stop()
    driver.do("on_the_way", letter)
    driver.wait(AWAY_S)
    driver.setup.start()
    driver.order()
    driver.until_taken()
    driver.until_ended()


# ---- the restaurant --------------------------------------------------------------------------------------------------


def sold_out(driver: Driver) -> None:
    """A food is deactivated, and activated again."""
    driver.act("food_off", "", str(FOOD), KADIKOY)
    driver.act("food_on", "", str(FOOD), KADIKOY)


def closed(driver: Driver) -> None:
    """The restaurant is closed, and opened again."""
    driver.act("close", "", KADIKOY)
    driver.act("open", "", KADIKOY)


def all_that_was_written(driver: Driver) -> None:
    """One more order; all notes in this database are judged."""
    accepted(driver)
    driver.reads_all_notes = True


FEW = 5
HOLD_S = 1.5
FIRST_S = 0.3
AT_ONCE_S = 0.3  # a write so soon after the release shows that the till waited for the lock
TRIES = 6
TURNS = 3
HOLDS = 20  # a till that reads often has usually written before the lock is held, above all on a slow machine
LONGEST_HOLD_S = 4.0  # tills should wait for five
MARGIN_S = 0.5
COOLDOWN_S = 1.0  # the longest cooldown
LOCKED_S = 2.5  # at any pace, because a lock of two seconds takes so long to be measured


def others_write(driver: Driver) -> None:
    """Another program writes constantly."""
    with noise(driver.database):
        for _ in range(FEW):
            driver.order()
        driver.until_taken()
        driver.until_ended()
    if driver.database.engine.dialect.name != "sqlite":  # on a server every writer waits
        return
    hold_s = max(_delay_s(driver) for _ in range(TURNS)) + MARGIN_S
    driver.marks |= {"waited": 0, "gave_up": 0}
    for _ in range(HOLDS if hold_s <= LONGEST_HOLD_S else 0):
        if not _writes_at_release(driver, hold_s) or driver.marks["waited"] or driver.marks["gave_up"] == TURNS:
            break


def _delay_s(driver: Driver) -> float:
    """The longest time until the till takes an order over: its delay for this order, and a cooldown."""
    letter = driver.order()
    driver.until_taken()
    order = driver.observe().order(letter)
    if order.taken_s is None or order.visible_s is None:
        return LONGEST_HOLD_S
    return order.taken_s - order.visible_s + COOLDOWN_S


def _writes_at_release(driver: Driver, hold_s: float) -> bool:
    """Hold the lock for longer than the till's poll interval, and count whether the till writes at its release.

    False if the till does not take the order over.
    """
    letter = driver.order()
    driver.until_visible()
    Held(driver.database, driver.key(letter)).hold(hold_s)
    released = driver.now_s()
    driver.until_taken()
    taken = driver.observe().order(letter).taken_s
    if taken is None:  # another criterion judges this
        return False
    if taken > released - hold_s / 2:  # otherwise it wrote before the lock was held
        driver.marks["waited" if taken - released < AT_ONCE_S else "gave_up"] += 1
    return True


def lock(driver: Driver) -> None:
    """Measure the till's longest lock."""
    with probed(driver.database) as probe:
        accepted(driver)
        driver.pause(LOCKED_S)
        if probe.longest_s is not None:
            driver.marks["longest_lock_s"] = probe.longest_s


def revision_read(driver: Driver) -> None:
    """A new revision is written while the till waits to write the one that it has read.

    This needs a poll of the till while the lock is held. The first try measures how long after its last note the till
    polls. Later tries place this moment in the middle of the hold.
    """
    letter = accepted(driver)
    held = Held(driver.database, driver.key(letter))
    tally = {"read": 0, "unread": 0}
    noted, until_hold = driver.now_s(), FIRST_S
    for _ in range(0 if driver.terms.reads_locked else TRIES):
        driver.pause(until_hold)
        before = held.bump()
        newest = held.hold(HOLD_S)
        released = driver.now_s()
        driver.until_noted()
        since, noted = noted, driver.now_s()
        until_hold = min(max(FIRST_S, noted - since - HOLD_S / 2), driver.within_s)
        found = [one for one in driver.observe().notes if one.column == "pos_revision" and (one.value or 0) >= before]
        if any(one.value == before and one.revision == newest for one in found):
            tally["read"] += 1
            break
        if found and found[0].value == newest and found[0].at_s - released < AT_ONCE_S:
            tally["unread"] += 1
            if tally["unread"] == MOST_TRIES:
                break
    driver.marks |= tally
