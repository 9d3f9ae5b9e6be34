"""Whose cooldown it is, found out on purpose: accounts are asked for one straight after the other (`check --cooldown`).

The interface leaves open whether the cooldown of get-current belongs to the credential, to the application (all accounts
with one app_secret_key) or to the address that calls. What the daemon learns of it as it goes is in rules.turns.

Rules of this file:
- The first is asked when all cooldowns are over, the others at once after it. An OK straight after an OK: these two share
  none. A 429 straight after an OK: they may share one, or a stranger polls with the second one's credential.
- So a 429 counts when it comes again with the two the other way round, a cooldown later.
- Accounts that reach the same restaurant say nothing about applications: it may be the restaurant's cooldown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What was found."""

    CREDENTIAL = "credential"  # each account has its own
    NOT_ADDRESS = "not_address"  # accounts of different applications have their own; more could not be asked
    APPLICATION = "application"
    ADDRESS = "address"
    APPLICATION_OR_ADDRESS = "application_or_address"
    UNKNOWN = "unknown"  # somebody else polls with one of these credentials


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked. `beside`: of the same application as `first`; `other`: of another one; None: there is none."""

    first: str
    beside: str | None
    other: str | None

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.first, self.beside, self.other)))


def choose(accounts: Iterable[tuple[str, str]]) -> Asked | None:
    """`accounts`: names and their applications; no more are looked at than it takes. None: no two tell anything.

    Two of one application and one of another tell most.
    """
    by_application: dict[str, list[str]] = {}
    several: list[str] | None = None
    for name, application in accounts:
        mine = by_application.setdefault(application, [])
        mine.append(name)
        several = several or (mine if len(mine) > 1 else None)
        if several and len(by_application) > 1:
            break
    mine = several or next(iter(by_application.values()), [])
    other = next((names[0] for names in by_application.values() if names is not mine), None)
    found = Asked(mine[0], mine[1] if several else None, other) if mine else None
    return found if found is not None and len(found.all) > 1 else None


def judge(asked: Asked, shared: Sequence[str]) -> Scope:
    """`shared`: who of them was answered 429 straight after the first, both ways round."""
    beside, other = asked.beside in shared, asked.other in shared
    if other:
        return Scope.ADDRESS if asked.beside is None or beside else Scope.UNKNOWN
    if beside:
        return Scope.APPLICATION_OR_ADDRESS if asked.other is None else Scope.APPLICATION
    return Scope.NOT_ADDRESS if asked.beside is None else Scope.CREDENTIAL
