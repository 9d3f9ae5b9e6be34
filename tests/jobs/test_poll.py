"""The poll with the sandbox: no order is lost or acknowledged too early, and the cooldown is kept."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from tests.jobs.shop import START, Shop, listing, text_of
from tests.jobs.test_health import open_codes

from orderbridge.jobs import poll
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.intake import CHUNK, Intake
from orderbridge_sandbox import Fault, FaultKind, When

SLOT_S = 30.05
THREE = ("kadikoy", "besiktas", "chain")


@pytest.mark.interface("Acknowledgement rules 2", "Acknowledgement rules 3")
async def test_an_acknowledged_order_is_not_delivered_until_its_status_changes(shop: Shop):
    order = await shop.taken_in()
    assert (await shop.poll()).delivered == 0
    for status_id in (2, 16):
        shop.world.change_status(order.key, status_id)
        assert ((await shop.poll()).acknowledged, shop.order(order)["acknowledged_status_id"]) == (1, status_id)
        assert ((await shop.poll()).delivered, shop.order(order)["payment_code"] is None) == (0, False)


@pytest.mark.parametrize("words, tables", [
    ("database is locked", ["delivery_orders"]),
    ("database or disk is full", ["delivery_orders", "delivery_quarantine"]),
])  # fmt: skip
async def test_without_a_commit_nothing_is_acknowledged_and_the_next_poll_brings_it(shop, words, tables):
    order = shop.place()
    mend = shop.fail_commits(words, *tables)
    with contextlib.suppress(OperationalError):
        await shop.poll()
    assert (shop.calls("acknowledge"), shop.count("delivery_orders")) == ([], 0)
    mend()
    await asyncio.sleep(SLOT_S)
    assert ((await shop.tick()).acknowledged, shop.order(order)["revision"]) == (1, 1)


async def test_where_a_commit_may_be_lost_nothing_is_acknowledged(shop: Shop):
    shop.database.durability.judge = lambda _: "Set it."  # type: ignore[method-assign]
    order = shop.place()
    await shop.poll()
    assert (shop.order(order)["acknowledged_utc"], shop.calls("acknowledge")) == (None, [])
    await shop.poll()
    row = await shop.acted("accept", order)
    assert shop.row(row)["state"] == "done"  # the lane was given back


@pytest.mark.interface("Acknowledgement rules 1", "Endpoints 7")
@pytest.mark.parametrize("fault, again", [
    pytest.param(Fault(operation="acknowledge", status=500), True, id="500"),
    pytest.param(Fault.hang("acknowledge"), True, id="silence"),
    pytest.param(Fault.error("acknowledge", 404, "sipariş bulunamadı"), True, id="404"),
    pytest.param(Fault.drop("acknowledge", when=When.AFTER), False, id="dropped after"),
    pytest.param(Fault.delay("acknowledge", 6), False, id="late"),
])  # fmt: skip
async def test_an_acknowledgement_is_sent_once_and_a_lost_one_follows_the_next_delivery(shop, fault, again):
    order = shop.place()
    shop.world.faults.add(fault)
    polled = await shop.poll()
    assert (polled.acknowledged, polled.dropped) == (0, 1)
    assert shop.clock.monotonic() <= 5
    assert (len(shop.calls("acknowledge")), shop.order(order)["acknowledged_utc"]) == (1, None)
    polled = await shop.poll()
    assert (polled.acknowledged, polled.unchanged, len(order.acknowledgements)) == (int(again), int(again), 1)


async def test_an_acknowledgement_that_fails_again_is_logged_once_with_its_reason(shop: Shop):
    """`not_acknowledged` refers to this line. After a single failure the next poll acknowledges the order."""
    order = shop.place()
    shop.world.faults.add(Fault(operation="acknowledge", status=500, times=4))
    logged = []
    for _ in range(4):
        with capture_logs() as lines:
            await shop.poll()
        errors = [one for one in lines if one["log_level"] == "error"]
        logged.append([(one["event"], one["payment_key"], one["code"]) for one in errors])
    assert logged == [[], [("order.not_acknowledged", order.key, "service_error")], [], []]


async def test_a_long_list_that_cannot_be_acknowledged_is_logged_in_few_lines(shop: Shop):
    shop.world.faults.add(Fault(operation="acknowledge", status=500, times=None))
    for _ in range(20):
        shop.place()
    await shop.poll()
    with capture_logs() as lines:
        await shop.poll()
    errors = [one for one in lines if one["log_level"] == "error"]
    assert {one["event"] for one in errors} == {"order.not_acknowledged"}
    assert [one.get("others") for one in errors] == [None] * 5 + [15]


async def test_no_acknowledgement_leaves_later_than_ten_seconds_after_the_answer(shop: Shop):
    placed = [shop.place() for _ in range(40)]
    shop.world.faults.add(Fault.hang("acknowledge", times=None))
    polled = await shop.poll()
    assert polled.dropped == len(placed)
    assert 0 < len(shop.calls("acknowledge")) < len(placed)
    assert max(call.at for call in shop.calls("acknowledge")) <= START + timedelta(seconds=10)
    shop.world.faults.clear()
    assert (await shop.poll()).acknowledged == len(placed)


async def test_a_noted_poll_whose_token_is_lost_meanwhile_does_not_leave_after_a_login(shop: Shop):
    """The note covers the poll's own time, not a login's: after a crash, the next poll would leave too early."""
    await shop.poll()
    reserve = shop.polls.reserve

    async def lose_token(who):
        noted = await reserve(who)
        shop.account.session.forget()
        return noted

    shop.polls.reserve = lose_token
    await shop.poll()
    assert shop.operations("login", "get_current") == ["login", "get_current"]
    shop.polls.reserve = reserve
    await shop.poll()
    assert shop.operations("login", "get_current") == ["login", "get_current", "login", "get_current"]


@pytest.mark.parametrize("bad", [
    pytest.param({"payment_key": "nonsense"}, id="no uuid"), pytest.param({"id": 1, "note": "no key"}, id="no key"),
    pytest.param(17, id="no object"), pytest.param(b'{"id": 1, "payment_key": }', id="no json"),
])  # fmt: skip
async def test_bad_documents_are_kept_and_the_good_ones_of_their_list_go_through(shop: Shop, bad: object):
    before, after = shop.place(), shop.place()
    shop.world.faults.add(listing(before.document, bad, after.document, {"note": "another\0"}, times=2))
    with capture_logs() as lines:
        polled = await shop.poll()
        await shop.poll()
    assert (polled.new, polled.acknowledged, polled.quarantined) == (2, 2, 2)
    assert {call.argument for call in shop.calls("acknowledge")} == {before.key, after.key}
    kept = shop.rows("SELECT * FROM delivery_quarantine")
    assert [(row["times_seen"], row["resolved_utc"]) for row in kept] == [(2, None)] * 2
    assert all(row["payload"] for row in kept)
    assert [line["event"] for line in lines].count("order.quarantined") == 2
    assert ("quarantined", "") in open_codes(shop)


async def test_only_the_refused_order_of_a_long_list_is_quarantined(shop: Shop):
    placed = [shop.place() for _ in range(CHUNK + 1)]
    bad = placed[CHUNK // 2].key
    shop.refuse("INSERT ON delivery_orders", when=f"NEW.payment_key = '{bad}'")
    polled = await shop.poll()
    assert (shop.count("delivery_orders"), polled.quarantined, polled.acknowledged) == (CHUNK, 1, CHUNK + 1)
    kept = shop.rows("SELECT payment_key, reason FROM delivery_quarantine")
    assert kept == [{"payment_key": bad, "reason": "database_refused"}]


async def test_two_accounts_that_store_one_order_at_once_mean_no_trouble(shared_branch, open_shop, monkeypatch):
    shop, sort = await open_shop("kadikoy", "second"), Intake._sort

    async def second_is_first(intake, answer):
        listed = await sort(intake, answer)
        monkeypatch.setattr(Intake, "_sort", sort)
        await shop.poll("second")
        return listed

    order = shop.place()
    monkeypatch.setattr(Intake, "_sort", second_is_first)
    with capture_logs() as lines:
        await shop.poll("kadikoy")
    assert (shop.order(order)["account"], shop.count("delivery_quarantine")) == ("second", 0)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []


async def test_a_delivery_by_another_account_is_neither_merged_nor_acknowledged(shared_branch, open_shop):
    shop = await open_shop("kadikoy", "second")
    order = await shop.taken_in()
    before = shop.order(order)
    shop.world.change_status(order.key, 2)
    with capture_logs() as lines:
        polled = await shop.poll("second")
        await shop.poll("second")
    assert (polled.foreign, polled.acknowledged, shop.order(order)) == (1, 0, before)
    assert [line["event"] for line in lines].count("order.foreign_delivery") == 1
    assert ((await shop.poll("kadikoy")).acknowledged, shop.order(order)["status_id"]) == (1, 2)


@pytest.mark.parametrize("statuses", [(2,), (2, 1)], ids=["changed", "as it was"])
async def test_the_next_account_takes_over_when_the_owner_left_the_configuration(shared_branch, open_shop, statuses):
    first = await open_shop("kadikoy")
    order = await first.taken_in()
    await first.crash()
    shop = await open_shop("second")
    for status in statuses:
        shop.world.change_status(order.key, status)
    assert (await shop.poll()).acknowledged == 1
    assert (shop.order(order)["account"], shop.order(order)["status_id"]) == ("second", statuses[-1])


async def test_a_poll_that_brings_nothing_commits_twice_and_reads_once(shop: Shop):
    """Most polls of a day are such, and each commit costs a small machine a flush of its disk."""
    await shop.poll()
    commits, reads = [], []
    event.listen(shop.database.engine, "commit", commits.append)
    is_read = "orderbridge_read"
    event.listen(shop.database.engine, "begin", lambda tx: tx.get_execution_options().get(is_read) and reads.append(tx))
    assert (await shop.poll()).ok
    assert (len(commits) - len(reads), len(reads)) == (2, 1)
    due = text_of(shop.clock.now() + timedelta(seconds=SLOT_S))
    assert shop.one("SELECT next_poll_utc FROM delivery_accounts") == {"next_poll_utc": due}


@pytest.mark.interface("Endpoints 6")
@pytest.mark.parametrize("fault", [
    pytest.param(Fault.unauthorized("get_current"), id="401"),
    pytest.param(Fault.too_many("get_current"), id="429"),
    pytest.param(Fault.drop("get_current", when=When.AFTER), id="dropped after"),
    pytest.param(Fault.hang("get_current", when=When.AFTER), id="silence after"),
    pytest.param(Fault(kind=FaultKind.TRUNCATE, operation="get_current", size=30), id="cut off"),
])  # fmt: skip
async def test_a_failed_poll_is_not_repeated_and_the_next_one_keeps_the_cooldown(shop: Shop, fault: Fault):
    order = shop.place()
    shop.world.faults.add(fault)
    failed = await shop.poll()
    ended = shop.clock.now()
    assert (failed.ok, len(shop.calls("get_current"))) == (False, 1)
    await asyncio.sleep(29)
    assert not (await shop.tick()).ok
    assert len(shop.calls("get_current")) == 1
    assert (await shop.poll()).ok
    first, second = shop.calls("get_current")
    assert second.at - ended >= timedelta(seconds=30)
    assert second.at - first.at <= timedelta(seconds=20 + SLOT_S + 0.1)
    assert shop.order(order)["acknowledged_status_id"] == 1


async def test_a_reservation_lasts_as_long_as_a_timeout_and_a_cooldown(shop: Shop):
    reserved = []

    async def read() -> None:
        reserved.append(shop.one("SELECT next_poll_utc FROM delivery_accounts")["next_poll_utc"])

    shop.line.when_leaving("get_current", read)
    await shop.poll()
    assert reserved == [text_of(shop.calls("get_current")[0].at + timedelta(seconds=20 + SLOT_S))]


async def test_only_the_first_401_since_a_good_poll_means_that_the_token_is_over(shop: Shop):
    await shop.poll()
    for error in ("token_over", "login_refused"):
        shop.world.faults.add(Fault.unauthorized("get_current"))
        await shop.poll()
        assert shop.one("SELECT last_error FROM delivery_accounts")["last_error"].startswith(error)


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(days=1)], ids=["back", "forward"])
async def test_a_clock_that_jumps_breaks_no_cooldown_and_blocks_no_longer_than_timeout_and_cooldown(shop, jump):
    await shop.poll()
    started = shop.clock.monotonic()
    shop.clock.ahead = jump
    assert not (await shop.tick()).ok
    while not (await shop.poll()).ok:
        assert len(shop.calls("get_current")) == 1
    assert 30 <= shop.clock.monotonic() - started <= 20 + 2 * SLOT_S
    assert {call.http_status for call in shop.calls("get_current")} == {200}


async def test_the_marketplaces_text_is_stored_in_detail_and_not_logged(shop: Shop):
    shop.world.faults.add(Fault.error("get_current", 500, "hata", "Ayşe Yılmaz 0532 000 00 00"))
    with capture_logs() as lines:
        await shop.poll()
    assert "Ayşe" in shop.one("SELECT last_error FROM delivery_accounts")["last_error"]
    failed = next(line for line in lines if line["event"] == "poll.failed")
    assert failed["error"] == "service_error: HTTP 500"
    assert "Ayşe" not in str(lines)


class Gate:
    """Holds the requests for orders back, in the order in which they came."""

    def __init__(self, shop: Shop) -> None:
        self.held: list[asyncio.Event] = []
        for _ in range(len(THREE) + 1):
            shop.line.when_leaving("get_current", self._hold)

    async def _hold(self) -> None:
        self.held.append(asyncio.Event())
        await self.held[-1].wait()


async def begin(shop: Shop, *names: str) -> list[asyncio.Task[Polled]]:
    """Start their polls one after another, and wait a moment."""
    polls = []
    for name in names:
        await shop.accounts[name].session.token()
        polls.append(asyncio.create_task(shop.tick(name)))
        await asyncio.sleep(0.1)
    return polls


@pytest.mark.parametrize("end", ["answered", "cut", "cancelled"])
async def test_the_number_of_concurrent_polls_is_limited(end, open_shop, monkeypatch):
    monkeypatch.setattr(poll, "MAX_POLLS", 1)
    shop = await open_shop(*THREE)
    gate = Gate(shop)
    polls = await begin(shop, *THREE)
    assert [len(gate.held), noted(shop)] == [1, ["kadikoy"]], "one that waits is not noted: its slot is not used up"
    if end == "cancelled":
        polls[0].cancel()
    else:
        shop.line.cut = {"get_current"} if end == "cut" else set()
        gate.held[0].set()
    await asyncio.wait(polls[:1])
    await asyncio.sleep(0.1)
    if end != "cut":
        assert [len(gate.held), noted(shop)] == [2, ["besiktas", "kadikoy"]], "the one that has waited longest"
        gate.held[1].set()
        await asyncio.sleep(0.1)
        gate.held[2].set()
    assert [one.ok for one in await asyncio.gather(*polls[1:])] == [end != "cut"] * 2


async def test_when_the_daemon_stops_the_polls_that_wait_for_a_place_do_not_leave(open_shop, monkeypatch):
    monkeypatch.setattr(poll, "MAX_POLLS", 1)
    shop = await open_shop(*THREE)
    gate = Gate(shop)
    polls = await begin(shop, *THREE)
    shop.polls.close()
    await asyncio.wait(polls[1:])
    gate.held[0].set()
    assert [one.ok for one in await asyncio.gather(*polls)] == [True, False, False]
    assert [len(gate.held), noted(shop)] == [1, ["kadikoy"]]


def noted(shop: Shop) -> list[str]:
    found = shop.till.execute("SELECT name FROM delivery_accounts WHERE last_poll_utc IS NOT NULL ORDER BY name")
    return [name for (name,) in found]
