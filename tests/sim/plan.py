"""The plan of a simulation, which the seed decides: lengths, counts, faults and their times.

Each part has its own stream of random numbers, so that one more request does not change later customers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

MINUTE, HOUR = 60.0, 3600.0
ACCEPT_MINUTES = 20
ACCEPT_STEPS = ((0, 20), (3, 45), (6, 0))  # by orders of the last hour: minutes
QUIET_SWEEP_S, LOUD_SWEEP_S = 1800.0, 120.0  # of a day, and of the others
QUIET_HEALTH_S, LOUD_HEALTH_S = 900.0, 10.0
SLOWEST_S = 3.0  # a unit of work on a slow disk

OUTAGES = ("refused", "lost", "http_503", "done_502")  # faults of all requests for a while
# Faults of actions alone for a while, so that rows need their second, third and fourth request.
ILLNESSES = ("http_500", "done_500", "http_429", "done_silence", "http_502", "done_reset", "token_lost")
# What triggers of the POS refuse for a while.
REFUSING = ("new_orders", "orders", "some_orders", "contents", "accepts", "outbox", "quarantine", "all")
BLOWS = ("kill", "stop", "reload", "pause", "pause", "pause", "cut", "cut", "session", "restart")  # of a fleet
BLOW_POINTS = (
    "||connecting|connecting|within a transaction|within a transaction"
    "|after commit Polls|after commit Claims|after commit|before commit|reached|answered"
).split("|")
CRASH_POINTS = (
    "leaving acknowledge|leaving accept|leaving get_current|leaving"
    "|reached acknowledge|reached accept|reached on_the_way|reached complete|reached cancel|reached get_current|reached"
    "|answered acknowledge|answered accept|answered complete|answered get_current|answered"
    "|before commit Intake|before commit Claims|before commit Executor|before commit"
    "|after commit Intake|after commit Claims.claim|after commit Executor|after commit Poller._reserve|after commit"
    "|statement|"
).split("|")
# Points at which power fails. A till's flush also flushes what the daemon wrote before, so a lost commit shows at once
# or never.
POWER_POINTS = (
    *("disk write", "disk sync", "before commit", "after commit Intake", "after commit"),
    *["reached acknowledge", "answered acknowledge"] * 3,
    *("answered accept", ""),
)
# Where the program is killed while it makes an older copy safe.
WITHHELD = tuple(f"{when} commit RestoreCheck._withhold" for when in ("before", "after"))
# How an older copy is put back: the service is stopped, killed (with or without its -wal, or with the copy's own), or
# running.
RESTORES = ("by_command", "without_a_wal", "beside_a_wal", "with_its_wal", "under_the_daemon")


class Crashed(BaseException):
    """The program was killed. Only the simulation catches this."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The program is killed at the `skip`th point of that name after `at`, and starts again `down` seconds later."""

    at: float
    point: str
    skip: int
    down: float


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time with a fault: the account whose login is refused, or the line's fault; `account`: for it alone."""

    start: float
    end: float
    what: str
    account: str = ""


@dataclass(frozen=True, slots=True)
class Blow:
    """A fault of a replica or of the server, for `seconds` (tests.sim.fleet).

    `point`: it begins when the replica reaches a point of that name.
    """

    at: float
    what: str  # kill, stop, reload, pause, cut, session, restart, roll
    place: int
    seconds: float
    point: str


@dataclass(frozen=True, slots=True)
class Restore:
    """A copy is made and later put back; the journal is replayed or not; then the restore is confirmed."""

    copy_at: float
    at: float
    way: str
    replay: str
    confirmed_after: float
    crash: str = ""  # where the program that finds the copy is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One simulation. A fault that is not given is off."""

    seed: int
    kind: str  # one of MADE
    seconds: float
    accounts: tuple[str, ...] = ("kadikoy",)
    orders: int = 0
    auto_accept: bool = False
    fault_rate: float = 0.0  # probability of a fault, for each request
    mischief: float = 0.0  # probability that the till or another program acts at a critical moment
    slow_disk: float = 0.0  # probability that a unit of work is slow
    broken_disk: float = 0.0  # probability that a unit of work fails
    poison: float = 0.0  # probability that an order's document has no usable key
    strange: float = 0.0  # probability that an order's document is unusual
    meddling: float = 0.0  # probability that the panel changes an order's status
    locks: int = 0  # how often the till locks the file
    crashes: tuple[Crash, ...] = ()
    stops: tuple[float, ...] = ()  # orderly ones
    outages: tuple[Span, ...] = ()
    illnesses: tuple[Span, ...] = ()
    refusals: tuple[Span, ...] = ()
    jumps: tuple[tuple[float, float], ...] = ()  # times, and the seconds by which the clock is set
    options: tuple[tuple[str, object], ...] = ()  # of the sandbox
    edits: float = 0.0  # probability that an order's contents change
    odd: float = 0.0  # probability that an order has numbers as texts, options as a list, and so on
    twice: float = 0.0  # probability that a list also has an order with an earlier status
    shared: bool = False  # whether two accounts reach one restaurant
    rule: int | None = None  # the automatic accept's minutes of one restaurant; 0: none
    silence_hours: float = 24  # shortened to minutes
    retention_days: int = 90
    late: tuple[float, ...] = ()  # the panel changes orders back, after a jump of the clock beyond an order's end
    standby: bool = False  # a second daemon waits for the lead
    reloads: tuple[tuple[float, str], ...] = ()  # SIGHUP with the same configuration, another or a bad one
    refusing: tuple[Span, ...] = ()  # triggers of the POS: see tests.sim.technician
    by_hand: tuple[float, ...] = ()  # times at which a failed row is retried
    hangs: tuple[Span, ...] = ()  # spans in which an account's requests are not answered
    crowd: float = 0.0  # share of the orders that come at one moment
    slow_lists: float = 0.0  # probability that a list takes seconds on its way back
    batch: int = 0  # orders and rows in one query or transaction; 0: the program's own, hundreds
    replicas: int = 0  # replicas that share the accounts; 0: one service, on a file
    blows: tuple[Blow, ...] = ()
    restores: tuple[Restore, ...] = ()
    hands: tuple[tuple[float, str], ...] = ()  # commands and taps: see tests.sim.hands
    away: tuple[Span, ...] = ()  # spans in which an account is not in the configuration
    steps: bool = False  # automatic accepts depend on the orders of the last hour

    @property
    def pace(self) -> float:
        """The pace of kitchen and couriers: a storm's hour has a day's work."""
        return {"day": 1.0, "storm": 0.15, "hands": 0.1}.get(self.kind, 0.05)

    @property
    def restless(self) -> bool:
        """Whether the daemon's regular checks keep their real intervals, although they find nothing."""
        return self.kind == "fleet" or (self.seed % 10 == 1 and not self.scripted)

    @property
    def scripted(self) -> bool:
        return self.kind == "corner"

    @property
    def forgets(self) -> bool:
        """Whether a power loss loses unflushed writes."""
        return self.kind == "power"

    @property
    def in_turn(self) -> int:
        return 1 if dict(self.options).get("cooldown_scope", "credential") == "credential" else len(self.accounts)

    @property
    def configured_scope(self) -> str:
        """`cooldown_scope` of the configuration: the service's, or `auto`."""
        scope = str(dict(self.options).get("cooldown_scope", "credential"))
        return scope if self.in_turn == 1 or self.seed % 5 == 2 else "auto"

    @property
    def few_places(self) -> bool:
        """Whether only two rows may be on the wire at a time, one for each account."""
        return len(self.accounts) == 2 and (self.seed % 2 == 0 or self.scripted)

    def stream(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")


def plan_for(seed: int, kind: str = "") -> Plan:
    """The plan of a seed, whose kind is its place in MIX."""
    kind = kind or MIX[seed % len(MIX)]
    plan = MADE[kind](seed, Random(f"{seed} plan"))
    if kind in {"crowd", "corner", "fleet"}:
        return plan
    return _with_others(_with_changes(plan, Random(f"{seed} more")), Random(f"{seed} others"))


def _with_changes(plan: Plan, chance: Random) -> Plan:
    """Add choices about documents and changes by time."""
    shared = len(plan.accounts) > 1 and chance.random() < 0.75
    late = chance.choice((0.0, 0.0, 0.0, 0.0, 7200.0, 90000.0)) if plan.kind != "day" else 0.0
    made = replace(
        plan,
        edits=chance.choice((0.0, 0.3, 0.6)),
        odd=chance.choice((0.0, 0.3)),
        twice=chance.choice((0.0, 0.3)),
        shared=shared,
        rule=chance.choice((None, 35, 0)),
        silence_hours=chance.choice((1, 2) if plan.kind == "day" else (0.05, 1)),
        retention_days=1,
        refusals=() if shared and plan.kind != "restore" else plan.refusals,
    )
    if plan.kind == "restore":  # a set clock hides a copy's age
        return replace(made, jumps=())
    at = plan.seconds * 0.6
    return replace(made, late=(at,), jumps=(*plan.jumps, (at, late))) if late else made


def _with_others(plan: Plan, chance: Random) -> Plan:
    """Add other processes and people that use the database."""
    many, length = len(plan.accounts) > 1, plan.seconds
    standby = chance.random() < 0.3 and plan.kind not in {"power", "restore"}
    reloads = _times(chance, chance.choice((0, 0, 1, 3)), length)
    made = replace(
        plan,
        standby=standby,
        reloads=tuple((at, chance.choice(("same", "other", "bad"))) for at in reloads),
        refusing=_spans(chance, chance.choice((0, 0, 0, 1, 2)), length * 0.8, 3 * MINUTE, REFUSING),
        by_hand=_times(chance, chance.choice((0, 3, 6)), length),
        hangs=_spans(chance, 1, length * 0.7, length * 0.3, plan.accounts) if many and not plan.shared else (),
        crowd=chance.choice((0.0, 0.0, 0.5, 0.9)),
        slow_lists=chance.choice((0.0, 0.3)),
        batch=chance.choice((0, 0, 3)),
    )
    scope = chance.choice(("credential", "credential", "application", "address"))
    options = (*plan.options, ("cooldown_scope", scope)) if many else plan.options
    slow_disk = chance.choice((*[plan.slow_disk] * 4, 0.6))
    return replace(made, options=options, slow_disk=plan.slow_disk if plan.kind == "day" else slow_disk)


def _mixed(kind: str, seed: int, chance: Random, seconds: float, accounts: tuple[str, ...], orders: int) -> Plan:
    """A plan of one of the columns of CHOICES, drawn in the order of its lines."""
    column = ("day", "storm", "squall").index(kind)
    outage, illness, refusal = {
        "day": (2 * HOUR, 10 * MINUTE, HOUR),
        "storm": (seconds / 4, 5 * MINUTE, seconds / 4),
        "squall": (3 * MINUTE, 2 * MINUTE, MINUTE),
    }[kind]  # the longest of each
    long_ones = _long_ones if kind == "squall" else lambda *_: ()
    events = {
        "crashes": lambda count: _crashes(chance, count, seconds) + long_ones(chance, seconds),
        "stops": lambda count: _times(chance, count, seconds),
        "outages": lambda count: _spans(chance, count, seconds, outage, OUTAGES),
        "illnesses": lambda count: _illnesses(chance, count, seconds, illness, accounts),
        "refusals": lambda count: _spans(chance, count, seconds, refusal, accounts),
        "jumps": lambda count: _jumps(chance, count, seconds),
    }
    knobs: dict[str, Any] = {"auto_accept": chance.random() < (0.25, 0.3, 0.35)[column]}
    for name, choices in CHOICES.items():
        some = choices[column]
        knobs[name] = chance.choice(some) if isinstance(some, tuple | range) else some
        if name in events:
            knobs[name] = events[name](knobs[name])
    plan = Plan(seed=seed, kind=kind, seconds=seconds, accounts=accounts, orders=orders, **knobs)
    return replace(plan, options=_options(chance))


# What a day, a storm and a squall choose from; of the last six lines, how many.
CHOICES: dict[str, tuple[Any, Any, Any]] = {
    "fault_rate": ((0.0, 0.01, 0.03), (0.0, 0.05, 0.15, 0.3, 0.5), (0.0, 0.1, 0.25, 0.4)),
    "mischief": ((0.0, 0.002, 0.01), (0.0, 0.02, 0.1), (0.0, 0.1, 0.3)),
    "slow_disk": (0.002, (0.0, 0.02, 0.2), (0.0, 0.1)),
    "broken_disk": ((0.0, 0.0005), (0.0, 0.0, 0.01), (0.0, 0.0, 0.01)),
    "poison": ((0.0, 0.02), (0.0, 0.0, 0.1), (0.0, 0.15)),
    "strange": (0.05, 0.15, 0.1),
    "meddling": (0.05, (0.0, 0.1, 0.4), (0.0, 0.2)),
    "locks": (range(4), (0, 0, 5), (0, 0, 2)),
    "crashes": (range(5), (0, 2, 6, 12), (0, 2, 5)),
    "stops": (range(2), (0, 0, 2), (0, 0, 1)),
    "outages": (range(3), (0, 0, 1, 2), (0, 1)),
    "illnesses": (range(4), range(4), (0, 1, 2)),
    "refusals": (range(2), (0, 0, 1), (0, 0, 1)),
    "jumps": ((0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 1)),
}


def _day(seed: int, chance: Random, share: float = 1.0) -> Plan:
    return _mixed("day", seed, chance, 14 * HOUR * share, ("kadikoy",), round(150 * share))


def _storm(seed: int, chance: Random) -> Plan:
    length = chance.choice((15 * MINUTE, 30 * MINUTE, HOUR))
    accounts = chance.choice((("kadikoy",), ("kadikoy", "besiktas"), ("kadikoy", "besiktas", "chain")))
    return _mixed("storm", seed, chance, length, accounts, chance.choice((10, 30, 60)))


def _squall(seed: int, chance: Random) -> Plan:
    """Ten minutes with all kinds of faults: cheap, so that many can be played."""
    accounts = chance.choice((("kadikoy",), ("kadikoy",), ("kadikoy", "besiktas")))
    return _mixed("squall", seed, chance, 10 * MINUTE, accounts, 12)


def _power(seed: int, chance: Random) -> Plan:
    """A squall with several power losses, on a disk that loses unflushed writes."""
    squall = _squall(seed, chance)
    crashes = []
    for at in _times(chance, chance.choice((3, 6, 12)), squall.seconds):
        point = chance.choice(POWER_POINTS)
        skip = chance.choice((0, 1, 3, 10, 40) if point.startswith("disk") else (0, 0, 1))
        crashes.append(Crash(at, point, skip, chance.choice((0.1, 2.0, 10.0))))
    return replace(squall, kind="power", orders=20, crashes=tuple(crashes))


def _restore(seed: int, chance: Random) -> Plan:
    """A squall in which one or two older copies are put back. See tests.sim.restoring."""
    squall = _squall(seed, chance)
    ways, length = chance.sample(RESTORES, chance.choice((1, 2))), squall.seconds
    restores = []
    for number, way in enumerate(ways):
        begin, end = number * length / len(ways), (number + 1) * length / len(ways)
        copy_at = chance.uniform(max(begin, 30.0), end - 60.0)
        at, replay = chance.uniform(copy_at + 5.0, end), chance.choice(("before", "beside", "never"))
        restores.append(Restore(copy_at, at, way, replay, confirmed_after=chance.choice((90.0, 200.0))))
    if chance.random() < 0.3:
        restores[0] = replace(restores[0], crash=chance.choice(WITHHELD))
    if len(restores) > 1 and chance.random() < 0.3:  # the same copy again
        restores[1] = replace(restores[1], copy_at=restores[0].copy_at + 0.001)
    return replace(squall, kind="restore", orders=20, locks=0, broken_disk=0.0, restores=tuple(restores))


def _crowd(seed: int, chance: Random) -> Plan:
    """Half an hour of five accounts that share one cooldown, with a few crashes."""
    length = 30 * MINUTE
    return Plan(
        seed=seed,
        kind="crowd",
        seconds=length,
        accounts=("kadikoy", "besiktas", "chain", "uskudar", "atasehir"),
        crashes=_crashes(chance, chance.randrange(2), length),
        stops=_times(chance, chance.randrange(2), length / 2),
        options=(
            ("cooldown_scope", chance.choice(("application", "address"))),
            ("cooldown_restarts_on_429", chance.random() < 0.5),
        ),
    )


def _fleet(seed: int, chance: Random) -> Plan:
    """Ten minutes of two or three replicas with faults; for each third seed the marketplace has none."""
    squall = _squall(seed, chance)
    replicas = chance.choice((2, 2, 3))
    return replace(
        squall,
        kind="fleet",
        accounts=("kadikoy", "besiktas", "chain", "uskudar"),
        fault_rate=chance.choice((0.0, 0.0, 0.1)),
        slow_disk=0.0,
        broken_disk=0.0,
        locks=0,
        crashes=tuple(crash for crash in squall.crashes if "upgrade" not in crash.point),
        stops=(),
        outages=(),
        refusals=(),
        jumps=(),
        replicas=replicas,
        blows=_blows(chance, replicas, squall.seconds),
    )


def _blows(chance: Random, replicas: int, length: float) -> tuple[Blow, ...]:
    def blow(at: float) -> Blow:
        what = chance.choice(BLOWS)
        longest = {"restart": 12.0, "kill": 60.0, "stop": 30.0}.get(what, 40.0)
        seconds = chance.choice((chance.uniform(0.5, 7.0), chance.uniform(8.0, 16.0), chance.uniform(3.0, longest)))
        point = chance.choice(BLOW_POINTS) if what in {"pause", "cut", "session"} else ""
        return Blow(at, what, chance.randrange(replicas), seconds, point)

    made = [blow(at) for at in _times(chance, chance.choice((4, 8, 14)), length * 0.8)]
    if chance.random() < 0.3:
        made.append(Blow(chance.uniform(0, length / 2), "roll", 0, chance.uniform(1, 8), ""))
    return tuple(made)


def _hands(seed: int, chance: Random) -> Plan:
    """A squall in which people use the program's commands and tap on tablets."""
    busy, length = Random(f"{seed} hands"), 20 * MINUTE
    plain = _squall(seed, chance)
    acts = {"close": 8, "erase": 1, "quarantine": 2, "replay": 1, "tap": 10, "withdraw": 2}  # with their weights
    times = _times(busy, busy.choice((15, 40)), length)
    hands = [(at, busy.choices(list(acts), acts.values())[0]) for at in times]
    many = len(plain.accounts) > 1 and busy.random() < 0.5
    away = _spans(busy, 1, length * 0.6, 5 * MINUTE, plain.accounts) if many else ()
    steps = busy.random() < 0.5
    return replace(plain, kind="hands", seconds=length, orders=16, hands=tuple(hands), away=away, steps=steps)


def _corner(seed: int, _: Random) -> Plan:
    """Some minutes by a script: only the latencies are random."""
    from tests.sim.corners import CORNERS, corner_of

    return replace(Plan(seed=seed, kind="corner", seconds=4 * MINUTE), **CORNERS[corner_of(seed)][1])


def _times(chance: Random, count: int, length: float) -> tuple[float, ...]:
    return tuple(sorted(chance.uniform(0, length) for _ in range(count)))


def _crashes(chance: Random, count: int, length: float) -> tuple[Crash, ...]:
    """Crashes; for some seeds one inside the first migration and one at a later start."""
    made = [
        Crash(at, chance.choice(CRASH_POINTS), chance.choice((0, 0, 1, 3)), chance.choice((0.1, 2.0, 10.0, 60.0)))
        for at in _times(chance, count, length)
    ]
    if count and chance.random() < 0.4:
        made.insert(0, Crash(0.0, "statement upgrade", chance.randrange(70) // 3, 1.0))
    if count and chance.random() < 0.4:
        made.append(Crash(made[-1].at, "after commit", chance.randrange(4), 1.0))
    return tuple(made)


def _long_ones(chance: Random, length: float) -> tuple[Crash, ...]:
    """Outages longer than an accept, or any action, is valid: at the end of two squalls in ten."""
    down = chance.choice((11 * MINUTE, 125 * MINUTE, *[0.0] * 8))
    point = chance.choice(("reached accept", "leaving", "reached", ""))
    return (Crash(chance.uniform(length / 2, length), point, 0, down),) if down else ()


def _spans(chance: Random, count: int, length: float, longest: float, what: tuple[str, ...]) -> tuple[Span, ...]:
    starts = _times(chance, count, length)
    return tuple(Span(at, at + chance.uniform(1, longest), chance.choice(what)) for at in starts)


def _illnesses(chance: Random, count: int, length: float, longest: float, of: tuple[str, ...]) -> tuple[Span, ...]:
    return tuple(replace(one, account=chance.choice(of)) for one in _spans(chance, count, length, longest, ILLNESSES))


def _jumps(chance: Random, count: int, length: float) -> tuple[tuple[float, float], ...]:
    by = (-7200.0, -3600.0, -90.0, -5.0, 5.0, 90.0, 3600.0, 7200.0, 90000.0)
    return tuple((at, chance.choice(by)) for at in _times(chance, count, length))


def _options(chance: Random) -> tuple[tuple[str, object], ...]:
    """The options that docs/interface.md leaves open: a correct client works with each."""
    return (
        ("disallowed", chance.choice(("refused", "not_found"))),
        ("list_order", chance.choice(("oldest_first", "newest_first", "shuffled"))),
        ("cooldown_restarts_on_429", chance.random() < 0.5),
        ("new_login_ends_old_token", chance.random() < 0.3),
        ("complete_error_status", chance.choice((None, 200, 400))),
        ("expiration_timezone", chance.choice(("Europe/Istanbul", "UTC", "Asia/Tokyo"))),
        ("token_seconds", chance.choice((86400.0, 1800.0, 300.0))),
    )


# A day is long and mostly idle. A storm is shorter, with all kinds of faults.
MADE: dict[str, Callable[[int, Random], Plan]] = {
    "day": _day,
    "morning": partial(_day, share=0.15),
    "storm": _storm,
    "squall": _squall,
    "hands": _hands,
    "crowd": _crowd,
    "fleet": _fleet,
    "corner": _corner,
    "power": _power,
    "restore": _restore,
}
# The kinds of consecutive seeds, so that two minutes of processor time reach nearly all: two of three are corners, the
# cheap ones come often and first, and a day is the last.
_TURNS = (
    "hands restore squall power hands squall fleet restore squall crowd hands"
    " power squall storm restore hands fleet power squall morning day"
).split()
MIX = [kind for turn in _TURNS for kind in ("corner", "corner", turn)]
