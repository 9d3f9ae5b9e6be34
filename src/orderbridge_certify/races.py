"""The plays about the database: who holds it, who waits for it, and what is written after the wait."""

from orderbridge_certify.driver import Driver
from orderbridge_certify.judging import MOST_TRIES
from orderbridge_certify.locks import Held, noise, probed
from orderbridge_certify.plays import accepted

FEW = 5
HOLD_S = 1.5
FIRST_S = 0.3
AT_ONCE_S = 0.3  # so soon after the lock writes only who waited for it
TRIES = 6
TURNS = 3
LONGEST_HOLD_S = 4.0  # a till is asked to wait for five
MARGIN_S = 0.5
COOLDOWN_S = 1.0  # at most
LOCKED_S = 2.5  # a lock of two seconds cannot be seen in less, whatever the pace


def others_write(driver: Driver) -> None:
    """Another program writes all the time."""
    with noise(driver.database):
        for _ in range(FEW):
            driver.order()
        driver.until_taken()
        driver.until_ended()
    if driver.database.engine.dialect.name != "sqlite":  # a server lets everybody wait
        return
    hold_s = max(_delay_s(driver) for _ in range(TURNS)) + MARGIN_S
    driver.marks |= {"waited": 0, "gave_up": 0}
    for _ in range(2 * TURNS if hold_s <= LONGEST_HOLD_S else 0):
        if not _is_met(driver, hold_s) or driver.marks["waited"] or driver.marks["gave_up"] == TURNS:
            break


def _delay_s(driver: Driver) -> float:
    """How long an order waits at most: the till has just looked, and a poll may bring it a second later."""
    letter = driver.order()
    driver.until_taken()
    order = driver.observe().order(letter)
    if order.taken_s is None or order.visible_s is None:
        return LONGEST_HOLD_S
    return order.taken_s - order.visible_s + COOLDOWN_S


def _is_met(driver: Driver, hold_s: float) -> bool:
    """Hold the lock for longer than the till takes to poll again: does it write as soon as that is given back?"""
    letter = driver.order()
    driver.until_visible()
    Held(driver.database, driver.key(letter)).hold(hold_s)
    released = driver.now_s()
    driver.until_taken()
    taken = driver.observe().order(letter).taken_s
    if taken is None:  # for that there is another criterion
        return False
    if taken > released - hold_s / 2:  # else it was quicker than the lock
        driver.marks["waited" if taken - released < AT_ONCE_S else "gave_up"] += 1
    return True


def lock(driver: Driver) -> None:
    """How long does it keep others waiting?"""
    with probed(driver.database) as probe:
        accepted(driver)
        driver.pause(LOCKED_S)
        if probe.longest_s is not None:
            driver.marks["longest_lock_s"] = probe.longest_s


def revision_read(driver: Driver) -> None:
    """A new revision comes while the till waits to write the one that it has read.

    A till polls now and then, and must poll while the lock is held. So the first try shows how long after its last
    note the till polls, and from then on that moment lies in the middle of the hold.
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
