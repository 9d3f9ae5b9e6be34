"""A certificate, made for a real till: sandbox, daemon and database are real, too."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.certify.faults import OWN
from tests.certify.shop import Shop, failed, verdicts

from orderbridge.certify.hands import Nobody
from orderbridge.errors import ConfigError

Shops = Callable[..., Shop]


def test_a_good_till_passes_and_three_files_say_so(shop: Shops) -> None:
    here = shop()
    report = here.certify("takes_over", "accept", "cancel")
    assert set(verdicts(report).values()) == {"PASS"}
    suites = ET.parse(here.folder / "report.junit.xml").getroot()
    assert (suites.tag, suites.get("tests"), suites.get("failures")) == ("testsuites", str(len(verdicts(report))), "0")
    page = (here.folder / "report.html").read_text("utf-8")
    assert "X POS 4.2" in page
    assert "<script" not in page


def test_what_has_no_hands_is_not_seen(shop: Shops) -> None:
    report = shop().certify("takes_over", "cancel", hands=Nobody())
    assert verdicts(report) == {
        "takes_over.taken_over": "PASS",
        "cancel.one_cancel": "NOT SEEN",
        "cancel.cancel_sent": "NOT SEEN",
        "cancel.reason": "NOT SEEN",
    }


def test_a_till_that_never_takes_over_fails_there_alone(shop: Shops) -> None:
    report = shop("never_takes_over").certify("takes_over", "accept", within_s=0.5, pace=0.005)
    assert failed(report) == {"takes_over.taken_over"}
    assert verdicts(report)["accept.one_accept"] == "NOT SEEN"


def test_a_database_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    here = Shop(tmp_path)
    with closing(sqlite3.connect(tmp_path / "till.db")) as connection:
        connection.execute("CREATE TABLE delivery_orders (mine)")
    with pytest.raises(ConfigError, match=r"is not empty: delivery_orders"):
        here.certify("takes_over")
    with closing(sqlite3.connect(tmp_path / "till.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("delivery_orders",)]


# Whole certificates of all of them: python -m tests.certify. Here each till meets its own scenario and two others.
@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in OWN if fault not in {"never_takes_over", "holds_lock"}])
def test_a_bad_till_fails_at_its_own_criterion_and_nowhere_else(shop: Shops, fault: str) -> None:
    """The till that never takes over has its test above, the one that holds a lock below."""
    own = {criterion.partition(".")[0] for criterion in OWN[fault]}
    assert failed(shop(fault).certify("reference", "accept", *own, pace=0.01, within_s=2)) == OWN[fault]


@pytest.mark.slow
def test_a_lock_that_is_held_too_long_is_seen(shop: Shops) -> None:
    """One of three seconds: two are allowed."""
    assert failed(shop("holds_lock:3").certify("lock", pace=0.01)) == OWN["holds_lock"]
