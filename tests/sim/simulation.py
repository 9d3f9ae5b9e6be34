"""One simulation: the plan, the people, the service, and the daemon's lives on one file."""

import asyncio
import json
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from tests.jobs.shop import FakeClock, settings_for
from tests.sim.corners import CORNERS, Script, corner_of
from tests.sim.fleet import Fleet
from tests.sim.hands import Hands
from tests.sim.life import LIFE, Life
from tests.sim.line import Call, Service, Weather, read_request
from tests.sim.people import Agenda, Customers, Till, scenery_for
from tests.sim.plan import ACCEPT_MINUTES, ACCEPT_STEPS, HOUR, MINUTE, SLOWEST_S, Crash, Crashed, Plan, Span
from tests.sim.power import Disk
from tests.sim.restoring import Restorer
from tests.sim.technician import Technician

from orderbridge import config
from orderbridge.errors import ConfigError
from orderbridge_sandbox import World
from orderbridge_sandbox.options import Options
from orderbridge_sandbox.scenery import KADIKOY

if TYPE_CHECKING:
    from tests.sim.judge import Judge

BROKEN = "BROKEN"  # the kind of a violation's line


class Trace:
    """The lines of one simulation, and how often each kind of fault was injected."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self.faults: Counter[str] = Counter()
        self._is_broken = False
        self._now = now

    def note(self, kind: str, text: str = "", **facts: object) -> None:
        """One line: the simulated second, what it is, and its facts. After a violation only others are added."""
        if self._is_broken and kind != BROKEN:
            return
        self._is_broken |= kind == BROKEN
        parts = [f"{self._now():12.3f} {kind:<8}", *([text] if text else [])]
        parts += [f"{name}={value}" for name, value in facts.items() if value is not None]
        self.lines.append(" ".join(parts))

    def fault(self, name: str, **facts: object) -> None:
        self.faults[name] += 1
        self.note("fault", name, **facts)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


WATCH_S = 0.05
TICK_S = 30.0  # between two checks by the judges
PATIENCE_S = 20 * MINUTE  # if a point does not come, any point will do
STOP_S = 60.0
LONG_S = 10 * MINUTE  # longer than an accept is valid
SETTLED_S = 3 * MINUTE
POWER_FAILS = 0.85  # share of a program's ends that are power losses, in the kind power


class Sim:
    def __init__(self, plan: Plan, folder: Path, judges: "list[Judge]") -> None:
        self.plan, self.path = plan, folder / "pos.db"
        self.settings = _settings_of(plan, self.path)
        self._all_accounts = self.settings.accounts
        self.clock = FakeClock()
        self.now = self.clock.monotonic  # the true time in seconds since the start
        self.trace = Trace(self.now)
        self._committed: sqlite3.Connection | None = None
        self._telling = 0  # nested events
        self._judges_error: Exception | None = None
        self._has_worked = False  # whether a daemon has worked, so that the tables exist
        self.over, self.ticks = asyncio.Event(), 0
        self.violations: list[str] = []
        self.problems: set[tuple[str, str]] = set()  # code and subject: open by the log of this process
        self.calls, self.statements = list[Call](), list[str]()  # the statements that wrote since the last commit
        self.of_row: dict[int, list[Call]] = defaultdict(list)  # the requests of a row
        self.spent: dict[int, int] = {}  # by row: requests before it was retried
        self.lists: dict[str, Call] = {}  # by account: the latest list that came in whole
        self.tokens: dict[str, str] = {}  # to account
        self.orders_at: dict[str, float] = {}
        self.disturbed: dict[str, float] = {}
        self.refused, self.taken_out = set[str](), set[str]()  # refused accounts; those ever out of the configuration
        self.life: Life | None = None
        self.processes: list[Life] = []
        self.started = 0  # processes
        self.lives = 0  # daemons that began to work
        self.built = 0  # daemons that were built, including one that waits for the lead
        self.ended_at = self.born = 0.0  # the end of the simulation; the start of the latest daemon's work
        self.stopping_at = 0.0  # the time of the stop: later rows of the till wait for the next start
        options = Options().changed(dict(plan.options))
        self.world = World(
            scenery_for(plan), clock=self.clock.true, seed=plan.seed, options=options, report=lambda line: None
        )
        self.weather = Weather(self)
        self.service = Service(self)
        self.customers = Customers(self)
        self.till = Till(self)
        self.technician = Technician(self)
        self.restorer = Restorer(self)
        self.hands = Hands(self)
        self.script = Script(self)
        self.agenda = Agenda(self)
        self.fleet = Fleet(self) if plan.replicas else None
        self._mischief = plan.stream("mischief")
        self._disk = plan.stream("disk")
        self.disk_took, self.transactions_took, self.transactions = 0.0, 0.0, 0  # simulated, and processor seconds
        self.power = Disk(folder, plan.stream("power")) if plan.forgets else None
        self._crashes = list(plan.crashes)
        self._skip = self._crashes[0].skip if self._crashes else 0
        self._wake_waits, self._reloads = False, ""
        self._names = {secret_of(name): name for name in plan.accounts}
        self._judges = judges
        for judge in judges:
            judge.sim = self

    def read(self, sql: str, values: tuple[object, ...]) -> list[sqlite3.Row]:
        """The committed rows, on one connection for all judges.

        During an event all judges share one snapshot.
        """
        if self._committed is None:
            self._committed = sqlite3.connect(
                self.path, isolation_level=None, timeout=0, cached_statements=512, check_same_thread=False
            )
            self._committed.row_factory = sqlite3.Row
        if self._telling and not self._committed.in_transaction:
            self._committed.execute("BEGIN")
        try:
            return self._committed.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            if self._has_worked or "no such table" not in str(error):
                raise
            return []
        except sqlite3.DatabaseError as error:
            self.violated("restore", f"the database file is damaged: {error}")
            return []

    def close(self) -> None:
        if self.fleet is not None:
            self.fleet.close()
        if self._committed is not None:
            self._committed.close()
            self._committed = None

    @property
    def is_calm(self) -> bool:
        return self.now() >= self.plan.seconds

    def tell(self, what: str, *about: Any) -> None:
        self._telling += 1
        try:
            for judge in self._judges:
                if (hears := getattr(judge, what, None)) is not None:
                    hears(*about)
        except Exception as error:  # else the program would handle a judge's error as its own
            self._judges_error = error
            self.over.set()
            raise
        finally:
            self._telling -= 1
            if not self._telling and self._committed is not None and self._committed.in_transaction:
                self._committed.execute("COMMIT")

    def disturb(self, account: str, seconds: float = 0.0) -> None:
        """Note a fault of an account, or of all if empty, for this time."""
        alone = account in self.plan.accounts and not self.plan.shared
        for name in (account,) if alone else self.plan.accounts:
            self.disturbed[name] = max(self.disturbed.get(name, 0.0), self.now() + seconds)

    def quiet_s(self) -> float:
        """For how long no account had a fault, and the daemon has worked."""
        return self.now() - max(self.born, *self.disturbed.values())

    def keep_list(self, call: Call) -> None:
        """Keep the latest list of an account. A paused replica gets an older one late."""
        known = self.lists.get(call.account)
        if call.operation == "get_current" and call.is_heard and (known is None or known.number < call.number):
            self.lists[call.account] = call

    def violated(self, promise: str, text: str) -> None:
        self.violations.append(f"promise {promise}: {text}")
        self.trace.note(BROKEN, f"promise {promise}: {text}")
        self.over.set()

    def jumped_since(self, moment: float) -> bool:
        return any(moment <= at <= self.now() for at, _ in self.plan.jumps)

    def disk_takes(self, unit: Callable[[], str]) -> float:
        """Seconds until a unit of work of that name begins."""
        slow = self._disk.random() < self.plan.slow_disk and not self.is_calm
        takes = (self._disk.uniform(0.05, SLOWEST_S) if slow else 0.002) + self.script.unit_takes(unit)
        self.disk_took += takes
        return takes

    def disk_breaks(self) -> bool:
        breaks = self.plan.broken_disk > 0 and self._disk.random() < self.plan.broken_disk and not self.is_calm
        if breaks:
            self.trace.fault("disk_error")
            self.disturb("")
        return breaks

    def moment(self, name: str, about: str) -> None:
        """A critical moment, at which another program may act."""
        if self.plan.mischief and self._mischief.random() < self.plan.mischief and not self.is_calm:
            if self._mischief.random() < 0.15:
                self.till.think_better()
            elif about in self.world.orders and self._mischief.random() < 0.3:
                self.trace.note("mischief", name)
                self.customers.meddle(about)
            else:
                self.till.hurry()

    def crashes_at(self, point: str) -> float | None:
        """If the program is killed at this point, the seconds until the next start; else None."""
        if not self._crashes or self.is_calm:
            return None
        crash = self._crashes[0]
        late = self.now() - crash.at
        patience = MINUTE if self.plan.forgets else PATIENCE_S
        if late < 0 or not (late > patience or point.startswith(crash.point)):
            return None
        is_missed = crash.point == "statement upgrade" and self.lives > 1
        if not is_missed and self._skip > 0 and late <= patience:
            self._skip -= 1
            return None
        self._crashes.pop(0)
        self._skip = self._crashes[0].skip if self._crashes else 0
        return None if is_missed else crash.down

    def crash_next_at(self, point: str, down: float) -> None:
        self._crashes.insert(0, Crash(self.now(), point, 0, down))
        self._skip = 0

    @property
    def is_dark(self) -> bool:
        return self.power is not None and self.power.is_dark

    def prepare(self, connection: sqlite3.Connection, *_: object) -> None:
        """Give a new connection the simulation's time. Without power losses, writes need not be flushed."""
        connection.create_function("strftime", -1, self.clock.strftime)
        if self.power is None:
            connection.execute("PRAGMA synchronous = OFF")

    def may_lose_power(self) -> None:
        """The program has ended, perhaps with the machine's power."""
        if self.power is not None and self._mischief.random() < POWER_FAILS:
            self.trace.fault("power_lost")
            self.power.cut()
            self.till.lose_power()

    def new_call(self, life: Life, request: httpx.Request) -> Call:
        if not life.alive:
            raise Crashed
        if request.url.scheme != "https" or request.url.host != "sandbox.test":
            self.violated("9", f"a request to {request.url.scheme}://{request.url.host}")
        operation, argument = read_request(request)
        token = request.headers.get("Access-Token", "")
        account = self.tokens.get(token, "")
        if operation == "login":
            account = self._names.get(json.loads(request.content)["rest_secret_key"], "")
        number, now = len(self.calls) + 1, self.now()
        self.calls.append(Call(number, life.number, operation, argument, account, now, life.process, token=token))
        return self.calls[-1]

    def woken(self) -> None:
        """The outbox notices a commit within the interval of the watch on SQLite's counter.

        The watch also sees the daemon's own commits. They wake the outbox only in a restless plan.
        """
        if not self._wake_waits:
            self._wake_waits = True
            asyncio.get_running_loop().call_later(WATCH_S / 2, self._wake, context=Context())

    def _wake(self) -> None:
        self._wake_waits = False
        if self.fleet is not None:
            self.fleet.wake()
        elif self.life is not None and self.life.alive:
            self.life.wake()

    async def watch(self, wake: Callable[[], None]) -> None:
        """Replaces Database.watch, which would read the file 20 times a second."""
        LIFE.get().wake = wake
        await asyncio.Event().wait()

    def write(self, line: str) -> None:
        life = LIFE.get()
        if not line.strip() or (life is not None and not life.alive):
            return
        facts = json.loads(line.replace(f"{self.path.parent}/", ""))  # the folder differs in each run
        _, level, event = facts.pop("time"), facts.pop("level"), facts.pop("event")
        self.trace.note("log", f"{level} {event}", **{name: facts[name] for name in facts if name != "traceback"})
        if event == "daemon.started" and life is not None:
            life.started = self._has_worked = True
        if event == "config.reload_failed" and self._reloads != "bad":
            self.agenda.after(STOP_S, partial(self._reload, "same"))  # a technician reads it, and repeats it
        self.tell("logged", level, event, facts, line)
        if event in {"problem.began", "problem.ended"}:
            change = self.problems.add if event == "problem.began" else self.problems.discard
            change((str(facts.get("code")), str(facts.get("subject"))))

    def flush(self) -> None:
        """Required of a stream of the log."""

    def isatty(self) -> bool:
        return False

    async def play(self) -> None:
        """Play until all is settled, or a promise is broken."""
        for one in filter(None, (self.customers, self.till, self.technician, self.fleet, self.restorer, self.hands)):
            one.begin()
        self._schedule()
        places = self.plan.replicas or 1 + self.plan.standby
        lives = [asyncio.ensure_future(self._live(place)) for place in range(places)]
        script = asyncio.ensure_future(self._until_settled())
        corner = asyncio.ensure_future(self._play_corner())
        over = asyncio.ensure_future(self.over.wait())
        await asyncio.wait([*lives, script, over], return_when=asyncio.FIRST_COMPLETED)
        if self._judges_error is not None:
            raise self._judges_error
        for task in (*lives, script, corner):
            if task.done():
                task.result()
        if not self.over.is_set():
            assert corner.done(), "the corner was not played to its end"
            self.script.check()
            await self._stop_in_order()
            self.tell("finish")
        self.over.set()
        if self.fleet is not None:
            self.fleet.end()
        for life in self.processes:
            if life.alive:
                life.alive = False
                life.died.set()
        await asyncio.wait(lives, timeout=5)
        for task in (script, corner, over, *lives):
            task.cancel()
        await asyncio.gather(script, corner, over, *lives, return_exceptions=True)
        self.till.close()
        self.restorer.close()
        self.ended_at = self.now()

    async def _play_corner(self) -> None:
        if self.plan.scripted:
            name = corner_of(self.plan.seed)
            self.trace.note("corner", name)
            await CORNERS[name][0](self.script)

    async def _live(self, place: int) -> None:
        """Run processes one after another, as systemd does."""
        while not self.over.is_set():
            self.started += 1
            life = Life(self, self.started)
            self.processes.append(life)
            if self.fleet is not None:
                self.fleet.born(life, place)
            ending = await life.run()
            self.processes.remove(life)
            if self.fleet is not None:
                self.fleet.ended(life)
            if self.power is not None and self.is_dark:
                self.close()
                self.power.put_back()
            self.trace.note("end", f"life {life.number} {ending}")
            self.disturb("")
            # A database that cannot be opened ends a start, and systemd starts the program again.
            explained = ending in {"crashed", "stopped"} or self.restorer.explains(ending)
            server = None if self.fleet is None else self.fleet.server
            is_away = server is not None and (server.is_down or server.is_cut(life))  # a reload is a start, too
            if not explained and (ending != "OperationalError" or (life.started and not is_away)):
                self.violated("7", f"the daemon ended with {ending}")
            await self.restorer.between_lives(ending)
            if life.down >= LONG_S:
                self.till.left_alone(life.down)
            await asyncio.sleep(life.down)

    def begin(self, life: Life) -> None:
        if self.fleet is None and self.life is not None and self.life.alive and self.life is not life:
            self.violated("3", f"a daemon begins to work beside life {self.life.number}")
        self.lives += 1
        if self.life is not None and self.life.process != life.process:  # a reload continues the log
            self.problems.clear()
        self.life, life.number = life, self.lives
        self.trace.note("start", f"life {self.lives}")
        self.disturb("")
        if self.lives > 1:
            self.born = self.now()
            self.tell("restarted")

    def _schedule(self) -> None:
        plan = self.plan
        for at in plan.stops:
            self.agenda.at(at, self._stop)
        for at, how in plan.reloads:
            self.agenda.at(at, partial(self._reload, how))
        for at, by in plan.jumps:
            self.agenda.at(at, partial(self._jump, by))
        for span in plan.refusals:
            self.agenda.at(span.start, partial(self._refuse, span.what))
            self.agenda.at(min(span.end, plan.seconds), partial(self._admit, span.what))

    def _stop(self) -> None:
        self.trace.fault("stop")
        self.disturb("")
        if self.life is not None:
            self.life.signal(signal.SIGTERM)

    def _reload(self, how: str) -> None:
        """SIGHUP with the same configuration, another one, or an unreadable one."""
        self.trace.fault("reload", how=how)
        self._reloads = how
        for life in self.processes:  # also one that waits for the lead
            life.signal(signal.SIGHUP)

    def take_out(self, span: Span) -> None:
        self.taken_out.add(span.what)
        self.disturb(span.what, span.end - self.now())
        self.configure(without=span.what)

    def configure(self, without: str = "") -> None:
        accounts = [one for one in self._all_accounts if one.name != without]
        self.trace.note("hand", "accounts", names=",".join(one.name for one in accounts))
        self.settings = self.settings.model_copy(update={"accounts": tuple(accounts)})
        self._reload("same")

    def load(self) -> config.Settings:
        if self._reloads == "bad":
            raise ConfigError("config.no_extension", name="7")
        self.disturb("")
        if self._reloads == "other":
            places = 2 if self.settings.actions.max_in_flight > 2 else 32
            self.change_settings(places, "tr" if self.settings.language == "en" else "en")
        return self.settings

    def change_settings(self, places: int, language: str) -> None:
        actions = self.settings.actions.model_copy(update={"max_in_flight": places})
        self.settings = self.settings.model_copy(update={"language": language, "actions": actions})

    def _jump(self, by: float) -> None:
        self.trace.fault("clock_jumps", by=by)
        self.clock.ahead += timedelta(seconds=by)
        self.disturb("")

    def _refuse(self, account: str) -> None:
        self.trace.fault("login_refused", account=account)
        self.refused.add(account)
        self.world.refuse_account(account)
        self.disturb(account)

    def _admit(self, account: str) -> None:
        self.refused.discard(account)
        self.world.accounts |= {a.rest_secret_key: a for a in self.world.scenery.accounts if a.name == account}
        self.disturb(account)

    async def _until_settled(self) -> None:
        quiet = 0.0
        while True:
            await asyncio.sleep(TICK_S)
            self.tell("passed")
            if self.now() > self.plan.seconds + 6 * HOUR:
                self.violated("4", "not all is settled hours after the last fault")
            lives = [self.life] if self.fleet is None else self.fleet.at_work()
            if not any(life is not None and life.started and life.alive for life in lives):
                continue
            self.ticks += 1
            self.tell("tick")
            if not self.is_calm:
                continue
            query = "SELECT 1 FROM delivery_actions WHERE state IN ('pending', 'sending')"
            quiet = quiet + TICK_S if self.till.connection.execute(query).fetchone() is None else 0.0
            if quiet >= SETTLED_S and self.now() > max(self.disturbed.values()) + SETTLED_S:
                self.technician.leave()
                return

    async def _stop_in_order(self) -> None:
        self.trace.note("stop", "in order")
        self.stopping_at = self.now()
        for life in sorted(self.processes, key=lambda life: life.number):  # the waiting one must not take over
            life.down = 1e9
            life.signal(signal.SIGTERM)
        began = self.now()
        while self.processes and self.now() < began + STOP_S:  # noqa: ASYNC110 - both ends are looked for
            await asyncio.sleep(0.1)
        if self.processes:
            self.violated("stop", "the daemon did not stop in time")


def _settings_of(plan: Plan, path: Path) -> config.Settings:
    journal = {"journal": "auto"} if plan.kind in {"power", "restore", "hands", "corner"} else {}
    changes: dict[str, Any] = {
        "needs_payment_status_id": 7 if plan.seed % 2 else None,
        "cooldown_scope": plan.configured_scope,
        "list_limit": dict(plan.options).get("list_limit"),
        "orders": {"retention_days": plan.retention_days} | journal,
    }
    if plan.hands:
        changes["web"] = {"listen": "127.0.0.1:8484", "board": "beside"}
    if plan.auto_accept:
        changes |= {"auto_accept_steps": ACCEPT_STEPS} if plan.steps else {"auto_accept_minutes": ACCEPT_MINUTES}
    if plan.auto_accept and plan.rule is not None:
        changes["restaurants"] = [{"id": KADIKOY, "auto_accept_minutes": plan.rule or None}]
    if plan.few_places:
        changes["actions"] = {"max_in_flight": 2}
    plain = settings_for(path, *plan.accounts, **changes)
    orders = plain.orders.model_copy(update={"silence_hours": plan.silence_hours})  # the key takes whole hours
    return plain.model_copy(update={"orders": orders})


def secret_of(account: str) -> str:
    return f"sandbox-{account}-secret"
