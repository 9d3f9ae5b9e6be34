"""Each change is sent to every listener soon, and a slow listener delays nothing."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from starlette.types import Message
from tests.board.tablets import CLOCK, Ear, Shop, Tablet
from tests.store.samples import KEY, OTHER, put_action, put_order
from tests.web.asking import asked, running, until

from orderbridge.clock import SystemClock
from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge.web import server
from orderbridge.web.listening import Listening
from orderbridge_board import cards, changes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "POLL_S", 0.02)


@contextlib.asynccontextmanager
async def hearing(tablet: Tablet) -> AsyncIterator[Ear]:
    """A tablet's stream, after the events about its first state."""
    async with tablet.stream() as ear:
        assert [await ear.news(), await ear.news()] == ["changed"] * 2  # at once, and after the first read
        yield ear


async def test_a_state_between_two_equal_reads_is_corrected(shop: Shop, tablet: Tablet, monkeypatch):
    """A row is being sent and soon waits again. Otherwise the page would show it as being sent for good."""
    put_order(shop.pos)
    put_action(shop.pos)
    async with hearing(tablet) as ear:
        monkeypatch.setattr(changes, "POLL_S", 60)
        shop.pos.execute("UPDATE delivery_orders SET pos_revision = 1")
        assert await ear.news() == "changed"  # the last read for now
        shop.pos.execute("UPDATE delivery_actions SET attempts = 1")
        await tablet.get("/board/state")
        shop.pos.execute("UPDATE delivery_actions SET attempts = 0")
        await tablet.post("seen", {"subjects": []})  # it reads soon
        assert await ear.news() == "changed"


async def test_what_a_till_writes_and_what_the_program_knows_is_sent_soon(shop: Shop, tablet: Tablet):
    put_order(shop.pos)
    lost = Problem(Code.DATABASE_LOST, "", CLOCK.now(), Severity.SEVERE)
    off = shop.web.model_copy(update={"board": "till"})
    async with hearing(tablet) as ear:
        shop.pos.execute("UPDATE delivery_orders SET pos_revision = 1")
        assert await ear.news() == "changed"
        for name, value in (("problems", [lost]), ("problems", []), ("web", off), ("works", False), ("works", True)):
            setattr(shop, name, value)
            assert await ear.news() == "changed"


async def test_an_order_that_becomes_overdue_or_due_is_sent_without_a_write(shop: Shop, tablet: Tablet):
    begin = f"{CLOCK.now() + timedelta(minutes=20):%Y-%m-%d %H:%M:%S}.000"
    times = {"scheduled_for": "2026-03-01 23:59", "start_utc": begin}
    scheduled = put_order(shop.pos, OTHER, status_id=2, status="CONFIRMED", pos_revision=1, **times)
    put_order(shop.pos, status_id=2, status="CONFIRMED")
    put_action(shop.pos, state="done", preparing_time=20, finished_utc=f"{CLOCK.now():%Y-%m-%d %H:%M:%S}.000")

    async def sounds() -> dict[str, list[str]]:
        return {order["key"]: order["sounds"] for order in (await tablet.get("/board/state")).data["orders"]}

    async with hearing(tablet) as ear:
        assert await sounds() == {KEY: [], scheduled: []}
        shop.clock = Later()
        assert await ear.news() == "changed"
    assert await sounds() == {KEY: ["overdue"], scheduled: ["start"]}
    await tablet.post("seen", {"subjects": [f"start:{scheduled}"]})
    assert await sounds() == {KEY: ["overdue"], scheduled: []}


async def test_a_change_by_time_reaches_a_page_that_read_before_it(shop: Shop, tablet: Tablet, monkeypatch):
    """Otherwise the first tablet would show a removed card for good."""
    monkeypatch.setattr(cards, "HOLD", timedelta(minutes=20))
    key = put_order(shop.pos, status_id=2, status="CONFIRMED")
    other = Tablet(tablet.address, shop.pair(name="Mutfak"))
    async with hearing(tablet) as ear:
        assert (await tablet.post("seen", {"subjects": [cards.silence_of("handed", key)]})).status == 200
        assert await ear.news() == "changed"
        monkeypatch.setattr(changes, "POLL_S", 60)
        await tablet.post("seen", {"subjects": []})  # the last read for now
        assert len((await tablet.get("/board/state")).data["orders"]) == 1
        shop.clock = Later()
        assert (await other.get("/board/state")).data["orders"] == []
        await other.post("seen", {"subjects": []})  # it reads again
        assert await ear.news() == "changed"


class Later(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(minutes=30)


async def test_a_change_together_with_a_beat_is_sent(shop: Shop, monkeypatch):
    """An order is stored as the ten seconds end. If only a beat were sent, it would not ring before the next one."""
    reported = changes.Changes(shop.daemon, began=1)
    listener = changes.Listener("x")
    printed: list[str] = []

    async def send(message: Message) -> None:
        printed.append(message.get("body", b"").decode().partition("\n")[0])
        listener.gone = len(printed) > 3

    async def both(*_: object, **__: object) -> None:
        listener.news.set()

    monkeypatch.setattr(changes.asyncio, "wait", both)
    connection = SimpleNamespace(keep_open=lambda: None)
    await changes.Stream(reported, listener)({"state": {"connection": connection}}, asyncio.Event().wait, send)
    assert printed[1:4] == ["event: changed"] * 3


async def test_without_news_a_beat_is_sent(tablet: Tablet, monkeypatch):
    monkeypatch.setattr(changes, "BEAT_S", 0.05)
    async with tablet.stream() as ear:
        heard = [await ear.news() for _ in range(4)]
    assert (heard[0], heard[-1]) == ("changed", "beat")


async def test_after_a_failed_read_the_next_one_follows(shop: Shop, tablet: Tablet, monkeypatch):
    async with hearing(tablet) as ear:
        monkeypatch.setattr(shop.database, "read", broken)
        assert await ear.news() == "changed"
        monkeypatch.undo()
        assert await ear.news() == "changed"


async def broken(_: object) -> None:
    raise RuntimeError


async def test_a_silent_database_is_reported_and_asked_once(shop: Shop, tablet: Tablet, monkeypatch):
    monkeypatch.setattr(changes, "WITHIN_S", 0.05)
    read, printed, asked = shop.database.read, asyncio.Event(), []

    async def silent(work: object, **options: object) -> object:
        asked.append(work)
        await printed.wait()
        return await read(work, **options)

    async with hearing(tablet) as ear:
        monkeypatch.setattr(shop.database, "read", silent)
        assert await ear.news() == "changed"
        shop.problems = [Problem(Code.DATABASE_LOST, "", CLOCK.now(), Severity.SEVERE)]
        assert await ear.news() == "changed"  # a change by time alone is sent meanwhile
        assert len(asked) == 1
        printed.set()
        assert await ear.news() == "changed"


async def test_a_tablet_may_have_three_streams_and_all_together_thirty_two(shop: Shop, tablet: Tablet, monkeypatch):
    monkeypatch.setattr(server, "LIFE_S", 0.3)  # ends all requests but streams
    tablets = [tablet, *(Tablet(tablet.address, shop.pair(name=f"t{n}")) for n in range(11))]
    made = [one.stream() for one in tablets for _ in range(changes.MOST_OF_ONE)]
    ears = [await one.__aenter__() for one in made[: changes.MOST]]
    for ear in ears:
        assert await ear.news() == "changed"
    answer = await tablets[-1].get("/board/stream")
    assert (answer.status, bool(answer.data["text"])) == (503, True)
    async with tablet.stream() as fourth:
        assert await fourth.news() == "changed"
        while await ears[0].news() is not None:
            pass
    reader, writer = await asyncio.open_connection(*tablet.address)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()
    shop.pos.execute("INSERT INTO delivery_board_silenced VALUES ('x', 'y', '2026-03-01 12:00:00.000')")
    while await ears[1].news() != "changed":
        pass
    for one in made[: changes.MOST]:
        await one.__aexit__(None, None, None)


async def test_an_unread_stream_is_closed_silently(shop: Shop, tablet: Tablet, monkeypatch, caplog):
    monkeypatch.setattr(changes, "SLOW_S", 0.2)
    monkeypatch.setattr(changes, "BEAT_S", 0.0)
    listeners: list[changes.Listener] = []
    listen = changes.Changes.listen
    hears = lambda self, device: listeners.append(made := listen(self, device)) or made  # noqa: E731
    monkeypatch.setattr(changes.Changes, "listen", hears)
    left: list[object] = []
    leave = changes.Changes.leave
    monkeypatch.setattr(changes.Changes, "leave", lambda self, one: left.append(one) or leave(self, one))
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    await asyncio.to_thread(slow.connect, tablet.address)
    slow.sendall(tablet.raw("GET /board/stream", b"", {}))
    await until(lambda: left)
    slow.close()
    assert (left, [record for record in caplog.records if record.levelname == "ERROR"]) == (listeners, [])


async def test_the_streams_of_a_board_that_is_turned_off_end(shop: Shop):
    listening = Listening(shop, shop.web)
    async with running(listening):
        await until(lambda: listening.addresses)
        first = listening.addresses[0]
        async with Tablet(first, shop.pair()).stream() as ear:
            assert await ear.news() == "changed"
            shop.web = shop.web.model_copy(update={"board": "off"})
            listening.use(shop.web)
            while await ear.news() is not None:
                pass
        await until(lambda: listening.addresses and listening.addresses[0] != first)
        assert [(await asked(listening.addresses[0], path))[0] for path in ("/livez", "/board/state")] == [200, 404]
