"""States and transitions."""

from tests.interface.rule import (
    MENU,
    MOVES,
    MUTILATED,
    POLL,
    QUEUE,
    STATUS_IDS,
    VERDICTS,
    Rule,
    a_day,
    switched,
)

STATUSES = [
    *(
        Rule(
            f"status-{number}",
            f"Order statuses / {word} is {number}",
            STATUS_IDS + f"test_a_status_has_its_word[{number}-{word}]",
            QUEUE + f"test_active_orders_are_listed_and_completed_ones_are_not[{listed}]",
        )
        for number, word, listed in (
            (1, "RECEIVED", "received"),
            (2, "CONFIRMED", "confirmed"),
            (5, "COMPLETE_WITH_PAYMENT", "complete"),
            (6, "CANCELED", "cancelled"),
        )
    ),
    Rule(
        "status-16",
        "Order statuses / IN_DELIVERY is 16, with its text",
        POLL + "test_the_status_is_told_in_the_services_own_words",
        QUEUE + "test_a_change_of_status_brings_an_acknowledged_order_back",
    ),
    Rule(
        "status-needs-payment",
        "Order statuses / the id of COMPLETE_NEEDS_PAYMENT: not shown",
        a_day("needs payment is 17"),
        MOVES + "test_the_id_of_needs_payment_can_be_chosen",
    ),
    Rule(
        "status-needs-payment-unconfigured",
        "Order statuses / the id of COMPLETE_NEEDS_PAYMENT: not shown, and nobody told us",
        a_day("needs payment is not configured"),
        MOVES + "test_the_id_of_needs_payment_can_be_chosen",
    ),
    Rule(
        "status-needs-payment-wrong",
        "Order statuses / the id of COMPLETE_NEEDS_PAYMENT: not shown, and we were told another",
        a_day("needs payment is configured wrongly"),
        MOVES + "test_the_id_of_needs_payment_can_be_chosen",
    ),
    Rule(
        "status-others",
        "Order statuses / ids other than those in the table: not shown",
        MUTILATED + "test_an_unknown_status_is_kept_acknowledged_and_no_end[99]",
        QUEUE + "test_active_orders_are_listed_and_completed_ones_are_not[unknown]",
    ),
]

TRANSITIONS = [
    Rule(
        "move-accept",
        "Order transitions / RECEIVED, accept: CONFIRMED",
        VERDICTS + "test_a_done_action_writes_its_status_with_the_verdict[accept]",
        MOVES + "test_the_moves_are_those_of_the_specification[accept in 1]",
    ),
    Rule(
        "move-accept-time",
        "Order transitions / accept: the body has preparing_time",
        VERDICTS + "test_the_arguments_are_the_ones_of_the_row",
        MOVES + "test_accepting_needs_a_positive_integer[{}]",
    ),
    Rule(
        "move-accept-history",
        "Order transitions / accept: history updated, preparation time passed on to the customer",
        VERDICTS + "test_the_arguments_are_the_ones_of_the_row",
        MOVES + "test_accepting_keeps_the_preparation_time_and_the_history",
    ),
    Rule(
        "move-on-the-way",
        "Order transitions / CONFIRMED, ontheway: IN_DELIVERY, the customer is notified",
        VERDICTS + "test_a_done_action_writes_its_status_with_the_verdict[on_the_way]",
        MOVES + "test_the_moves_are_those_of_the_specification[on_the_way in 2]",
    ),
    Rule(
        "move-on-the-way-platform",
        "Order transitions / ontheway: only for courier_type restaurant, so not for the platform's",
        VERDICTS + "test_what_can_never_be_right_is_refused_unsent[platform courier]",
        MOVES + "test_only_the_restaurants_own_couriers_are_marked_on_the_way[platform_courier]",
    ),
    Rule(
        "move-on-the-way-pickup",
        "Order transitions / ontheway: only for courier_type restaurant, so not for come_get",
        VERDICTS + "test_what_can_never_be_right_is_refused_unsent[pickup]",
        MOVES + "test_only_the_restaurants_own_couriers_are_marked_on_the_way[come_get]",
    ),
    Rule(
        "move-complete",
        "Order transitions / IN_DELIVERY, complete: COMPLETE_WITH_PAYMENT",
        VERDICTS + "test_a_done_action_writes_its_status_with_the_verdict[complete]",
        MOVES + "test_the_moves_are_those_of_the_specification[complete in 16]",
    ),
    Rule(
        "move-complete-cash",
        "Order transitions / complete: any payment type, cash orders too",
        VERDICTS + "test_an_order_is_completed_however_it_is_paid[Nakit]",
        MOVES + "test_every_payment_type_ends_in_complete_with_payment[Nakit]",
    ),
    *(
        Rule(
            f"move-cancel-{number}",
            f"Order transitions / cancel: from {word}, CANCELED",
            VERDICTS + f"test_an_order_can_be_cancelled_in_any_status_that_is_no_end[7-{number}]",
            MOVES + f"test_the_moves_are_those_of_the_specification[cancel in {number}]",
        )
        for number, word in {
            1: "RECEIVED",
            2: "CONFIRMED",
            16: "IN_DELIVERY",
            7: "COMPLETE_NEEDS_PAYMENT",
            42: "any other status",
        }.items()
    ),
    Rule(
        "move-cancel-completed",
        "Order transitions / cancel: not from COMPLETE_WITH_PAYMENT",
        VERDICTS + "test_what_can_never_be_right_is_refused_unsent[completed]",
        MOVES + "test_the_moves_are_those_of_the_specification[cancel in 5]",
    ),
    Rule(
        "move-cancel-cancelled",
        "Order transitions / cancel: not from CANCELED",
        VERDICTS + "test_what_the_service_has_already_shown_is_done_unsent",
        MOVES + "test_the_moves_are_those_of_the_specification[cancel in 6]",
    ),
    Rule(
        "move-cancel-reason",
        "Order transitions / cancel: reason_id 1 to 8",
        VERDICTS + "test_each_reason_of_the_service_cancels[8]",
        MOVES + "test_cancelling_needs_a_reason_from_1_to_8[{'reason_id': 9}-Invalid reason_id]",
    ),
    Rule(
        "move-needs-payment",
        "Order transitions / moves into COMPLETE_NEEDS_PAYMENT: not shown",
        a_day("needs payment is 7"),
        QUEUE + "test_an_order_can_be_moved_to_a_status_that_has_no_row[7]",
    ),
    Rule(
        "move-out-of-turn-refused",
        "Order transitions / an operation on an order of another status: not shown, it may be refused",
        a_day("out of turn is a no under 409"),
        MOVES + "test_a_move_that_is_not_allowed_can_be_answered_in_other_ways[409-complete in 1]",
    ),
    Rule(
        "move-out-of-turn-ok",
        "Order transitions / an operation on an order of another status: not shown, it may be OK",
        a_day("out of turn is OK without effect"),
        MOVES + "test_a_move_that_is_not_allowed_can_be_answered_in_other_ways[OK without effect-complete in 1]",
    ),
    Rule(
        "move-out-of-turn-unknown",
        "Order transitions / an operation on an order of another status: not shown, it may be not found",
        a_day("out of turn is not found"),
        MOVES + "test_a_move_that_is_not_allowed_can_be_answered_in_other_ways[as unknown-complete in 1]",
    ),
]

ACKNOWLEDGEMENT = [
    *(
        Rule(
            f"active-{number}",
            f"Acknowledgement / 1: {word} is active and returned",
            STATUS_IDS + "test_active_is_what_the_service_counts_as_such",
            QUEUE + f"test_active_orders_are_listed_and_completed_ones_are_not[{listed}]",
        )
        for number, word, listed in (
            (1, "RECEIVED", "received"),
            (2, "CONFIRMED", "confirmed"),
            (16, "IN_DELIVERY", "in delivery"),
            ("needs-payment", "COMPLETE_NEEDS_PAYMENT", "complete, needs payment"),
        )
    ),
    Rule(
        "repeats-until-acknowledged",
        "Acknowledgement / 1: on every call, until it is acknowledged",
        POLL + "test_an_acknowledgement_is_sent_once_and_the_next_poll_delivers_again",
        QUEUE + "test_an_order_repeats_until_it_is_acknowledged",
    ),
    Rule(
        "silent-after-acknowledgement",
        "Acknowledgement / 2: not returned again while its status stays the same",
        POLL + "test_an_acknowledged_order_stays_away_until_its_status_changes",
        QUEUE + "test_writing_the_same_status_again_is_no_change",
    ),
    Rule(
        "returns-after-a-change",
        "Acknowledgement / 3: returned again with a new status, and acknowledged again",
        POLL + "test_an_acknowledged_order_stays_away_until_its_status_changes",
        QUEUE + "test_a_change_of_status_brings_an_acknowledged_order_back",
    ),
    Rule(
        "completed-not-returned",
        "Acknowledgement / 4: completed orders are not returned",
        VERDICTS + "test_an_absent_order_does_not_prove_a_complete",
        QUEUE + "test_active_orders_are_listed_and_completed_ones_are_not[complete]",
    ),
    Rule(
        "cancelled-returned",
        "Acknowledgement / whether cancelled orders are returned: not shown, they may be",
        switched("cancelled_are_delivered", value=True),
        QUEUE + "test_active_orders_are_listed_and_completed_ones_are_not[cancelled]",
    ),
    Rule(
        "cancelled-not-returned",
        "Acknowledgement / whether cancelled orders are returned: not shown, they may not be",
        switched("cancelled_are_delivered", value=False),
        QUEUE + "test_cancelled_orders_can_be_hidden",
    ),
]

RESTAURANTS = [
    Rule(
        "restaurant-opens",
        "Restaurant status / open: Open, from Open or Closed",
        VERDICTS + "test_a_restaurants_status_is_known_after_our_change[open_restaurant-Open]",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
    Rule(
        "restaurant-closes",
        "Restaurant status / close: Closed, from Open or Closed",
        VERDICTS + "test_a_restaurants_status_is_known_after_our_change[close_restaurant-Closed]",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
    Rule(
        "closed-takes-none",
        "Restaurant status / while Closed, customers cannot place new orders",
        VERDICTS + "test_each_action_is_carried_out[close_restaurant]",
        MENU + "test_a_closed_restaurant_takes_no_new_orders_but_goes_on_with_old_ones",
    ),
    Rule(
        "closed-goes-on",
        "Restaurant status / orders already placed continue to be processed",
        VERDICTS + "test_a_closed_restaurant_goes_on_with_its_orders",
        MENU + "test_a_closed_restaurant_takes_no_new_orders_but_goes_on_with_old_ones",
    ),
    Rule(
        "open-takes-orders",
        "Restaurant status / while Open, new orders appear in get-current",
        POLL + "test_an_order_comes_in_whole",
        MENU + "test_random_orders_go_to_open_restaurants_only",
    ),
]

FOODS = [
    Rule(
        "food-off",
        "Menu item status / passive: INACTIVE, it cannot be ordered",
        VERDICTS + "test_each_action_is_carried_out[deactivate_food]",
        MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it",
    ),
    Rule(
        "food-off-old-orders",
        "Menu item status / passive: orders already placed are unaffected",
        VERDICTS + "test_an_inactive_food_leaves_the_orders_alone_that_have_it",
        MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it",
    ),
    Rule(
        "food-on",
        "Menu item status / active: ACTIVE, orderable immediately",
        VERDICTS + "test_each_action_is_carried_out[activate_food]",
        MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it",
    ),
]

RULES = [*STATUSES, *TRANSITIONS, *ACKNOWLEDGEMENT, *RESTAURANTS, *FOODS]
