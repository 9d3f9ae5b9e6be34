"""The table of actions: each action has a row, and no row contradicts itself or the tables."""

from dataclasses import fields

import pytest

from orderbridge.actions import ACTIONS, Evidence, Subject
from orderbridge.model import Action, OutboxRow
from orderbridge.store.tables import ASKED

BY_POLL = {Evidence.POLL, Evidence.REFUSAL}
EVIDENCE = {Subject.ORDER: BY_POLL, Subject.RESTAURANT: {Evidence.STATUS}, Subject.FOOD: {Evidence.MENU}}


@pytest.mark.parametrize("action", Action)
def test_what_shows_the_effect_of_an_action_shows_its_target(action: Action) -> None:
    kind = ACTIONS[action]
    is_of_order = kind.subject is Subject.ORDER
    assert kind.evidence in EVIDENCE[kind.subject]
    assert (kind.target is not None) == (kind.target in kind.proves_done) == bool(kind.proves_done) == is_of_order
    assert (kind.target_shown is None) == is_of_order
    assert kind.priority in {0, 1, 2}


@pytest.mark.parametrize("argument", [kind.argument for kind in ACTIONS.values() if kind.argument is not None])
def test_a_pos_fills_in_an_argument_and_the_daemon_reads_it(argument) -> None:
    assert argument.column in ASKED
    assert argument.column in {field.name for field in fields(OutboxRow)}
