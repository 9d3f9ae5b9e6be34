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

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTS: dict[str, tuple[Plant, Scene, str]] = {}
ON_ITS_WAY = Scene(rows=1, crashes=0, status=IN_DELIVERY, all_faults=False)
ONE_ROW = Scene(rows=1, crashes=0, all_faults=False)
TWO_ENDS = Scene(faults=2, crashes=0, status=IN_DELIVERY, all_faults=False, actions=(Action.COMPLETE, Action.CANCEL))
NO_FAULT = Scene(rows=1, crashes=0, faults=0)


def planted(words: str, scene: Scene, finds: str) -> Callable[[Plant], Plant]:
    """A mutation, where to look for it, and what is to be found."""

    def keep(plant: Plant) -> Plant:
        PLANTS[words] = (plant, scene, finds)
        return plant

    return keep


@planted("an order with an unresolved row is acknowledged", ONE_ROW._replace(faults=2, late=1), "swallows")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    """What we gave up on may still be on its way; nothing but this guard keeps the acknowledgement from it."""
    monkeypatch.setattr(books.ORDERS, "with_unresolved_rows", lambda *_: set())


@planted("a poll's word counts although an action was on the wire when its list was made", ONE_ROW, "swallows")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lanes, "hold_for_poll", lambda self, key, began: self.take(order_lane(key)))


@planted("a poll's word counts although an action is on the wire", ONE_ROW, "in the end")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "merge", _with(lifecycle.merge, status_counts=True))


@planted("an action leaves while the acknowledgement is on the wire", NO_FAULT, "swallows")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_rows, "order_lane", lambda key: ("order", f"{key} {NOW}"))


@planted("an action's lane is free before its answer", NO_FAULT, "swallows")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lanes, "take", lambda self, lane: True)


def _prove_by_absence(monkeypatch: pytest.MonkeyPatch, of: Action) -> None:
    def absent_is_done(action: Action, history: Any, order: Any, seen: int | None, **more: Any) -> Proof:
        return Proof.DONE if action == of and seen is None else real(action, history, order, seen, **more)

    real = retry.proof
    monkeypatch.setattr(retry, "proof", absent_is_done)


@planted("absence alone proves a complete", ON_ITS_WAY, "the order was never there")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    _prove_by_absence(monkeypatch, Action.COMPLETE)


@planted("absence alone proves an accept", ONE_ROW, "the order was never there")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    _prove_by_absence(monkeypatch, Action.ACCEPT)


@planted("any poll is a look, also one that began before the attempt had ended", ONE_ROW, "accept ends")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that was made before the accept shows 1, and comes in when its resend has been refused."""
    monkeypatch.setattr(Lanes, "hold_for_poll", lambda self, key, began: self.take(order_lane(key)))
    monkeypatch.setattr(lifecycle, "merge", _with(lifecycle.merge, status_counts=False))
    monkeypatch.setattr(books.ORDERS, "with_unresolved_rows", lambda books, keys: set(keys))


@planted("an action is sent again after a refusal", NO_FAULT, "sent again after a definite answer")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(action: Action, history: Any, **more: Any) -> Any:
        return RetryAt(NOW) if history[-1].outcome == Outcome.REFUSED else real(action, history, **more)

    real = retry.decide
    monkeypatch.setattr(outcome_writer, "decide", again)


@planted("a refusal after a lost answer is taken at its word", ONE_ROW, "and it was done")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "is_uncertain", lambda history: False)


@planted("a refusal after a 5xx is taken at its word", ONE_ROW, "and it was done")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "UNCERTAIN", frozenset({Outcome.UNKNOWN}))


@planted("a crash while sending is forgotten", Scene(rows=1, faults=0), STUCK)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbox, "_lost", lambda *_: [])


@planted("a crash while sending is no doubt", Scene(rows=1, faults=0), "and it was done")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_doubt(outcome: Outcome, code: str | None = None) -> Attempt:
        return Attempt(Outcome.RATE_LIMITED, code)

    monkeypatch.setattr(outcome_writer, "Attempt", no_doubt)


@planted("a done action does not write its status", ON_ITS_WAY, "in the end")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books.ORDERS, "set_status", books.nothing)


@planted("an action that is done already writes its status", Scene(crashes=0, status=IN_DELIVERY), "in the end")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(row: Any) -> Verdict | None:
        made = real(row)
        return replace(made, status_id=ACTIONS[row.action].target) if made and made.code == "already" else made

    real = outbox_rows.order_end
    monkeypatch.setattr(queue, "order_end", writes)


def _forget_the_other_end(monkeypatch: pytest.MonkeyPatch, of: Action) -> None:
    def alone(action: Action, *args: Any, **given: Any) -> Proof:
        return real(action, *args, **given | ({"other_end": False} if action == of else {}))

    real = retry.proof
    monkeypatch.setattr(retry, "proof", alone)


@planted("a cancel of ours leaves a complete provable", TWO_ENDS, "complete ends done")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_the_other_end(monkeypatch, Action.COMPLETE)


@planted("a complete of ours leaves a cancel provable", TWO_ENDS, "cancel ends done")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_the_other_end(monkeypatch, Action.CANCEL)


@planted(
    "a retried row can be withdrawn, or expires",
    ONE_ROW._replace(expiries=1, retries=1, withdrawals=1),
    "and it was done",
)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_waiting = {(Standing.RETRIED, cause): outbox_rows.ENDS[Standing.WAITING, cause] for cause in Cause}
    monkeypatch.setattr(outbox_rows, "ENDS", {**outbox_rows.ENDS, **as_if_waiting})


@planted("a row's end is not written", NO_FAULT, STUCK)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books.ACTIONS, "finish", books.nothing)


@planted("another status is taken for an unchanged order", NO_FAULT._replace(others=1), "swallows")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "is_unchanged", lambda stored, document: True)


def _with(rule: Callable[..., Any], **forced: Any) -> Callable[..., Any]:
    return lambda *args, **given: rule(*args, **given | forced)


@pytest.mark.parametrize("plant, scene, finds", PLANTS.values(), ids=PLANTS)
def test_the_model_finds_what_a_guard_is_there_for(plant: Plant, scene: Scene, finds: str, monkeypatch) -> None:
    machine = Machine(scene, monkeypatch)
    plant(monkeypatch)
    found = explore(machine, kinds=20 if scene.others or scene.late else 1)
    assert any(finds in words for words in found.wrong), found.report() or f"nothing in {found.states} states"
