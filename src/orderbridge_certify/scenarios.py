"""The table of scenarios with their plays and criteria. Their texts are in sentences/certify.toml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orderbridge_certify import judging, plays, printing
from orderbridge_certify.driver import Driver
from orderbridge_certify.judging import arguments, asked_for, carried_out, noted, shown_right, taken_over
from orderbridge_certify.seen import ACTIONS, Judge, Judged, Seen


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: its name, its play, and its criteria by name."""

    name: str
    play: Callable[[Driver], object]
    # Judged only if the orders were taken over; otherwise the till could do nothing, and `takes_over` reports it.
    criteria: Mapping[str, Judge] = field(default_factory=dict)
    always: Mapping[str, Judge] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all criteria."""
        return (*self.always, *self.criteria)

    def judged(self, seen: Seen) -> dict[str, Judged]:
        """The verdicts by criterion."""
        found = {name: judge(seen) for name, judge in self.always.items()}
        if any(order.taken_s is None for order in seen.orders):
            return found | dict.fromkeys(self.criteria, judging.not_seen("not_taken"))
        return found | {name: judge(seen) for name, judge in self.criteria.items()}


def _asked(verb: str) -> dict[str, Judge]:
    """The criteria that an action was requested once, and is done."""
    return {f"one_{verb}": asked_for(verb), f"{verb}_sent": carried_out(ACTIONS.get(verb, verb))}


FIRST: Final = "takes_over"  # if a till fails this one, no other can be judged

TAKEN = {"taken_over": taken_over}
TAKEN_ONCE = {"taken_once": judging.taken_once}
TICKET, COLLECT = shown_right("ticket"), shown_right("collect")
CHANGE_NOTED = noted("changed", "changed_limit")
NOT_BY_US = {"accept_sent": carried_out("accept"), "no_on_the_way": judging.none_of("on_the_way")}
PREPARING_TIME = {"preparing_time": arguments("accept", lambda row: row.preparing_time in judging.PREPARING_TIME)}
REASON = {"reason": arguments("cancel", lambda row: row.reason_id == plays.ADDRESS_NOT_FOUND)}
THAT_FOOD = {"that_food": arguments("deactivate_food", lambda row: row.food_id == plays.FOOD)}
AFTER_CANCELLATION = {
    "cancellation_noted": CHANGE_NOTED,
    "nothing_afterwards": judging.none_after("changed"),
    "kitchen_told": TICKET,
}
PRINTED = {
    "each_printed": judging.none_of_them("unprinted"),
    "copies_marked": judging.none_of_them("unmarked_copies"),
}
NOT_TAKEN = {"never_taken": judging.never_taken, "never_accepted": judging.none_of("accept")}
OTHERS_WRITE = {"taken_all_the_same": taken_over, "waits_its_turn": judging.waits_its_turn}
ITS_OWN = {"own_columns": judging.own_columns, "deletes_nothing": judging.deletes_nothing}

SCENARIOS = (
    Scenario(FIRST, plays.take_over, always=TAKEN),
    Scenario("one_after_the_other", plays.three, {"in_order": judging.in_order, **TAKEN_ONCE}),
    Scenario("reference", plays.take_over, {"has_reference": judging.has_reference}),
    Scenario("accept", plays.accepted, _asked("accept") | PREPARING_TIME),
    Scenario("on_the_way", plays.on_the_way, _asked("on_the_way")),
    Scenario("complete", plays.complete, _asked("complete")),
    Scenario("cancel", plays.cancel, _asked("cancel") | REASON),
    Scenario("cancelled_before", plays.cancelled_before, always=NOT_TAKEN),
    Scenario("cancelled_after", plays.cancelled_after, AFTER_CANCELLATION),
    Scenario("contents", plays.contents_changed, {"contents_noted": CHANGE_NOTED, "ticket_again": TICKET}),
    Scenario("revision_read", plays.revision_read, {"revision_that_was_read": judging.revision_read}),
    Scenario("scheduled", plays.scheduled, {"ticket_time": TICKET}, always=TAKEN),
    Scenario("pickup", plays.pickup, NOT_BY_US),
    Scenario("platform_courier", plays.platform_courier, NOT_BY_US),
    Scenario("unknown_payment", plays.unknown_payment, {"asks_what_to_collect": COLLECT}),
    Scenario("prepaid", plays.prepaid, {"collects_nothing": COLLECT, "books_total": judging.books_total}),
    Scenario("problem", plays.problem, {"ticket_problem": TICKET}, always=TAKEN),
    Scenario("refused", plays.refused, {"no_endless_rows": asked_for("accept", most=2)}),
    Scenario("double_click", plays.doubled, _asked("on_the_way")),
    Scenario("line_dead", plays.line_dead, _asked("on_the_way")),
    Scenario("withdrawn", plays.withdrawn, {"taken_back": judging.taken_back}),
    Scenario("restarted", plays.restarted, TAKEN_ONCE, always=TAKEN),
    Scenario("daemon_dead", plays.daemon_dead, _asked("on_the_way"), always=TAKEN),
    Scenario("forty", plays.forty, TAKEN_ONCE, always=TAKEN),
    Scenario("letters", plays.letters, {"ticket_note": TICKET}, always=TAKEN),
    Scenario("long_note", plays.long_note, {"ticket_long": TICKET}, always=TAKEN),
    Scenario("others_write", plays.others_write, always=OTHERS_WRITE),
    Scenario("lock", plays.lock, {"short_lock": judging.short_lock}),
    Scenario("sold_out", plays.sold_out, _asked("food_off") | _asked("food_on") | THAT_FOOD),
    Scenario("closed", plays.closed, _asked("close") | _asked("open")),
    Scenario("killed_at_printer", printing.killed, PRINTED | {"stop_printed": judging.none_of_them("unstopped")}),
    Scenario("two_tills", printing.two_at_once, PRINTED),
    Scenario("its_own", plays.all_that_was_written, always=ITS_OWN),
)
