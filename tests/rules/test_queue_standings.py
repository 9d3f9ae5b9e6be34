"""Held rows (rules.outbox_rows, rules.queue): which come back, and which nothing else may touch meanwhile."""

from collections import Counter

from tests.rules.builders import NOW, directory, row, unresolved, view

from orderbridge.model import Action, ActionState
from orderbridge.rules.outbox_rows import Standing
from orderbridge.rules.queue import Queue


def a_queue() -> Queue:
    return Queue(view(directory=directory("kadikoy")))


def standing(queue: Queue, row_id: int) -> Standing:
    entry = queue.get(row_id)
    assert entry is not None
    return entry.standing


def taken(queue: Queue) -> list[int]:
    queue.ends()
    return [entry.row.id for entry in queue.accounts.take(9, Counter(), 9, lambda _: True, lambda _: True)]


def test_what_the_table_says_of_a_row_that_nobody_has() -> None:
    queue = a_queue()
    queue.put(row(Action.ACCEPT, 1, owner="kadikoy"))
    queue.put(unresolved(Action.OPEN_RESTAURANT, 2, account="kadikoy", next_attempt_utc=NOW))
    assert (standing(queue, 1), standing(queue, 2)) == (Standing.WAITING, Standing.UNRESOLVED)
    assert queue.unresolved == {2}


def test_a_row_that_is_taken_is_on_the_wire_until_it_is_given_back() -> None:
    queue = a_queue()
    queue.put(row(Action.ACCEPT, 1, owner="kadikoy"))
    assert (taken(queue), queue.on_wire(), taken(queue)) == ([1], {1}, [])
    queue.give_back(1, state=ActionState.SENDING, tried=True)
    assert (standing(queue, 1), queue.on_wire(), queue.unresolved) == (Standing.UNRESOLVED, frozenset(), {1})


def test_a_row_that_was_put_aside_comes_back_at_its_time() -> None:
    queue = a_queue()
    queue.put(row(Action.ACCEPT, 1, owner="kadikoy"))
    queue.put_aside(1, 5.0)
    assert (taken(queue), queue.back_at()) == ([], 5.0)
    assert queue.come_back(4.9) == []
    assert (queue.come_back(5.0), taken(queue)) == ([1], [1])


def test_a_row_that_was_put_aside_before_it_was_put_in_anew_is_not_taken_off_the_wire() -> None:
    queue = a_queue()
    one = row(Action.ACCEPT, 1, owner="kadikoy")
    queue.put(one)
    queue.put_aside(1, 5.0)
    queue.drop(1)
    queue.put(one)
    assert taken(queue) == [1]
    queue.come_back(6.0)
    assert standing(queue, 1) is Standing.ON_THE_WIRE


def test_an_end_that_is_put_aside_stays_one_and_supersedes_nothing() -> None:
    queue = a_queue()
    queue.put(row(Action.ACCEPT, 1, owner="kadikoy"))
    queue.put(row(Action.CANCEL, 2, owner="kadikoy", withdraw=True))
    assert [ended.id for ended, _ in queue.ends()] == [2]
    queue.put_aside(2, 5.0)
    assert (standing(queue, 2), queue.ends(), taken(queue)) == (Standing.ENDING, [], [1])
    queue.come_back(5.0)
    assert [ended.id for ended, _ in queue.ends()] == [2]
