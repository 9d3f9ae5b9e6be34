"""accept and the other action commands write the row that a POS would write; `--wait` ends with the verdict."""

import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.cli.shell import account, document
from tests.store.samples import KEY, NOW_TEXT, OTHER, RESTAURANT, Row, action_row, put, put_action, put_order, rows

ARGUMENTS = "payment_key restaurant_id food_id account preparing_time reason_id valid_until_minutes".split()
CLOSED = {"action": "close_restaurant", "restaurant_id": RESTAURANT}
ROWS: list[tuple[tuple[object, ...], Row]] = [
    (("accept", KEY, "--minutes", 25), {"action": "accept", "payment_key": KEY, "preparing_time": 25}),
    (("on-the-way", KEY), {"action": "on_the_way", "payment_key": KEY}),
    (("complete", KEY), {"action": "complete", "payment_key": KEY}),
    (("cancel", KEY, "--reason", 3), {"action": "cancel", "payment_key": KEY, "reason_id": 3}),
    (("restaurant", "open", RESTAURANT), {"action": "open_restaurant", "restaurant_id": RESTAURANT}),
    (("restaurant", "close", RESTAURANT), CLOSED),
    (("restaurant", "close", RESTAURANT, "--for", 30), CLOSED | {"valid_until_minutes": 30}),
    (("food", "off", 55, "--for", 10080), {"action": "deactivate_food", "food_id": 55, "valid_until_minutes": 10080}),
    (("food", "on", 55), {"action": "activate_food", "food_id": 55}),
    (("food", "off", 55, "--account", "kadikoy"), {"action": "deactivate_food", "food_id": 55, "account": "kadikoy"}),
]


def outbox(pos: sqlite3.Connection) -> list[Row]:
    return rows(pos, "SELECT * FROM delivery_actions ORDER BY id")


COMMANDS, OTHERS = {"pos_reference": "command line"}, {"pos_reference": "K1-1042"}
TAKES: dict[str, tuple[Row, tuple[object, ...], int]] = {
    "new": ({"revision": 2}, (), 2),
    "new, as it was read": ({"revision": 2}, ("--revision", 1), 1),
    "a revision that is not there yet": ({"revision": 2}, ("--revision", 3), 0),
    "its change": ({"revision": 3, "pos_revision": 1, **COMMANDS}, (), 3),
    "already noted": ({"revision": 3, "pos_revision": 3, **COMMANDS}, (), 3),
    "an older revision": ({"revision": 3, "pos_revision": 2, **COMMANDS}, ("--revision", 1), 2),
    "its end": ({"revision": 3, "pos_revision": 2, "ended_utc": NOW_TEXT, **COMMANDS}, (), 3),
    "another till's change": ({"revision": 3, "pos_revision": 1, **OTHERS}, (), 1),
    "over before anybody took it over": ({"ended_utc": NOW_TEXT}, (), 0),
    "given back": ({"revision": 2, **OTHERS}, (), 2),
}


@pytest.mark.parametrize("columns, words, revision", TAKES.values(), ids=TAKES)
def test_take_stores_the_revision_that_was_read_and_no_other(columns, words, revision, run, pos):
    put_order(pos, **columns)
    ended = run("take", KEY, *words, "--json")
    (row,) = rows(pos, "SELECT pos_revision, pos_reference FROM delivery_orders")
    assert row["pos_revision"] == revision
    if ended.code == 0:
        told = ended.json
        assert (told["pos_revision"], told["items"], row["pos_reference"]) == (revision, [], "command line")
    else:
        assert (ended.code, revision) == (1, columns.get("pos_revision", 0)), ended.err
        assert "was not taken over" in " ".join(ended.err.split())


@pytest.mark.parametrize("arguments, expected", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_a_command_writes_its_row(arguments, expected, run, pos):
    for number, keys in enumerate(({}, {KEY: KEY.upper(), RESTAURANT: RESTAURANT.upper()})):
        ended = run(*(keys.get(str(word), word) for word in arguments))
        assert (ended.code, ended.out, ended.err) == (0, f"{number + 1} {expected['action']}: pending\n", "")
        row = outbox(pos)[number]
        assert {name: row[name] for name in ("action", *ARGUMENTS)} == dict.fromkeys(ARGUMENTS) | expected
        assert (row["created_by"], row["state"], row["withdraw"]) == ("command line", "pending", 0)


def test_a_food_of_an_unknown_account_writes_nothing_and_names_the_known_accounts(run, configure, pos):
    configure(document(accounts=account("kadikoy") + account("moda", "another-secret")))
    ended = run("food", "on", 55, "--account", "wrong")
    assert (ended.code, ended.out) == (2, "")
    assert "There is no account wrong; the accounts are: kadikoy, moda." in ended.err and outbox(pos) == []


NO_ORDER = "No order has the number, payment_key or reference"
WRONG = [
    *(
        (words, 1, NO_ORDER)
        for words in (("complete", "100234"), ("complete", KEY[:-1]), ("accept", "", "--minutes", "5"))
    ),
    (("restaurant", "open", RESTAURANT, "--for", "30"), 2, "valid_until_minutes"),
    (("food", "off", "55", "--for", "0"), 2, "--for"),
    (("restaurant", "open", "Kadıköy"), 2, "an order's key as `orderbridge orders` shows it"),
    (("order", "\udcff"), 2, "write it as UTF-8"),
    *((("complete", KEY, "--wait", "--timeout", seconds), 2, "") for seconds in ("nan", "inf", "-5", "86401")),
    *(
        (("actions", verb, "7"), 1, "There is no row 7. See `orderbridge actions list`.")
        for verb in ("retry", "withdraw")
    ),
    *((("actions", *words), 2, "") for words in (("retry", "9" * 30), ("withdraw", "0"))),
]


@pytest.mark.parametrize("words, code, said", WRONG)
def test_an_ambiguous_command_writes_nothing(words, code, said, run, pos):
    put_order(pos, KEY, order_number=7)
    ended = run(*words)
    assert ended.code == code and ended.out == "" and said in ended.err
    assert outbox(pos) == []


def test_an_order_can_be_named_by_its_number_or_pos_reference_if_that_is_unique(run, pos):
    put_order(pos, KEY, order_number=7, pos_reference="A-1042")
    for number, wanted in enumerate(("7", "A-1042", KEY.upper()), 1):
        shown = run("accept", wanted, "--minutes", 25, "--json").json
        assert shown | {"id": number, "action": "accept", "state": "pending", "preparing_time": 25} == shown
    assert {row["payment_key"] for row in outbox(pos)} == {KEY}
    put_order(pos, OTHER, order_number=7)
    ended = run("complete", "7")
    assert ended.code == 1 and KEY in ended.out and OTHER in ended.out and len(outbox(pos)) == 3


class Daemon:
    """Replaces the sleep of a waiting command: meanwhile, a second connection writes the verdict."""

    def __init__(self, pos: sqlite3.Connection) -> None:
        self.slept = 0.0
        self.after = 0.35
        self.verdict = ""
        self._pos = pos

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.verdict and self.slept >= self.after:
            self._pos.execute(f"UPDATE delivery_actions SET {self.verdict}")


@pytest.fixture
def daemon(pos: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    daemon = Daemon(pos)
    monkeypatch.setattr("orderbridge.cli.action_commands.time", SimpleNamespace(sleep=daemon.sleep))
    return daemon


def test_waiting_ends_with_the_verdict_and_any_other_one_fails_with_its_text(run, daemon):
    daemon.verdict = "state = 'done', known_by = 'answer'"
    ended = run("complete", KEY, "--wait")
    assert (ended.code, ended.out, ended.err) == (0, "1 complete: done\n", "")
    assert daemon.after <= daemon.slept < daemon.after + 0.2  # and not later
    daemon.verdict = "state = 'refused', error_code = 'order_completed', error_text = 'Sipariş tamamlanmış.'"
    ended = run("complete", KEY, "--wait")
    assert (ended.code, ended.out, ended.err) == (1, "2 complete: refused\n", "order_completed: Sipariş tamamlanmış.\n")
    shown = run("complete", OTHER, "--wait", "--json").json
    assert (shown["state"], shown["error_code"]) == ("refused", "order_completed")


def test_waiting_is_given_up_after_the_timeout(run, daemon):
    assert (run("food", "on", 55).code, daemon.slept) == (0, 0), "without --wait"
    ended = run("complete", KEY, "--wait", "--timeout", 5)
    assert (ended.code, ended.out) == (1, "2 complete: pending\n")
    assert ended.err == "No result after 5 seconds. Is `orderbridge run` running? The row keeps waiting.\n"
    assert daemon.slept == pytest.approx(5)
    daemon.verdict = "error_code = 'unreachable', error_text = 'Platforma ulaşılamıyor.'"
    ended = run("complete", KEY, "--wait", "--timeout", 1)
    assert (ended.code, ended.err) == (1, "unreachable: Platforma ulaşılamıyor.\n"), "what it waits for"


def test_the_outbox_is_listed_the_newest_first(run, pos):
    put_action(pos, state="sending")
    put_action(pos, "complete", state="done", known_by="poll")
    put_action(pos, "deactivate_food")
    for options, shown in (((), [3, 2, 1]), (("--unfinished",), [3, 1]), (("--limit", 1), [3])):
        assert [row["id"] for row in run("actions", "list", *options, "--json").json] == shown
        assert [int(line.split()[0]) for line in run("actions", "list", *options).out.splitlines()[1:]] == shown


def test_the_foods_are_listed_by_category(run, pos):
    known = {"account": "kadikoy", "source": "menu", "status": "active", "seen_utc": NOW_TEXT, "changed_utc": NOW_TEXT}
    for number, name, category in ((1, "Künefe", "Tatlılar"), (2, "Ezogelin", "Çorbalar"), (3, "Ayran", None)):
        put(pos, "delivery_foods", food_id=number, name=name, category=category, **known)
    put(pos, "delivery_foods", food_id=4, **known, gone_utc=NOW_TEXT)
    lines = run("foods").out.splitlines()
    assert lines[0].split() == ["food_id", "name", "category", "status", "account"]
    assert lines[1].split() == ["3", "Ayran", "-", "active", "kadikoy"]
    assert {row["food_id"] for row in run("foods", "--json").json} == {1, 2, 3}


def test_a_failed_row_is_retried_with_a_new_expiry(run, configure, pos):
    cases = [("accept", {}, "", 10), ("complete", {}, "", 120), ("accept", {"valid_minutes": 45}, "", 45)]
    cases += [("accept", {}, "accept_valid_minutes = 1000", 1000), ("dance", {}, "", 120)]
    pos.execute("PRAGMA ignore_check_constraints = ON")
    for action, columns, configured, minutes in cases:
        configure(document(more=f"[actions]\n{configured}"))
        row_id = put_action(pos, action, state="failed", error_code="service_error", expires_utc=NOW_TEXT, **columns)
        before = datetime.now(UTC)
        ended = run("actions", "retry", row_id)
        assert (ended.code, ended.out) == (0, f"{row_id} {action}: pending\n")
        row = action_row(pos, row_id)
        assert (row["state"], row["error_code"]) == ("pending", None)
        late = datetime.fromisoformat(row["expires_utc"]).replace(tzinfo=UTC) - before - timedelta(minutes=minutes)
        assert timedelta(milliseconds=-1) <= late <= timedelta(seconds=30)


def test_an_unfinished_row_can_be_withdrawn_and_not_retried(run, pos):
    for verb, state, message in (
        ("retry", "pending", "is pending; only a failed one can be retried"),
        ("retry", "done", "is done; only a failed one can be retried"),
        ("withdraw", "done", "is done already"),
        ("withdraw", "sending", None),
        ("withdraw", "pending", None),
    ):
        row_id = put_action(pos, state=state)
        ended = run("actions", verb, row_id)
        assert (ended.code, f"Row {row_id} {message}" in ended.err) == ((1, True) if message else (0, False))
        assert ended.out == ("" if message else f"{row_id} accept: withdrawal requested\n")
        row = action_row(pos, row_id)
        assert (row["withdraw"], row["state"]) == (int(message is None), state)  # the daemon ends it, when it waits
