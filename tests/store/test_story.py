"""An order is found and told on every database."""

import pytest
from tests.store.samples import KEY, NOW_TEXT, OTHER, put, put_action, put_order

from orderbridge.store import overview


@pytest.mark.parametrize("wanted", [KEY, KEY.upper(), KEY[:8].upper(), "100001", "A-7"])
def test_an_order_is_found(wanted, database, pos):
    put_order(pos, KEY, order_number=100001, pos_reference="A-7")
    put_order(pos, OTHER, order_number=1000011, pos_reference="A-71")
    (found,) = database.read_now(lambda tx: overview.find(tx, wanted))
    assert found["payment_key"] == KEY


def test_one_number_may_mean_several_orders(database, pos):
    put_order(pos, KEY, order_number=7)
    put_order(pos, OTHER, pos_reference="7")
    assert {one["payment_key"] for one in database.read_now(lambda tx: overview.find(tx, "7"))} == {KEY, OTHER}
    assert database.read_now(lambda tx: overview.find(tx, "%")) == []


def test_the_story_has_the_attempts_of_its_own_actions(database, pos):
    put_order(pos, KEY)
    row, other = put_action(pos, payment_key=KEY), put_action(pos, "complete", payment_key=OTHER)
    for action_id, attempt in ((row, 1), (row, 2), (other, 1)):
        put(pos, "delivery_action_attempts", action_id=action_id, attempt=attempt, started_utc=NOW_TEXT)
    told = database.read_now(lambda tx: overview.tell(tx, KEY))
    assert [(one["action_id"], one["attempt"]) for one in told["attempts"]] == [(row, 1), (row, 2)]
    assert [one["id"] for one in told["actions"]] == [row]
