"""A certification of a real till with a real sandbox, daemon and database."""

import os
import re
import shlex
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests import databases
from tests.certify.shop import Shop, failed, verdicts
from tests.wording import says

from orderbridge.errors import ConfigError
from orderbridge_certify import printing
from orderbridge_certify.driver import Command, Operator, Person
from orderbridge_certify.setup import Started

Shops = Callable[..., Shop]
# The only criteria that each bad till fails. It runs their scenarios and one other, or all with ORDERBRIDGE_TEST_WHOLE.
OWN = {
    "accepts_twice": {"accept.one_accept"},
    "never_takes_over": {"takes_over.taken_over"},
    "writes_newest": {"revision_read.revision_that_was_read"},
    "ignores_cancelled": {"cancelled_after.cancellation_noted", "cancelled_after.kitchen_told"},
    "tells_no_kitchen": {"cancelled_after.kitchen_told"},
    "ignores_contents": {"contents.contents_noted", "contents.ticket_again"},
    "bills_prepaid": {"prepaid.collects_nothing"},
    "holds_lock": {"lock.short_lock"},
    "deferred_begin": {"others_write.taken_all_the_same"},
    "writes_foreign_column": {"its_own.own_columns"},
    "deletes_row": {"its_own.deletes_nothing"},
}
WITH_OWN_TESTS = {"never_takes_over", "holds_lock"}
WHOLE = "ORDERBRIDGE_TEST_WHOLE" in os.environ


def test_a_good_till_passes_and_three_files_say_so(shop: Shops) -> None:
    here = shop()
    report = here.certify("takes_over", "accept", "cancel")
    assert set(verdicts(report).values()) == {"PASS"}
    suites = ET.parse(here.folder / "report.junit.xml").getroot()
    assert (suites.tag, suites.get("tests"), suites.get("failures")) == ("testsuites", str(len(verdicts(report))), "0")
    page = (here.folder / "report.html").read_text("utf-8")
    assert "X POS 4.2" in page and "<script" not in page


def test_a_till_without_commands_is_not_judged(shop: Shops) -> None:
    report = shop().certify("takes_over", "cancel", operator=Operator())
    unseen = ("cancel.one_cancel", "cancel.cancel_sent", "cancel.reason")
    assert verdicts(report) == {"takes_over.taken_over": "PASS"} | dict.fromkeys(unseen, "NOT SEEN")


def test_a_till_that_never_takes_over_fails_only_that(shop: Shops) -> None:
    here = shop("never_takes_over")
    report = here.certify("takes_over", "accept", "letters", within_s=0.5, pace=0.005)
    assert failed(report) == {"takes_over.taken_over"}
    reported = " ".join(here.printed)
    assert f"Does it open this database: {here.folder}/till.db?" in reported
    assert "Test a corrected till with a new --folder" in reported
    assert "orderbridge db grants ROLE" in reported
    assert "If the till has a database user" not in reported  # a file has no users
    assert verdicts(report)["accept.one_accept"] == "NOT SEEN"


def test_a_database_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    here = Shop(tmp_path)
    with closing(sqlite3.connect(tmp_path / "till.db")) as connection:
        connection.execute("CREATE TABLE delivery_orders (mine)")
    with pytest.raises(ConfigError, check=says(r"is not empty: delivery_orders")):
        here.certify("takes_over")
    with closing(sqlite3.connect(tmp_path / "till.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("delivery_orders",)]


def test_a_killed_run_continues_where_it_stopped(shop: Shops) -> None:
    """Finished scenarios are kept. An interrupted one is repeated with a new order, which the till does not know."""
    here = shop()
    with here.started("takes_over", "lock") as running:
        here.until_taken(3)  # the first sign, the first scenario, and the second one, which goes on for seconds
        running.kill()
        running.wait()
    kept = here.kept()["results"]
    assert (set(kept), set(verdicts(here.certify("takes_over", "lock")).values())) == ({"takes_over"}, {"PASS"})
    assert here.printed[0].startswith("Certify continues where it stopped.")
    assert here.printed[1].startswith("2/2, PASS: ")
    assert here.kept()["results"]["takes_over"] == kept["takes_over"]
    assert (here.kept()["begun"], here.taken()) == ({"first_sign": 2, "takes_over": 1, "lock": 2}, 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_writes_the_report_so_far_and_names_the_command_that_continues(number, shop: Shops) -> None:
    here = shop()
    with here.started("takes_over", "lock") as running:
        here.until_taken(3)  # as above
        running.send_signal(number)
        message = running.communicate()[1]
    reported = f"Stopped. The report so far is in {here.folder}. The same command continues from here."
    assert (running.returncode, message.strip()) == (1, reported)
    assert verdicts(here.report()) == {"takes_over.taken_over": "PASS", "lock.short_lock": "NOT SEEN"}
    assert here.report()["verdict"] == "NOT SEEN"


def test_another_certificate_in_the_same_folder_is_refused(shop: Shops) -> None:
    here = shop()
    here.certify("takes_over")
    with pytest.raises(ConfigError, check=says(r"with other options \(seed\)")):
        here.certify("takes_over", seed=2)


ALIKE = ("one_after_the_other", "accept", "cancelled_after", "prepaid")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report_except_times(tmp_path: Path) -> None:
    """And no report holds a customer, a key of an order or a secret."""
    found = []
    for name in ("one", "two"):
        with Shop(tmp_path / name) as here:
            found.append(without_times(here.certify(*ALIKE)))
            left = "".join(file.read_text("utf-8") for file in here.folder.iterdir() if file.suffix in KEPT)
            assert [word for word in here.canaries() if word in left] == []
    assert found[0] == found[1]


KEPT = {".json", ".html", ".xml", ".log"}


def without_times(report: Any) -> Any:
    if isinstance(report, dict):
        return {name: without_times(value) for name, value in report.items() if not name.endswith("_s")}
    return [without_times(one) for one in report] if isinstance(report, list) else report


def test_a_person_is_asked_and_the_answer_is_reported_as_such(shop: Shops) -> None:
    asked: list[str] = []

    def answer(sentence: str, is_question: bool) -> str:
        asked.append(sentence)
        return "yes" if is_question else "skip"

    report = shop().certify("takes_over", "prepaid", "closed", operator=Person(answer))
    reported = verdicts(report)
    assert (reported["prepaid.collects_nothing"], reported["closed.one_close"]) == ("BY A PERSON", "NOT SEEN")
    assert report["verdict"] == "PASS"
    assert re.search(r"what to collect for order \d+\?", " ".join(asked))


def test_a_person_is_asked_what_the_command_cannot_judge(shop: Shops) -> None:
    here = shop()
    hands = Command(here.operator, here.printed.append, Person(lambda _, is_question: "yes" if is_question else "skip"))
    reported = verdicts(here.certify("problem", "prepaid", operator=hands))
    assert (reported["problem.ticket_problem"], reported["prepaid.collects_nothing"]) == ("BY A PERSON", "PASS")


@pytest.mark.parametrize("code, able", [(0, True), (1, True), (64, False)])
def test_a_command_says_with_64_that_it_cannot(code: int, able: bool) -> None:
    hands = Command(f"{sys.executable} -c 'import sys; print(sys.argv[1:]); sys.exit({code})'", lambda _: None)
    done = hands.do("accept", "key", "25", about="")
    assert (done.able, done.output) == (able, "['accept', 'key', '25']\n")
    reported: list[str] = []
    assert not Command("/no/such/command", reported.append).do("accept", "key", about="").able
    assert reported == ["accept: FileNotFoundError"]


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> Iterator[str | None]:
    server = "" if kind == databases.SQLITE else request.getfixturevalue(f"{kind}_server")
    with databases.own_database(server, f"certify_{os.getpid()}") if server else nullcontext() as made:
        yield made


each_kind = pytest.mark.parametrize("kind", databases.KINDS)


def not_passed(report: dict[str, Any]) -> dict[str, str]:
    return {name: verdict for name, verdict in verdicts(report).items() if verdict != "PASS"}


# Databases differ in how the till's transactions, the holder of a lock and its waiters are found, and in letters and
# amounts. The mini POS below gets a whole certificate.
BY_DATABASE = "takes_over cancelled_after revision_read prepaid letters others_write lock its_own".split()


@pytest.mark.slow
@each_kind
def test_a_good_till_passes_on_each_database(url: str | None, shop: Shops) -> None:
    """On a server the criterion of a file is not seen, and the till's rights are mentioned."""
    here = shop("none", url)
    report = here.certify(*BY_DATABASE)
    assert any("orderbridge db grants ROLE" in message for message in here.printed) == (url is not None)
    assert not_passed(report) == ({"others_write.waits_its_turn": "NOT SEEN"} if url else {})


@pytest.mark.slow
@each_kind
def test_the_rights_are_mentioned_when_certify_starts_the_till(url: str | None, tmp_path: Path) -> None:
    with Shop(tmp_path, url=url) as here:
        here.certify("takes_over", start=shlex.join(here.watch))
    assert any("orderbridge db grants ROLE" in message for message in here.printed) == (url is not None)


MINI_POS = Path(__file__).parents[2] / "docs" / "examples" / "python" / "pos.py"


@pytest.mark.slow
def test_the_guides_mini_pos_passes_whole(tmp_path: Path) -> None:
    """It writes no pos_total."""
    with Shop(tmp_path) as here:
        here.till = [*quick_mini_pos(tmp_path), str(tmp_path / "till.db")]
        report = here.certify(within_s=5, start=here.operator)
    assert not_passed(report) == {"problem.ticket_problem": "NOT SEEN", "prepaid.books_total": "NOT SEEN"}


def quick_mini_pos(folder: Path, *changes: tuple[str, str]) -> list[str]:
    """A copy with these changes. It takes over the tickets of another loop after two seconds instead of a minute."""
    text = MINI_POS.read_text("utf-8")
    for old, new in (("'now') - 60", "'now') - 2"), ("changed_utc) > 60", "changed_utc) > 2"), *changes):
        assert old in text
        text = text.replace(old, new)
    copy = folder / "pos.py"
    copy.write_text(text, "utf-8")
    return [sys.executable, str(copy)]


def test_a_stop_slip_with_the_note_is_no_unmarked_copy(tmp_path: Path) -> None:
    till = Started(r"printf 'A-1\ncertify-00000001\nSTOP A-1\ncertify-00000001\n'", tmp_path)
    till.start()
    till.until_quiet()
    assert till.papers("certify-00000001") == [False, True]
    till.close()


CLAIMS_NONE = ((" AND paper = ? AND tries = ?", ""), ('row["id"], row["paper"], row["tries"]', 'row["id"]'))
FORGETS_ONE = (("WHERE payment_key = ? AND paper = 'waits'\", key", 'WHERE payment_key = ?", key'),)
# By the criterion that it fails: a till that claims no ticket, and one that forgets a ticket it may have printed.
BAD_PRINTERS = {"two_tills.copies_marked": CLAIMS_NONE, "killed_at_printer.stop_printed": FORGETS_ONE}


@pytest.mark.slow
@pytest.mark.parametrize("criterion", BAD_PRINTERS)
def test_a_till_that_prints_wrongly_when_it_is_killed_or_started_twice_fails(tmp_path, criterion, monkeypatch):
    monkeypatch.setattr(printing, "AT_PRINTER_S", 1.0)
    monkeypatch.setattr(printing, "PAPER_S", 10.0)
    with Shop(tmp_path) as here:
        here.till = [*quick_mini_pos(tmp_path, *BAD_PRINTERS[criterion]), str(tmp_path / "till.db")]
        report = here.certify(criterion.partition(".")[0], start=here.operator)
    assert failed(report) == {criterion}


def test_a_till_without_a_reachable_printer_is_not_judged_on_it(tmp_path: Path) -> None:
    with Shop(tmp_path) as here:
        report = here.certify("killed_at_printer", "two_tills", start=shlex.join(here.watch), within_s=1)
    assert set(verdicts(report).values()) == {"NOT SEEN"}


def test_a_till_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, check=says(r"/no/such/till \(")):
        Shop(tmp_path).certify("takes_over", start="/no/such/till")


QUICK = "writes_foreign_column"
SLOW = [pytest.param(fault, marks=pytest.mark.slow) for fault in OWN if fault not in {QUICK, *WITH_OWN_TESTS}]


@pytest.mark.parametrize("fault", [QUICK, *SLOW])
def test_a_bad_till_fails_at_its_own_criterion_and_nowhere_else(shop: Shops, fault: str) -> None:
    met = [] if WHOLE else ["accept", *{criterion.partition(".")[0] for criterion in OWN[fault]}]
    found = failed(shop(fault).certify(*met, pace=0.01, within_s=2))
    # A lock also refuses a deferred BEGIN. On a slow machine this is seen.
    assert found - ({"others_write.waits_its_turn"} if fault == "deferred_begin" else set()) == OWN[fault]


@pytest.mark.slow
@pytest.mark.parametrize("fault, verdict", [("none", "PASS"), ("writes_newest", "FAIL")])
def test_a_slow_till_is_tested_while_it_waits_for_a_lock(shop: Shops, fault: str, verdict: str) -> None:
    """It reads every two seconds, like the till of the guide."""
    report = shop(f"{fault}:2").certify("revision_read", within_s=5)
    assert verdicts(report) == {"revision_read.revision_that_was_read": verdict}


@pytest.mark.slow
@pytest.mark.parametrize("fault, failing", [("none:1", set()), ("deferred_begin:1", {"others_write.waits_its_turn"})])
def test_a_till_that_reads_now_and_then_waits_or_is_refused(shop, fault, failing):
    """If a lock refuses its write, it takes the order one round later. That is the only sign, if it computes quickly.

    On a slow machine the lock may refuse it several times; it has time for that. If the lock ends before the till
    writes, nothing is seen, and the test tries again.
    """
    for _ in range(3 if failing else 1):
        if found := failed(shop(fault).certify("others_write", pace=0.01, within_s=20)):
            break
    assert found == failing


@pytest.mark.slow
def test_a_ticket_may_be_on_paper_a_moment_after_the_take_over(shop: Shops) -> None:
    assert failed(shop("prints_later:1").certify("letters", "contents", pace=0.01, within_s=5)) == set()


@pytest.mark.slow
@each_kind
def test_a_lock_that_is_held_too_long_is_seen(url: str | None, shop: Shops) -> None:
    """One of three seconds: two are allowed."""
    assert failed(shop("holds_lock:3", url).certify("lock", pace=0.01)) == OWN["holds_lock"]
