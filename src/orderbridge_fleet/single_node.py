"""The place of a daemon with a SQLite file of its own, which has the face of a replica's; and whose place it is to be."""

import os
import socket
from collections.abc import Collection

from sqlalchemy import Connection

from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock
from orderbridge_fleet import replicas
from orderbridge_fleet.membership import Beat, Membership, Rule


class Alone(LeaderLock):
    """A SQLite file has one daemon: all buckets are its own, and the file's lock is fence enough."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database
        self.name = f"{socket.gethostname()[:40]} {os.getpid()}"

    def fence(self, _: Connection) -> None:
        """Nobody else is let in."""

    def beat(self, _: Collection[int] = (), *, is_ending: bool = False) -> Beat:  # noqa: ARG002 - Membership's
        """There is nobody to give anything to."""
        count = self._database.read_now(replicas.count)
        return Beat(frozenset(range(count)), frozenset(), count, frozenset({self.name}))


def membership(database: Database, rule: Rule) -> Membership | Alone:
    """By the kind of database. Raises Unusable where replicas cannot share it."""
    return Alone(database) if database.file is not None else Membership(database, rule)
