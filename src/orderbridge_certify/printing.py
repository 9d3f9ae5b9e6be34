"""The plays about printing: the till is killed while it prints, and two tills print at once."""

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from orderbridge.store.tables import orders
from orderbridge_certify.driver import PATIENCE_S, Driver
from orderbridge_certify.setup import Started
from orderbridge_sandbox.rules import CONFIRMED

FEW, MANY = 3, 20
AT_PRINTER_S = 3.0  # a till that polls every two seconds has come to its printer
PAPER_S = 150.0  # within which all is on paper: a till may leave what it has begun alone for a minute
SECOND_COPY_S = 90.0  # within which a second copy comes, if one does


def killed(driver: Driver) -> None:
    """Before a paper is out; when one is and the till does not know; and so that its customer cancels meanwhile."""
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
    words |= last | _place(driver, MANY)  # what a killed till has left running prints these a second time
    _await_papers(driver, till, words)
    driver.until(lambda _: not _unstopped(driver, till, out), PAPER_S)
    till.until_quiet()
    _note(driver, till, words)
    if out:
        driver.marks["unstopped"] = len(_unstopped(driver, till, out))


def two_at_once(driver: Driver) -> None:
    """Both have read which papers wait before either has printed one."""
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
    """The till, where certify started it and it prints on its standard output: the first order is on paper by now."""
    till = driver.till
    return till if till and driver.until(lambda _: bool(till.printed), driver.within_s) else None


def _jam(driver: Driver, till: Started, count: int) -> dict[str, str]:
    """Orders whose papers wait for a printer that takes nothing. Their words, by letter."""
    till.until_quiet()
    till.jam()
    words = _place(driver, count)
    driver.until_taken()
    driver.pause(AT_PRINTER_S)
    return words


def _place(driver: Driver, count: int) -> dict[str, str]:
    """Accepted already, so that a till whose screen is its printer's paper has nothing else to say."""
    words = (driver.word() for _ in range(count))
    return {driver.order(note=word, status_id=CONFIRMED): word for word in words}


def _await_papers(driver: Driver, till: Started, words: dict[str, str]) -> None:
    driver.until(lambda _: all(till.papers(word) for word in words.values()), PAPER_S)


def _kill_when_out(driver: Driver, till: Started, words: dict[str, str]) -> list[str]:
    """Which orders came on paper meanwhile. On SQLite the lock is held, so that the till cannot note it."""
    before = {letter for letter, word in words.items() if till.papers(word)}

    def drain(_: object) -> None:
        till.flow()
        till.until_quiet()
        till.kill()

    try:
        driver.database.write_now(drain)
    except DBAPIError:  # the till itself holds it: another scenario tells of that
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
    """How many orders are on no paper, and how many on a second one that does not say so."""
    papers = {letter: till.papers(word) for letter, word in words.items()}
    driver.marks |= {
        "orders": len(papers),
        "unprinted": sum(not found for found in papers.values()),
        "unmarked_copies": sum(found.count(False) > 1 for found in papers.values()),
    }
