"""What became of requests: decided and written, for many rows in one transaction."""

from collections.abc import Callable, Sequence

import structlog
from sqlalchemy import Connection

from orderbridge.actions import ACTIONS, key_of
from orderbridge.clock import Clock
from orderbridge.jobs.send import Result
from orderbridge.jobs.verdicts import Posting, Verdicts, about, best_effort
from orderbridge.model import ActionState, OutboxRow, Outcome, Verdict
from orderbridge.rules.retry import Decision, RetryAt, RetryPolicy, decide
from orderbridge.store import actions, locks, orders, reference

_log = structlog.get_logger(__name__)


class OutcomeWriter:
    """Writes results. A row or an order that a till holds is left out."""

    def __init__(self, clock: Clock, verdicts: Verdicts, policy: Callable[[], RetryPolicy]) -> None:
        self._clock = clock
        self._verdicts = verdicts
        self._policy = policy

    def post(self, connection: Connection, results: Sequence[Result]) -> list[tuple[Result, Decision]]:
        """Write what nobody holds. Returns what was written, and what was decided."""
        if not results:
            return []
        now = self._clock.now()
        rows = locks.lock_rows_naming_held(connection, [result.claim.row.id for result in results])
        keys = {result.claim.row.payment_key for result in results} - {None}
        known, held = orders.hold(connection, [key for key in keys if key])
        free = [r for r in results if r.claim.row.id not in rows and r.claim.row.payment_key not in held]
        noted = [(r.claim.row.id, r.claim.number, r.attempt) for r in free if r.attempt is not None]
        actions.record(connection, noted, now)
        actions.forget_attempts(connection, [(r.claim.row.id, r.claim.number) for r in free if r.attempt is None])
        made = [(result, self._decide(result)) for result in free]
        self._verdicts.post(connection, [posting for _, posting in made], known, now)
        for result, posting in made:
            self._show_restaurant(connection, result, posting.decision)
        return [(result, posting.decision) for result, posting in made]

    def _decide(self, result: Result) -> Posting:
        claim = result.claim
        history = [*claim.history, *([] if result.attempt is None else [result.attempt])]
        decision = result.decision or decide(
            claim.row.action, history, now=self._clock.now(), policy=self._policy(), retry_at=claim.account.retry_at()
        )
        return Posting.after(claim.row, history, decision)

    def _show_restaurant(self, connection: Connection, result: Result, decision: Decision) -> None:
        claim = result.claim
        if shown := shows_restaurant(claim.row, decision):
            key, now = key_of(claim.row), self._clock.now()
            with best_effort(connection, claim.row):
                reference.set_restaurant_status(connection, claim.account.name, key, shown, now, row_id=claim.row.id)

    def tell(self, result: Result, decision: Decision) -> None:
        """One line for what became of a request, once it is written."""
        row, attempt = result.claim.row, result.attempt
        if isinstance(decision, Verdict):
            self._verdicts.tell(row, decision)
            return
        # What keeps a whole account waiting is told once for the account, and a wait once for each cause.
        before = {one.code for one in result.claim.history}
        again = attempt is None or attempt.outcome == Outcome.NOT_SENT or attempt.code in before
        told = _log.debug if again else _log.info
        at = decision.at.isoformat() if isinstance(decision, RetryAt) else "next_poll"
        told("action.waits", id=row.id, action=row.action, code=decision.code, again=at, **about(row))


def shows_restaurant(row: OutboxRow, decision: Decision) -> str | None:
    """The status that a restaurant has by now, when this has opened or closed it."""
    is_done = isinstance(decision, Verdict) and decision.state == ActionState.DONE
    return ACTIONS[row.action].target_shown if is_done else None
