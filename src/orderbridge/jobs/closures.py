"""Ends closures: writes the opposite action when the time of a closure has come (rules.closures).

One transaction reads the newer rows of the lane, removes the planned end from the row and writes the action. So the
action is written once, and never after a newer row. While the tables are noted as an older copy, nothing is written:
newer rows may be lost.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.jobs.account import Roster
from orderbridge.jobs.context import Context
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.rules.closures import Step, shortened, step
from orderbridge.rules.outbox_rows import Directory, lane_of, name_of
from orderbridge.store import closures, high_water, reference
from orderbridge.store.failures import is_busy
from orderbridge.store.group_commit import write_batch
from orderbridge.texts import say

CLOSURES_S = 5.0
IDLE_S = 15.0  # while no end is planned
MAX_PLANS = 100  # planned ends in one transaction, during which a POS on the same file waits

_log = structlog.get_logger(__name__)


class Closures:
    """The planned ends of all accounts. Among replicas only the lead ends closures."""

    def __init__(self, context: Context, roster: Roster, restore_check: RestoreCheck) -> None:
        self._context, self._roster, self._restore_check = context, roster, restore_check
        self._database, self._clock = context.database, context.clock
        self.refused: Collection[int] = ()  # the closures whose end the database refused in the last run

    async def follow(self) -> float:
        """Carry out what is due. Returns the seconds until the next run."""
        if not self._roster.owns(None):
            self.refused = ()
            return IDLE_S
        plans = await self._database.read(closures.planned)
        now = self._clock.now()
        due = [plan for plan in plans if step(plan, (), now) is not Step.WAIT]
        if due:
            await self._restore_check.check()  # these tables may have been restored just now
        refused: set[int] = set()
        for begin in range(0, len(due), MAX_PLANS):  # not only the first ones, which may wait for newer rows
            ended, failed = await write_batch(self._database, self.carry_out, due[begin : begin + MAX_PLANS])
            for plan in ended:
                _log.info("closure.ended", id=plan.id, restaurant_id=plan.restaurant_id, food_id=plan.food_id)
            refused |= {plan.id for plan, error in failed if not (isinstance(error, DBAPIError) and is_busy(error))}
        for row in sorted(refused.difference(self.refused)):
            _log.error("action.database_refused", id=row, remedy=say("log.actions_trigger"))
        self.refused = refused
        return CLOSURES_S if plans else IDLE_S

    def carry_out(self, connection: Connection, plans: Sequence[Any]) -> list[Any]:
        """Carry out the next steps in one transaction. Returns the closures that were ended."""
        if high_water.older(connection) is not None:
            return []
        default, known = self._context.settings.default_account, self._roster.known.keys()
        reach = reference.restaurant_accounts(connection)
        directory = Directory(known, default, reach, complete=True)
        now = self._clock.now()
        return [plan for plan in plans if self._carry_out_one(connection, plan, directory, now)]

    def _carry_out_one(self, connection: Connection, plan: Any, directory: Directory, now: datetime) -> bool:
        lane = _lane(plan, directory)
        newer = {row.state for row in closures.newer(connection, plan) if _lane(row, directory) == lane}
        match step(plan, newer, now):
            case Step.END if closures.set_end(connection, plan, None):
                closures.end(connection, plan)
                return True
            case Step.FORGET:
                closures.set_end(connection, plan, None)
            case Step.SHORTEN:
                closures.set_end(connection, plan, shortened(plan, now))
            case Step.END | Step.WAIT:
                pass
        return False


def _lane(row: Any, directory: Directory) -> object:
    return lane_of(row, name_of(row, directory))
