"""The plays about printing: the till is killed while it prints, and two tills print at once."""

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from orderbridge.store.tables import orders
from orderbridge_certify.driver import PATIENCE_S, Driver
from orderbridge_certify.setup import Started
from orderbridge_sandbox.rules import CONFIRMED

FEW, MANY = 3, 20
AT_PRINTER_S = 3.0  # after this, a till that polls every two seconds is printing
PAPER_S = 150.0  # the time limit for all papers; a till may wait a minute before it repeats an unfinished one
SECOND_COPY_S = 90.0  # the time limit for a second copy


def killed(driver: Driver) -> None:
    """Kill the till three times: once before a paper is printed, and twice before the till notes a printed one.

    The last time, customers cancel the printed orders before the till starts again.
    """
    if (till := _printing(driver)) is None:
        return
    words = _jam(driver, till, FEW)
    till.kill()
    till.start()
    _await_papers(driver, till, words)
    words |= _jam(driver, till, FEW)
    out = _kill_when_out(driver, till, words)
    till.start()
    _await_papers(driver, till, words)
    driver.until(lambda _: all(len(till.papers(words[letter])) > 1 for letter in out), SECOND_COPY_S)
    last = _jam(driver, till, FEW)
    out = _kill_when_out(driver, till, last)
    for letter in out:
        _cancel(driver, letter)
    till.start()
    words |= last | _place(driver, MANY)  # a process that a killed till left running would print these twice
    _await_papers(driver, till, words)
    driver.until(lambda _: not _unstopped(driver, till, out), PAPER_S)
    till.until_quiet()
    _note(driver, till, words)
    if out:
        driver.marks["unstopped"] = len(_unstopped(driver, till, out))


def two_at_once(driver: Driver) -> None:
    """Two tills read which papers are to be printed before either has printed one."""
    if (till := _printing(driver)) is None:
        return
    till.start()
    driver.pause(AT_PRINTER_S)
    words = _jam(driver, till, MANY)
    till.flow()
    _await_papers(driver, till, words)
    till.until_quiet()
    _note(driver, till, words)
    till.close()
    till.start()


def _printing(driver: Driver) -> Started | None:
    """The till, if certify started it and it has printed the first order on its standard output; else None."""
    till = driver.till
    return till if till and driver.until(lambda _: bool(till.printed), driver.within_s) else None


def _jam(driver: Driver, till: Started, count: int) -> dict[str, str]:
    """Jam the printer and place orders, whose papers then wait. Returns the words in their notes by letter."""
    till.until_quiet()
    till.jam()
    words = _place(driver, count)
    driver.until_taken()
    driver.pause(AT_PRINTER_S)
    return words


def _place(driver: Driver, count: int) -> dict[str, str]:
    """Place accepted orders, so that a till that prints all its output has nothing else to print."""
    words = (driver.word() for _ in range(count))
    return {driver.order(note=word, status_id=CONFIRMED): word for word in words}


def _await_papers(driver: Driver, till: Started, words: dict[str, str]) -> None:
    driver.until(lambda _: all(till.papers(word) for word in words.values()), PAPER_S)


def _kill_when_out(driver: Driver, till: Started, words: dict[str, str]) -> list[str]:
    """Let the till print, kill it, and return the printed orders. On SQLite a lock prevents it from noting them."""
    before = {letter for letter, word in words.items() if till.papers(word)}

    def drain(_: object) -> None:
        till.flow()
        till.until_quiet()
        till.kill()

    try:
        driver.database.write_now(drain)
    except DBAPIError:  # the till itself holds the lock, which another scenario judges
        till.kill()
    return [letter for letter, word in words.items() if letter not in before and till.papers(word)]


def _cancel(driver: Driver, letter: str) -> None:
    key, before = driver.key(letter), driver.observe().order(letter).revision
    driver.world.wait_for(lambda: driver.world.orders[key].acknowledged, timeout=PATIENCE_S)
    driver.world.cancel_by_customer(key)
    driver.until(
        lambda seen: seen.order(letter).revision > before and seen.order(letter).status == "CANCELED", PATIENCE_S
    )


def _unstopped(driver: Driver, till: Started, letters: list[str]) -> list[str]:
    return [letter for letter in letters if not till.stopped(_names(driver, letter))]


def _names(driver: Driver, letter: str) -> tuple[str, ...]:
    wanted = select(orders.c.order_number, orders.c.pos_reference).where(orders.c.payment_key == driver.key(letter))
    row = driver.database.read_now(lambda connection: connection.execute(wanted).first())
    return tuple(str(name) for name in row or () if name)


def _note(driver: Driver, till: Started, words: dict[str, str]) -> None:
    """Count the orders without a paper, and those with a second copy that is not marked as one."""
    papers = {letter: till.papers(word) for letter, word in words.items()}
    driver.marks |= {
        "orders": len(papers),
        "unprinted": sum(not found for found in papers.values()),
        "unmarked_copies": sum(found.count(False) > 1 for found in papers.values()),
    }
