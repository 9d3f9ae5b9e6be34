"""What is wrong with single replicas: each writes down what only it can know, and the lead tells all of it.

What concerns one replica alone, and no account, has the replica's name as its subject there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge.store.database import Database
from orderbridge_fleet import replicas

UNKNOWN = ""  # before the first look: a reload keeps the name, and what the daemon before had written is there still


class ReplicaProblems:
    """Of one daemon."""

    def __init__(self, database: Database, name: str | None) -> None:
        """`name`: by which the other replicas know us; None: there is no other."""
        self._name = name
        self._database = database
        self._noted: str | None = UNKNOWN

    async def note(self, found: Sequence[Problem]) -> None:
        """This is so here. Written only when it has changed; what fails is tried with the next look."""
        text = json.dumps([_plain(one) for one in found], ensure_ascii=False) if found else None
        if self._name is None or text == self._noted:
            return
        try:
            await self._database.run(partial(replicas.tell, replica=self._name, problems=text))
        except DBAPIError:
            return
        self._noted = text

    def others(self, connection: Connection) -> Iterator[Problem]:
        """What the other replicas have written down."""
        if self._name is None:
            return
        for replica, text in replicas.told(connection, self._name):
            for row in json.loads(text):
                if row["code"] in set(Code):
                    one = _problem(row)
                    yield one if one.subject else replace(one, subject=replica)


def _plain(one: Problem) -> dict[str, Any]:
    return {
        "code": one.code,
        "subject": one.subject,
        "since": None if one.since is None else one.since.isoformat(),
        "severity": one.severity,
        "count": one.count,
        "account": one.account,
        "facts": dict(one.facts),
    }


def _problem(row: Mapping[str, Any]) -> Problem:
    since = None if row["since"] is None else datetime.fromisoformat(row["since"])
    severity, count = Severity(row["severity"]), row["count"]
    return Problem(
        Code(row["code"]), row["subject"], since, severity, count, account=row["account"], facts=row["facts"]
    )
