"""`db try` tests whether an empty database has what the store needs, and then removes what it made there.

Each check writes its own rows, and its failure does not end the others. A check returns its result as a sentence, or
raises Unfit with the cause.
"""

import asyncio
import os
import secrets
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, NullPool, Table, create_engine, insert, make_url, select, update
from sqlalchemy.exc import DBAPIError

from orderbridge.cli.check import Finding, Report, bad, good, warn
from orderbridge.clock import SystemClock
from orderbridge.config.addresses import sqlite_file
from orderbridge.errors import Message, OrderbridgeError, StoreError
from orderbridge.observe import logs
from orderbridge.store import schema, write_guards
from orderbridge.store.database import Database, open_database
from orderbridge.store.failures import is_busy, is_denied, is_refusal, remedy
from orderbridge.store.leader import LeaderLock
from orderbridge.store.tables import SCHEMA_VERSION_TABLE, actions, cancel_reasons, items, metadata, orders

BUSY_TIMEOUT_S = 2.0  # as long as a server's sessions wait
BUSY_WITHIN_S = 10.0
WAKES = 7
WAKE_WITHIN_S = 10.0
TEXT, MONEY, GRANTS, LOCK, WAKE, NO_ORDER = (f"00000000-0000-4000-8000-{number:012x}" for number in range(6))
LETTERS = "İ I ı i Ş ş S s Ğ ğ G g Ç ç C c Ö ö O o Ü ü U u".split()
TEXTS = ("\tİ ı ş ğ Ç\n", "boşluk  ", "🥙" * 255)
AMOUNTS = [Decimal("0.10"), Decimal("0.20"), Decimal("89.90"), Decimal("1234567890.12")]
WRONG: tuple[tuple[Table, dict[str, Any]], ...] = (
    (actions, {"action": "dance"}),
    (actions, {"action": "complete"}),
    (actions, {"action": "complete", "payment_key": "A" + TEXT[1:]}),
    (actions, {"action": "accept", "payment_key": TEXT}),
    (actions, {"action": "accept", "payment_key": TEXT, "preparing_time": 25.5}),
    (actions, {"action": "cancel", "payment_key": TEXT, "reason_id": 9}),
    (items, {"payment_key": NO_ORDER, "line_no": 1}),
)
ACCEPT = "INSERT INTO delivery_actions (action, payment_key, preparing_time) VALUES ('accept', '{}', 25)"
PERMITTED = (
    "SELECT * FROM delivery_new_orders",
    ACCEPT.format(GRANTS),
    "UPDATE delivery_actions SET withdraw = 1",
    "UPDATE delivery_orders SET pos_revision = 1, pos_reference = 'K1-1'",
)
FORBIDDEN = (
    "UPDATE delivery_orders SET status = 'CANCELED'",
    "UPDATE delivery_actions SET state = 'done'",
    "DELETE FROM delivery_actions",
)


class Unfit(OrderbridgeError):
    """The database does not do what the store needs."""


class Skipped(OrderbridgeError):
    """This user lacks the rights for the check."""


class Trial:
    """A database with our tables, and the sessions of a till there."""

    def __init__(self, url: str, database: Database) -> None:
        self.url = url
        self.database = database
        self.role: str | None = None

    def insert(self, table: Table, **values: Any) -> None:
        """Write one row as the daemon does."""
        self.database.write_now(lambda tx: tx.execute(insert(table).values(**values)))

    def insert_order(self, key: str) -> None:
        """Write an order as the daemon does."""
        now = SystemClock().now()
        self.insert(orders, payment_key=key, account="try", status="RECEIVED", received_utc=now, changed_utc=now)

    def refuses(self, table: Table, **values: Any) -> bool:
        """Whether the database refuses this row."""
        try:
            self.insert(table, **values)
        except DBAPIError as error:
            if not is_refusal(error):
                raise
            return True
        return False

    def read(self, question: Any) -> list[Any]:
        """Read one column."""
        return self.database.read_now(lambda tx: list(tx.execute(question).scalars()))

    @contextmanager
    def till(self, **credentials: Any) -> Iterator[Connection]:
        """A session in which each statement is committed at once."""
        address = make_url(self.url).set(**credentials)
        with create_engine(address, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect() as connection:
            yield connection


# ---- the checks ------------------------------------------------------------------------------------------------------


def text(trial: Trial) -> Message:
    """Texts are read as they were written, and a unique key distinguishes all letters."""
    trial.insert_order(TEXT)
    for one in TEXTS:
        texts = update(orders).values(customer_name=one, note=one * 9)
        trial.database.write_now(lambda tx, texts=texts: tx.execute(texts))  # type: ignore[misc]
        if trial.read(select(orders.c.customer_name + orders.c.note)) != [one * 10]:
            raise Unfit("trial.text_changed", text=repr(one[:20]))
    for letter in LETTERS:
        if trial.refuses(actions, action="complete", payment_key=TEXT, request_id=f"letter {letter}"):
            raise Unfit("trial.text_equal", letter=letter)
    return Message("trial.text")


def money(trial: Trial) -> Message:
    """Amounts are read as they were written; SQLite's after ROUND(x, 2)."""
    trial.insert_order(MONEY)
    for line, amount in enumerate(AMOUNTS):
        trial.insert(items, payment_key=MONEY, line_no=line, price=amount)
    found = [Decimal(str(one)) for one in trial.read(select(items.c.price).order_by(items.c.line_no))]
    if trial.database.dialect.one_writer:
        found = [round(one, 2) for one in found]
    if found != AMOUNTS:
        raise Unfit("trial.money_changed", written=" ".join(map(str, AMOUNTS)), read=" ".join(map(str, found)))
    return Message("trial.money", count=len(AMOUNTS))


def constraints(trial: Trial) -> Message:
    """Wrong rows are refused."""
    for table, row in WRONG:
        if not trial.refuses(table, **row):
            raise Unfit("trial.row_accepted", table=table.name, row=row)
    return Message("trial.constraints", count=len(WRONG))


def grants(trial: Trial) -> Message:
    """A till's role may do what it needs, and nothing else. On SQLite triggers refuse the rest."""
    trial.insert_order(GRANTS)
    with trial.till(**_make_role(trial)) as till:
        for statement in PERMITTED:
            till.exec_driver_sql(statement)
        for statement in FORBIDDEN:
            with suppress(DBAPIError):
                till.exec_driver_sql(statement)
                raise Unfit("trial.write_permitted", statement=statement)
    return Message("trial.grants")


def _make_role(trial: Trial) -> dict[str, str]:
    """The credentials of a new role with the printed grants. SQLite has none."""
    dialect, url = trial.database.dialect, make_url(trial.url)
    if not dialect.make_role:
        return {}
    name, password = f"orderbridge_try_{os.getpid()}", f"Aa1-{secrets.token_hex(16)}"
    with trial.till() as owner:
        place = owner.exec_driver_sql(dialect.schema_query).scalar() if dialect.schema_query else url.database
        try:
            owner.exec_driver_sql(dialect.make_role.format(name=name, password=password))
        except DBAPIError as error:
            raise Skipped("trial.no_role") if is_denied(error) else error from None
        trial.role = name
        for statement in write_guards.grant_statements(url.get_backend_name(), name, place):
            owner.exec_driver_sql(statement)
    return {"username": name, "password": password}


def lock(trial: Trial) -> Message:
    """While a till holds a lock, our write soon fails as busy. After that it succeeds and keeps the till's value."""
    trial.insert_order(LOCK)
    ours = update(orders).where(orders.c.payment_key == LOCK).values(status="CONFIRMED")
    began = SystemClock().monotonic()
    with trial.till() as till:
        till.exec_driver_sql("BEGIN IMMEDIATE" if trial.database.dialect.one_writer else "BEGIN")
        till.exec_driver_sql("UPDATE delivery_orders SET pos_reference = 'K1-'")
        try:
            trial.database.write_now(lambda tx: tx.execute(ours))
        except DBAPIError as error:
            if not is_busy(error):
                raise
        else:
            raise Unfit("trial.lock_ignored")
        seconds = SystemClock().monotonic() - began
        till.exec_driver_sql("COMMIT")
    trial.database.write_now(lambda tx: tx.execute(ours))
    row = trial.read(select(orders.c.pos_reference + orders.c.status).where(orders.c.payment_key == LOCK))
    if seconds > BUSY_WITHIN_S or row != ["K1-CONFIRMED"]:
        raise Unfit("trial.lock_lost", seconds=f"{seconds:.1f}")
    return Message("trial.lock", seconds=f"{seconds:.1f}")


def wake(trial: Trial) -> Message:
    """A till's row wakes the daemon soon."""
    found: list[float] = []

    async def measure() -> None:
        now, woken = asyncio.get_running_loop().time, asyncio.Event()
        watch = asyncio.create_task(trial.database.watch(woken.set))
        try:
            await asyncio.wait_for(woken.wait(), WAKE_WITHIN_S)  # the first call is for earlier commits
            with trial.till() as till:
                for _ in range(WAKES):
                    woken.clear()
                    began = now()
                    till.exec_driver_sql(ACCEPT.format(WAKE))
                    await asyncio.wait_for(woken.wait(), WAKE_WITHIN_S)
                    found.append(now() - began)
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    try:
        asyncio.run(measure())
    except TimeoutError as error:
        raise Unfit("trial.not_woken", seconds=f"{WAKE_WITHIN_S:.0f}") from error
    return Message("trial.wake", milliseconds=f"{statistics.median(found) * 1000:.0f}", count=WAKES)


def crash(trial: Trial) -> Message:
    """After a process is killed within a transaction, the database has all earlier commits and nothing of this one."""
    program = [sys.executable, "-m", __name__]
    done = subprocess.run(program, input=trial.url, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != -signal.SIGKILL:
        raise Unfit("trial.crash_failed", error=done.stderr.strip().rpartition("\n")[2])
    trial.insert(cancel_reasons, id=3, reason="afterwards")
    kept = trial.read(select(cancel_reasons.c.reason).order_by(cancel_reasons.c.id))
    if kept != ["committed", "afterwards"]:
        raise Unfit("trial.crash_lost", rows=", ".join(kept))
    return Message("trial.crash")


def die(url: str) -> None:
    """Commit one row, write another, and end with SIGKILL. Runs in a separate process."""
    database = Database(url, inline=True)
    database.write_now(lambda tx: tx.execute(insert(cancel_reasons).values(id=1, reason="committed")))
    with database.engine.begin() as connection:
        connection.execute(insert(cancel_reasons).values(id=2, reason="open"))
        os.kill(os.getpid(), signal.SIGKILL)


def durability(trial: Trial) -> Message:
    """Commits are on disk when they return."""
    if unsafe := trial.database.check_durability():
        raise Unfit(unsafe.key, **unsafe.facts)
    found = trial.database.read_now(trial.database.dialect.failover)
    return Message("check.durable") if found is None else found.message


def session_lock(trial: Trial) -> Message:
    """Only one session can hold the daemon's lock. When it has released the lock, another session can take it."""
    other = Database(trial.url, inline=True)
    with closing(other), closing(LeaderLock(trial.database)) as first, closing(LeaderLock(other)) as second:
        taken = [first.take(), second.take()]
        first.close()
        taken.append(second.take())
    if taken != [True, False, True]:
        raise Unfit("trial.session_lock_failed")
    return Message("trial.session_lock")


CHECKS = (text, money, constraints, grants, lock, wake, crash, durability, session_lock)


# ---- one trial -------------------------------------------------------------------------------------------------------


def run(url: str, *, machine: bool) -> bool:
    """Print a line for each check. Returns whether all passed. Raises StoreError if the database is not empty."""
    logs.configure(level="critical")  # the findings are printed
    report = Report(machine=machine)
    with tried(url) as trial:
        for finding in findings(trial):
            report.add(finding)
    report.show()
    return report.is_good


@contextmanager
def tried(url: str) -> Iterator[Trial]:
    """An empty database with our tables, empty again at the end. Raises StoreError."""
    file = sqlite_file(url)
    is_new = file is not None and not file.exists()
    with closing(open_database(url, inline=True, busy_timeout_s=BUSY_TIMEOUT_S)) as database:
        database.refuse_pooler()
        contents = database.dialect.contents
        if found := database.read_now(lambda tx: list(tx.exec_driver_sql(contents).scalars())):
            raise StoreError("trial.not_empty", names=", ".join(found[:5]))
        trial = Trial(url, database)
        try:
            database.write_now(schema.upgrade)
            yield trial
        finally:
            _remove(trial)
    for suffix in ("", "-wal", "-shm") if is_new else ():
        Path(f"{file}{suffix}").unlink(missing_ok=True)


def findings(trial: Trial) -> Iterator[Finding]:
    """The result of each check, whose name is its code."""
    for check in CHECKS:
        code = check.__name__
        try:
            yield good(code, check(trial))
        except Skipped as skipped:
            yield warn(code, skipped)
        except OrderbridgeError as unfit:
            yield bad(code, unfit)
        except DBAPIError as error:
            yield bad(code, str(error.orig), remedy(error))


def _remove(trial: Trial) -> None:
    """Remove everything, since the database was empty before, and the role."""
    dialect, ours = trial.database.dialect, metadata.sorted_tables
    names = [f"VIEW IF EXISTS {table.name}" for table in ours if table.is_view]
    names += [f"TABLE IF EXISTS {table.name}" for table in reversed(ours) if not table.is_view]
    names += [f"TABLE IF EXISTS {name}" for name in (SCHEMA_VERSION_TABLE, dialect.guard) if name]
    with trial.till() as owner:
        for name in names:
            owner.exec_driver_sql(f"DROP {name}")
        for name in owner.exec_driver_sql(dialect.contents).scalars().all():
            owner.exec_driver_sql(f"DROP FUNCTION {name}")
        for statement in dialect.drop_role if trial.role else ():
            owner.exec_driver_sql(statement.format(name=trial.role))


if __name__ == "__main__":  # the process of `crash`
    die(sys.stdin.read())
