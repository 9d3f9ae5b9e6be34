"""accept and its like write the row that a POS would write; `--wait` ends with the verdict."""

import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.cli.shell import account, document
from tests.store.samples import KEY, NOW_TEXT, OTHER, RESTAURANT, Row, action_row, put_action, put_order, rows

ARGUMENTS = ("payment_key", "restaurant_id", "food_id", "account", "preparing_time", "reason_id")
ROWS: list[tuple[tuple[object, ...], Row]] = [
    (("accept", KEY, "--minutes", 25), {"action": "accept", "payment_key": KEY, "preparing_time": 25}),
    (("on-the-way", KEY), {"action": "on_the_way", "payment_key": KEY}),
    (("complete", KEY), {"action": "complete", "payment_key": KEY}),
    (("cancel", KEY, "--reason", 3), {"action": "cancel", "payment_key": KEY, "reason_id": 3}),
    (("restaurant", "open", RESTAURANT), {"action": "open_restaurant", "restaurant_id": RESTAURANT}),
    (("restaurant", "close", RESTAURANT), {"action": "close_restaurant", "restaurant_id": RESTAURANT}),
    (("food", "on", 55), {"action": "activate_food", "food_id": 55}),
    (
        ("food", "off", 55, "--account", "kadikoy"),
        {"action": "deactivate_food", "food_id": 55, "account": "kadikoy"},
    ),
]


def outbox(pos: sqlite3.Connection) -> list[Row]:
    return rows(pos, "SELECT * FROM delivery_actions ORDER BY id")


# ---- taking over -----------------------------------------------------------------------------------------------------

COMMANDS, OTHERS = {"pos_reference": "command line"}, {"pos_reference": "K1-1042"}
TAKES: list[tuple[str, Row, tuple[object, ...], int]] = [
    ("new", {"revision": 2}, (), 2),
    ("new, as it was read", {"revision": 2}, ("--revision", 1), 1),
    ("a revision that is not there yet", {"revision": 2}, ("--revision", 3), 0),
    ("its change", {"revision": 3, "pos_revision": 1, **COMMANDS}, (), 3),
    ("already noted", {"revision": 3, "pos_revision": 3, **COMMANDS}, (), 3),
    ("an older revision", {"revision": 3, "pos_revision": 2, **COMMANDS}, ("--revision", 1), 2),
    ("its end", {"revision": 3, "pos_revision": 2, "ended_utc": NOW_TEXT, **COMMANDS}, (), 3),
    ("another till's change", {"revision": 3, "pos_revision": 1, **OTHERS}, (), 1),
    ("over before anybody took it over", {"ended_utc": NOW_TEXT}, (), 0),
    ("given back", {"revision": 2, **OTHERS}, (), 2),
]


@pytest.mark.parametrize("columns, words, revision", [case[1:] for case in TAKES], ids=[case[0] for case in TAKES])
def test_take_notes_the_revision_that_was_read_and_never_anothers(columns, words, revision, run, pos):
    put_order(pos, **columns)
    ended = run("take", KEY, *words, "--json")
    (row,) = rows(pos, "SELECT pos_revision, pos_reference FROM delivery_orders")
    assert row["pos_revision"] == revision
    if ended.code == 0:
        assert (ended.json["pos_revision"], ended.json["items"]) == (revision, [])
        assert row["pos_reference"] == "command line"
    else:
        assert (ended.code, revision) == (1, columns.get("pos_revision", 0)), ended.err
        assert "was not taken over" in " ".join(ended.err.split())


# ---- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, expected", ROWS, ids=[" ".join(map(str, words[:2])) for words, _ in ROWS])
def test_a_command_writes_its_row(arguments, expected, run, pos):
    ended = run(*arguments)
    assert (ended.code, ended.out, ended.err) == (0, f"1 {expected['action']}: pending\n", "")
    (row,) = outbox(pos)
    assert {name: row[name] for name in ("action", *ARGUMENTS)} == dict.fromkeys(ARGUMENTS) | expected
    assert (row["created_by"], row["state"], row["withdraw"]) == ("command line", "pending", 0)


def test_a_food_of_an_account_that_is_not_there_names_those_that_are_and_nothing_is_written(run, configure, pos):
    configure(document(accounts=account("kadikoy") + account("moda", "another-secret")))
    ended = run("food", "on", 55, "--account", "wrong")
    assert (ended.code, ended.out) == (2, "")
    assert "There is no account wrong; the accounts are: kadikoy, moda." in ended.err
    assert outbox(pos) == []


@pytest.mark.parametrize("arguments, expected", ROWS[:6], ids=[" ".join(map(str, words[:2])) for words, _ in ROWS[:6]])
def test_a_key_in_capitals_is_understood(arguments, expected, run, pos):
    keys = {KEY: KEY.upper(), RESTAURANT: RESTAURANT.upper()}
    assert run(*(keys.get(str(word), word) for word in arguments)).code == 0
    (row,) = outbox(pos)
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    "words",
    [("complete", "100234"), ("complete", KEY[:-1]), ("accept", "", "--minutes", "5")],
    ids=" ".join,
)
def test_an_order_that_is_not_there_is_told_and_nothing_is_written(words, run, pos):
    put_order(pos, KEY, order_number=7)
    ended = run(*words)
    assert (ended.code, ended.out) == (1, "")
    assert "No order has the number, payment_key or reference" in ended.err
    assert outbox(pos) == []


@pytest.mark.parametrize("wanted", ["7", "A-1042", KEY.upper()])
def test_an_order_is_acted_on_by_its_number_or_the_tills_reference_too(wanted, run, pos):
    put_order(pos, KEY, order_number=7, pos_reference="A-1042")
    assert run("complete", wanted).code == 0
    (row,) = outbox(pos)
    assert (row["action"], row["payment_key"]) == ("complete", KEY)


def test_a_number_that_means_two_orders_acts_on_neither_and_lists_them(run, pos):
    for key in (KEY, OTHER):
        put_order(pos, key, order_number=7)
    ended = run("complete", "7")
    assert ended.code == 1
    assert KEY in ended.out
    assert OTHER in ended.out
    assert outbox(pos) == []


def test_a_row_that_the_outbox_refuses_is_wrong_usage(run, pos):
    ended = run("restaurant", "open", "Kadıköy")
    assert (ended.code, ended.out) == (2, "")
    assert "an order's key as `orderbridge orders` shows it" in ended.err
    assert outbox(pos) == []


def test_the_row_can_be_read_by_a_program(run, pos):
    told = run("accept", KEY, "--minutes", 25, "--json").json
    assert (told["id"], told["action"], told["state"], told["preparing_time"]) == (1, "accept", "pending", 25)


# ---- waiting ---------------------------------------------------------------------------------------------------------


class Daemon:
    """Stands for the time that a command spends waiting: in it, a second connection writes the verdict."""

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


def test_waiting_ends_with_the_verdict(run, daemon):
    daemon.verdict = "state = 'done', known_by = 'answer'"
    ended = run("complete", KEY, "--wait")
    assert (ended.code, ended.out, ended.err) == (0, "1 complete: done\n", "")
    assert daemon.after <= daemon.slept < daemon.after + 0.2  # and not later


@pytest.mark.parametrize("state", ["refused", "failed", "expired", "superseded", "withdrawn"])
def test_any_other_end_is_a_failure_with_the_cashiers_words(state, run, daemon):
    daemon.verdict = f"state = '{state}', error_code = 'order_completed', error_text = 'Sipariş tamamlanmış.'"
    ended = run("complete", KEY, "--wait")
    assert (ended.code, ended.out) == (1, f"1 complete: {state}\n")
    assert ended.err == "order_completed: Sipariş tamamlanmış.\n"
    assert daemon.slept < daemon.after + 0.2


def test_waiting_is_given_up_after_the_timeout(run, daemon):
    ended = run("complete", KEY, "--wait", "--timeout", 5)
    assert (ended.code, ended.out) == (1, "1 complete: pending\n")
    assert ended.err == "No verdict after 5 seconds. Is `orderbridge run` running? The row waits on.\n"
    assert daemon.slept == pytest.approx(5)


def test_what_a_row_waits_for_is_said(run, daemon):
    daemon.verdict = "error_code = 'unreachable', error_text = 'Platforma ulaşılamıyor.'"
    ended = run("complete", KEY, "--wait", "--timeout", 1)
    assert (ended.code, ended.out) == (1, "1 complete: pending\n")
    assert ended.err == "unreachable: Platforma ulaşılamıyor.\n"


def test_without_wait_nothing_is_waited_for(run, daemon):
    assert run("complete", KEY).code == 0
    assert daemon.slept == 0


def test_the_verdict_can_be_read_by_a_program(run, daemon):
    daemon.verdict = f"state = 'refused', error_code = 'wrong_status', http_status = 422, finished_utc = '{NOW_TEXT}'"
    ended = run("accept", KEY, "--minutes", 25, "--wait", "--json")
    assert ended.code == 1
    told = ended.json
    assert (told["state"], told["error_code"], told["http_status"]) == ("refused", "wrong_status", 422)
    assert told["finished_utc"] == NOW_TEXT


# ---- actions list ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, shown",
    [((), [3, 2, 1]), (("--unfinished",), [3, 1]), (("--limit", 1), [3])],
    ids=["all", "unfinished", "limited"],
)
def test_the_outbox_is_listed_the_newest_first(options, shown, run, pos):
    put_action(pos, state="sending")
    put_action(pos, "complete", state="done", known_by="poll")
    put_action(pos, "deactivate_food")
    assert [row["id"] for row in run("actions", "list", *options, "--json").json] == shown
    assert [int(line.split()[0]) for line in run("actions", "list", *options).out.splitlines()[1:]] == shown


def test_an_empty_outbox_is_said(run, pos):
    ended = run("actions", "list")
    assert (ended.code, ended.out, ended.err) == (0, "", "The outbox is empty.\n")


# ---- actions retry, withdraw -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action, columns, minutes",
    [("accept", {}, 10), ("complete", {}, 120), ("accept", {"valid_minutes": 45}, 45)],
    ids=["accept", "another", "its own validity"],
)
def test_a_failed_row_is_retried_and_its_expiry_counts_anew(action, columns, minutes, run, pos):
    row_id = put_action(pos, action, state="failed", error_code="service_error", expires_utc=NOW_TEXT, **columns)
    before = datetime.now(UTC)
    ended = run("actions", "retry", row_id)
    assert (ended.code, ended.out) == (0, f"{row_id} {action}: pending\n")
    row = action_row(pos, row_id)
    expires = datetime.fromisoformat(row["expires_utc"]).replace(tzinfo=UTC)
    assert (row["state"], row["error_code"]) == ("pending", None)
    late = timedelta(seconds=30)
    assert before + timedelta(minutes=minutes, milliseconds=-1) <= expires <= before + timedelta(minutes=minutes) + late


def test_the_configured_validity_counts_for_a_retry(run, configure, pos):
    configure(document(more="[actions]\naccept_valid_minutes = 1000"))
    row_id = put_action(pos, state="failed")
    run("actions", "retry", row_id)
    assert action_row(pos, row_id)["expires_utc"] > (datetime.now(UTC) + timedelta(minutes=990)).isoformat(" ")


@pytest.mark.parametrize("state", ["pending", "sending", "done", "refused", "expired"])
def test_only_a_failed_row_can_be_retried(state, run, pos):
    row_id = put_action(pos, state=state)
    ended = run("actions", "retry", row_id)
    assert (ended.code, ended.out) == (1, "")
    assert f"Row {row_id} is {state}; only a failed one can be retried" in ended.err
    assert action_row(pos, row_id)["state"] == state


@pytest.mark.parametrize("state", ["pending", "sending"])
def test_an_unfinished_row_can_be_asked_back(state, run, pos):
    row_id = put_action(pos, state=state)
    ended = run("actions", "withdraw", row_id)
    assert (ended.code, ended.out) == (0, f"{row_id} accept: withdrawal requested\n")
    row = action_row(pos, row_id)
    assert (row["withdraw"], row["state"]) == (1, state)  # the daemon ends it, when it still waits


def test_a_finished_row_cannot_be_asked_back(run, pos):
    row_id = put_action(pos, state="done")
    ended = run("actions", "withdraw", row_id)
    assert (ended.code, ended.out) == (1, "")
    assert f"Row {row_id} is done already" in ended.err


@pytest.mark.parametrize("verb", ["retry", "withdraw"])
def test_a_row_that_is_not_there_is_said(verb, run, pos):
    ended = run("actions", verb, 7)
    assert (ended.code, ended.out) == (1, "")
    assert "There is no row 7. See `orderbridge actions list`." in ended.err


@pytest.mark.parametrize("seconds", ["nan", "inf", "-5", "86401"])
def test_a_time_to_wait_that_is_none_is_wrong_usage_and_nothing_is_written(seconds, run, pos):
    assert run("complete", KEY, "--wait", "--timeout", seconds).code == 2
    assert outbox(pos) == []


@pytest.mark.parametrize("words", [("retry", "9" * 30), ("withdraw", "0")], ids=" ".join)
def test_an_id_that_no_row_can_have_is_wrong_usage(words, run):
    assert run("actions", *words).code == 2


def test_an_argument_that_is_no_text_is_wrong_usage(run, pos):
    ended = run("order", "\udcff")
    assert (ended.code, ended.out) == (2, "")
    assert "write it as UTF-8" in ended.err
