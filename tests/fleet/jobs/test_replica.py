"""A daemon with accounts in the database, which are added, changed and removed while it runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from tests.jobs.shop import BASE_URL, FakeClock, Shop, text_of

from orderbridge import config
from orderbridge.daemon import STOP_S, Daemon
from orderbridge.errors import Fenced, Message
from orderbridge.jobs import accounts_at_work
from orderbridge.jobs.context import Kept
from orderbridge.model import CooldownScope
from orderbridge.observe.metrics import WRITES_FENCED, Metrics
from orderbridge.rules import cooldown
from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge.store.accounts import kept_tokens
from orderbridge.store.database import Database
from orderbridge.store.own_tables import account_settings as table
from orderbridge.store.own_tables import fleet as counter
from orderbridge.store.own_tables import replicas
from orderbridge.store.tables import accounts
from orderbridge_fleet import account_settings, advisory_locks, membership, replica
from orderbridge_fleet import buckets as shares
from orderbridge_fleet.account_settings import MasterKeys
from orderbridge_fleet.buckets import bucket_of
from orderbridge_fleet.membership import Beat
from orderbridge_fleet.replicas import ReplicaProblems
from orderbridge_sandbox.scenery import APP_SECRET, USKUDAR

KEY = bytes(range(32))
FLEET = {"accounts": "database", "master_key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}
SOON_S = 5.0  # in which a change is picked up
NAMES = ("kadikoy", "besiktas", "chain")

pytestmark = pytest.mark.plays_daemon


class OnTheSpot(ThreadPoolExecutor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


async def never(*_: object) -> None:
    await asyncio.Event().wait()


class Town:
    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.keys = MasterKeys([KEY])
        self._version = 0
        of_shop = {name: getattr(shop.settings, name).model_dump() for name in ("marketplace", "database")}
        self.settings = config.Settings(language="en", fleet=FLEET, accounts=[], web={"listen": ""}, **of_shop)
        self.daemon = self.new_daemon()

    def new_daemon(self, metrics: Metrics | None = None) -> Daemon:
        shop = self.shop
        given = {"clock": shop.clock, "random": Random(0), "wire": shop._wire, "database": shop.database}
        return Daemon(self.settings, kept=Kept(metrics or Metrics()), **given)

    def put(self, name: str, secret: str | None = None, *, enabled: bool = True, **options: Any) -> None:
        """As `accounts add` does."""
        rest = secret or f"sandbox-{name}-secret"
        account = config.Account(name=name, app_secret_key=APP_SECRET, rest_secret_key=rest, **options)
        sealed, key = account_settings.sealed(self.keys, account)
        self.write(name, fingerprint=account.at(BASE_URL).fingerprint, sealed=sealed, key_id=key, enabled=int(enabled))

    def write(self, name: str, **values: Any) -> None:
        self._version += 1
        values |= {"version": self._version, "changed_utc": self.shop.clock.now()}
        with self.shop.database.engine.begin() as connection:
            if not connection.execute(update(table).where(table.c.name == name).values(**values)).rowcount:
                connection.execute(insert(table).values(name=name, **values))
            connection.execute(update(counter).values(accounts_version=self._version))

    def shared(self, name: str) -> "Shares":
        """One of several replicas works for this account."""
        self.put(name)
        self.daemon.roster.membership = shares = Shares(*buckets(name))
        return shares

    def list_replicas(self) -> None:
        now = self.shop.clock.now()
        listed = [{"replica": name, "number": 1, "started_utc": now} for name in ("one 11", "two 22")]
        self.shop.database.write_now(lambda tx: tx.execute(insert(replicas), listed))

    def polls(self, name: str) -> int:
        return sum(call.account == name for call in self.shop.calls("get_current"))

    def state(self, name: str) -> str | None:
        asked = select(accounts.c.state).where(accounts.c.name == name)
        return self.shop.database.read_now(lambda tx: tx.scalar(asked))

    @property
    def at_work(self) -> set[str]:
        return set(self.daemon.roster.at_work)

    def problems(self, daemon: Daemon | None = None) -> set[tuple[Code, str, str | None]]:
        return {(one.code, one.subject, one.account) for one in (daemon or self.daemon).report.problems}


@pytest.fixture
async def town(open_shop, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Town:
    """In virtual time, also where the program takes another thread or the machine's own clock."""
    now = SimpleNamespace(now=lambda zone=None: clock.now().astimezone(zone))
    for part in ("schedulers.base", "executors.base", "triggers.date"):
        monkeypatch.setattr(f"apscheduler.{part}.datetime", now)
    monkeypatch.setattr(Database, "watch", never)

    async def at_once(call: Callable[[], Any]) -> Any:
        return call()

    monkeypatch.setattr(replica, "detached", at_once)
    asyncio.get_running_loop().set_default_executor(OnTheSpot())
    return Town(await open_shop(*NAMES))


@contextlib.asynccontextmanager
async def running(daemon: Daemon, for_s: float = 0.0) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(daemon.run())
    await asyncio.sleep(1.0 + for_s)
    try:
        yield task
    finally:
        daemon.stop(for_good=True)
        async with asyncio.timeout(STOP_S - 5.0):  # it ends in order, and has not ended before
            await task


async def test_an_account_added_to_a_shared_cooldown_is_shown_with_the_others(town: Town):
    market = town.settings.marketplace.model_copy(update={"cooldown_scope": CooldownScope.ADDRESS})
    town.settings = town.settings.model_copy(update={"marketplace": market})
    town.put("kadikoy")
    town.put("besiktas")
    async with running(town.new_daemon(), for_s=65.0):
        town.put("chain")
        await asyncio.sleep(SOON_S + 95.0)
        assert all(town.polls(name) for name in NAMES)
        with town.shop.database.engine.connect() as connection:
            shown = connection.execute(select(accounts.c.polled_in_turn_with)).scalars().all()
        assert [set(names.split(", ")) for names in shown] == [set(NAMES)] * 3


async def test_an_added_account_is_polled_soon_and_a_disabled_one_is_not(town: Town):
    town.put("kadikoy")
    async with running(town.daemon):
        assert town.at_work == {"kadikoy"}
        order = town.shop.place()
        town.put("besiktas")
        await asyncio.sleep(SOON_S)
        assert town.at_work == {"kadikoy", "besiktas"}
        await asyncio.sleep(40.0)
        assert town.polls("besiktas") >= 1
        assert town.shop.rows("SELECT payment_key FROM delivery_orders") == [{"payment_key": order.key}]
        town.write("besiktas", enabled=0)
        await asyncio.sleep(SOON_S)
        heard, others = town.polls("besiktas"), town.polls("kadikoy")
        await asyncio.sleep(100.0)
        assert town.polls("besiktas") == heard
        assert town.polls("kadikoy") > others + 2
        town.write("besiktas", enabled=1)
        await asyncio.sleep(SOON_S + 31.0)
        assert town.polls("besiktas") > heard


async def test_the_lists_of_many_added_accounts_are_read_one_after_another(town: Town, monkeypatch):
    """If thousands of them read their lists at once, their polls would be late."""
    monkeypatch.setattr(accounts_at_work, "LISTS_PER_S", 1 / 60)
    for name in NAMES:
        town.put(name)
    async with running(town.daemon, for_s=40.0):
        assert all(town.polls(name) for name in NAMES)
        assert len({call.account for call in town.shop.calls("get_restaurants")}) == 1
        await asyncio.sleep(100.0)
        assert len({call.account for call in town.shop.calls("get_restaurants")}) == 3


async def test_the_poll_rate_follows_the_accounts_at_work(town: Town, monkeypatch: pytest.MonkeyPatch):
    """Two accounts that count here as if they were thousands."""
    rates: list[int | None] = []
    monkeypatch.setattr(cooldown, "MIN_TOGETHER", 0.01)
    monkeypatch.setattr(cooldown, "AT_A_MOMENT", 0)
    monkeypatch.setattr(cooldown, "EVEN", 30.2)  # so that an account counts as one in a second
    monkeypatch.setattr(town.shop._wire, "set_poll_rate", rates.append)
    town.put("kadikoy")
    town.put("besiktas")
    async with running(town.new_daemon()):
        assert rates[-1] == 3
        town.write("besiktas", enabled=0)
        await asyncio.sleep(SOON_S)
        assert rates[-1] == 2


@pytest.mark.parametrize("is_early", [False, True], ids=["later", "while the account comes"])
async def test_new_secrets_do_not_wait_for_the_old_ones_cooldown(town: Town, is_early: bool, monkeypatch):
    town.put("besiktas", "not-this-one")
    read = town.daemon.database.read

    async def slowly(work: Any, **how: Any) -> Any:
        if is_early and work is kept_tokens:
            await asyncio.sleep(10.0)
        return await read(work, **how)

    monkeypatch.setattr(town.daemon.database, "read", slowly)
    async with running(town.daemon):
        if not is_early:
            await asyncio.sleep(40.0)
            assert town.polls("besiktas") == 0
        town.put("besiktas")
        await asyncio.sleep(100.0 if is_early else SOON_S + 31.0)
        assert town.polls("besiktas") >= 1


@pytest.mark.parametrize("values", [{"sealed": "rubbish"}, {"sealed": None}, {"key_id": "0" * 16}, {"sealed": ""}])
async def test_an_unreadable_row_harms_only_its_own_account_and_is_reported(town: Town, values: dict[str, Any]):
    town.put("kadikoy")
    town.put("besiktas")
    town.write("besiktas", **values)
    async with running(town.daemon, for_s=40.0):
        assert town.at_work == {"kadikoy"}
        assert town.polls("kadikoy") >= 1
        assert (Code.ACCOUNT_UNREADABLE, "besiktas", "besiktas") in town.problems()
        town.put("besiktas")
        await asyncio.sleep(SOON_S + 40.0)
        assert town.polls("besiktas") >= 1
        assert Code.ACCOUNT_UNREADABLE not in {code for code, *_ in town.problems()}


async def test_an_account_goes_on_with_an_unreadable_row_and_another_address_is_reported_once(town: Town):
    """A replica with another base_url would poll another service, with cooldowns that the others do not know."""
    town.put("kadikoy")
    town.write("kadikoy", fingerprint="of another address")
    town.put("chain")
    with capture_logs() as lines:
        async with running(town.daemon, for_s=35.0):
            heard = town.polls("kadikoy")
            town.write("kadikoy", sealed="rubbish")
            await asyncio.sleep(70.0)
            assert town.polls("kadikoy") >= heard + 2
    assert [line["accounts"] for line in lines if line["event"] == "fleet.noted_elsewhere"] == [1]


class Shares:
    name = "a"

    def __init__(self, *mine: int) -> None:
        self.mine, self.excess = set(mine), set[int]()
        self.given: list[int] = []
        self.is_over = False

    def fence(self, _: object) -> None:
        if self.is_over:
            raise Fenced("fleet.fenced")

    def beat(self, give: Collection[int], *, is_ending: bool = False) -> Beat:
        del is_ending
        self.fence(None)
        self.given += sorted(give)
        self.mine -= set(give)
        self.excess -= set(give)
        return Beat(frozenset(self.mine), frozenset(self.excess), 64, frozenset({"a", "b"}))


def buckets(*names: str) -> list[int]:
    return [bucket_of(name, 64) for name in names]


async def test_a_bucket_taken_again_can_be_released_again(town: Town):
    shares = town.shared("chain")
    async with running(town.daemon):
        for times in (1, 2):
            await asyncio.sleep(5.0)
            shares.excess = set(shares.mine)
            await asyncio.sleep(5.0)
            assert shares.given == buckets("chain") * times
            shares.mine |= set(buckets("chain"))


async def test_accounts_of_other_replicas_are_left_to_them_with_their_rows(town: Town):
    shares, shop = town.shared("chain"), town.shop
    town.put("kadikoy")
    async with running(town.daemon, for_s=40.0):
        assert (town.at_work, town.polls("kadikoy")) == ({"chain"}, 0)
        foreign = shop.act("deactivate_food", food_id=11, account="kadikoy")
        nobodys = shop.act("accept", payment_key="00000000-0000-4000-8000-000000000000", preparing_time=5)
        await asyncio.sleep(10.0)
        assert (shop.row(foreign)["state"], shop.row(nobodys)["state"]) == ("pending", "pending")
        shares.mine |= {0, *buckets("kadikoy")}
        await asyncio.sleep(40.0)
        assert town.polls("kadikoy") >= 1
        assert (shop.end(foreign), shop.row(nobodys)["state"]) == (("refused", "food_not_found", "answer"), "refused")


def test_a_lease_ends_before_the_server_ends_the_session_and_before_another_replica_takes_the_buckets():
    """The numbers are those of docs/design.md."""
    assert (replica.LEASE_S, advisory_locks.SILENT_S, shares.GRACE_S) == (4.5, 6, 5.0)
    assert f"SET idle_session_timeout = '{advisory_locks.SILENT_S}s'" in membership.SETTINGS


async def test_nothing_is_sent_without_a_recent_answer_of_the_server(town: Town):
    shares = town.shared("chain")
    async with running(town.daemon, for_s=35.0):
        heard = town.polls("chain")

        def silent(*_: object, **__: object) -> Beat:
            raise OperationalError("SELECT", None, Exception("no answer"))

        shares.beat, beat = silent, shares.beat  # type: ignore[method-assign]
        await asyncio.sleep(replica.LEASE_S + 1.0)
        assert not town.daemon.roster.may_send()
        assert town.daemon.database.trouble, "reported although reads and writes work"
        await asyncio.sleep(40.0)
        assert town.polls("chain") == heard
        assert town.state("chain") == "ok"  # it is the database's trouble, and not the service's
        for food in (11, 12):  # one is tried, the other one waits behind it
            row = town.shop.act("deactivate_food", food_id=food, account="chain")
            await asyncio.sleep(5.0)
            assert town.shop.row(row)["error_code"] == "held_back"
        shares.beat = beat  # type: ignore[method-assign]
        await asyncio.sleep(10.0)
        assert not town.daemon.database.trouble
        assert town.polls("chain") > heard


async def test_a_lease_counts_from_the_request_not_from_the_answer(town: Town, monkeypatch):
    async def slowly(call: Callable[[], Beat]) -> Beat:
        await asyncio.sleep(replica.LEASE_S)
        return call()

    town.daemon.roster.membership = Shares(*buckets("chain"))
    async with running(town.daemon):
        monkeypatch.setattr(replica, "detached", slowly)
        await asyncio.sleep(2 * replica.LEASE_S)
        for _ in range(5):
            await asyncio.sleep(1.3)
            assert not town.daemon.roster.may_send()


async def test_a_replaced_replica_sends_nothing_and_ends_and_its_next_daemon_reports_it(town: Town):
    town.put("chain")
    metrics = Metrics()
    daemon = town.new_daemon(metrics)
    daemon.roster.membership = shares = Shares(*buckets("chain"))
    with capture_logs() as lines:
        running = asyncio.create_task(daemon.run())
        await asyncio.sleep(35.0)
        shares.is_over = True
        with pytest.raises(Fenced):
            await daemon.database.run(bool)
        assert not daemon.roster.may_send()
        async with asyncio.timeout(SOON_S):
            with pytest.raises(Fenced):
                await running
    assert [line["reason"] for line in lines if line["event"] == "daemon.fenced"] == [Message("fleet.fenced")]
    assert [line for line in lines if line["event"] == "job.crashed"] == []
    (counted,) = metrics.readings(WRITES_FENCED)
    problems = town.new_daemon(metrics).own_problems.problems()
    assert [one.count for one in problems if one.code == Code.WRITES_FENCED] == [counted.value]
    assert counted.value >= 1


async def test_the_lead_reports_the_problems_of_other_replicas(town: Town):
    town.list_replicas()
    town.put("chain")
    town.put("kadikoy")
    lead, other = town.daemon, town.new_daemon()
    lead.roster.membership, other.roster.membership = Shares(0, *buckets("chain")), Shares(*buckets("kadikoy"))
    lead.roster.membership.name, other.roster.membership.name = "one 11", "two 22"
    async with running(lead), running(other):
        other.own_problems.begin(Code.CREDENTIALS_SHARED, "kadikoy", account="kadikoy", count=3)
        other.own_problems.begin(Code.CLOCK_WRONG, offset="+90")
        await asyncio.sleep(15.0)
        begun = {(Code.CREDENTIALS_SHARED, "kadikoy", "kadikoy"), (Code.CLOCK_WRONG, "two 22", None)}
        assert begun <= town.problems(lead)
        other.own_problems.end(Code.CREDENTIALS_SHARED, "kadikoy")
        other.own_problems.end(Code.CLOCK_WRONG)
        await asyncio.sleep(15.0)
        assert not {code for code, *_ in town.problems(lead)} & {code for code, *_ in begun}


async def test_the_lead_reports_no_problem_that_a_reload_ended(town: Town):
    """The next daemon of a replica has its name, but not its memory."""
    database, now = town.shop.database, town.shop.clock.now()
    lead, before, after = (ReplicaProblems(database, name) for name in ("one 11", "two 22", "two 22"))
    town.list_replicas()
    problem = Problem(Code.ACCOUNT_UNREADABLE, "kadikoy", now, Severity.SEVERE, account="kadikoy")
    for one, noted in ((before, [problem]), (after, [])):
        await one.note(noted)
        assert database.read_now(lambda tx: [found.code for found in lead.others(tx)]) == [one.code for one in noted]


async def test_the_lead_gives_up_its_role_after_writing_its_check(town: Town, monkeypatch: pytest.MonkeyPatch):
    town.daemon.roster.membership = shares = Shares(0)
    checked, check = asyncio.Event(), town.daemon.health.check

    async def slowly() -> Any:
        await checked.wait()
        return await check()

    async with running(town.daemon, for_s=6.0):
        monkeypatch.setattr(town.daemon.health, "check", slowly)
        await asyncio.sleep(6.0)
        shares.excess = {0}
        await asyncio.sleep(6.0)
        assert shares.given == []
        checked.set()
        await asyncio.sleep(3.0)
        assert shares.given == [0]


async def test_rows_in_flight_of_another_replica_are_recovered_first(town: Town):
    shares, shop = town.shared("chain"), town.shop
    order = shop.place(restaurant_id=USKUDAR)
    async with running(town.daemon, for_s=35.0):
        shares.excess = set(shares.mine)
        await asyncio.sleep(5.0)
        assert town.at_work == set()
        closing, opening = (shop.act(f"{verb}_restaurant", restaurant_id=USKUDAR) for verb in ("close", "open"))
        accept, cancel = shop.act("accept", order), shop.act("cancel", order)
        sent = [accept, closing]
        # As after a replica that was killed, or still waits for an answer of the restaurant for another account.
        shop.till.executemany("UPDATE delivery_actions SET state = 'sending' WHERE id = ?", [(row,) for row in sent])
        started = "INSERT INTO delivery_action_attempts (action_id, attempt, started_utc) VALUES (?, 1, ?)"
        shop.till.executemany(started, [(row, text_of(shop.clock.now())) for row in sent])
        tries = "SELECT attempt, outcome FROM delivery_action_attempts WHERE action_id = ? ORDER BY attempt"
        town.put("kadikoy")  # after this change, too, it is the other replica's
        for mine, outcomes in (([], [None, None]), (buckets("chain"), ["unknown", None])):
            shares.mine |= set(mine)
            await asyncio.sleep(SOON_S)
            assert [shop.rows(tries, row)[0]["outcome"] for row in sent] == outcomes
        await asyncio.sleep(40.0)
    for row in sent:
        assert (shop.rows(tries, row)[0], shop.row(row)["attempts"]) == ({"attempt": 1, "outcome": "unknown"}, 1)
    assert [shop.row(row)["state"] for row in (cancel, opening)] == ["done", "done"]


@pytest.mark.parametrize("change", [{"auto_accept_minutes": 20}, None], ids=["edited", "removed"])
async def test_a_bucket_waits_for_requests_of_a_changed_account(town: Town, change: dict[str, int] | None):
    """The next replica would take the accept for one of unknown outcome, and the till's cancel would overtake it."""
    shares = town.shared("chain")
    shop, answered = town.shop, asyncio.Event()
    order = shop.place(restaurant_id=USKUDAR)
    async with running(town.daemon, for_s=35.1):
        shop.line.when_leaving("accept", answered.wait)
        accept = shop.act("accept", order)
        await asyncio.sleep(3.0)
        assert shop.row(accept)["state"] == "sending"
        if change is None:
            town.write("chain", enabled=0)
        else:
            town.put("chain", **change)
        await asyncio.sleep(3.0)
        shares.excess = set(shares.mine)
        await asyncio.sleep(5.0)
        assert shares.given == []
        answered.set()
        await asyncio.sleep(SOON_S)
        assert (shop.row(accept)["state"], shares.given) == ("done", buckets("chain"))


async def test_secrets_that_move_to_another_name_work_there_once_nothing_is_in_flight_under_the_former(town: Town):
    town.put("chain")
    async with running(town.daemon, for_s=35.0):
        answered = asyncio.Event()
        town.shop.line.when_leaving("get_current", answered.wait)
        while town.shop.line._leaving["get_current"]:  # noqa: ASYNC110 - a poll takes it with it
            await asyncio.sleep(0.5)
        heard = town.polls("chain")
        town.write("chain", enabled=0, sealed=None, fingerprint="-")
        town.put("moved", "sandbox-chain-secret")
        await asyncio.sleep(SOON_S)
        assert town.at_work == set()
        answered.set()
        await asyncio.sleep(100.0)
        assert town.at_work == {"moved"}
        assert town.polls("chain") >= heard + 3


async def test_a_token_of_before_a_restart_is_renewed_ahead(town: Town):
    town.shop.world.set_options(token_seconds=300.0)
    await town.shop.poll()
    town.put("kadikoy")
    async with running(town.daemon, for_s=294.0):
        assert len(town.shop.calls("login")) == 2


async def test_two_accounts_cannot_have_the_same_secrets(town: Town):
    of_file = {"name": "besiktas", "app_secret_key": APP_SECRET, "rest_secret_key": "sandbox-besiktas-secret"}
    town.settings = config.Settings(**{**town.settings.model_dump(), "fleet": FLEET, "accounts": [of_file]})
    town.daemon = town.new_daemon()
    town.put("moved", "sandbox-besiktas-secret")
    async with running(town.daemon, for_s=70.0):
        assert town.at_work == {"besiktas"}
        assert town.polls("besiktas") >= 2
        assert (Code.ACCOUNT_UNREADABLE, "moved", "moved") in town.problems()


async def test_a_removed_account_makes_no_login(town: Town):
    town.put("chain")
    answered = asyncio.Event()
    town.shop.line.when_answered("login", answered.wait)
    async with running(town.daemon):
        town.write("chain", enabled=0)
        await asyncio.sleep(SOON_S)
        answered.set()
        await asyncio.sleep(SOON_S)
        assert [name for name in town.daemon.timetable._entries if "chain" in name] == []


async def test_the_row_of_an_account_that_is_not_known_yet_or_cannot_be_read_is_not_refused_for_that(town: Town):
    town.put("chain")
    town.put("besiktas")
    town.write("besiktas", sealed="rubbish")
    async with running(town.daemon, for_s=35.0):
        town.put("kadikoy")
        row, waiting = (town.shop.act("deactivate_food", food_id=11, account=name) for name in ("kadikoy", "besiktas"))
        town.daemon.outbox.wake()
        await asyncio.sleep(40.0)
        assert town.shop.end(row) == ("refused", "food_not_found", "answer")
        assert town.shop.row(waiting)["state"] == "pending"
