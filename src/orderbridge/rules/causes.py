"""What follows from what: of several problems at once, which one stands `behind` which (promise 8).

What stands behind another one neither begins nor gets worse meanwhile, and it does not end either, since nobody can know.

A service that gives no list takes no action either: what has failed since the last good poll follows from that. An order
that nobody has answered yet does not: a till can, and has to. Nor does an accept that became too late while no daemon worked.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from orderbridge.rules.problems import NO_DATABASE, Cause, Code, Problem, Severity

_BY_STATUS = {Code.UNANSWERED, Code.ACCEPT_FAILED}  # what an order's stored status says
_FAILED = {Code.ACCEPT_FAILED, Code.OUTCOME_UNKNOWN}  # `since` they ended


def with_causes(
    found: list[Problem], refused: Collection[str], unattended: Collection[str] = frozenset()
) -> list[Problem]:
    """Each problem with the one that it follows from. `refused`: the orders of which the database takes no news.

    `unattended`: those whose accept became too late while no daemon worked.
    """
    codes = {one.code for one in found}
    database = next((code for code in Code if code in NO_DATABASE & codes), None)
    polls = {one.subject: one for one in found if one.code.kind.cause in {Cause.CUT_OFF, Cause.NO_LIST}}
    page = next(
        (one.code for one in found if one.code.kind.cause is Cause.PAGE and one.severity == Severity.SEVERE), None
    )
    if not (database or polls or refused or page or {Code.NOT_DURABLE, Code.DATABASE_RESTORED} & codes):
        return found
    restored = next((one.since for one in found if one.code == Code.DATABASE_RESTORED), None)
    causes = [
        _of_database(one, database)
        or _of_polls(one, polls.get(one.account or ""), unattended)
        or _of_order(one, refused)
        or _of_durability(one, codes)
        or _of_restore(one, restored)
        or (page if Cause.PAGE in one.code.kind.behind else None)
        for one in found
    ]
    return [one if cause is None else replace(one, behind=cause) for one, cause in zip(found, causes, strict=True)]


def _of_database(one: Problem, database: Code | None) -> Code | None:
    follows = Cause.NO_DATABASE in one.code.kind.behind or (one.code in NO_DATABASE and one.code != database)
    return database if follows else None


def _of_polls(one: Problem, polls: Problem | None, unattended: Collection[str]) -> Code | None:
    """`polls`: why its account has no good one. What the service has not given, cannot be acknowledged."""
    if polls is None or (one.code == Code.ACCEPT_FAILED and one.subject in unattended):
        return None
    if polls.code.kind.cause in one.code.kind.behind:
        return polls.code
    is_newer = one.since is not None and (polls.since is None or one.since > polls.since)
    return polls.code if one.code in _FAILED and is_newer else None


def _of_order(one: Problem, refused: Collection[str]) -> Code | None:
    """Of an order that the database does not let us change, nobody knows whether it was answered."""
    return Code.CONTENTS_OUTDATED if one.code in _BY_STATUS and one.subject in refused else None


def _of_durability(one: Problem, codes: Collection[Code]) -> Code | None:
    return Code.NOT_DURABLE if one.code == Code.NOT_ACKNOWLEDGED and Code.NOT_DURABLE in codes else None


def _of_restore(one: Problem, restored: datetime | None) -> Code | None:
    """What an older copy had still to send was ended when it was seen; whether it was sent, the look at the panel shows."""
    if one.code != Code.ACCEPT_FAILED or restored is None or one.since is None:
        return None
    return Code.DATABASE_RESTORED if abs(one.since - restored) < timedelta(seconds=1) else None
