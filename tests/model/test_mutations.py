"""The model can fail: without a rule or guard it finds the trace that this guard prevents."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.model import books
from tests.model.books import NOW
from tests.model.explore import STUCK, explore
from tests.model.machine import Machine, Scene

from orderbridge.actions import ACTIONS
from orderbridge.jobs import outcome_writer
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox import Outbox
from orderbridge.model import IN_DELIVERY, Action, Attempt, Outcome, Verdict
from orderbridge.rules import lifecycle, outbox_rows, queue, retry
from orderbridge.rules.outbox_rows import Cause, Standing, order_lane
from orderbridge.rules.retry import Proof, RetryAt

Change = tuple[object, str, object]  # an object, its attribute, and what replaces that
ON_ITS_WAY = Scene(rows=1, crashes=0, status=IN_DELIVERY, all_faults=False)
ONE_ROW = Scene(rows=1, crashes=0, all_faults=False)
TWO_ENDS = Scene(faults=2, crashes=0, status=IN_DELIVERY, all_faults=False, actions=(Action.COMPLETE, Action.CANCEL))
NO_FAULT = Scene(rows=1, crashes=0, faults=0)


def given(rule: Callable[..., Any], **forced: Any) -> Callable[..., Any]:
    """The rule with these arguments, whatever it gets."""
    return lambda *args, **named: rule(*args, **named | forced)


def proved_by_absence(of: Action) -> Change:
    def proof(action: Action, history: Any, order: Any, seen: int | None, **more: Any) -> Proof:
        return Proof.DONE if action == of and seen is None else real(action, history, order, seen, **more)

    real = retry.proof
    return retry, "proof", proof


def without_the_other_end(of: Action) -> Change:
    def proof(action: Action, *args: Any, **named: Any) -> Proof:
        return real(action, *args, **named | ({"other_end": False} if action == of else {}))

    real = retry.proof
    return retry, "proof", proof


def sent_again(action: Action, history: Any, **more: Any) -> Any:
    return RetryAt(NOW) if history[-1].outcome == Outcome.REFUSED else retry.decide(action, history, **more)


def certain(outcome: Outcome, code: str | None = None) -> Attempt:
    return Attempt(Outcome.RATE_LIMITED, code)


def with_a_status(row: Any) -> Verdict | None:
    made = outbox_rows.order_end(row)
    return replace(made, status_id=ACTIONS[row.action].target) if made and made.code == "already" else made


AS_IF_WAITING = {(Standing.RETRIED, cause): outbox_rows.ENDS[Standing.WAITING, cause] for cause in Cause}
ANY_POLL: Change = (Lanes, "hold_for_poll", lambda self, key, began: self.take(order_lane(key)))

# A mutation: where the model finds it, the words of what it finds, and what is replaced.
PLANTS: dict[str, tuple[Scene, str, Change | list[Change]]] = {
    # What we gave up on may still be on its way; nothing but this guard keeps the acknowledgement from it.
    "an order with an unresolved row is acknowledged": (
        ONE_ROW._replace(faults=2, late=1), "swallows", (books.ORDERS, "with_unresolved_rows", lambda *_: set()),
    ),
    "a poll's status counts although an action was on the wire when its list was made": (
        ONE_ROW, "swallows", ANY_POLL,
    ),
    "a poll's status counts although an action is on the wire": (
        ONE_ROW, "in the end", (lifecycle, "merge", given(lifecycle.merge, status_counts=True)),
    ),
    "an action leaves while the acknowledgement is on the wire": (
        NO_FAULT, "swallows", (outbox_rows, "order_lane", lambda key: ("order", f"{key} {NOW}")),
    ),
    "an action's lane is free before its answer": (NO_FAULT, "swallows", (Lanes, "take", lambda self, lane: True)),
    "absence alone proves a complete": (
        ON_ITS_WAY, "the order was never there", proved_by_absence(Action.COMPLETE),
    ),
    "absence alone proves an accept": (ONE_ROW, "the order was never there", proved_by_absence(Action.ACCEPT)),
    # A list that was made before the accept shows 1, and comes in when its resend has been refused.
    "any poll is evidence, also one that began before the attempt had ended": (
        ONE_ROW,
        "accept ends",
        [
            ANY_POLL,
            (lifecycle, "merge", given(lifecycle.merge, status_counts=False)),
            (books.ORDERS, "with_unresolved_rows", lambda books, keys: set(keys)),
        ],
    ),
    "an action is sent again after a refusal": (
        NO_FAULT, "sent again after a definite answer", (outcome_writer, "decide", sent_again),
    ),
    "a refusal after a lost answer is taken at its word": (
        ONE_ROW, "and it was done", (retry, "is_uncertain", lambda history: False),
    ),
    "a refusal after a 5xx is taken at its word": (
        ONE_ROW, "and it was done", (retry, "UNCERTAIN", frozenset({Outcome.UNKNOWN})),
    ),
    "a crash while sending is forgotten": (Scene(rows=1, faults=0), STUCK, (Outbox, "_lost", lambda *_: [])),
    "a crash while sending is no doubt": (
        Scene(rows=1, faults=0), "and it was done", (outcome_writer, "Attempt", certain),
    ),
    "a done action does not write its status": (
        ON_ITS_WAY, "in the end", (books.ORDERS, "set_status", books.nothing),
    ),
    "an action that is done already writes its status": (
        Scene(crashes=0, status=IN_DELIVERY), "in the end", (queue, "order_end", with_a_status),
    ),
    "a cancel of ours leaves a complete provable": (
        TWO_ENDS, "complete ends done", without_the_other_end(Action.COMPLETE),
    ),
    "a complete of ours leaves a cancel provable": (TWO_ENDS, "cancel ends done", without_the_other_end(Action.CANCEL)),
    "a retried row can be withdrawn, or expires": (
        ONE_ROW._replace(expiries=1, retries=1, withdrawals=1),
        "and it was done",
        (outbox_rows, "ENDS", {**outbox_rows.ENDS, **AS_IF_WAITING}),
    ),
    "a row's end is not written": (NO_FAULT, STUCK, (books.ACTIONS, "finish", books.nothing)),
    "another status is taken for an unchanged order": (
        NO_FAULT._replace(others=1), "swallows", (lifecycle, "is_unchanged", lambda stored, document: True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("scene, finds, changes", PLANTS.values(), ids=PLANTS)
def test_the_model_finds_what_a_guard_is_there_for(
    scene: Scene, finds: str, changes: Change | list[Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(scene, monkeypatch)
    for owner, name, other in changes if isinstance(changes, list) else [changes]:
        monkeypatch.setattr(owner, name, other)
    found = explore(machine, kinds=20 if scene.others or scene.late else 1)
    assert any(finds in words for words in found.wrong), found.report() or f"nothing in {found.states} states"
