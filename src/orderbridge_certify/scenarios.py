"""The scenarios, in one table: what is played, and by what it is judged. The words are in sentences/certify.toml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orderbridge_certify import judging, plays, printing, races
from orderbridge_certify.judging import asked_for, carried_out, noted, taken_over, told, when_taken
from orderbridge_certify.seen import Judge, Row
from orderbridge_certify.stage import Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of them: its name, how it is played, and its criteria by name."""

    name: str
    play: Callable[[Stage], None]
    criteria: Mapping[str, Judge]


FIRST: Final = "takes_over"
"""A till that fails here can show nothing else."""

ON_THE_WAY = {
    "one_on_the_way": when_taken(asked_for("on_the_way")),
    "on_the_way_sent": when_taken(carried_out("on_the_way")),
}
TAKEN = {"taken_over": taken_over}
ACCEPTED = {"accept_sent": when_taken(carried_out("accept"))}
PRINTED = {
    "each_printed": when_taken(judging.none_of_them("unprinted")),
    "copies_marked": when_taken(judging.none_of_them("unmarked_copies")),
}
NOT_ON_THE_WAY = {"no_on_the_way": when_taken(judging.none_of("on_the_way"))}


def _is_that_reason(row: Row) -> bool:
    return row.reason_id == plays.ADDRESS_NOT_FOUND


def _is_that_food(row: Row) -> bool:
    return row.food_id == plays.FOOD


SCENARIOS = (
    Scenario(FIRST, plays.take_over, TAKEN),
    Scenario(
        "one_after_the_other",
        plays.three,
        {"in_order": when_taken(judging.in_order), "taken_once": when_taken(judging.taken_once)},
    ),
    Scenario("reference", plays.take_over, {"has_reference": when_taken(judging.has_reference)}),
    Scenario(
        "accept",
        plays.accept,
        {
            "one_accept": when_taken(asked_for("accept")),
            **ACCEPTED,
            "preparing_time": when_taken(judging.arguments("accept", judging.preparing_time_fits)),
        },
    ),
    Scenario("on_the_way", plays.on_the_way, ON_THE_WAY),
    Scenario(
        "complete",
        plays.complete,
        {"one_complete": when_taken(asked_for("complete")), "complete_sent": when_taken(carried_out("complete"))},
    ),
    Scenario(
        "cancel",
        plays.cancel,
        {
            "one_cancel": when_taken(asked_for("cancel")),
            "cancel_sent": when_taken(carried_out("cancel")),
            "reason": when_taken(judging.arguments("cancel", _is_that_reason)),
        },
    ),
    Scenario(
        "cancelled_before",
        plays.cancelled_before,
        {"never_taken": judging.never_taken, "never_accepted": judging.none_of("accept")},
    ),
    Scenario(
        "cancelled_after",
        plays.cancelled_after,
        {
            "cancellation_noted": when_taken(noted("changed", "changed_limit")),
            "nothing_afterwards": when_taken(judging.none_after("changed")),
            "kitchen_told": when_taken(told("ticket")),
        },
    ),
    Scenario(
        "contents",
        plays.contents_changed,
        {
            "contents_noted": when_taken(noted("changed", "changed_limit")),
            "ticket_again": when_taken(told("ticket")),
        },
    ),
    Scenario("revision_read", races.revision_read, {"revision_that_was_read": when_taken(judging.revision_read)}),
    Scenario("scheduled", plays.scheduled, {**TAKEN, "ticket_time": when_taken(told("ticket"))}),
    Scenario("pickup", plays.pickup, {**ACCEPTED, **NOT_ON_THE_WAY}),
    Scenario("platform_courier", plays.platform_courier, {**ACCEPTED, **NOT_ON_THE_WAY}),
    Scenario("unknown_payment", plays.unknown_payment, {"asks_what_to_collect": when_taken(told("collect"))}),
    Scenario(
        "prepaid",
        plays.prepaid,
        {"collects_nothing": when_taken(told("collect")), "books_total": when_taken(judging.books_total)},
    ),
    Scenario("problem", plays.problem, {**TAKEN, "ticket_problem": when_taken(told("ticket"))}),
    Scenario("refused", plays.refused, {"no_endless_rows": when_taken(asked_for("accept", most=2))}),
    Scenario("double_click", plays.doubled, ON_THE_WAY),
    Scenario("line_dead", plays.line_dead, ON_THE_WAY),
    Scenario("withdrawn", plays.withdrawn, {"taken_back": when_taken(judging.taken_back)}),
    Scenario("restarted", plays.restarted, {**TAKEN, "taken_once": when_taken(judging.taken_once)}),
    Scenario("daemon_dead", plays.daemon_dead, {**TAKEN, **ON_THE_WAY}),
    Scenario("forty", plays.forty, {**TAKEN, "taken_once": when_taken(judging.taken_once)}),
    Scenario("letters", plays.letters, {**TAKEN, "ticket_note": when_taken(told("ticket"))}),
    Scenario("long_note", plays.long_note, {**TAKEN, "ticket_long": when_taken(told("ticket"))}),
    Scenario(
        "others_write", races.others_write, {"taken_all_the_same": taken_over, "waits_its_turn": judging.waits_its_turn}
    ),
    Scenario("lock", races.lock, {"short_lock": when_taken(judging.short_lock)}),
    Scenario(
        "sold_out",
        plays.sold_out,
        {
            "one_food_off": asked_for("deactivate_food"),
            "food_off_sent": carried_out("deactivate_food"),
            "one_food_on": asked_for("activate_food"),
            "food_on_sent": carried_out("activate_food"),
            "that_food": judging.arguments("deactivate_food", _is_that_food),
        },
    ),
    Scenario(
        "closed",
        plays.closed,
        {
            "one_close": asked_for("close_restaurant"),
            "close_sent": carried_out("close_restaurant"),
            "one_open": asked_for("open_restaurant"),
            "open_sent": carried_out("open_restaurant"),
        },
    ),
    Scenario(
        "killed_at_printer",
        printing.killed,
        {**PRINTED, "stop_printed": when_taken(judging.none_of_them("unstopped"))},
    ),
    Scenario("two_tills", printing.two_at_once, PRINTED),
    Scenario(
        "its_own",
        plays.all_that_was_written,
        {"own_columns": judging.own_columns, "deletes_nothing": judging.deletes_nothing},
    ),
)
