"""`orderbridge status`: local times, the facts of each account, a bounded length, and output when little works."""

import re
from contextlib import closing
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.cli.setups import LEAD, program
from tests.cli.shell import account, document
from tests.cli.test_looking import ago, put_account
from tests.store.samples import key, put, put_action, put_document, put_order

from orderbridge import __version__
from orderbridge.cli import common
from orderbridge.cli.status import keep_watching
from orderbridge.clock import SystemClock
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text
from orderbridge.store.leader import LeaderLock

ISTANBUL = ZoneInfo("Europe/Istanbul")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_times_are_local_with_their_age():
    assert common.local(NOW, ISTANBUL, NOW) == "15:00:00"
    assert common.local(NOW - timedelta(days=1), ISTANBUL, NOW) == "2026-02-28 15:00"
    words = {0: "0 s ago", 119: "119 s ago", 120: "2 min ago", 7200: "2 h ago", 172_800: "2 d ago"}
    words |= {-1: "0 s ago", -300: "5 min ahead, a clock was set"}
    assert {back: common.ago(NOW - timedelta(seconds=back), NOW) for back in words} == words


def test_an_account_is_shown_with_its_state(run, pos):
    put_account(pos, token_expires_utc=ago(-86400))
    put_order(pos, key(1), status_id=1, received_utc=ago(60), changed_utc=ago(60))
    put_order(pos, key(2), status="CONFIRMED", status_id=2, pos_revision=1, received_utc=ago(60), changed_utc=ago(40))
    (one,) = run("status", "--json").json["accounts"]
    assert (one["open"], one["oldest_unanswered_utc"][:16]) == ({"RECEIVED": 1, "CONFIRMED": 1}, ago(60)[:16])
    out = run("status").out
    assert re.search(r"\naccount  .*\nkadikoy +ok +\d+ s ago +\d{4}-\d\d-\d\d \d\d:\d\d +2 +\d+ s ago +-", out)
    assert "quarantine  menu" not in out
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80
    assert re.search(r"  POS +last wrote \d\d:\d\d:\d\d or later \(\d+ s ago\)", out)


def test_only_writes_of_a_till_count_as_pos_seen(run, pos):
    put_account(pos)
    for hand in ({"created_by": "command line"}, {"request_id": "auto:x"}, {"request_id": "board:x"}):
        put_action(pos, "activate_food", state="done", **hand)
    for has_written in (False, True):
        assert (run("status", "--json").json["pos_seen_utc"] is not None) == has_written
        assert ("has never written" in run("status").out) != has_written
        put_action(pos, "activate_food", state="done", created_by=None)


def test_a_slow_database_does_not_look_like_a_clock_that_was_set(run, pos, monkeypatch):
    put_account(pos)
    read = Database.read_now

    def late(self, work):
        found = read(self, work)
        with closing(pos.cursor()) as cursor:
            cursor.execute(f"UPDATE delivery_accounts SET last_poll_ok_utc = '{ago(-3600 - 60 * len(asked))}'")
        pos.commit()
        asked.append(work)
        return found

    asked: list[object] = []
    now = SystemClock.now
    monkeypatch.setattr(Database, "read_now", late)
    monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + timedelta(hours=1, minutes=len(asked)))
    assert "a clock was set" not in run("status").out


def test_a_closed_restaurant_is_shown_with_time_and_author(run, pos):
    put_account(pos)
    shut = {"status": "Closed", "status_since_utc": ago(60), "status_by": "Ayşe"}
    put(pos, "delivery_restaurants", account="kadikoy", id=key(9), name="Örnek Lokanta", **shut)
    assert re.search(r"Örnek Lokanta has been closed since .*\d\d:\d\d:\d\d .*\(closed by: Ayşe\)", run("status").out)
    assert run("status", "--json").json["closed"][0]["status_by"] == "Ayşe"
    for number in range(10, 20):
        put(pos, "delivery_restaurants", account="kadikoy", id=key(number), name="Şube", **shut)
    out = run("status").out
    assert out.count("takes no orders") == 5 and "restaurant_closed: 6 more" in out


def test_many_accounts_are_one_screen_the_worst_first(run, configure, pos):
    names = [f"b{number:02}" for number in range(99)]
    configure(document(accounts="".join(account(name, name) for name in names)))
    since = datetime.now(UTC) - timedelta(seconds=500)
    for name in names:
        state = "failing" if name > "b10" else "ok"
        put_account(pos, name, name, state=state, last_poll_ok_utc=time_text(since))
    out = run("status").out
    assert len(out.splitlines()) <= 40 and "… no_good_poll: 6 more" in out
    assert f"since {common.local(since, ISTANBUL, since)} (8 min ago)" in out
    assert not run("status", "--json").json["accounts"][0]["healthy"]


def test_status_is_fully_translated_to_turkish(run, configure, pos):
    configure(document().replace('language = "en"', 'language = "tr"'))
    put_account(pos, state="login_refused")
    put_document(pos)
    out = run("status").out
    assert ": müdahale gerekiyor (kırmızı)" in out
    english = {"account", "polled", "since", "ago", "orders", "actions", "waiting", "never", "seen", "open"}
    assert english & set(re.findall(r"[a-z]+", out)) == set()


def test_an_older_schema_is_shown_as_far_as_possible(run, pos):
    put_account(pos)
    put_order(pos, key(1), received_utc=ago(5), changed_utc=ago(5))
    pos.execute("UPDATE delivery_schema_version SET version_num = '0009'")
    pos.execute("DROP TABLE delivery_quarantine")
    ended = run("status")
    shown = ("could not be read: schema", "could not be read: quarantined", "kadikoy", "1 open")
    assert (ended.code, [words for words in shown if words not in ended.out]) == (1, [])
    assert run("status", "--json").json["light"] == "red"


def test_a_killed_daemon_is_shown_at_once(run, pos, path):
    """The lock on the file shows it. The sign of life stays valid for a minute and a half."""
    put_account(pos)
    seen = {"seen_utc": ago(1), "silent_from_utc": ago(-89)}
    put(pos, "delivery_daemon", id=1, **seen, cause="Nobody polls.", remedy="Run it.")
    with closing(Database(f"sqlite:///{path}", inline=True)) as database:
        lock = LeaderLock(database)
        assert lock.take()
        assert run("status").out.splitlines()[0].endswith(": healthy")
        lock.close()
        told = run("status", "--json")
    (problem,) = told.json["problems"]
    assert (told.code, problem["code"], problem["severity"]) == (1, "not_polling", "severe")


def test_the_holder_of_a_long_lock_is_named_instead_of_missing_polls(run, configure, pos):
    configure(document(database='url = "sqlite:///pos.db"\nbusy_timeout_seconds = 0.1'))
    put_account(pos, last_poll_utc=ago(300), last_poll_ok_utc=ago(300))
    assert [one["code"] for one in run("status", "--json").json["problems"]] == ["not_polling"]
    pos.execute("BEGIN IMMEDIATE")
    assert [one["code"] for one in run("status", "--json").json["problems"]] == ["database_busy"]
    pos.execute("ROLLBACK")


def test_watching_shows_only_changes_and_continues_while_the_database_is_away(run, monkeypatch, pos, path):
    looks = 0

    def pause(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            path.rename(f"{path}.away")
        elif looks == 3:
            raise KeyboardInterrupt

    put_account(pos)
    monkeypatch.setattr(keep_watching, "__defaults__", (pause,))
    ended = run("status", "--watch")
    assert (ended.code, ended.err, ended.out.count("---")) == (1, "", 2)
    assert ended.out.index("healthy") < ended.out.index("pos.db is missing")


def test_the_screen_begins_with_the_installation(run, pos, config_file, configure):
    configure(document(database='url = "postgresql://till:hush@127.0.0.1:1/pos"'))
    assert "hush" not in (ended := run("status")).out + ended.err
    configure()
    out = run("status").out
    assert out.startswith(f"orderbridge {__version__}: needs attention (red)\n")
    assert f"\n  configuration  {config_file}\n  database       sqlite:///{config_file.parent}/pos.db\n" in out


def test_while_another_daemon_works_status_does_not_ask_to_start_one(run, pos, path):
    """The daemon waits, or its configuration lacks the account. A further daemon would only wait, too."""
    with program(LEAD, path) as other:
        out = run("status").out
    assert f"PID {other.pid}" in out and "Start `orderbridge" not in out and "Start `orderbridge" in run("status").out
