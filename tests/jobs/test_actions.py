"""Each row of the table of actions matches the database tables, the service, the commands and the sentences.

What these tests know of an action they know from the table; so a new row is tried by all of them, or fails them.
"""

from datetime import UTC, datetime
from typing import Any

import click
import pytest
from tests.jobs.shop import KADIKOY, Shop

from orderbridge import texts
from orderbridge.actions import ACTIONS, ActionKind, Evidence, Subject
from orderbridge.cli.main import program
from orderbridge.model import Action, Attempt, Outcome, Verdict
from orderbridge.rules.retry import MAX_RESENDS, RetryPolicy, decide

FOOD = 1005

every_action = pytest.mark.parametrize("action", Action)
with_argument = pytest.mark.parametrize("action", [one for one, kind in ACTIONS.items() if kind.argument is not None])


def columns_of(kind: ActionKind, key: str = "") -> dict[str, Any]:
    """What a POS writes beside the action; `key`: of its order."""
    named = {Subject.ORDER: key, Subject.RESTAURANT: KADIKOY, Subject.FOOD: FOOD}[kind.subject]
    argument = {} if kind.argument is None else {kind.argument.column: kind.argument.least}
    return {kind.subject.column: named} | argument


async def due(shop: Shop, action: Action) -> str:
    """An order in a status from which the action leads on; its key."""
    undone = ACTIONS[action].proves_undone
    return (await shop.taken_in(status_id=min(undone) if undone else 1)).key


@pytest.mark.interface("Cancel reason", "Endpoints 11")
@with_argument
async def test_its_argument_is_in_the_body_of_its_call(shop: Shop, action: Action):
    argument = ACTIONS[action].argument
    row = shop.act(action, **columns_of(ACTIONS[action], await due(shop, action)) | {argument.column: argument.most})
    await shop.drain()
    assert shop.end(row) == ("done", None, "answer")
    (call,) = shop.calls(action)
    assert call.body == {argument.column: argument.most}


@every_action
def test_each_end_that_it_can_come_to_is_told_in_both_languages(action: Action):
    now, policy = datetime(2026, 3, 4, tzinfo=UTC), RetryPolicy((2, 10, 60), 30, 0)
    for outcome in Outcome:
        for times in range(1, MAX_RESENDS + 2):
            made = decide(action, [Attempt(outcome, "order_not_found")] * times, now=now, policy=policy, retry_at=now)
            if isinstance(made, Verdict) and made.code is not None:
                said = {texts.text(made.code, language, state=made.state) for language in texts.LANGUAGES}
                assert len(said) == len(texts.LANGUAGES)
                assert not any(f"({made.code})" in one for one in said), "the general sentence"


@every_action
def test_it_has_a_command(action: Action):
    name, _, word = ACTIONS[action].command.partition(" ")
    command = program.get_command(click.Context(program), name)
    assert name in program.list_commands(click.Context(program))
    offered = {choice for one in command.params if one.name == "what" for choice in one.type.choices}
    assert not word or word in offered
    assert command.help


# ---- a row that contradicts itself -----------------------------------------------------------------------------------

SOUND = ACTIONS[Action.ON_THE_WAY]


@pytest.mark.parametrize(
    "wrong",
    [
        {"proves_done": frozenset()},
        {"proves_done": frozenset({2})},
        {"target": None},
        {"subject": Subject.FOOD},
        {"evidence": Evidence.MENU},
        {"evidence": Evidence.STATUS},
        {"priority": 3},
        {"target_shown": "Open"},
    ],
    ids=str,
)
def test_a_row_that_contradicts_itself_does_not_even_load(wrong: dict[str, Any]):
    facts = {name: getattr(SOUND, name) for name in ActionKind.__dataclass_fields__}
    assert ActionKind(**facts) == SOUND
    with pytest.raises(TypeError, match="/orders/ontheway"):
        ActionKind(**facts | wrong)
