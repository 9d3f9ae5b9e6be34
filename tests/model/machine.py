"""One order with its service, daemon and till as a state machine of small steps.

The daemon's own code decides: its rules, and each piece of its jobs that runs within one transaction or between two
awaits. It works on `Books` in place of a database. This file only orders these pieces. Each piece is one step, and any
other step may come between two of them.

The model omits these, because no mistake depends on them:
- Time: waits end, and rows become too old, in any order. There are no cooldowns.
- Interruptions that no other piece could notice: between the answer of an action and the write of its outcome, between
  taking the lane and resolving its rows, between a claim's commit and its request.
- Contents of the order, other orders, other accounts, restaurants and foods.
- 404 and 403: the rules treat all refusals alike, so `refused` stands for them.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial, wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.jobs.shop import roster_of
from tests.model import books
from tests.model.books import ACCOUNT, KEY, LATER, LONG_AGO, NOW, Books, Row, new_row

from orderbridge import config
from orderbridge.actions import ORDER_ACTIONS
from orderbridge.document import Facts
from orderbridge.errors import ServiceFailed, UnknownOutcome
from orderbridge.jobs import acknowledge, intake, outbox_reader, outcome_writer, reconciler
from orderbridge.jobs import outbox as jobs_outbox
from orderbridge.jobs.acknowledge import Answer, Polled
from orderbridge.jobs.context import Context, Kept
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.intake import Intake
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.outcome_writer import Claim, Result

from orderbridge.model import (  # isort: skip
    CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, Action, ActionState, Attempt, Differs, Document,
    Order, OutboxRow, Outcome, Stored, Verdict,
)  # fmt: skip
from orderbridge.rules.deliveries import Sorted
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.outbox_rows import Standing, order_lane
from orderbridge.rules.retry import next_request

ACTIVE = frozenset({RECEIVED, CONFIRMED, IN_DELIVERY})
# From docs/interface.md, Order transitions, and not from the code under test.
MOVES = {
    (RECEIVED, Action.ACCEPT): CONFIRMED,
    (CONFIRMED, Action.ON_THE_WAY): IN_DELIVERY,
    (IN_DELIVERY, Action.COMPLETE): COMPLETE_WITH_PAYMENT,
} | {(status, Action.CANCEL): CANCELED for status in ACTIVE}
ACTIONS = (Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL)
LANE = order_lane(KEY)


class Scene(NamedTuple):
    """The limits of a trace, and the behaviour of its service."""

    rows: int = 2  # of the till, the automatic accept included
    faults: int = 1  # requests or answers lost, 5xx, 401, 429, connections refused
    crashes: int = 1
    all_faults: bool = True  # False: no 401, no 429, no connection refused
    expiries: int = 0  # rows that get too old
    withdrawals: int = 0
    retries: int = 0  # `actions retry`
    status: int = RECEIVED  # the order's at the start
    auto_accept: bool = False
    lists_cancelled: bool = False  # docs/interface.md does not count them among the active ones
    when_not_allowed: str = "refused"  # or "failed", a 500; or "ok", an OK without any effect


class Poll(NamedTuple):
    """A poll under way. `stage`: asked, listed, sorted, acking or landed."""

    stage: str
    shown: int | None = None
    held: bool = False
    kind: str = ""


class Survey(NamedTuple):
    """What the outbox found and has not yet acted upon."""

    rows: tuple[OutboxRow, ...]
    ends: tuple[tuple[OutboxRow, Verdict], ...]
    claims: bool = True  # rows are still to be claimed


class Wire(NamedTuple):
    """A row's request. `reply`: the service's decision; "" while the request is under way."""

    row: OutboxRow
    history: tuple[Attempt, ...]
    number: int
    reply: str = ""


class State(NamedTuple):
    """The state of the whole model."""

    status: int  # the service's
    acked: bool  # the service's: not returned again while the status stays
    order: Stored | None
    rows: tuple[Row, ...]
    taken: bool
    began: int  # Lanes: the poll under way, 0 for none
    used: int
    poll: Poll | None
    survey: Survey | None
    wire: Wire | None
    lied: bool  # the service answered OK and did nothing
    left: Scene  # what may still happen


# The part of a state that the daemon's memory and database hold.
HELD = slice(State._fields.index("order"), State._fields.index("wire") + 1)
Step = tuple[str, State, str]  # the event, the state after it, and its mistake ("": none)


def first(scene: Scene) -> State:
    """The state after a customer has ordered: only the service knows the order."""
    return State(
        status=scene.status, acked=False, order=None, rows=(), taken=False, began=0, used=0, poll=None,
        survey=None, wire=None, lied=False, left=scene,
    )  # fmt: skip


# ---- the daemon's own pieces -----------------------------------------------------------------------------------------


def at_once(piece: Coroutine[Any, Any, Any]) -> Any:
    """Run a piece of a job that has nothing to wait for."""
    try:
        piece.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("this piece waits for something: it is no single step")


@cache
def document(status_id: int) -> Document:
    return Document(raw=b"{}", digest=f"shows {status_id}", payment_key=KEY, status_id=status_id)


@cache
def order_shown(status_id: int | None) -> Order:
    facts = Facts(**dict.fromkeys(Facts.__dataclass_fields__) | {"items": ()})
    return Order(KEY, status_id, "", facts, (), b"{}", f"shows {status_id}")


class _NoTasks:
    """Replaces asyncio in the intake: an acknowledgement is its own step, and no time passes."""

    Semaphore, Lock, Task = asyncio.Semaphore, asyncio.Lock, asyncio.Task
    tasks = 0

    def timeout(self, _: float) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    def create_task(self, work: Coroutine[Any, Any, Any]) -> None:
        work.close()
        self.tasks += 1


def _done(result: object) -> SimpleNamespace:
    """A future that has its result."""
    ended = SimpleNamespace(cancelled=lambda: False, exception=lambda: None)
    return SimpleNamespace(result=result, add_done_callback=lambda call: call(ended))


def played_once(piece: Callable[..., State]) -> Callable[..., State]:
    """Cache the results of a piece: they depend only on what the daemon holds."""

    @wraps(piece)
    def play(self: "Daemon", state: State, *given: Any) -> State:
        of = (piece, state[HELD], given)
        held = self.played.get(of)
        if held is None:
            held = self.played[of] = piece(self, state, *given)[HELD]
        return State(*state[: HELD.start], *held, *state[HELD.stop :])

    return play


LOST = partial(UnknownOutcome, "timeout")
FAILED = partial(ServiceFailed, "service_error")


class Daemon:
    """The jobs of one account, on books in place of a database. `put` brings a state in, `take` reads one out."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        silent = SimpleNamespace(**dict.fromkeys(("debug", "info", "warning", "error", "exception"), books.nothing))
        silent.bind = lambda **_: silent
        uncounted = SimpleNamespace(count=books.nothing, observe=books.nothing)
        for module in (acknowledge, outbox_reader, intake, reconciler, jobs_outbox, outcome_writer):
            doubles = dict.fromkeys(("actions", "unfinished", "orders", "reference", "quarantine"), books)
            doubles |= {"lock": books.lock, "lock_naming_held": books.lock_naming_held}
            doubles |= {"_log": silent, "Metrics": lambda: uncounted}
            for name in doubles.keys() & vars(module).keys():
                monkeypatch.setattr(module, name, doubles[name])
        self.tasks = _NoTasks()
        monkeypatch.setattr(acknowledge, "asyncio", self.tasks)
        monkeypatch.setattr(intake, "read_order", lambda shown, **_: order_shown(shown.status_id))
        monkeypatch.setattr(intake, "differs", lambda *_, **__: Differs.NOTHING)
        monkeypatch.setattr(outcome_writer, "text", lambda *_, **__: None)
        self.answer_to_acknowledgement: Callable[[], Exception] | None = None
        of_account = SimpleNamespace(
            name=ACCOUNT, auto_accept_scheduled=False, auto_accept=lambda *_: 25 if scene.auto_accept else None
        )
        self._account = account = SimpleNamespace(
            poll_in_flight=False, name=ACCOUNT, paused=lambda: 0.0, retry_at=lambda: NOW, restaurants_known=True,
            client=SimpleNamespace(acknowledge=self._acknowledge), settings=of_account,
        )  # fmt: skip
        clock = SimpleNamespace(now=lambda: NOW, monotonic=lambda: 0.0)
        settings = SimpleNamespace(
            actions=config.keys.Actions(max_in_flight=8), default_account=None, language="en",
            marketplace=SimpleNamespace(cooldown_seconds=30.0, timezone="UTC", list_limit=None),
            orders=SimpleNamespace(late_minutes=0, preparing_minutes=30),
        )  # fmt: skip
        self._surveys: dict[object, Survey] = {}
        self.played: dict[object, Any] = {}
        self.lanes, self.books = Lanes(), Books(None, ())
        accounts, random = {ACCOUNT: account}, SimpleNamespace(random=lambda: 0.0)
        known = DaemonProblems(self.books, clock, Kept())
        self._context = Context(settings, self.books, clock, random, Kept(), known, self.lanes, Statuses())
        self._new_outbox = lambda: Outbox(self._context, roster_of(accounts))
        # A group of one: nothing waits for others here.
        self._marks = SimpleNamespace(add=lambda mark: _done(acknowledge._mark_free(self.books, [mark])))
        self.intake = Intake(account, self._context, (ACCOUNT,), unresolved=self.books.read, journal=None)

    async def _acknowledge(self, key: str, timeout_s: float) -> None:
        if self.answer_to_acknowledgement is not None:
            raise self.answer_to_acknowledgement()

    def put(self, state: State) -> None:
        self.lanes = lanes = Lanes()
        lanes._moment = max(state.began, state.used)
        lanes._taken = {LANE} if state.taken else set()
        lanes._used = {LANE: state.used} if state.used else {}
        lanes._polls = {state.began} if state.began else set()
        self.books = Books(state.order, state.rows)
        for job in (self.intake, self.intake.acknowledger):
            job._lanes = lanes
            job._database = self.books
        self.intake.acknowledger._marks = self._marks
        self._context = replace(self._context, lanes=lanes, database=self.books)
        read = partial(self.books.read, reconciler.read_unresolved)
        self.intake.reconciler = reconciler.Reconciler(ACCOUNT, self._context, read)

    def take(self, state: State, **changes: Any) -> State:
        """The state after a piece. Moments are numbered anew, because only their order matters."""
        began, used = max(self.lanes._polls, default=0), self.lanes._used.get(LANE, 0)
        moments = sorted({began, used} - {0})
        return state._replace(
            order=self.books.order,
            rows=tuple(self.books.rows[number] for number in sorted(self.books.rows)),
            taken=LANE in self.lanes._taken,
            began=moments.index(began) + 1 if began else 0,
            used=moments.index(used) + 1 if used and began else 0,  # without a poll every later one begins after it
            **changes,
        )

    def _answer(self, state: State, poll: Poll) -> Answer:
        good = Statuses().latest([] if poll.shown is None else [document(poll.shown)])
        answer = Answer(good, state.began, 10.0, Polled())
        answer.held = {KEY} if poll.held else set()
        return answer

    @played_once
    def ask(self, state: State) -> State:
        self.put(state)
        self.lanes.begin_poll()
        return self.take(state, poll=Poll("asked"))

    @played_once
    def sort(self, state: State, poll: Poll) -> State:
        """The list has arrived: take the lane, resolve the rows, sort the orders."""
        self.put(state)
        answer = self._answer(state, poll)
        answer.held = {key for key in answer.good if self.lanes.hold_for_poll(key, state.began)}
        at_once(self.intake.reconciler.resolve(answer, complete=True))
        listed: Sorted = at_once(self.intake._sort(answer))
        kind = next((name for name in ("new", "changed", "unchanged") if getattr(listed, name)), "")
        if not kind:
            return self._over(state, answer)
        sorted_ = poll._replace(stage="sorted", held=KEY in answer.held, kind=kind)
        after = self.take(state, poll=sorted_)
        return self.store(after, sorted_) if kind == "unchanged" else after

    @played_once
    def store(self, state: State, poll: Poll) -> State:
        """Store the delivered order; then its acknowledgement leaves, if it may."""
        self.put(state)
        answer = self._answer(state, poll)
        listed = dict.fromkeys(("new", "changed", "unchanged"), ()) | {poll.kind: list(answer.good.values())}
        self.tasks.tasks = 0
        at_once(self.intake._store(answer, Sorted(**listed)))
        if self.tasks.tasks:
            return self.take(state, poll=poll._replace(stage="acking", kind=""))
        return self._over(state, answer)

    @played_once
    def acknowledged(self, state: State, poll: Poll, error: Callable[[], Exception] | None) -> State:
        self.put(state)
        answer = self._answer(state, poll)
        self.answer_to_acknowledgement = error
        at_once(self.intake.acknowledger.acknowledge(answer, KEY, poll.shown))
        return self._over(state, answer)

    def _over(self, state: State, answer: Answer) -> State:
        self.intake.acknowledger.release(answer, set(answer.held))
        self.lanes.end_poll(answer.began)
        return self.take(state, poll=None)

    def survey(self, state: State) -> Survey:
        seen = (state.order, state.rows, state.taken, state.wire and state.wire.row.id)
        if seen in self._surveys:
            return self._surveys[seen]
        outbox = self._outbox(state)
        at_once(outbox.reader.everything())
        self._mark_sent(outbox, state.wire)
        ends = outbox.queue.ends()
        taken = self.lanes.taken()
        ready = outbox.queue.accounts.take(8, Counter(), 8, lambda _: True, lambda entry: entry.lane not in taken)
        found = Survey(tuple(entry.row for entry in outbox.queue), tuple(ends), claims=bool(ready or ends))
        return self._surveys.setdefault(seen, found)

    def _mark_sent(self, outbox: Outbox, wire: Wire | None) -> None:
        if wire is not None and (known := outbox.queue.get(wire.row.id)) is not None:
            known.standing = Standing.ON_THE_WIRE

    def _outbox(self, state: State, rows: Iterable[OutboxRow] = ()) -> Outbox:
        self.put(state)
        outbox = self._new_outbox()
        outbox.set_now()
        for row in rows:
            outbox.queue.put(row)
        return outbox

    @played_once
    def start(self, state: State, survey: Survey) -> State:
        outbox = self._outbox(state, survey.rows)
        self._mark_sent(outbox, state.wire)
        outbox.queue.ends()
        taken = outbox.queue.accounts.take(8, Counter(), 8, lambda _: True, outbox._may_leave)
        wire = state.wire
        for entry, reply in outbox.writer.claim(self.books, taken):
            if isinstance(reply, Claim):
                wire = Wire(reply.row, reply.history, reply.number)
            else:
                self.lanes.free(entry.lane)
                outbox.executor.not_claimed(entry, reply)
        return self.take(state, wire=wire, survey=None)

    @played_once
    def end_unsent(self, state: State, survey: Survey) -> State:
        outbox = self._outbox(state, [row for row, _ in survey.ends])
        for row, _ in survey.ends:
            outbox.queue.get(row.id).standing = Standing.ENDING
        outbox.due = list(survey.ends)
        at_once(outbox.write_ends())
        ended = {row.id for row, _ in survey.ends}
        left = tuple(row for row in survey.rows if row.id not in ended)
        return self.take(state, survey=Survey(left, ()) if left and survey.claims else None)

    @played_once
    def settle(self, state: State, wire: Wire, attempt: Attempt) -> State:
        outbox = self._outbox(state)
        step = next_request(wire.row.action, wire.history)
        claim = Claim(wire.row, LANE, self._account, step, wire.history, wire.number)
        outbox.writer.post(self.books, [Result(claim, attempt)])
        self.lanes.free_after_action(LANE)
        return self.take(state, wire=None)

    @played_once
    def restart(self, state: State) -> State:
        """Lose what was only in memory, and recover."""
        gone = state._replace(taken=False, began=0, used=0, poll=None, survey=None, wire=None)
        at_once(self._outbox(gone).recover())
        return self.take(gone)


# ---- the steps -------------------------------------------------------------------------------------------------------


class Machine:
    """All that can happen next."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scene = scene
        self.daemon = Daemon(scene, monkeypatch)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._withdraw(state)
        yield from self._outbox(state)
        yield from self._crash(state)
        if state.survey is None or (state.poll is not None and state.poll.stage != "asked"):
            yield from self._poll(state)
        if state.survey is None:  # in between, their effect would be the same as before the read or after the writes
            yield from self._till(state)
            yield from self._time(state)
            if state.wire is not None:  # answers are settled at the start of the outbox's tick, before it is read
                yield from self._request(state, state.wire)

    def tidied(self, state: State) -> State:
        """Drop how an ended row came to its end: no step and no property reads that."""
        if state.left.retries:
            return state
        return state._replace(rows=tuple(_archived(row) for row in state.rows))

    def listed(self, state: State) -> bool:
        """Whether a list made now has the order (docs/interface.md, Acknowledgement rules)."""
        shown = state.status in ACTIVE or (state.status == CANCELED and self.scene.lists_cancelled)
        return shown and not state.acked

    def _withdraw(self, state: State) -> Iterator[Step]:
        for row in state.rows:
            waits = row.row.state in books.UNFINISHED
            if state.left.withdrawals and waits and not row.row.withdraw:
                after = _row(state, row, withdraw=True)
                yield f"the till withdraws row {row.row.id}", _spend(after, "withdrawals"), ""

    def _till(self, state: State) -> Iterator[Step]:
        if state.order is not None and len(state.rows) < self.scene.rows:
            for action in ACTIONS:
                row = new_row(len(state.rows) + 1, action)
                yield f"the till writes row {row.row.id}: {action}", state._replace(rows=(*state.rows, row)), ""
        for row in state.rows:
            if state.left.retries and row.row.state == ActionState.FAILED:
                again = Books(state.order, state.rows)
                books.retry(again, row.row.id)
                after = state._replace(rows=tuple(again.rows[number] for number in sorted(again.rows)))
                yield f"a person retries row {row.row.id}", _spend(after, "retries"), ""

    def _time(self, state: State) -> Iterator[Step]:
        for row in state.rows:
            if row.row.next_attempt_utc == LATER:
                yield f"row {row.row.id} has waited", _row(state, row, next_attempt_utc=NOW), ""
            if state.left.expiries and row.row.state in books.UNFINISHED:
                retried = row.row.expires_utc is not None
                after = _row(state, row, **({"expires_utc": NOW} if retried else {"created_utc": LONG_AGO}))
                yield f"row {row.row.id} is too old", _spend(after, "expiries"), ""

    def _outbox(self, state: State) -> Iterator[Step]:
        if state.survey is None:
            found = self.daemon.survey(state)
            if found.claims:
                yield "the outbox is read", state._replace(survey=found), ""
        elif state.survey.ends:
            yield "rows end unsent", self.daemon.end_unsent(state, state.survey), ""
        else:
            after = self.daemon.start(state, state.survey)
            if after.wire is None or state.wire is not None:
                yield "the claim fails", after, ""
                return
            row = after.rows[after.wire.row.id - 1]
            wrong = f"row {row.row.id} is sent again after a definite answer" if row.definite else ""
            yield f"row {row.row.id} is sent: {row.row.action}", after, wrong

    def _request(self, state: State, wire: Wire) -> Iterator[Step]:
        number = wire.row.id
        if not wire.reply:
            after, reply = self._lands(state, number)
            yield f"the request of row {number} arrives: {reply}", after._replace(wire=wire._replace(reply=reply)), ""
            for attempt, words in BEFORE[: None if self.scene.all_faults else 2] if state.left.faults else ():
                after = self.daemon.settle(state, wire, attempt)
                yield f"the request of row {number} {words}", _spend(after, "faults"), ""
            return
        answer, after = ANSWERS[wire.reply], state
        if answer.outcome in {Outcome.OK, Outcome.REFUSED}:
            rows = (row._replace(definite=row.definite or row.row.id == number) for row in after.rows)
            after = after._replace(rows=tuple(rows))
        yield f"row {number} is answered: {wire.reply}", self.daemon.settle(after, wire, answer), ""
        for attempt, words in AFTER if state.left.faults else ():
            after = self.daemon.settle(state, wire, attempt)
            yield f"the answer to row {number} {words}", _spend(after, "faults"), ""

    def _lands(self, state: State, number: int) -> tuple[State, str]:
        row = state.rows[number - 1]
        became = MOVES.get((state.status, row.row.action))
        if became is not None:
            done = row._replace(effects=row.effects + 1)
            rows = tuple(done if old is row else old for old in state.rows)
            return state._replace(status=became, acked=False, rows=rows), "ok"
        reply = self.scene.when_not_allowed
        return state._replace(lied=state.lied or reply == "ok"), reply

    def _poll(self, state: State) -> Iterator[Step]:
        poll = state.poll
        match poll and poll.stage:
            case None:
                yield "a poll leaves", self.daemon.ask(state), ""
            case "asked":
                shown = state.status if self.listed(state) else None
                words = "without the order" if shown is None else f"with the order in {shown}"
                yield f"a list is made, {words}", state._replace(poll=poll._replace(stage="listed", shown=shown)), ""
            case "listed":
                yield "the list comes in", self.daemon.sort(state, poll), ""
            case "sorted":
                after = self.daemon.store(state, poll)
                sent = ", and its acknowledgement leaves" if after.poll else ""
                yield f"the delivery is written{sent}", after, ""
            case "acking":
                yield from self._acknowledging(state, poll)
            case _:
                yield "the acknowledgement is answered: ok", self.daemon.acknowledged(state, poll, None), ""
                if state.left.faults:
                    after = self.daemon.acknowledged(state, poll, LOST)
                    yield "the answer to the acknowledgement is lost", _spend(after, "faults"), ""

    def _acknowledging(self, state: State, poll: Poll) -> Iterator[Step]:
        after = state._replace(acked=True, poll=poll._replace(stage="landed"))
        yield "the acknowledgement arrives", after, self._swallowed(state, poll)
        for error, words in ((LOST, "lost"), (FAILED, "answered 500")) if state.left.faults else ():
            after = self.daemon.acknowledged(state, poll, error)
            yield f"the acknowledgement is {words}", _spend(after, "faults"), ""

    def _swallowed(self, state: State, poll: Poll) -> str:
        """An acknowledgement marks the status that the order has when it arrives (promise 2)."""
        known = state.order and (state.order.status_id, state.order.service_status_id)
        if known == (state.status, state.status) and poll.shown == state.status:
            return ""
        if known != (state.status, state.status):
            return f"an acknowledgement swallows {state.status}: stored is {known}"
        return f"an acknowledgement of another status swallows {state.status}"

    def _crash(self, state: State) -> Iterator[Step]:
        if not state.left.crashes:
            return
        before = _spend(state, "crashes")
        if before.wire is None and (before.poll is None or before.poll.stage in {"asked", "listed"}):
            return  # the same as if this poll, or this reading of the outbox, had not begun
        ways: list[tuple[str, State, str]] = [("the daemon stops and starts again", before, "")]
        wire = before.wire
        if wire is not None and not wire.reply:
            after, reply = self._lands(before, wire.row.id)
            ways.append((f"{ways[0][0]}; the request of row {wire.row.id} arrives: {reply}", after, ""))
        if before.poll is not None and before.poll.stage == "acking":
            words, wrong = "; the acknowledgement arrives", self._swallowed(before, before.poll)
            ways += [(reply + words, after._replace(acked=True), wrong) for reply, after, _ in ways]
        for words, after, wrong in ways:
            yield words, self.daemon.restart(after), wrong


BEFORE = (
    (Attempt(Outcome.UNKNOWN, "timeout"), "is lost"),
    (Attempt(Outcome.SERVICE_FAILED, "service_error", 500), "is answered 500 without effect"),
    (Attempt(Outcome.UNAUTHORIZED, "unauthorized_again", 401), "is answered 401"),
    (Attempt(Outcome.RATE_LIMITED, "rate_limited", 429), "is answered 429"),
    (Attempt(Outcome.NOT_SENT, "connect"), "cannot leave"),
)
AFTER = (
    (Attempt(Outcome.UNKNOWN, "timeout"), "is lost"),
    (Attempt(Outcome.SERVICE_FAILED, "service_error", 500), "is a 500"),
)
ANSWERS = {
    "ok": Attempt(Outcome.OK, None, 200),
    "refused": Attempt(Outcome.REFUSED, "refused", 400),
    "failed": Attempt(Outcome.SERVICE_FAILED, "service_error", 500),
}
assert frozenset(ACTIONS) == ORDER_ACTIONS


@cache
def _archived(row: Row) -> Row:
    if row.verdict is None:
        return row
    code = row.verdict.code if row.verdict.code == "outcome_unknown" else None
    plain = new_row(row.row.id, row.row.action).row
    return Row(replace(plain, state=row.row.state), verdict=Verdict(row.verdict.state, code))


def _row(state: State, row: Row, **columns: Any) -> State:
    changed = row._replace(row=replace(row.row, **columns))
    return state._replace(rows=tuple(changed if old is row else old for old in state.rows))


def _spend(state: State, what: str) -> State:
    left = state.left
    return state._replace(left=left._replace(**{what: getattr(left, what) - 1}))
