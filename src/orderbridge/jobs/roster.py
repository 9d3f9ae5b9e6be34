"""Which accounts there are, which of them this process works for, and whether it may write for them.

A daemon works for all of them. A replica of a fleet works for some: its package overrides the second half.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self

from sqlalchemy import Connection

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.rules.problems import Problem
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock, RightToWork


class Roster:
    """All accounts by name, and those that are at work here. Both are read by many, and changed in place."""

    def __init__(self, known: Iterable[config.Account] = ()) -> None:
        # None: its settings cannot be read, but it is known who owns it
        self.known: dict[str, config.Account | None] = {account.name: account for account in known}
        self.at_work: dict[str, Account] = {}
        self.version = 0  # grows with each change

    @classmethod
    def of(cls, accounts: Mapping[str, Account]) -> Self:
        """These are all there are, and all are at work here."""
        roster = cls()
        roster.known = {name: account.settings for name, account in accounts.items()}
        roster.at_work = dict(accounts)
        return roster

    def changed(self) -> None:
        """To be called after a change: what was decided by the roster is decided anew."""
        self.version += 1

    # ---- what a replica overrides ------------------------------------------------------------------------------------

    def owns(self, account: str | None) -> bool:  # noqa: ARG002
        """Whether the rows of an account are ours. None: rows without an account, and what is done once for all."""
        return True

    def fence(self, connection: Connection) -> None:
        """Begins each transaction that writes. Raises Fenced when another process may have our accounts."""

    def may_send(self) -> bool:
        """Whether a request may leave now."""
        return True

    def is_current(self, connection: Connection) -> bool:  # noqa: ARG002
        """Whether `known` is what the database has now."""
        return True

    def clock(self, machine: Clock) -> Clock:
        """The clock that all processes on the database share."""
        return machine

    def check(self, database: Database) -> None:
        """Raise Unusable where this configuration cannot work on the database. Called in a thread."""

    def right_to_work(self, database: Database, held: RightToWork | None) -> RightToWork:
        """What must be held to work. `held`: by the daemon before this one; it is kept where it serves."""
        return held if isinstance(held, LeaderLock) and held.serves(database) else LeaderLock(database)

    async def begin(self, daemon: Any) -> None:
        """Put accounts to work. `daemon`: its parts are all there."""
        await daemon.working.begin([account for account in self.known.values() if account is not None])

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What runs until the daemon ends. A task that ends by itself has failed, and ends the daemon."""
        return ()

    async def drain(self) -> None:
        """Hand everything over, at the end, beside `tasks`."""

    async def close(self) -> None:
        """Cancel what is left."""

    async def share_problems(self, found: Sequence[Problem]) -> None:
        """Make known to other replicas what is wrong here."""

    def problems_elsewhere(self, connection: Connection) -> Iterable[Problem]:  # noqa: ARG002
        """What other replicas have made known."""
        return ()
