"""The scenarios, in one table: what is played, and by what it is judged. The words are in sentences.toml, `certify`."""

from collections.abc import Callable
from dataclasses import dataclass

from orderbridge.certify import judging
from orderbridge.certify.judging import asked_for, carried_out, when_taken
from orderbridge.certify.seen import Judge, Row
from orderbridge.certify.stage import Stage

FIRST = "takes_over"
"""A till that fails here can show nothing else."""
ADDRESS_NOT_FOUND = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of them: its name, how it is played, and its criteria by name."""

    name: str
    play: Callable[[Stage], None]
    criteria: dict[str, Judge]


def _take_over(stage: Stage) -> None:
    stage.order()
    stage.until_taken()


def _three(stage: Stage) -> None:
    for _ in range(3):
        stage.order()
        stage.until_visible()
    stage.until_taken()


def _accepted(stage: Stage, **changes: object) -> str:
    letter = stage.order(**changes)
    if stage.until_taken():
        stage.accept(letter)
    return letter


def _on_the_way(stage: Stage) -> str:
    letter = _accepted(stage)
    stage.act("on_the_way", letter)
    return letter


def _complete(stage: Stage) -> None:
    stage.act("complete", _on_the_way(stage))


def _cancel(stage: Stage) -> None:
    stage.act("cancel", _accepted(stage), str(ADDRESS_NOT_FOUND))


def _is_that_reason(row: Row) -> bool:
    return row.reason_id == ADDRESS_NOT_FOUND


SCENARIOS = (
    Scenario(FIRST, _take_over, {"taken_over": judging.taken_over}),
    Scenario(
        "one_after_the_other",
        _three,
        {"in_order": when_taken(judging.in_order), "taken_once": when_taken(judging.taken_once)},
    ),
    Scenario("reference", _take_over, {"has_reference": when_taken(judging.has_reference)}),
    Scenario(
        "accept",
        lambda stage: void(_accepted(stage)),
        {
            "one_accept": when_taken(asked_for("accept")),
            "accept_sent": when_taken(carried_out("accept")),
            "preparing_time": when_taken(judging.arguments("accept", judging.preparing_time_fits)),
        },
    ),
    Scenario(
        "on_the_way",
        lambda stage: void(_on_the_way(stage)),
        {
            "one_on_the_way": when_taken(asked_for("on_the_way")),
            "on_the_way_sent": when_taken(carried_out("on_the_way")),
        },
    ),
    Scenario(
        "complete",
        _complete,
        {"one_complete": when_taken(asked_for("complete")), "complete_sent": when_taken(carried_out("complete"))},
    ),
    Scenario(
        "cancel",
        _cancel,
        {
            "one_cancel": when_taken(asked_for("cancel")),
            "cancel_sent": when_taken(carried_out("cancel")),
            "reason": when_taken(judging.arguments("cancel", _is_that_reason)),
        },
    ),
)


def void(_: object) -> None:
    """Of a play that gives a letter."""
